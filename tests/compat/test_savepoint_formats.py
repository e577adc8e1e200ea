"""Savepoints of every format version can be read for ever. The folders in `savepoints/` are never written again.

`python -m tests.compat.test_savepoint_formats DIRECTORY` writes them in the form of today, for a new format.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tidegate.checkpoint.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.storage import open_storage
from tidegate.core.ids import Uid
from tidegate.savepoint.canonical_read import canonical_entries
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, Snapshot
from tidegate.savepoint.verify import verify

GOLDEN = Path(__file__).parent / "savepoints"


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Rule:
    name: str
    since: datetime
    level: Level = Level.LOW
    tags: tuple[str, ...] = ()


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
OPERATORS = (
    Operator(
        "totals",
        ("string",),
        (value("total", float), mapping("seen", int, str), listing("last", Decimal), value("rule", Rule)),
        {
            "total": {f"u{n}": n / 4 for n in range(20)},
            "seen": {"u1": {-1: "minus", 2**70: "large"}},
            "last": {"u1": [Decimal("1.50"), Decimal(2)], "größe": [Decimal(0)]},
            "rule": {"u2": Rule("r", NOON, Level.HIGH, ("a", "b")), "u3": Rule("s", datetime(2026, 1, 1))},
        },
    ),
    Operator("by day", ("bigint", "date"), (value("n", int),), {"n": {(7, date(2026, 1, 31)): 2**63}}, level=2),
)
EXPECTED: dict[tuple[str, str], dict[Any, Any]] = {
    ("totals", "total"): {(f"u{n}", None, None): n / 4 for n in range(20)},
    ("totals", "seen"): {("u1", -1, None): "minus", ("u1", 2**70, None): "large"},
    ("totals", "last"): {
        ("u1", None, 0): Decimal("1.50"), ("u1", None, 1): Decimal(2), ("größe", None, 0): Decimal(0),
    },
    ("totals", "rule"): {
        ("u2", None, None): {"name": "r", "since": NOON, "level": 2, "tags": ("a", "b")},
        ("u3", None, None): {"name": "s", "since": datetime(2026, 1, 1), "level": 1, "tags": ()},
    },
    ("by day", "n"): {((7, date(2026, 1, 31)), None, None): 2**63},
}  # fmt: skip


def goldens() -> list[str]:
    return sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.feature("I34", "I35")
@pytest.mark.parametrize("name", goldens())
def test_a_savepoint_of_then_is_read_now(name: str) -> None:
    snapshot = Snapshot.open(GOLDEN / name)
    assert list(verify(snapshot)) == []
    with SnapshotReader(snapshot) as reader:
        for (uid, state), held in EXPECTED.items():
            assert {(e.key, e.map_key, e.position): e.value for e in reader.entries(uid, state)} == held


@pytest.mark.parametrize("name", [name for name in goldens() if "canonical" in name])
def test_tables_of_then_are_restored_now(name: str) -> None:
    snapshot = Snapshot.open(GOLDEN / name)
    old = {task.task: task for task in snapshot.metadata.tasks}
    target = RestoreTarget(snapshot.metadata.max_parallelism, 3, {Uid("totals"): 1, Uid("by day"): 2})
    restored = {
        key: raw
        for task in plan_restore(snapshot.metadata, target)
        for share in task.keyed
        for key, raw in canonical_entries(
            snapshot.storage, "", old[share.source], share.key_groups, share.states, snapshot.metadata.epoch
        )
    }
    assert len(restored) == 20 + 2 + 2 + 2 + 1


def write(directory: Path) -> None:
    for backend in ("hashmap", "rocksdb"):
        with tempfile.TemporaryDirectory() as scratch:
            snapshot = Snapshot.open(History(Path(scratch), backend=backend).checkpoint(1, *OPERATORS))
            copy_snapshot(snapshot, open_storage(directory / f"format-1-native-{backend}"), NATIVE)
            if backend == "hashmap":
                copy_snapshot(snapshot, open_storage(directory / "format-1-canonical"), CANONICAL)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
