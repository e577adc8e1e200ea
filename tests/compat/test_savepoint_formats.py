"""Savepoints of every format version can be read for ever. The folders in `savepoints/` are never written again.

`python -m tests.compat.test_savepoint_formats DIRECTORY` writes them in the form of today, for a new format.
"""

from __future__ import annotations

import subprocess
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
from tests.unit.savepoint.test_kinds import NOW_MS, RENEWED, USERS, WINDOW
from tests.unit.savepoint.test_kinds import OPERATOR as EVERY_KIND
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.core.ids import Uid
from tidegate.savepoint.canonical_read import canonical_entries
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, StoredSnapshot
from tidegate.savepoint.verify import verify
from tidegate.storage import open_storage

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


KINDS: dict[str, set[Any]] = {
    "largest": {(user, None, None, n, None) for n, user in enumerate(USERS)},
    "ordered": {(user, None, n, user, None) for n, user in enumerate(USERS)},
    "seen": {(user, None, "a", n, RENEWED) for n, user in enumerate(USERS)},
    "last": {(user, None, None, what, RENEWED) for user in USERS for what in (user, "x")},
    "in_window": {(user, WINDOW, None, n / 2, None) for n, user in enumerate(USERS)},
    "on_timer": {(user, None, "EVENT_TIME", 5 - n, None) for n, user in enumerate(USERS)}
    | {(user, WINDOW, "PROCESSING_TIME", NOW_MS, None) for user in USERS},
    "offsets": {(None, None, None, n, None) for n in (0, 1, 2, 10, 11, 12)},
    "all": {(None, None, None, f"slot {n}", None) for n in (0, 1)},
    "rules": {(None, None, "low", 0.5, None), (None, None, "high", 2.0, None)},
}
"""Every kind of state, as `tests.unit.savepoint.test_kinds` fills it: key, namespace, map key, value, stamp."""


def goldens(kinds: bool = False) -> list[str]:
    return sorted(path.name for path in GOLDEN.iterdir() if path.name.startswith("kinds-") == kinds)


@pytest.mark.parametrize("name", goldens(kinds=True))
@pytest.mark.feature("I34", "I35")
def test_every_kind_of_state_of_then_is_read_now(name: str) -> None:
    snapshot = StoredSnapshot.open(GOLDEN / name)
    assert list(verify(snapshot)) == []
    with SnapshotReader(snapshot) as reader:
        for state, held in KINDS.items():
            found = [(e.key, e.namespace, e.map_key, e.value, e.stamp) for e in reader.entries("op", state)]
            assert len(found) == len(held)
            assert set(found) == held


@pytest.mark.large
def test_tables_of_then_need_no_tidegate() -> None:
    """Parquet is all: pyarrow and DuckDB, in a process that has never heard of tidegate."""
    script = f"""
import sys, duckdb, json, pyarrow.dataset as ds
folder = {str(GOLDEN / "kinds-1-canonical")!r}
metadata = json.load(open(folder + "/_metadata"))
timers = ds.dataset(folder + "/op/on_timer").to_table().to_pylist()
assert {{t["value"] for t in timers if t["map_key"] == "EVENT_TIME"}} == set(range(-14, 6))
windows = ds.dataset(folder + "/op/in_window").to_table()
assert windows["namespace"][0].as_py()["end"].minute == 1
def ask(query, state):
    return duckdb.sql(query.format(f"'{{folder}}/op/{{state}}/*.parquet'")).fetchall()
assert ask("select sum(value), count(distinct key) from {{}}", "largest") == [(190, 20)]
assert ask("select list(value order by position) from {{}} where key = 'u7'", "last") == [(["u7", "x"],)]
assert ask("select value from {{}} where map_key = 'high' limit 1", "rules") == [(2.0,)]
assert ask("select epoch_ms(max(renewed['at'])) from {{}}", "seen") == [({NOW_MS},)]
assert ask("select count(*) from {{}}", "offsets") == [(6,)]
assert not any(name.partition(".")[0] == "tidegate" for name in sys.modules)
"""
    subprocess.run([sys.executable, "-I", "-c", script], check=True)


@pytest.mark.feature("I34", "I35")
@pytest.mark.parametrize("name", goldens())
def test_a_savepoint_of_then_is_read_now(name: str) -> None:
    snapshot = StoredSnapshot.open(GOLDEN / name)
    assert list(verify(snapshot)) == []
    with SnapshotReader(snapshot) as reader:
        for (uid, state), held in EXPECTED.items():
            assert {(e.key, e.map_key, e.position): e.value for e in reader.entries(uid, state)} == held


@pytest.mark.feature("I34", "I35")
@pytest.mark.parametrize("name", [name for name in goldens() if "canonical" in name])
def test_tables_of_then_are_restored_now(name: str) -> None:
    snapshot = StoredSnapshot.open(GOLDEN / name)
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
            snapshot = StoredSnapshot.open(History(Path(scratch), backend=backend).checkpoint(1, *OPERATORS))
            copy_snapshot(snapshot, open_storage(directory / f"format-1-native-{backend}"), NATIVE)
            if backend == "hashmap":
                copy_snapshot(snapshot, open_storage(directory / "format-1-canonical"), CANONICAL)
        with tempfile.TemporaryDirectory() as scratch:
            snapshot = StoredSnapshot.open(History(Path(scratch), backend=backend).checkpoint(1, EVERY_KIND))
            copy_snapshot(snapshot, open_storage(directory / f"kinds-1-native-{backend}"), NATIVE)
            if backend == "hashmap":
                copy_snapshot(snapshot, open_storage(directory / "kinds-1-canonical"), CANONICAL)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
