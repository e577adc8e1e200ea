"""A savepoint from the side of a task: its version goes out as tables, and comes back into another type and backend."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from functools import partial

import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.unit.runtime.task.test_task import Count, Level, barrier
from tidegate.checkpoint.files.task_part import decode_part
from tidegate.checkpoint.metadata.operators import describe
from tidegate.checkpoint.task.assignment import KeyedShare, TaskRestore
from tidegate.checkpoint.task.version_restore import Migration, RestoreOrder
from tidegate.checkpoint.task.version_upload import UploadOrder
from tidegate.core import faults
from tidegate.core.ids import Slot, TaskId, Term
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork
from tidegate.runtime.exchange.messages import FaultKind
from tidegate.state.disk import left_lineages
from tidegate.state.disk.local_root import LocalRoot
from tidegate.state.version import VersionId

TASK = TaskId(2, Slot(0))


class CountAsFloat(Count):
    n = tg.ValueState(float, default=0.0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, int(self.n.value())


class Savepoint:
    """Tables of level 2's first slot, as its task writes them in an epoch without rows."""

    def __init__(self, folder, level) -> None:
        self.folder, self.level = folder, level
        self.archive = Archive(str(folder / "ckpt"), {})
        operators = describe(level.graph, level.plan, 2, level.backend, level.ids)
        self.operator = next(operator for operator in operators if operator.uid == "two")

    def ask(self, version, number, target, tables=True, epoch=None, wait_ms=20_000):
        """What the task answers in an epoch, by default that with the number of the savepoint."""
        epoch = epoch or number
        order = UploadOrder(
            checkpoint_id=number,
            version=version,
            base=None,
            inline_threshold=0,
            inline_total=0,
            folder=str(target),
            tables=(self.operator,) if tables else None,
        )
        work = CheckpointWork(uploads=((order,), ()), wait_ms=wait_ms)
        empty = [barrier(sender, 0, number=epoch) for sender in (0, 1)]
        return self.level.run([], empty, epoch, version, archive=self.archive, work=work).uploads

    def write(self, version, number):
        target = self.folder / f"savepoint-{number}"
        (uploaded,) = self.ask(version, number, target)
        assert uploaded.error is None
        table = pq.ParquetDataset(target / "two" / "n").read()
        return decode_part(uploaded.part)[0], dict(zip(table["key"].to_pylist(), table["value"].to_pylist()))


def feed(level, rows, number, **more):
    return level.run(rows, [barrier(0, len(rows), number=number), barrier(1, 0, number=number)], number, **more)


@pytest.fixture
def counted(tmp_path):
    level = Level(tmp_path / "local")
    version = VersionId.parse(feed(level, ["a", "b", "a"], 1).version)
    return Savepoint(tmp_path, level), version


@pytest.mark.feature("I22")
@pytest.mark.parametrize("tables", [True, False], ids=["canonical", "native"])
@pytest.mark.parametrize(("target", "told"), [("{}/a-file/sp", "a-file"), ("ftp://host/sp", "is not supported")])
def test_a_task_declines_a_savepoint_that_it_can_never_write(tmp_path, counted, target, told, tables):
    (tmp_path / "a-file").write_text("")
    savepoint, version = counted
    (declined,) = savepoint.ask(version, 2, target.format(tmp_path), tables)
    assert declined.part is None
    assert told in declined.error


@pytest.mark.feature("D8", "I22")
def test_an_upload_that_fails_between_two_epochs_is_declined_by_the_next_one(tmp_path, counted):
    savepoint, version = counted
    ask = partial(savepoint.ask, version, 2, "ftp://host/sp", wait_ms=0)
    ask(epoch=2)
    while any(thread.name.startswith("tidegate-upload") for thread in threading.enumerate()):
        time.sleep(0.01)
    (declined,) = ask(epoch=3)
    assert "is not supported" in declined.error


@pytest.mark.feature("I7", "I24", "I30")
def test_a_native_part_names_files_of_the_backend_relative_to_the_savepoint(tmp_path, counted):
    savepoint, version = counted
    target = tmp_path / "savepoint-2"
    answers = (savepoint.ask(version, 2, target, tables=False, epoch=number) for number in range(2, 100))
    (uploaded,) = next(filter(None, answers))
    state, _ = decode_part(uploaded.part)
    assert state.backend == savepoint.level.backend
    stored = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert {file.path for file in state.files} == stored != set()


@pytest.mark.feature("A6", "F2", "I23", "I31")
def test_canonical_tables_are_restored_into_another_type_and_backend(tmp_path, counted):
    savepoint, version = counted
    state, found = savepoint.write(version, 2)
    assert (state.backend, found) == ("canonical", {"a": 2, "b": 1})
    later = Level(tmp_path / "elsewhere", CountAsFloat(), "rocksdb")
    again = Savepoint(tmp_path, later)
    old, new = savepoint.operator.states[0], again.operator.states[0]
    plan = TaskRestore(task=TASK, key_groups=(0, 63), keyed=(KeyedShare(TASK, (0, 63), (old.id,), True),))
    order = RestoreOrder(
        plan=plan, sources=(state,), root=str(tmp_path / "savepoint-2"), stored=None, migrations=(Migration(old, new),)
    )
    back = feed(later, [], 5, archive=savepoint.archive, work=CheckpointWork(restores=(order, None)))
    assert back.fault is None
    more = feed(later, ["a"], 6, version=VersionId.parse(back.version))
    _, found = again.write(VersionId.parse(more.version), 7)
    assert found == {"a": 3.0, "b": 1.0}
    assert {type(value) for value in found.values()} == {float}


