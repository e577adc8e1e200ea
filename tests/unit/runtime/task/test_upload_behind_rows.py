"""Uploads behind the rows of a task: the task does not wait for them, reports them when they end, and cancels them. No Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.task.test_task import Level
from tests.unit.runtime.task.test_task_savepoint import TASK, feed
from tidegate.checkpoint.task_part import decode_part
from tidegate.checkpoint.version_upload import UploadOrder
from tidegate.core import faults
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork
from tidegate.runtime.exchange.messages import TaskAck
from tidegate.state.version import VersionId
from tidegate.storage import StorageUnavailable

HELD_S = 10
CHECKPOINT = 41


class SlowStorage:
    """Every upload waits at its first step until the test calls `go_on`."""

    def __init__(self) -> None:
        self._begun, self._may_go_on = threading.Event(), threading.Event()

    def hold(self, point: str, **context: object) -> None:
        if point == "upload.1-begun":
            self._begun.set()
            self._may_go_on.wait(HELD_S)

    def await_upload(self) -> None:
        assert self._begun.wait(HELD_S)

    def go_on(self) -> None:
        self._may_go_on.set()


@pytest.fixture
def slow() -> Iterator[SlowStorage]:
    slow = SlowStorage()
    faults.arm(slow.hold)
    yield slow
    slow.go_on()
    faults.arm(None)


class Task:
    """One task with a version of three rows, which a checkpoint takes while more rows come."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.level, self.stored, self.number = Level(folder / "local", backend=backend), folder / "ckpt", 1
        self.version = VersionId.parse(feed(self.level, ["a", "b", "a"], 1).version)
        self.newest = self.version
        self.order = UploadOrder(
            checkpoint_id=CHECKPOINT, version=self.version, base=None, inline_threshold=0, inline_total=0
        )

    def epoch(self, rows: list[str], *orders: UploadOrder, wait_ms: int = 20) -> TaskAck:
        self.number += 1
        work = CheckpointWork(uploads=(orders, ()), keep=((self.version,), ()), wait_ms=wait_ms)
        archive = Archive(str(self.stored), {})
        ack = feed(self.level, rows, self.number, version=self.newest, archive=archive, work=work)
        self.newest = VersionId.parse(ack.version)
        return ack

    def epochs_until_stored(self) -> TaskAck:
        for _ in range(200):
            ack = self.epoch([], self.order)
            if ack.uploads:
                return ack
        raise AssertionError("the upload did not end")

    def objects(self) -> list[Path]:
        return [path for path in self.stored.rglob("*") if path.is_file()]


@pytest.fixture(params=["hashmap", "rocksdb"])
def task(tmp_path: Path, request: pytest.FixtureRequest) -> Task:
    return Task(tmp_path, request.param)


def uploading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"tidegate-upload-{TASK}-{CHECKPOINT}"]


def await_end_of_threads() -> None:
    for thread in uploading_threads():
        thread.join(HELD_S)
        assert not thread.is_alive()


@pytest.mark.feature("C2", "C11", "C24", "C26")
def test_a_task_processes_rows_while_its_version_is_stored_and_acknowledges_it_afterwards(
    task: Task, slow: SlowStorage
) -> None:
    started = time.monotonic()
    during = [task.epoch(["a"], task.order) for _ in range(3)]
    slow.await_upload()
    assert time.monotonic() - started < HELD_S
    assert [(ack.fault, ack.rows_in, ack.uploads) for ack in during] == [(None, 1, ())] * 3
    assert task.newest != task.version
    assert task.objects() == []
    slow.go_on()
    (done,) = task.epochs_until_stored().uploads
    state, new = decode_part(done.part)
    assert (done.checkpoint_id, state.version) == (CHECKPOINT, task.version)
    assert {path.relative_to(task.stored).as_posix() for path in task.objects()} == set(new)


@pytest.mark.feature("C24")
def test_an_upload_that_storage_interrupted_is_continued_in_a_later_epoch(task: Task) -> None:
    interrupted: list[str] = []

    def interrupt(point: str, **context: object) -> None:
        if point == "storage.upload.2-part-stored" and not interrupted:
            interrupted.append(point)
            raise StorageUnavailable("local", "shared", "Storage is away for a moment.")

    faults.arm(interrupt)
    try:
        (done,) = task.epochs_until_stored().uploads
    finally:
        faults.arm(None)
    assert (len(interrupted), done.error) == (1, None)


@pytest.mark.feature("C27")
def test_the_upload_of_an_aborted_checkpoint_stops_and_releases_what_it_holds(task: Task, slow: SlowStorage) -> None:
    task.epoch(["a"], task.order)
    slow.await_upload()
    assert len(uploading_threads()) == 1
    task.epoch(["a"])
    slow.go_on()
    await_end_of_threads()
    assert task.objects() == []
    assert task.epochs_until_stored().uploads[0].error is None, "the lock of the upload is free again"
