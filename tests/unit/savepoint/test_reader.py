"""Any checkpoint can be read without Spark and without the classes whose values it holds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest

from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tidegate.checkpoint.completed.retained import SnapshotNotFound
from tidegate.checkpoint.metadata import FileList, InlineFile, decode, encode
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import StateNotFound, StoredSnapshot, UntrustedSnapshot
from tidegate.schema.key_values import InvalidKey
from tidegate.storage import CorruptFile


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Rule:
    name: str
    limit: int = 3
    level: Level = Level.LOW


AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
USERS = [f"user-{n}" for n in range(50)]
TOTALS = Operator(
    "totals",
    ("string",),
    (value("total", float), mapping("seen", str, int), listing("last", Decimal), value("rule", Rule)),
    {
        "total": {user: n / 2 for n, user in enumerate(USERS)},
        "seen": {user: {"a": n, "b": n + 1} for n, user in enumerate(USERS[:20])},
        "last": {user: [Decimal(n), Decimal("1.50")] for n, user in enumerate(USERS[:10])},
        "rule": {"ann": Rule("r", 5, Level.HIGH)},
    },
)
PAIRS = Operator("pairs", ("bigint", "date"), (value("at", datetime),), {"at": {(7, AT.date()): AT}}, level=2)


@pytest.fixture(params=["hashmap", "rocksdb"])
def history(tmp_path: Path, request: pytest.FixtureRequest) -> History:
    return History(tmp_path, backend=request.param)


@pytest.mark.feature("I29")
def test_every_entry_is_read_with_its_type(history: History) -> None:
    with SnapshotReader(StoredSnapshot.open(history.checkpoint(1, TOTALS, PAIRS))) as reader:
        assert {e.key: e.value for e in reader.entries("totals", "total")} == TOTALS.holds["total"]
        seen = {(e.key, e.map_key): e.value for e in reader.entries("totals", "seen")}
        assert seen == {(user, k): v for user, held in TOTALS.holds["seen"].items() for k, v in held.items()}
        first = [e for e in reader.entries("totals", "last") if e.key == "user-3"]
        assert [(e.position, e.value) for e in first] == [(0, Decimal(3)), (1, Decimal("1.50"))]
        [rule] = reader.entries("totals", "rule")
        assert rule.value == {"name": "r", "limit": 5, "level": 2}
        [pair] = reader.entries("pairs", "at")
        assert (pair.key, pair.value) == ((7, AT.date()), AT)


@pytest.mark.feature("I29")
def test_one_key_is_looked_up_in_one_task(history: History) -> None:
    path = history.checkpoint(1, TOTALS)
    with SnapshotReader(StoredSnapshot.open(path)) as reader:
        assert reader.get("totals", "total", "user-8") == 4.0
        assert reader.get("totals", "seen", "user-8") == {"a": 8, "b": 9}
        assert reader.get("totals", "seen", "user-8", map_key="b") == 9
        assert reader.get("totals", "last", "user-8") == [Decimal(8), Decimal("1.50")]
        assert reader.get("totals", "total", "nobody") is None
        assert reader.get("totals", "seen", "nobody") == {}
        with pytest.raises(InvalidKey):
            reader.get("totals", "total", 5)


def test_a_lookup_needs_no_files_of_other_tasks(history: History) -> None:
    path = history.checkpoint(1, TOTALS)
    snapshot = StoredSnapshot.open(path)
    group = snapshot.layout("totals", "total").key_group("user-8", 128)
    for task in snapshot.metadata.tasks:
        if task.task != snapshot.task_with("totals", group).task:
            history.storage.delete(f"orders/{name}" for name in task.files.objects())
    with SnapshotReader(snapshot) as reader:
        assert reader.get("totals", "total", "user-8") == 4.0


@pytest.mark.feature("I29")
def test_a_range_of_key_groups(history: History) -> None:
    with SnapshotReader(StoredSnapshot.open(history.checkpoint(1, TOTALS))) as reader:
        low = list(reader.entries("totals", "total", (0, 40)))
        high = list(reader.entries("totals", "total", (41, 127)))
    assert low
    assert max(e.key_group for e in low) <= 40 < min(e.key_group for e in high)
    assert len(low) + len(high) == len(USERS)


@pytest.mark.feature("I29")
def test_the_metadata_file_and_a_name_within_a_storage_open_the_same(history: History) -> None:
    path = history.checkpoint(1, TOTALS)
    snapshot = StoredSnapshot.open(f"{path}/_metadata")
    assert snapshot.metadata == StoredSnapshot.within(history.storage, "orders/chk-1").metadata
    with SnapshotReader(StoredSnapshot.within(history.storage, "orders/chk-1")) as reader:
        assert reader.get("totals", "total", "user-8") == 4.0


@pytest.mark.feature("D29", "I29")
def test_small_files_inside_the_metadata_are_read(tmp_path: Path) -> None:
    history = History(tmp_path, inline=1 << 20)
    with SnapshotReader(StoredSnapshot.open(history.checkpoint(1, TOTALS))) as reader:
        assert len(list(reader.entries("totals", "total"))) == len(USERS)


def test_a_damaged_file_is_never_read(history: History) -> None:
    snapshot = StoredSnapshot.open(history.checkpoint(1, TOTALS))
    file = next(iter(snapshot.metadata.tasks[0].files))
    name = f"orders/{file.path}"
    data = history.storage.get(name)
    history.storage.put(name, data[:-1] + bytes([data[-1] ^ 1]))
    with SnapshotReader(snapshot) as reader, pytest.raises(CorruptFile):
        list(reader.entries("totals", "total"))


def test_errors_for_missing_names_list_the_existing_ones(history: History) -> None:
    path = history.checkpoint(1, TOTALS)
    with pytest.raises(SnapshotNotFound, match="checkpoints list"):
        StoredSnapshot.open(path + "0")
    snapshot = StoredSnapshot.open(path)
    with pytest.raises(StateNotFound, match="'totals'"):
        snapshot.operator("total")
    with pytest.raises(StateNotFound, match="'seen'"):
        snapshot.layout("totals", "gone")


@pytest.mark.parametrize("what", ["backend", "file"])
def test_a_snapshot_from_a_stranger_runs_nothing_and_writes_nowhere_else(tmp_path: Path, what: str) -> None:
    history = History(tmp_path)
    history.checkpoint(1, TOTALS)
    metadata = decode(history.storage.get("orders/chk-1/_metadata"))
    task = metadata.tasks[0]
    evil = {
        "backend": dataclasses.replace(task, backend="tests.evil.Backend"),
        "file": dataclasses.replace(task, files=FileList(), inline=(InlineFile("../../evil", task.version, b"x"),)),
    }[what]
    forged = dataclasses.replace(metadata, tasks=(evil, *metadata.tasks[1:]))
    history.storage.put("orders/chk-1/_metadata", encode(forged))
    with pytest.raises(UntrustedSnapshot):
        StoredSnapshot.open(tmp_path / "ckpt" / "orders" / "chk-1")