@pytest.mark.feature("C22")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_version_holds_all_updates_of_its_epoch_and_none_of_later_ones(tmp_path, backend):
    level = Level(tmp_path / "local", backend=backend)
    first = VersionId.parse(feed(level, ["a", "b", "a"], 1).version)
    second = VersionId.parse(feed(level, ["a", "c"], 2, version=first).version)
    savepoint = Savepoint(tmp_path, level)
    assert savepoint.write(first, 3)[1] == {"a": 2, "b": 1}
    assert savepoint.write(second, 4)[1] == {"a": 3, "b": 1, "c": 1}


def test_a_missing_table_is_reported_by_name(tmp_path, counted):
    savepoint, version = counted
    state, _ = savepoint.write(version, 2)
    (table,) = (tmp_path / "savepoint-2").rglob("*.parquet")
    table.unlink()
    plan = TaskRestore(
        task=TASK, key_groups=(0, 63), keyed=(KeyedShare(TASK, (0, 63), (savepoint.operator.states[0].id,), True),)
    )
    order = RestoreOrder(plan=plan, sources=(state,), root=str(tmp_path / "savepoint-2"), stored=None)
    ack = feed(
        Level(tmp_path / "new"), ["a"], 5, archive=savepoint.archive, work=CheckpointWork(restores=(order, None))
    )
    assert ack.fault.kind is FaultKind.RESTORE
    assert table.name in ack.fault.text


def test_no_other_job_removes_the_directory_of_a_task_that_restores(tmp_path, counted):
    """The job was down for days, so the last note in the directory is old, and the process that wrote it is gone."""
    savepoint, version = counted
    state, _ = savepoint.write(version, 2)
    (note,) = (tmp_path / "local").rglob(".used")
    note.write_text("checkpointed boot/pid:[1]/17/4711")
    os.utime(note, (0, 0))
    shares = (KeyedShare(TASK, (0, 63), (savepoint.operator.states[0].id,), True),)
    plan = TaskRestore(task=TASK, key_groups=(0, 63), keyed=shares)
    order = RestoreOrder(plan=plan, sources=(state,), root=str(tmp_path / "savepoint-2"), stored=None)

    def sweep(point, **context):
        if point == "restore.2-fetched":
            left_lineages.sweep(LocalRoot.open(tmp_path / "local"), 3600, tmp_path / "of another job")

    faults.arm(sweep)
    try:
        work = CheckpointWork(restores=(order, None))
        back = feed(Level(tmp_path / "local", backend="rocksdb"), [], 5, archive=savepoint.archive, work=work)
    finally:
        faults.arm(None)
    assert back.fault is None


@pytest.mark.feature("F31")
def test_records_of_failed_checkpoints_are_removed_before_the_next_upload(tmp_path, counted):
    savepoint, version = counted
    (folder,) = {path.parent.parent for path in tmp_path.rglob("v1-7")}
    failed = folder / "uploads" / "1-3"
    failed.mkdir(parents=True)
    order = UploadOrder(checkpoint_id=4, version=version, base=None, inline_threshold=0, inline_total=0)
    gone = []

    def look(point, **context):
        if point == "upload.1-begun":
            gone.append(not failed.exists())

    faults.arm(look)
    try:
        work = CheckpointWork(uploads=((order,), ()), records=((Term(1), 2), (Term(1), 4)), wait_ms=20_000)
        for number in range(2, 100):
            # A task waits until a part more is stored; the next one asks again.
            empty = [barrier(sender, 0, number=number) for sender in (0, 1)]
            ack = savepoint.level.run([], empty, number, version, archive=savepoint.archive, work=work)
            if ack.uploads:
                break
    finally:
        faults.arm(None)
    assert (ack.uploads[0].error, gone) == (None, [True])


@pytest.mark.feature("C24", "F12", "F30")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_task_continues_while_its_snapshot_is_uploaded(tmp_path, backend):
    level, uploading = Level(tmp_path / "local", backend=backend), threading.Event()
    version = VersionId.parse(feed(level, ["a", "b", "a"], 1).version)
    order = UploadOrder(checkpoint_id=1, version=version, base=None, inline_threshold=0, inline_total=0)
    work = CheckpointWork(uploads=((order,), ()), keep=((version,), ()), wait_ms=0)
    archive = Archive(str(tmp_path / "ckpt"), {})
    faults.arm(lambda point, **context: point == "upload.1-begun" and uploading.wait(10))
    try:
        during = feed(level, ["a"], 2, version=version, archive=archive, work=work)
        assert (during.version, during.uploads) == ("1/v2-7", ())
        uploading.set()
        again = replace(work, wait_ms=20_000)
        newest = VersionId.parse(during.version)
        acks = (feed(level, [], number, version=newest, archive=archive, work=again) for number in range(3, 100))
        uploaded = next(ack.uploads[0] for ack in acks if ack.uploads)
    finally:
        uploading.set()
        faults.arm(None)
    state, _ = decode_part(uploaded.part)
    assert (state.version, state.backend) == (version, backend)
