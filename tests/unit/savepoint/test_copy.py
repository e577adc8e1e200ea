"""A savepoint made offline holds what its origin held, needs nothing else, and changes only what was asked for."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.savepoint.checkpoint_kit import Held, History, Operator, listing, mapping, value
from tidegate.checkpoint.completed.retained import SnapshotNotFound
from tidegate.checkpoint.metadata import SnapshotKind
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Term, Uid
from tidegate.graph.states import StateKind, StateSpec
from tidegate.graph.ttl import StateTtlConfig, TtlTimeCharacteristic
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.runtime.sources.source_notes import load_notes, store_notes
from tidegate.savepoint import copy
from tidegate.savepoint import dispose as disposal
from tidegate.savepoint.canonical_read import canonical_entries
from tidegate.savepoint.changes import ChangeRefused, Changes
from tidegate.savepoint.copy import TargetNotEmpty, copy_snapshot
from tidegate.savepoint.dispose import NotASavepoint, StillClaimed, dispose
from tidegate.savepoint.pinned import NotRetained
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, StateNotFound, StoredSnapshot
from tidegate.savepoint.verify import verify
from tidegate.state.backends import backend_named
from tidegate.state.keys.key_groups import key_group, range_of_slot
from tidegate.state.keys.murmur3 import hash_key
from tidegate.storage import open_storage

CLOCK_MS = 1_767_225_599_990
"""Of the checkpoints that the kit makes."""
TOTALS = Operator(
    "totals",
    ("string",),
    (value("total", float), mapping("seen", str, int), listing("last", Decimal)),
    {
        "total": {f"u{n}": n / 2 for n in range(60)},
        "seen": {f"u{n}": {"a": n, "b": n + 1} for n in range(20)},
        "last": {f"u{n}": [Decimal(n), Decimal("1.50")] for n in range(10)},
    },
)
NAMES = Operator("names", ("bigint",), (value("name", str),), {"name": {n: f"n{n}" for n in range(30)}}, level=2)


def contents(snapshot: StoredSnapshot, uid: str, state: str) -> dict[Any, Any]:
    with SnapshotReader(snapshot) as reader:
        return {(e.key, e.map_key, e.position): e.value for e in reader.entries(uid, state)}


STATES = [("totals", "total"), ("totals", "seen"), ("totals", "last"), ("names", "name")]


@pytest.fixture(params=["hashmap", "rocksdb"])
def origin(tmp_path: Path, request: pytest.FixtureRequest) -> StoredSnapshot:
    history = History(tmp_path, backend=request.param)
    return StoredSnapshot.open(history.checkpoint(1, TOTALS, NAMES))


@pytest.fixture
def heap_origin(tmp_path: Path) -> StoredSnapshot:
    return StoredSnapshot.open(History(tmp_path).checkpoint(1, TOTALS, NAMES))


@pytest.mark.feature("I30", "I4")
@pytest.mark.parametrize("format", [CANONICAL, NATIVE])
def test_a_copy_is_self_contained_and_can_be_moved(origin: StoredSnapshot, tmp_path: Path, format: str) -> None:
    before = {state: contents(origin, *state) for state in STATES}
    copy_snapshot(origin, open_storage(tmp_path / "sp"), format)
    shutil.rmtree(tmp_path / "ckpt")
    shutil.move(tmp_path / "sp", tmp_path / "else where")
    moved = StoredSnapshot.open(tmp_path / "else where")
    assert moved.metadata.kind is SnapshotKind.SAVEPOINT
    assert moved.format == format
    assert list(verify(moved)) == []
    assert {state: contents(moved, *state) for state in STATES} == before


@pytest.mark.feature("I30")
@pytest.mark.parametrize("format", [CANONICAL, NATIVE])
def test_a_copy_has_the_files_that_a_source_needs_to_continue(tmp_path: Path, format: str) -> None:
    history, uids, seen = History(tmp_path), (Uid("files"),), SourceNotes('{"logOffset":0}', {"0": b"v1" * 10_000})
    positions, query = store_notes(
        history.storage, "orders", "orders/chk-1", 1, EpochId(Term(1), 10), uids, (seen,), "{}"
    )
    origin = StoredSnapshot.open(history.checkpoint(1, TOTALS, positions=positions, query=query))
    copied = copy_snapshot(origin, open_storage(tmp_path / "sp"), format).metadata
    shutil.rmtree(tmp_path / "ckpt")
    assert load_notes(open_storage(tmp_path), "sp", copied, uids, False) == ((seen,), "{}")


@pytest.mark.feature("I23", "I27", "I36")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_tables_are_restored_into_any_backend_at_any_parallelism(
    origin: StoredSnapshot, tmp_path: Path, backend: str
) -> None:
    """As `version_restore` will do it: plan, then write the share of each old task into a new store."""
    storage = open_storage(tmp_path / "sp")
    copied = copy_snapshot(origin, storage).metadata
    found: dict[Any, Any] = {}
    for order in plan_restore(copied, RestoreTarget(128, 3, {Uid("totals"): 1, Uid("names"): 2})):
        tasks = {task.task: task for task in copied.tasks}
        store = backend_named(backend).begin(
            tmp_path / "new" / str(order.task), None, copied.tasks[0].version, (0, 127)
        )
        for share in order.keyed:
            task = tasks[share.source]
            store.write(canonical_entries(storage, "", task, share.key_groups, share.states, copied.epoch))
        for uid, state in STATES if order.task.level == 1 else []:
            layout = origin.layout(uid, state)
            for group in range(range_of_slot(order.task.slot, 3, 128)[0], order.key_groups[1] + 1):
                for entry in layout.typed(store.scan(*layout.range_in(group))):
                    found[uid, state, entry.key, entry.map_key, entry.position] = entry.value
        store.abandon()
    expected = {(*s, *k): v for s in STATES[:3] for k, v in contents(origin, *s).items()}
    assert found == expected


@pytest.mark.feature("I7", "I24")
def test_a_savepoint_is_a_folder_of_small_metadata_and_the_files_it_names(tmp_path: Path) -> None:
    """Native: RocksDB's own tables. Canonical: Parquet, and nothing of any backend."""
    origin = StoredSnapshot.open(History(tmp_path, backend="rocksdb").checkpoint(1, TOTALS, NAMES))
    for format, suffix in ((NATIVE, ".sst"), (CANONICAL, ".parquet")):
        folder = tmp_path / "savepoints" / format
        copy_snapshot(origin, open_storage(folder), format)
        there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert there == {"_metadata", *disposal.objects_of(StoredSnapshot.open(folder))}
        assert any(path.endswith(suffix) for path in there)
        assert not any(path.endswith((".sst", ".parquet")) and not path.endswith(suffix) for path in there)


