"""What can be done with each kind of snapshot: Flink's table of checkpoints and savepoints, cell by cell.

The third column is the checkpoint. There is no fourth, for unaligned ones: a checkpoint takes a finished epoch, and has no
rows on their way in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tidegate.checkpoint.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.metadata import CheckpointMetadata, MetadataTooNew, OperatorInfo, decode, encode
from tidegate.checkpoint.storage import open_storage
from tidegate.checkpoint.version_restore import RestoreOrder, restore
from tidegate.core.ids import AttemptId, EpochId, Term, Uid
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.changes import Changes
from tidegate.savepoint.compatibility import JobNow, Outcome, conversions, judge
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, Snapshot
from tidegate.savepoint.verify import verify
from tidegate.state.backends import backend_named
from tidegate.state.version import VersionId

SNAPSHOTS = [
    ("canonical savepoint", "rocksdb"),
    ("native savepoint", "hashmap"),
    ("native savepoint", "rocksdb"),
    ("checkpoint", "hashmap"),
    ("checkpoint", "rocksdb"),
]
"""What it is, and the backend of the job that it was taken of."""
USERS = {f"u{n}": n for n in range(40)}
TOTALS = Operator(
    "totals",
    ("string",),
    (value("total", int), mapping("seen", str, int), listing("last", str)),
    {"total": USERS, "seen": {"u1": {"a": 1, "b": 2}}, "last": {"u2": ["x", "y"]}},
)
NAMES = Operator("names", ("bigint",), (value("name", str),), {"name": {n: f"n{n}" for n in range(20)}}, level=2)
LEVELS = {Uid("totals"): 1, Uid("names"): 2}
Contents = dict[tuple[Any, ...], Any]


def expected() -> Contents:
    found: Contents = {("totals", "total", user, None, None): n for user, n in USERS.items()}
    found |= {("totals", "seen", "u1", key, None): n for key, n in (("a", 1), ("b", 2))}
    found |= {("totals", "last", "u2", None, n): text for n, text in enumerate(("x", "y"))}
    return found | {("names", "name", n, None, None): f"n{n}" for n in range(20)}


def contents(path: str) -> Contents:
    saved = tg.Savepoint.open(path)
    return {
        (e.uid, e.state, e.key, e.map_key, e.position): e.value
        for state in saved.states()
        for e in saved.state(state.uid, state.state).entries()
    }


def restored(
    snapshot: Snapshot, work: Path, backend: str = "hashmap", parallelism: int = 2, levels: dict[Uid, int] = LEVELS
) -> Contents:
    """What the tasks of a job hold that begins with the snapshot."""
    metadata, found = snapshot.metadata, {}
    old = {task.task: task for task in metadata.tasks}
    target = VersionId(EpochId(Term(9), 1), AttemptId(1))
    for plan in plan_restore(metadata, RestoreTarget(metadata.max_parallelism, parallelism, levels)):
        names = {*plan.sources, *(() if plan.as_is is None else (plan.as_is,))}
        order = RestoreOrder(plan, tuple(old[name] for name in sorted(names)), snapshot.root, None)
        engine, place = backend_named(backend), work / "restored" / str(plan.task)
        version = restore(snapshot.storage, place, order, engine, {}, target, CanonicalTask)
        store = engine.begin(place, version, VersionId(EpochId(Term(9), 2), AttemptId(1)), plan.key_groups)
        for operator, state in snapshot.states():
            layout = snapshot.layout(operator.uid, state.name)
            for group in (
                range(plan.key_groups[0], plan.key_groups[1] + 1) if levels[operator.uid] == plan.task.level else ()
            ):
                for e in layout.typed(store.scan(*layout.range_in(group))):
                    found[e.uid, e.state, e.key, e.map_key, e.position] = e.value
        store.abandon()
    return found


@pytest.fixture(params=SNAPSHOTS, ids=" by ".join)
def made(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def kind(made: tuple[str, str]) -> str:
    return made[0]


@pytest.fixture
def backend(made: tuple[str, str]) -> str:
    return made[1]


@pytest.fixture
def snapshot(kind: str, backend: str, tmp_path: Path) -> Snapshot:
    checkpoint = Snapshot.open(History(tmp_path, backend=backend).checkpoint(1, TOTALS, NAMES))
    if kind == "checkpoint":
        return checkpoint
    copy_snapshot(checkpoint, open_storage(tmp_path / "sp"), CANONICAL if kind.startswith("canonical") else NATIVE)
    shutil.rmtree(tmp_path / "ckpt")
    return Snapshot.open(tmp_path / "sp")


def rewritten(snapshot: Snapshot, change: Callable[[CheckpointMetadata], CheckpointMetadata]) -> Snapshot:
    """The same snapshot as if another tidegate had written it."""
    path = Path(snapshot.url) / "_metadata"
    data = encode(change(decode(path.read_bytes())))
    path.unlink()
    path.write_bytes(data)
    return Snapshot.open(snapshot.url)


@pytest.mark.feature("I25", "I26", "I27")
def test_the_state_backend_may_change(snapshot: Snapshot, backend: str, tmp_path: Path) -> None:
    """Flink: yes, no, no. Here also native files are read by the backend that wrote them, into any other."""
    other = "rocksdb" if backend == "hashmap" else "hashmap"
    assert restored(snapshot, tmp_path, other) == expected()


@pytest.mark.feature("I28")
def test_a_new_savepoint_may_be_written_from_it(snapshot: Snapshot, tmp_path: Path) -> None:
    """Flink: yes, no, no."""
    writer = tg.SavepointWriter.from_existing(tg.Savepoint.open(snapshot.url))
    written = writer.with_state("totals", "total", {"eve": 7}).remove("names").write(tmp_path / "new")
    kept = {key: held for key, held in expected().items() if key[:2] in (("totals", "seen"), ("totals", "last"))}
    assert contents(written.path) == kept | {("totals", "total", "eve", None, None): 7}


@pytest.mark.feature("I29")
def test_it_may_be_read(snapshot: Snapshot) -> None:
    """Flink: yes, works, works."""
    assert contents(snapshot.url) == expected()


@pytest.mark.feature("I30")
def test_a_savepoint_may_be_moved_and_a_checkpoint_only_with_its_job(
    kind: str, snapshot: Snapshot, tmp_path: Path
) -> None:
    """Flink: yes, yes, no."""
    moved = tmp_path / "else" / "where"
    shutil.copytree(snapshot.url, moved)
    shutil.move(snapshot.url, tmp_path / "gone")
    if kind == "checkpoint":
        assert any("is missing" in problem.what for problem in verify(Snapshot.open(moved)))
        shutil.copytree(tmp_path / "ckpt" / "orders", tmp_path / "job")
        moved = Path(shutil.copytree(tmp_path / "gone", tmp_path / "job" / "chk-1"))
    assert list(verify(Snapshot.open(moved))) == []
    assert contents(str(moved)) == expected()


@pytest.mark.feature("I31")
def test_types_of_state_may_change(snapshot: Snapshot, tmp_path: Path) -> None:
    """Flink: yes, works, works. A widened type is found migrated, and converted; a narrowed one is refused."""

    def with_total(kind: str) -> tuple[OperatorInfo, ...]:
        return tuple(
            replace(o, states=tuple(replace(s, value={"type": kind}) if s.name == "total" else s for s in o.states))
            for o in snapshot.metadata.operators
        )

    job = JobNow(with_total("float"), (Uid("clicks"),))
    outcomes = {(v.uid, v.state): v.outcome for v in judge(snapshot.metadata, job).verdicts}
    assert outcomes["totals", "total"] is Outcome.MIGRATED
    copy_snapshot(snapshot, open_storage(tmp_path / "new"), changes=Changes(types=conversions(snapshot.metadata, job)))
    found = contents(str(tmp_path / "new"))
    assert found == expected()
    assert isinstance(found["totals", "total", "u3", None, None], float)
    assert not judge(snapshot.metadata, JobNow(with_total("bytes"), (Uid("clicks"),))).compatible


@pytest.mark.feature("I32", "I38")
def test_the_graph_may_change(snapshot: Snapshot, tmp_path: Path) -> None:
    """Flink: yes, yes, yes. Operators change levels, are chained otherwise, and get others before and beside them."""
    changed = {Uid("names"): 1, Uid("totals"): 3, Uid("new"): 2}
    assert restored(snapshot, tmp_path, levels=changed) == expected()


@pytest.mark.feature("I33", "I37")
def test_the_code_may_change(snapshot: Snapshot, tmp_path: Path) -> None:
    """Flink: yes, yes, yes. Whatever an operator does, its state is found by its uid."""
    operators = tuple(reversed(snapshot.metadata.operators))
    answer = judge(snapshot.metadata, JobNow(operators, (Uid("clicks"),)))
    assert {verdict.outcome for verdict in answer.verdicts} == {Outcome.AS_IS}
    assert restored(snapshot, tmp_path) == expected()


@pytest.mark.feature("I34", "I35")
def test_tidegate_and_spark_may_be_others(snapshot: Snapshot, tmp_path: Path) -> None:
    """Flink: yes, yes, yes. What counts is the format: any known one is read, whatever release wrote it."""
    other = rewritten(snapshot, lambda m: replace(m, tidegate_version="9.4.0", spark_version="4.2.9"))
    assert restored(other, tmp_path) == expected()


def test_a_format_of_the_future_is_refused(snapshot: Snapshot) -> None:
    path = Path(snapshot.url) / "_metadata"
    data = path.read_bytes().replace(b'"format":1', b'"format":2', 1)
    assert data != path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(MetadataTooNew):
        Snapshot.open(snapshot.url)


@pytest.mark.feature("I36")
@pytest.mark.parametrize("parallelism", [1, 5])
def test_the_parallelism_may_change(snapshot: Snapshot, backend: str, tmp_path: Path, parallelism: int) -> None:
    """Flink: yes, yes, yes."""
    assert restored(snapshot, tmp_path, backend, parallelism) == expected()
