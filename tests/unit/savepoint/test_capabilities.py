"""Flink's table of what can be done with which kind of snapshot, cell by cell: ✓ supported, ! works without a promise, x not.

Here every cell works but one: a checkpoint shares files with others of its job, so it moves with its job's folder or not at all.
Its fourth column, unaligned checkpoints, has none to fill it: no checkpoint here holds rows in flight.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame, NullSink
from tests.unit.savepoint.checkpoint_kit import History, Operator, mapping, value
from tests.unit.savepoint.test_restore_compatibility import Landing
from tests.unit.testing.test_harness_state import Offsets
from tidegate.checkpoint.metadata import OperatorInfo
from tidegate.checkpoint.metadata.operators import describe
from tidegate.checkpoint.task.assignment import UnclaimedState
from tidegate.core.ids import Uid
from tidegate.graph.levels import plan
from tidegate.savepoint.changes import Changes
from tidegate.savepoint.compatibility import JobNow
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.restore_compatibility import fit
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, StoredSnapshot
from tidegate.storage import ObjectMissing, open_storage

KEYS = [f"u{n}" for n in range(30)]
TOTALS = Operator(
    "totals", ("string",), (value("total", int), mapping("seen", str, int)),
    {"total": {k: n for n, k in enumerate(KEYS)}, "seen": {k: {"a": n} for n, k in enumerate(KEYS)}},
)  # fmt: skip
NAMES = Operator("names", ("string",), (value("name", str),), {"name": {k: k for k in KEYS}})
EXPECTED = {("total", k, None, None): n for n, k in enumerate(KEYS)} | {
    ("seen", k, "a", None): n for n, k in enumerate(KEYS)
}


def info(total: Any = int) -> OperatorInfo:
    states = (value("total", total), mapping("seen", str, int))
    return Operator("totals", ("string",), states, {}).info({("totals", "total"): 1, ("totals", "seen"): 2}, 2, "x")


class Cell:
    """One kind of snapshot of a job with two operators, and what is done with it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        chk = StoredSnapshot.open(History(folder, backend="hashmap").checkpoint(1, TOTALS, NAMES))
        self.snapshot = chk
        if kind != "checkpoint":
            copy_snapshot(chk, open_storage(str(folder / "sp")), kind)
            self.snapshot = StoredSnapshot.open(folder / "sp")

    def land(
        self, backend: str = "hashmap", parallelism: int = 2, now: OperatorInfo | None = None, **more: Any
    ) -> dict[Any, Any]:
        now = now or info()
        fitted = fit(self.snapshot.metadata, JobNow((now,)), True)
        return Landing(self.folder / "landed", self.snapshot, backend, parallelism).land(
            now, fitted, allow=True, **more
        )

    def change_backend(self) -> None:
        assert self.land("rocksdb") == EXPECTED

    def write(self) -> None:
        target = self.folder / "written"
        changes = Changes(renames={"names": "titles"}, max_parallelism=64)
        copy_snapshot(self.snapshot, open_storage(str(target)), CANONICAL, changes)
        with SnapshotReader(StoredSnapshot.open(target)) as reader:
            assert sorted(entry.value for entry in reader.entries("titles", "name")) == sorted(KEYS)

    def read(self) -> None:
        with SnapshotReader(self.snapshot) as reader:
            assert {entry.key: entry.value for entry in reader.entries("names", "name")} == dict(zip(KEYS, KEYS))

    def move(self) -> None:
        where = Path(self.snapshot.url)
        moved = self.folder / "elsewhere" / where.name
        moved.parent.mkdir()
        shutil.move(where, moved)
        shutil.rmtree(self.folder / "ckpt")
        with SnapshotReader(StoredSnapshot.open(moved)) as reader:
            assert len(list(reader.entries("totals", "total"))) == len(KEYS)

    def evolve(self) -> None:
        wide = {key: float(number) if key[0] == "total" else number for key, number in EXPECTED.items()}
        found = self.land(now=info(float))
        assert found == wide
        assert {type(found["total", key, None, None]) for key in KEYS} == {float}

    def upgrade_freely(self) -> None:
        """`totals` runs behind another shuffle now, and `names` is gone, which must be allowed."""
        assert self.land(level=2) == EXPECTED
        with pytest.raises(UnclaimedState, match="'names'"):
            Landing(self.folder, self.snapshot, "hashmap", 2).land(
                info(), fit(self.snapshot.metadata, JobNow(()), True)
            )

    def upgrade_code(self) -> None:
        assert self.land() == EXPECTED

    def rescale(self) -> None:
        assert self.land(parallelism=5) == EXPECTED


TABLE: dict[str, tuple[Callable[[Cell], None], str]] = {
    "state backend change": (Cell.change_backend, "✓xx"),
    "State Processor API write": (Cell.write, "✓xx"),
    "State Processor API read": (Cell.read, "✓!!"),
    "self-contained and relocatable": (Cell.move, "✓✓x"),
    "schema evolution": (Cell.evolve, "✓!!"),
    "arbitrary job upgrade": (Cell.upgrade_freely, "✓✓✓"),
    "non-arbitrary job upgrade": (Cell.upgrade_code, "✓✓✓"),
    "rescaling": (Cell.rescale, "✓✓✓"),
}
KINDS = (CANONICAL, NATIVE, "checkpoint")
BEYOND = {"state backend change", "State Processor API write"}
"""What Flink cannot do with native files, and this can."""


@pytest.mark.feature("I3", "I27", "I28", "I29", "I30", "I31", "I32", "I33", "I36", "I37", "I38")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", TABLE)
def test_cell(tmp_path: Path, operation: str, kind: str) -> None:
    act, flinks = TABLE[operation]
    cell = Cell(tmp_path, kind)
    if flinks[KINDS.index(kind)] == "x" and operation not in BEYOND:
        with pytest.raises(ObjectMissing):
            act(cell)
    else:
        act(cell)


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.user, self.n.value()


class Pass(tg.KeyedProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.user, row.n


@pytest.mark.feature("I39")
def test_a_snapshot_maps_exactly_its_uids_to_state() -> None:
    job = tg.Job("shop", parallelism=2)
    rows = job.source("orders", Frame("user string,amount double"))
    counted = rows.key_by("user").process("count", Count(), schema="user string, n bigint")
    passed = counted.key_by("user").process("pass", Pass(), schema="user string, n bigint")
    mapped = passed.map(lambda row: row, schema="user string, n bigint")
    mapped.map(Offsets(), schema="n bigint", uid="offsets").sink("out", NullSink())
    graph = job.graph()
    assert {node.uid for node in graph.sinks} == {"out"}
    assert {node.uid for node in graph.stateful} == {"count", "pass", "offsets"}
    described = describe(graph, plan(graph), 2, "hashmap", {(Uid("count"), "n"): 1, (Uid("offsets"), "kept"): 2})
    found = {operator.uid: [state.name for state in operator.states] for operator in described}
    assert found == {"count": ["n"], "offsets": ["kept"]}