@pytest.mark.feature("I28")
@pytest.mark.parametrize("limit", [1, 64, 1000])
def test_max_parallelism_can_be_changed_offline(heap_origin: StoredSnapshot, tmp_path: Path, limit: int) -> None:
    before = {state: contents(heap_origin, *state) for state in STATES}
    copy_snapshot(heap_origin, open_storage(tmp_path / "sp"), changes=Changes(max_parallelism=limit))
    after = StoredSnapshot.open(tmp_path / "sp")
    assert after.metadata.max_parallelism == limit
    assert list(verify(after)) == []
    assert {state: contents(after, *state) for state in STATES} == before
    with SnapshotReader(after) as reader:
        for entry in reader.entries("totals", "total"):
            assert entry.key_group == key_group(hash_key(entry.key, after.layout("totals", "total").key_types), limit)
        assert reader.get("totals", "last", "u7") == [Decimal(7), Decimal("1.50")]


@pytest.mark.feature("I28")
@pytest.mark.parametrize("format", [CANONICAL, NATIVE])
def test_uids_can_be_renamed(heap_origin: StoredSnapshot, tmp_path: Path, format: str) -> None:
    renames = {"totals": "sums", "clicks": "taps"}
    copy_snapshot(heap_origin, open_storage(tmp_path / "sp"), format, Changes(renames=renames))
    after = StoredSnapshot.open(tmp_path / "sp")
    assert contents(after, "sums", "total") == contents(heap_origin, "totals", "total")
    assert [p.uid for p in after.metadata.positions] == ["taps"]
    with pytest.raises(StateNotFound):
        after.operator("totals")


@pytest.mark.feature("I28")
def test_states_can_be_dropped_and_their_numbers_stay_taken(heap_origin: StoredSnapshot, tmp_path: Path) -> None:
    changes = Changes(drops=frozenset({("totals", "seen"), ("names", None)}))
    copy_snapshot(heap_origin, open_storage(tmp_path / "sp"), changes=changes)
    after = StoredSnapshot.open(tmp_path / "sp")
    assert [state.name for _, state in after.states()] == ["total", "last"]
    assert not any("seen" in path.as_posix() for path in (tmp_path / "sp").rglob("*.parquet"))
    assert after.metadata.state_numbers == heap_origin.metadata.state_numbers


