"""Uploads behind the rows of a task: the task does not wait for them, reports them when they end, and cancels them. No Spark."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.runtime.task.test_task import Level
from tests.unit.runtime.task.test_task_savepoint import TASK, feed
from tidegate.checkpoint.files.task_part import decode_part
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.task.version_upload import EarlyUpload, UploadOrder
from tidegate.core import faults
from tidegate.core.ids import AttemptId, Slot, TaskId
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork
from tidegate.runtime.exchange.messages import TaskAck
from tidegate.runtime.task import background_upload
from tidegate.runtime.task.background_upload import TaskUploads, UploadWorker
from tidegate.state.backends import backend_named
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
        self.backend = backend
        self.level, self.stored, self.number = Level(folder / "local", backend=backend), folder / "ckpt", 1
        self.version = VersionId.parse(feed(self.level, ["a", "b", "a"], 1).version)
        self.newest = self.version
        self.order = UploadOrder(
            checkpoint_id=CHECKPOINT, version=self.version, base=None, inline_threshold=0, inline_total=0
        )

    def epoch(self, rows: list[str], *orders: UploadOrder, wait_ms: int = 20) -> TaskAck:
        return self.run(rows, CheckpointWork(uploads=(orders, ()), keep=((self.version,), ()), wait_ms=wait_ms))

    def announced_epoch(self, rows: list[str], wait_ms: int = 20) -> TaskAck:
        """An epoch of which a checkpoint will be taken."""
        early = EarlyUpload(checkpoint_id=CHECKPOINT, bases=(None, None), inline_threshold=0, inline_total=0)
        return self.run(rows, CheckpointWork(early=early, announced=CHECKPOINT, wait_ms=wait_ms))

    def run(self, rows: list[str], work: CheckpointWork) -> TaskAck:
        self.number += 1
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
        return [path for path in self.stored.rglob("*") if path.is_file() and path.name != "owner"]


@pytest.fixture(params=["hashmap", "rocksdb"])
def task(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Task]:
    yield Task(tmp_path, request.param)
    await_end_of_threads()


@pytest.fixture(autouse=True)
def owned(task: Task) -> None:
    """A driver has claimed the job."""
    for job in ("by-hand", "job"):
        owner = task.stored / JobLayout(job).owner
        owner.parent.mkdir(parents=True)
        owner.touch()


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


def acknowledged(task: Task) -> list[VersionId]:
    """The versions of the acknowledgements that lie in storage."""
    return [decode_part(path.read_bytes())[0].version for path in task.objects() if "acks" in path.parts]


@pytest.mark.feature("C37")
def test_a_result_that_no_task_sends_is_stored_for_the_driver(task: Task, slow: SlowStorage) -> None:
    task.epoch(["a"], task.order)
    slow.await_upload()
    slow.go_on()
    await_end_of_threads()
    assert acknowledged(task) == [task.version]


@pytest.mark.feature("C37")
def test_a_result_is_stored_at_once_if_epochs_take_long(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_upload, "_STORE_AFTER_S", HELD_S)
    monkeypatch.setattr(background_upload, "_STORE_AFTER_SENDING_S", HELD_S)
    started = time.monotonic()
    task.run(["a"], CheckpointWork(uploads=((task.order,), ()), keep=((task.version,), ()), stores_acks=True))
    await_end_of_threads()
    assert time.monotonic() - started < HELD_S / 2
    assert acknowledged(task) == [task.version]


def test_a_result_that_the_driver_has_received_is_not_stored(task: Task) -> None:
    assert task.epochs_until_stored().uploads
    task.epoch([])
    await_end_of_threads()
    assert acknowledged(task) == []


@pytest.mark.feature("C37")
def test_a_result_that_waits_for_the_end_of_the_epoch_is_stored_too(task: Task) -> None:
    """The task has sent it, but other tasks of the epoch take long."""
    assert task.epochs_until_stored().uploads
    await_end_of_threads()
    assert acknowledged(task) == [task.version]


@pytest.mark.parametrize("over", ["complete", "deleted"])
def test_a_result_of_the_last_checkpoint_of_a_job_is_not_stored(task: Task, over: str) -> None:
    """No epoch follows that says that the driver has received it. Files that appear after the end of a job surprise who deletes
    its directory."""
    (done,) = task.epochs_until_stored().uploads
    job = decode_part(done.part)[1][0].split("/")[0]
    if over == "complete":
        metadata = task.stored / JobLayout(job).metadata(task.order.checkpoint_id)
        metadata.parent.mkdir(parents=True)
        metadata.touch()
    else:
        shutil.rmtree(task.stored)
    await_end_of_threads()
    assert acknowledged(task) == []


def beside(task: Task) -> tuple[TaskUploads, Path]:
    """The uploads of another task of the job on the same host, and where the version of `task` is."""
    (home,) = [path.parent.parent for path in task.stored.parent.glob(f"local/**/v1-{task.version.attempt}")]
    other = TaskId(TASK.level, Slot(1))
    uploads = TaskUploads(
        archive=Archive(str(task.stored), {}), job="job", directory=home.parent / str(other), task=other,
        term=task.version.epoch.term, attempt=AttemptId(3), backend=backend_named(task.backend, {}),
    )  # fmt: skip
    return uploads, home


def killed_at(point: str, work: Callable[[], object]) -> int:
    """Run this in a process of its own, which is killed where it reaches a step. Return the signal that ended it."""
    child = os.fork()
    if child == 0:
        faults.arm(lambda at, **context: os.kill(os.getpid(), signal.SIGKILL) if at == point else None)
        work()
        time.sleep(HELD_S)
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


@pytest.mark.feature("C24", "H6")
@pytest.mark.parametrize("point", ["upload.2-noted", "upload.3-unsent"])
def test_a_process_killed_before_it_stored_the_acknowledgement_leaves_it_to_the_next(task: Task, point: str) -> None:
    other, home = beside(task)
    uploads = replace(other, task=TASK, directory=home)
    assert killed_at(point, lambda: uploads.start([task.order])) == signal.SIGKILL
    stored = task.objects()
    assert stored != []
    assert acknowledged(task) == []
    (done,) = task.epochs_until_stored().uploads
    state, new = decode_part(done.part)
    assert state.version == task.version
    # It may also have stored the acknowledgement, if the end of the epoch took a moment.
    files = [path for path in task.objects() if "acks" not in path.parts]
    assert files == stored, "the next process stores nothing again"
    assert {path.relative_to(task.stored).as_posix() for path in stored} == set(new)


def worker_of(home: Path) -> UploadWorker:
    (worker,) = [worker for key, worker in background_upload._workers.items() if key[0] == str(home)]
    return worker


@pytest.mark.feature("C37")
def test_a_task_starts_the_upload_of_another_that_waits_for_a_core(task: Task) -> None:
    first, home = beside(task)
    gone = TaskId(TASK.level, Slot(2))
    first.start_for_others(((TASK, task.order), (gone, task.order)), lambda of: home.parent / str(of))
    await_end_of_threads()
    assert acknowledged(task) == [task.version]


def test_the_upload_for_another_task_stops_when_its_job_no_longer_wants_it(task: Task, slow: SlowStorage) -> None:
    first, home = beside(task)
    first.start_for_others(((TASK, task.order),), lambda of: home.parent / str(of))
    slow.await_upload()
    of_another_job = replace(first, directory=home.parent.parent / "another" / str(TASK))
    of_another_job.start_for_others((), lambda of: home.parent / str(of))
    assert worker_of(home).wanted
    worker = worker_of(home)
    first.start_for_others((), lambda of: home.parent / str(of))
    assert not worker.wanted


def test_the_upload_of_the_accepted_attempt_replaces_an_announced_one(task: Task, slow: SlowStorage) -> None:
    accepted = task.version
    rejected = task.announced_epoch(["a"])
    slow.await_upload()
    task.newest = accepted
    order = replace(task.order, version=accepted)
    task.run([], CheckpointWork(uploads=((order,), ()), keep=((accepted,), ()), announced=CHECKPOINT))
    slow.go_on()
    for _ in range(200):
        ack = task.run([], CheckpointWork(uploads=((order,), ()), keep=((accepted,), ()), wait_ms=20))
        if ack.uploads:
            break
    assert decode_part(ack.uploads[0].part)[0].version == accepted
    assert rejected.version != str(accepted)


@pytest.mark.feature("C37")
def test_an_announced_version_is_stored_as_soon_as_it_is_sealed(task: Task) -> None:
    ack = task.announced_epoch(["a"])
    await_end_of_threads()
    assert {str(version) for version in stored_versions(task, ack)} == {ack.version}


def test_an_announced_version_is_stored_while_the_next_epoch_runs_that_does_not_know_of_it(
    task: Task, slow: SlowStorage
) -> None:
    ack = task.announced_epoch(["a"])
    slow.await_upload()
    work = CheckpointWork(keep=((task.newest,), ()), announced=CHECKPOINT)
    task.run(["a"], work)
    slow.go_on()
    await_end_of_threads()
    assert [str(version) for version in acknowledged(task)] == [ack.version]


def test_a_task_without_rows_stores_the_version_that_it_started_from(task: Task) -> None:
    ack = task.announced_epoch([])
    assert ack.version == str(task.version)
    await_end_of_threads()
    assert set(stored_versions(task, ack)) == {task.version}


def stored_versions(task: Task, ack: TaskAck) -> list[VersionId]:
    """The versions that were acknowledged, by the task or through storage."""
    return [decode_part(each.part)[0].version for each in ack.uploads] + acknowledged(task)
