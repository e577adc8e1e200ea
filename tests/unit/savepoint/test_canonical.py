"""Tables hold exactly what the store held, and anything that reads Parquet can read them."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tidegate.checkpoint.metadata import TaskState
from tidegate.core.ids import EpochId, KeyGroup, Term, Uid
from tidegate.savepoint import canonical_write
from tidegate.savepoint.canonical_read import CanonicalTask, canonical_entries
from tidegate.savepoint.canonical_write import CanonicalWriter
from tidegate.savepoint.entries import StateEntry, UnreadableState
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.state.keys.entry_keys import TimeWindow
from tidegate.storage import CorruptFile, open_storage

EPOCH = EpochId(Term(1), 10)
OPERATOR = Operator(
    "totals",
    ("string", "decimal(10,2)"),
    (value("total", float), mapping("seen", int, list[int]), listing("last", int)),
    {
        "total": {(f"u{n}", Decimal(n)): n / 2 for n in range(40)},
        "seen": {(f"u{n}", Decimal(n)): {7: [n], 2**70: [n, 2**63]} for n in range(20)},
        "last": {(f"u{n}", Decimal(n)): list(range(n)) for n in range(1, 30)},
    },
)


@pytest.fixture
def snapshot(tmp_path: Path) -> StoredSnapshot:
    return StoredSnapshot.open(History(tmp_path).checkpoint(1, OPERATOR))


def written(snapshot: StoredSnapshot, target: Path) -> tuple[list[tuple[bytes, bytes]], list[TaskState]]:
    """The bytes that the checkpoint holds, and the tasks of tables made of them."""
    storage, held, tasks = open_storage(target), [], []
    with SnapshotReader(snapshot) as reader:
        for task in snapshot.metadata.tasks:
            entries = list(reader.byte_entries(task, task.key_groups))
            writer = CanonicalWriter(storage, "", task.task, task.key_groups, task.version, 1)
            writer.add_bytes(snapshot.metadata.operators, entries)
            held += entries
            tasks.append(writer.finish())
    return held, tasks


def restored(target: Path, tasks: list[TaskState], groups: tuple[int, int], states: Any) -> list[tuple[bytes, bytes]]:
    storage = open_storage(target)
    return [entry for task in tasks for entry in canonical_entries(storage, "", task, groups, states, EPOCH)]


@pytest.mark.feature("I23")
def test_restored_bytes_decode_to_the_same_entries(snapshot: StoredSnapshot, tmp_path: Path) -> None:
    held, tasks = written(snapshot, tmp_path / "sp")
    again = restored(tmp_path / "sp", tasks, (0, 127), {1, 2, 3})
    plain = {key: raw for key, raw in held if key[2:4] != b"\x00\x03"}
    assert {key: raw for key, raw in again if key[2:4] != b"\x00\x03"} == plain
    layout = snapshot.layout("totals", "last")
    lists = [(k, v) for k, v in again if k[2:4] == b"\x00\x03"]
    assert sorted(layout.typed(lists), key=str) == sorted(
        layout.typed((k, v) for k, v in held if k[2:4] == b"\x00\x03"), key=str
    )


@pytest.mark.feature("I23")
def test_a_share_is_what_was_asked_for(snapshot: StoredSnapshot, tmp_path: Path) -> None:
    _, tasks = written(snapshot, tmp_path / "sp")
    some = restored(tmp_path / "sp", tasks, (10, 70), {1})
    assert some
    assert all(key[2:4] == b"\x00\x01" and 10 <= int.from_bytes(key[:2], "big") <= 70 for key, _ in some)
    rest = restored(tmp_path / "sp", tasks, (0, 9), {1}) + restored(tmp_path / "sp", tasks, (71, 127), {1})
    assert len(some) + len(rest) == 40


@pytest.mark.large
@pytest.mark.feature("I40")
def test_parquet_is_all_a_reader_needs(snapshot: StoredSnapshot, tmp_path: Path) -> None:
    written(snapshot, tmp_path / "sp")
    script = f"""
import sys, duckdb, pyarrow.parquet as pq
folder = {str(tmp_path / "sp")!r}
rows = pq.read_table(folder + "/totals/total").to_pylist()
assert sum(row["value"] for row in rows) == 390.0
assert {{row["operator"] for row in rows}} == {{"totals"}}
found = duckdb.sql(f"select value from '{{folder}}/totals/total/*.parquet' where key.k1 = 'u8'").fetchall()
assert found == [(4.0,)], found
query = f"select list(value order by position) from '{{folder}}/totals/last/*.parquet' where key.k1 = 'u3'"
assert duckdb.sql(query).fetchall() == [([0, 1, 2],)]
assert not any(name.partition(".")[0] == "tidegate" for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_long_table_is_cut_into_files_and_lists_stay_whole(
    snapshot: StoredSnapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical_write, "FILE_BYTES", 1)
    monkeypatch.setattr(canonical_write, "ROW_GROUP", 7)
    _, tasks = written(snapshot, tmp_path / "sp")
    assert sum(len(task.files) for task in tasks) > 50
    again = restored(tmp_path / "sp", tasks, (0, 127), {3})
    layout = snapshot.layout("totals", "last")
    lists: dict[Any, list[Any]] = {}
    for entry in layout.typed(sorted(again)):
        lists.setdefault(entry.key, []).append(entry.value)
    assert lists == OPERATOR.holds["last"]


@pytest.mark.feature("I23")
def test_windows_and_names_are_namespaces(snapshot: StoredSnapshot, tmp_path: Path) -> None:
    layout, storage = snapshot.layout("totals", "total"), open_storage(tmp_path / "sp")
    spaces = [None, TimeWindow(-5, 2**62), "named", None]
    rows = [
        StateEntry(Uid("totals"), "total", KeyGroup(3), ("a", Decimal("1.00")), space, None, None, float(n))
        for n, space in enumerate(spaces)
    ]
    task = snapshot.metadata.tasks[0]
    writer = CanonicalWriter(storage, "", task.task, task.key_groups, task.version, 1)
    writer.add(layout, rows)
    assert list(CanonicalTask(storage, "", writer.finish()).entries(layout, (0, 127))) == rows


def test_a_damaged_table_is_never_read(snapshot: StoredSnapshot, tmp_path: Path) -> None:
    _, tasks = written(snapshot, tmp_path / "sp")
    path = tmp_path / "sp" / next(iter(tasks[0].files)).path
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    with pytest.raises(CorruptFile):
        restored(tmp_path / "sp", tasks, (0, 127), {1, 2, 3})


def test_an_entry_of_no_described_state_stops_everything(snapshot: StoredSnapshot, tmp_path: Path) -> None:
    task = snapshot.metadata.tasks[0]
    writer = CanonicalWriter(open_storage(tmp_path / "sp"), "", task.task, task.key_groups, task.version, 1)
    with pytest.raises(UnreadableState, match="9"):
        writer.add_bytes(snapshot.metadata.operators, [(b"\x00\x01\x00\x09key", b"value")])