@pytest.mark.parametrize(
    ("format", "changes", "error"),
    [
        (NATIVE, Changes(max_parallelism=64), ChangeRefused),
        (NATIVE, Changes(drops=frozenset({("names", None)})), ChangeRefused),
        (CANONICAL, Changes(renames={"totals": "names"}), ChangeRefused),
        (CANONICAL, Changes(renames={"totals": "x", "names": "x"}), ChangeRefused),
        (CANONICAL, Changes(renames={"nobody": "x"}), StateNotFound),
        (CANONICAL, Changes(drops=frozenset({("totals", "nothing")})), StateNotFound),
        (CANONICAL, Changes(max_parallelism=0), ChangeRefused),
        ("AVRO", Changes(), ChangeRefused),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    heap_origin: StoredSnapshot, tmp_path: Path, format: str, changes: Changes, error: type[Exception]
) -> None:
    target = open_storage(tmp_path / "sp")
    with pytest.raises(error):
        copy_snapshot(heap_origin, target, format, changes)
    assert target.list() == []


def test_a_savepoint_needs_its_own_directory(heap_origin: StoredSnapshot, tmp_path: Path) -> None:
    copy_snapshot(heap_origin, open_storage(tmp_path / "sp"))
    with pytest.raises(TargetNotEmpty):
        copy_snapshot(heap_origin, open_storage(tmp_path / "sp"))


@pytest.mark.parametrize("point", ["savepoint.copy.1-pinned", "savepoint.copy.2-written", "savepoint.copy.3-published"])
def test_an_interrupted_copy_is_a_complete_savepoint_or_none(
    heap_origin: StoredSnapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def die(reached: str) -> None:
        if reached == point:
            raise RuntimeError("died")

    monkeypatch.setattr(copy, "reach", die)
    with pytest.raises(RuntimeError):
        copy_snapshot(heap_origin, open_storage(tmp_path / "sp"))
    monkeypatch.undo()
    if point == "savepoint.copy.3-published":
        assert list(verify(StoredSnapshot.open(tmp_path / "sp"))) == []
    else:
        with pytest.raises(SnapshotNotFound):
            StoredSnapshot.open(tmp_path / "sp")
    copy_snapshot(heap_origin, open_storage(tmp_path / "again"))
    assert contents(StoredSnapshot.open(tmp_path / "again"), "totals", "seen") == contents(
        heap_origin, "totals", "seen"
    )


@pytest.mark.feature("I21")
def test_an_interrupted_disposal_is_repeated(
    heap_origin: StoredSnapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_snapshot(heap_origin, open_storage(tmp_path / "sp"))

    def die(reached: str) -> None:
        raise RuntimeError(reached)

    monkeypatch.setattr(disposal, "reach", die)
    with pytest.raises(RuntimeError):
        dispose(StoredSnapshot.open(tmp_path / "sp"))
    assert list(verify(StoredSnapshot.open(tmp_path / "sp")))
    monkeypatch.undo()
    dispose(StoredSnapshot.open(tmp_path / "sp"))
    assert not [path for path in (tmp_path / "sp").rglob("*") if path.is_file()]


def test_the_origin_is_pinned_while_it_is_read(tmp_path: Path) -> None:
    history = History(tmp_path)
    snapshot = StoredSnapshot.open(history.checkpoint(1, TOTALS))
    seen: list[int] = []
    copy_snapshot(
        snapshot,
        open_storage(tmp_path / "sp"),
        progress=lambda _: seen.append(len(history.storage.list("orders/pins"))),
    )
    assert seen == [1, 1]
    assert history.storage.list("orders/pins") == []


def test_a_checkpoint_that_its_job_dropped_is_not_copied(tmp_path: Path) -> None:
    history = History(tmp_path)
    old = StoredSnapshot.open(history.checkpoint(1, TOTALS))
    for id in (2, 3):
        history.checkpoint(id, TOTALS)
    with pytest.raises(NotRetained, match="chk-2, chk-3"):
        copy_snapshot(old, open_storage(tmp_path / "sp"))


def test_waiting_output_is_left_to_its_job(tmp_path: Path) -> None:
    waiting = Committable(
        lineage=Lineage("line-1"), sink=Uid("out"), slot=0, epoch=EpochId(Term(1), 9), payload=b"rows"
    )
    snapshot = StoredSnapshot.open(History(tmp_path).checkpoint(1, TOTALS, committables=(waiting,)))
    copied = copy_snapshot(snapshot, open_storage(tmp_path / "sp"))
    assert (copied.waiting_output, copied.metadata.committables) == (1, ())
    open_storage(snapshot.url).put("_committed", b"{}")
    assert copy_snapshot(snapshot, open_storage(tmp_path / "sp-2")).waiting_output == 0


@pytest.mark.feature("I21")
def test_dispose_deletes_the_savepoint_and_nothing_else(heap_origin: StoredSnapshot, tmp_path: Path) -> None:
    copy_snapshot(heap_origin, open_storage(tmp_path / "sp"))
    (tmp_path / "sp" / "notes.txt").write_text("mine")
    dispose(StoredSnapshot.open(tmp_path / "sp"))
    assert [path.name for path in (tmp_path / "sp").rglob("*") if path.is_file()] == ["notes.txt"]
    assert contents(heap_origin, "totals", "total")
    with pytest.raises(NotASavepoint):
        dispose(heap_origin)


@pytest.mark.feature("I21")
def test_a_savepoint_that_a_job_has_claimed_is_the_jobs_to_delete(heap_origin: StoredSnapshot, tmp_path: Path) -> None:
    copy_snapshot(heap_origin, open_storage(str(tmp_path / "sp")), NATIVE)
    (tmp_path / "sp" / "_claimed").write_text('{"job": "orders"}')
    with pytest.raises(StillClaimed, match="orders"):
        dispose(StoredSnapshot.open(tmp_path / "sp"))
    assert list(verify(StoredSnapshot.open(tmp_path / "sp"))) == []


def test_verify_finds_what_is_missing_short_or_changed(heap_origin: StoredSnapshot, tmp_path: Path) -> None:
    copy_snapshot(heap_origin, open_storage(tmp_path / "sp"))
    missing, short, changed = sorted((tmp_path / "sp").rglob("*.parquet"))[:3]
    missing.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    changed.write_bytes(bytes(len(changed.read_bytes())))
    found = sorted(problem.what.partition(" ")[2] for problem in verify(StoredSnapshot.open(tmp_path / "sp")))
    assert found[0] == "does not have the checksum it was written with"
    assert found[1].startswith("has ")
    assert found[2] == "is missing"
    assert len(list(verify(StoredSnapshot.open(tmp_path / "sp"), checksums=False))) == 2


def test_a_full_copy_leaves_out_what_has_outlived_its_time(tmp_path: Path) -> None:
    """Native copies are files as they are: there the job removes the dead when it meets them."""

    def write(held: Held) -> None:
        for name, age_ms in (("ann", 5_000), ("bob", 500), ("cid", 5_000)):
            group = held.group_of(name)
            if group is None:
                continue
            held.keyed.set_time(CLOCK_MS - age_ms, 900 - age_ms)
            held.keyed.scope.key, held.keyed.scope.key_group = name, group
            for state in ("brief", "in_event_time", "lasting"):
                held.keyed.value_state(state).update(age_ms)
            held.keyed.flush()

    brief = StateSpec(name="brief", kind=StateKind.VALUE, value=int, ttl=StateTtlConfig.of("1 s"))
    event = StateTtlConfig("1000 ms", time_characteristic=TtlTimeCharacteristic.EventTime)
    in_event_time = StateSpec(name="in_event_time", kind=StateKind.VALUE, value=int, ttl=event)
    states = (brief, in_event_time, StateSpec(name="lasting", kind=StateKind.VALUE, value=int))
    operator = Operator("totals", ("string",), states, {}, also=write)
    for number, (mark, living) in enumerate([(900, {"bob"}), (None, {"ann", "bob", "cid"})]):
        history = History(tmp_path / str(number))
        origin = StoredSnapshot.open(history.checkpoint(1, operator, watermark_ms=mark))
        copy_snapshot(origin, open_storage(tmp_path / f"sp-{number}"))
        copied = StoredSnapshot.open(tmp_path / f"sp-{number}")

        def names(state: str, copied: StoredSnapshot = copied) -> set[str]:
            with SnapshotReader(copied) as reader:
                return {entry.key for entry in reader.entries("totals", state)}

        assert names("brief") == {"bob"}
        assert names("in_event_time") == living
        assert names("lasting") == {"ann", "bob", "cid"}
