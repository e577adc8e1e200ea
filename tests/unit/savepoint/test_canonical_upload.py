"""A task writes its version as tables, at home, and says what it wrote; whoever does it again leaves no row twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tests.unit.savepoint.test_restore_compatibility import NOTES, fill
from tidegate.checkpoint.files.task_part import decode_part
from tidegate.checkpoint.metadata import SnapshotKind, TaskState, encode
from tidegate.checkpoint.task.version_upload import Stopped, UploadOrder
from tidegate.core import faults
from tidegate.core.ids import AttemptId, Term
from tidegate.savepoint.canonical_upload import CanonicalUpload
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import CANONICAL, StoredSnapshot
from tidegate.state.backends import backend_named
from tidegate.storage import RoutedStorage

TOTALS = Operator(
    "totals",
    ("string",),
    (value("total", float), mapping("seen", str, int), listing("last", int), NOTES),
    {
        "total": {f"u{n}": n / 2 for n in range(60)},
        "seen": {f"u{n}": {"a": n, "b": n + 1} for n in range(20)},
        "last": {f"u{n}": [n, n + 1] for n in range(10)},
    },
    also=fill,
)
POINTS = ("upload.1-begun", "tables.1-linked", "tables.2-written", "upload.2-noted")


class Home:
    """Where the versions of a checkpoint are, and a savepoint that is written there."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self.target = folder, folder / "sp"
        self.history = History(folder, backend=backend)
        self.origin = StoredSnapshot.open(self.history.checkpoint(1, TOTALS))

    def write(self, task: TaskState, is_wanted: Any = lambda: True) -> tuple[TaskState, tuple[str, ...]]:
        order = UploadOrder(
            checkpoint_id=5,
            version=task.version,
            base=None,
            inline_threshold=0,
            inline_total=0,
            folder=str(self.target),
            tables=self.origin.metadata.operators,
        )
        backend = backend_named(task.backend)
        directory = self.folder / "local" / "1" / str(task.task)
        storage = RoutedStorage(self.history.storage)
        upload = CanonicalUpload(storage, self.history.layout, directory, task.task, Term(1), order, backend)
        part = upload.run(backend.manifest(directory, task.version), AttemptId(9), is_wanted, lambda: None)
        assert part is not None
        assert not (directory / "uploads" / "1-5" / "tables").exists()
        return decode_part(part)

    def publish(self, tasks: tuple[TaskState, ...]) -> StoredSnapshot:
        metadata = replace(self.origin.metadata, kind=SnapshotKind.SAVEPOINT, savepoint_format=CANONICAL, tasks=tasks)
        (self.target / "_metadata").write_bytes(encode(metadata))
        return StoredSnapshot.open(self.target)


def contents(snapshot: StoredSnapshot) -> list[Any]:
    with SnapshotReader(snapshot) as reader:
        return [sorted(map(repr, reader.entries(o.uid, s.name))) for o, s in snapshot.states()]


@pytest.fixture(params=["hashmap", "rocksdb"])
def home(tmp_path: Path, request: pytest.FixtureRequest) -> Home:
    return Home(tmp_path, request.param)


@pytest.mark.feature("I23")
def test_tables_written_by_the_task_contain_the_whole_version(home: Home) -> None:
    written = [home.write(task) for task in home.origin.metadata.tasks]
    savepoint = home.publish(tuple(state for state, _ in written))
    assert contents(savepoint) == contents(home.origin)
    named = {name for _, names in written for name in names}
    assert named == {str(path) for path in home.target.rglob("*.parquet")}


@pytest.mark.parametrize("point", POINTS)
def test_a_task_killed_at_any_step_is_repeated_without_duplicate_rows(tmp_path: Path, point: str) -> None:
    home = Home(tmp_path, "hashmap")

    def die(reached: str, **context: object) -> None:
        if reached == point:
            raise KeyboardInterrupt

    faults.arm(die)
    try:
        for task in home.origin.metadata.tasks:
            with pytest.raises(KeyboardInterrupt):
                home.write(task)
    finally:
        faults.arm(None)
    home.publish(tuple(home.write(task)[0] for task in home.origin.metadata.tasks))
    rows = pq.ParquetDataset(home.target / "totals" / "total").read()
    assert sorted(rows.column("key").to_pylist()) == sorted(TOTALS.holds["total"])


def test_writing_stops_when_the_tables_are_no_longer_needed(tmp_path: Path) -> None:
    home = Home(tmp_path, "hashmap")
    with pytest.raises(Stopped):
        home.write(home.origin.metadata.tasks[0], lambda: False)
