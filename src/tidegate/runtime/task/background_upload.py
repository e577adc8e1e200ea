"""Uploads in the background of a Python worker process: one task starts them, and they continue while later tasks run.

A thread does the work and may outlive its task. That saves time, but nothing relies on it: the thread dies with its
process, and any other process of the host continues from the records on disk. Only those records count.

A task of the next epoch sends the result to the driver. If none does so soon, because its rows take long or because it waits
for a core, the thread stores the result where the driver looks for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.task.version_upload import Stopped, UploadOrder, VersionUpload
from tidegate.core.errors import TidegateError
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, EpochId, HostId, TaskId, Term
from tidegate.runtime.exchange.assignment import Archive, HostUploads
from tidegate.state.disk.version_directory import version_path
from tidegate.state.port import StateBackend
from tidegate.state.version import VersionId
from tidegate.storage import RoutedStorage, Storage, StorageError, open_storage, unique_name

log = logging.getLogger("tidegate")

_STORE_AFTER_S, _STORE_AFTER_SENDING_S = 0.25, 1.0
"""How long the result of an upload waits for a task that sends it, and then for the driver: a task that has sent it may belong
to an epoch that takes long."""

# By directory of the task, checkpoint and version. Of the process, because a worker process outlives the tasks that it runs.
_workers: dict[tuple[str, str, VersionId], UploadWorker] = {}
_epochs: dict[str, EpochId] = {}
"""By the directory of a lineage: the last epoch in which this process has started the uploads of the tasks on its host."""
_stores: dict[str, RoutedStorage] = {}
_lock = threading.Lock()


def storage_of(archive: Archive) -> Storage:
    """Return the job's storage, opened once per worker process."""
    key = _key(archive)
    found = _stores.get(key)
    if found is None:
        # Two threads may open it at once; either result is valid.
        made = RoutedStorage(open_storage(archive.url, **archive.options), archive.options)
        found = _stores.setdefault(key, made)
    return found


def range_reader(archive: Archive | None) -> Callable[[str, int, int], bytes]:
    """Return a function that reads a range of an object in the job's storage, which it opens when it is needed."""

    def read(path: str, start: int, length: int) -> bytes:
        assert archive is not None, "without storage, nothing is sent through it"
        return storage_of(archive).get_range(path, start, length)

    return read


def traffic_since_last_report(archive: Archive | None) -> dict[str, tuple[int, int]]:
    """Return requests and bytes by kind that this process has sent to the job's storage, each once."""
    store = _store_of(archive)
    return {} if store is None else store.traffic.take()


def traffic(archive: Archive | None) -> object:
    """Return what this process has sent to the job's storage so far: a value that differs when more was sent."""
    store = _store_of(archive)
    return None if store is None else store.traffic.total()


def _store_of(archive: Archive | None) -> RoutedStorage | None:
    """Return the job's storage, if this process has opened it."""
    if archive is None:
        return None
    return _stores.get(_key(archive))


def _key(archive: Archive) -> str:
    return f"{archive.url} {sorted(archive.options.items())}"


@dataclass(kw_only=True)
class UploadWorker:
    """One upload of this process, run by its own thread."""

    upload: VersionUpload
    moved: threading.Condition = field(default_factory=threading.Condition)
    parts: int = 0
    ended: bool = False
    wanted: bool = True
    error: str | None = None
    failed: bool = False
    """Whether it ended because of an error, for now or for good."""
    for_others: bool = False
    """Whether a task of another slot has started it."""
    sent: bool = False
    """Whether a task has taken the result to send it to the driver."""

    def must_be_repeated(self) -> bool:
        """Whether it ended without a result. An error that waiting does not cure is a result: the task declines the
        checkpoint with it."""
        return self.ended and self.error is None and self.upload.finished() is None

    def wait(self, seconds: float) -> None:
        """Wait until one more part is stored, the upload ends, or the time is up."""
        with self.moved:
            before = self.parts
            self.moved.wait_for(lambda: self.ended or self.parts > before, seconds)

    def is_received(self) -> bool:
        """Wait for a while, and return whether the driver has the result: then a later epoch no longer wants it."""
        with self.moved:
            self.moved.wait_for(lambda: self.sent or not self.wanted, _STORE_AFTER_S)
            if self.sent:
                self.moved.wait_for(lambda: not self.wanted, _STORE_AFTER_SENDING_S)
            return not self.wanted

    def stop(self) -> None:
        with self.moved:
            self.wanted = False
            self.moved.notify_all()

    def send(self) -> None:
        with self.moved:
            self.sent = True
            self.moved.notify_all()

    def progress(self) -> None:
        with self.moved:
            self.parts += 1
            self.moved.notify_all()

    def end(self, error: str | None, *, failed: bool = False) -> None:
        with self.moved:
            self.failed = failed
            # In this order: who sees the end reads the error without the lock.
            self.error = error
            self.ended = True
            self.moved.notify_all()


@dataclass(frozen=True, slots=True)
class UploadHandle:
    """A task's handle on an upload it was asked for."""

    order: UploadOrder
    worker: UploadWorker
    started: bool = True
    """Whether the task started it, or found it under way."""
    repeats_failure: bool = False
    """Whether an earlier worker of this process has failed at it."""

    @property
    def failures(self) -> int:
        """Failures that this task found: one that it repeats, and one that ended the upload for good."""
        return int(self.repeats_failure) + int(self.worker.error is not None)

    def answer(self, seconds: float) -> tuple[bytes | None, str | None]:
        """Return the encoded part if the upload is done, or why it failed; both are None while it continues."""
        done, latest = self.worker.upload.finished(), time.monotonic() + seconds
        while done is None and not self.worker.ended and (left_s := latest - time.monotonic()) > 0:
            self.worker.wait(left_s)
            done = self.worker.upload.finished()
        if done is not None:
            self.worker.send()
        return done, None if done is not None else self.worker.error


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUploads:
    """The uploads of one task in this process. `attempt` is the one that starts them."""

    archive: Archive
    job: str
    directory: Path
    task: TaskId
    term: Term
    attempt: AttemptId
    backend: StateBackend
    stores_acks: bool = False
    """Whether results are stored for the driver without waiting for a task that sends them."""

    def start(self, orders: Sequence[UploadOrder], announced: int = 0) -> list[UploadHandle]:
        """Start or continue the uploads requested from the task, and cancel those that are no longer requested. One for the
        checkpoint that was announced continues: the driver may not have requested it yet."""
        handles: list[UploadHandle] = []
        home = str(self.directory)
        wanted = {(home, f"{self.term}-{order.checkpoint_id}", order.version): order for order in orders}
        spared = {f"{self.term}-{announced}"} - {checkpoint for _, checkpoint, _ in wanted}
        with _lock:
            for key in [key for key in _workers if key[0] == home and key not in wanted and key[1] not in spared]:
                _workers.pop(key).stop()
        for key, order in wanted.items():
            with _lock:
                # Under the lock, since several tasks of the process may be at this point for the same directory.
                before = worker = _workers.get(key)
                if worker is None or worker.must_be_repeated():
                    worker = _workers[key] = UploadWorker(upload=self._upload(order))
                    self._start(worker, order)
            started = worker is not before
            handles.append(UploadHandle(order, worker, started, started and before is not None and before.failed))
        return handles

    def start_on_host(self, uploads: HostUploads, host: HostId, directory: Callable[[TaskId], Path]) -> None:
        """Start the uploads of the other tasks on this host, once in an epoch: all its tasks have the same list of them."""
        job = str(self.directory.parent)
        with _lock:
            if _epochs.get(job) == uploads.epoch:
                return
            _epochs[job] = uploads.epoch
        self.start_for_others(uploads.on(host), directory)

    def start_for_others(
        self, orders: Sequence[tuple[TaskId, UploadOrder]], directory: Callable[[TaskId], Path]
    ) -> None:
        """Start the uploads of other tasks whose versions are on this host. Their own tasks may have to wait for a core, or for a
        level above; if they run, a lock decides who does the work. Cancel what nobody wants any more."""
        checkpoints = {f"{self.term}-{order.checkpoint_id}" for _, order in orders}
        with _lock:
            mine = [
                key for key in _workers if Path(key[0]).parent == self.directory.parent
            ]  # other jobs share the process
            for key in [key for key in mine if _workers[key].for_others and key[1] not in checkpoints]:
                _workers.pop(key).stop()
        for task, order in orders:
            # Its own uploads are started by `start`.
            if task == self.task or order.tables is not None:
                continue  # Writing tables takes a core.
            other = replace(self, task=task, directory=directory(task))
            key = (str(other.directory), f"{self.term}-{order.checkpoint_id}", order.version)
            with _lock:
                # The version may be on another host, although the driver believes it here: that host's tasks upload it.
                if key in _workers or not version_path(other.directory, order.version).exists():
                    continue
                worker = _workers[key] = UploadWorker(upload=other._upload(order), for_others=True)
                other._start(worker, order)

    def _upload(self, order: UploadOrder) -> VersionUpload:
        storage, layout = storage_of(self.archive), JobLayout(self.job)
        if order.tables is None:
            return VersionUpload(
                storage=storage, layout=layout, directory=self.directory, task=self.task, term=self.term, order=order
            )
        # Late, for start-up time: it reads and writes Parquet, which is slow to import.
        from tidegate.savepoint.canonical_upload import CanonicalUpload  # noqa: PLC0415 start-up time

        return CanonicalUpload(
            storage=storage,
            layout=layout,
            directory=self.directory,
            task=self.task,
            term=self.term,
            order=order,
            backend=self.backend,
        )

    def _start(self, worker: UploadWorker, order: UploadOrder) -> None:
        name = f"tidegate-upload-{self.task}-{order.checkpoint_id}"
        threading.Thread(target=self._work, args=(worker, order), name=name, daemon=True).start()

    def _work(self, worker: UploadWorker, order: UploadOrder) -> None:
        """The thread of an upload."""
        error: str | None = None
        failed = True
        part: bytes | None = None

        try:
            manifest = self.backend.manifest(self.directory, order.version)
            part = worker.upload.run(manifest, self.attempt, lambda: worker.wanted, worker.progress)
            failed = False
        except Stopped:
            failed = False
        except StorageError as problem:
            if problem.retryable:
                # The storage has used up its retries. The driver repeats the order until the checkpoint times out.
                log.warning(
                    "the upload of %s for checkpoint %d will be continued later: %s",
                    self.task,
                    order.checkpoint_id,
                    problem,
                )
            else:
                error = str(problem)  # No permission, no such bucket, an unknown scheme: waiting does not help.
        except TidegateError as problem:
            error = str(problem)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"

        # Before the wait below: tasks that wait for the result must not wait for that, too.
        worker.end(error, failed=failed)

        # A task that takes long, or waits for a core, sends nothing soon. If epochs are long, the driver has said not to wait at
        # all.
        received = not worker.wanted if self.stores_acks else part is not None and worker.is_received()
        if part is not None and not received and not (worker.sent and self._is_over(order)):
            self._store_ack(order, part)

    def _is_over(self, order: UploadOrder) -> bool:
        """Whether nobody waits for a result that was sent: the checkpoint has its metadata, or somebody has deleted the directory
        of the job. After the last checkpoint of a job no epoch says so."""
        layout = JobLayout(self.job)
        return self._exists(layout.metadata(order.checkpoint_id)) or not self._exists(layout.owner)

    def _exists(self, path: str) -> bool:
        try:
            storage_of(self.archive).size(path)
        except StorageError:
            return False
        return True

    def _store_ack(self, order: UploadOrder, part: bytes) -> None:
        reach("upload.3-unsent", of=self.task, checkpoint=order.checkpoint_id)
        path = JobLayout(self.job).ack(self.term, order.checkpoint_id, self.task, unique_name())
        try:
            storage_of(self.archive).put(path, part)
        except StorageError as problem:
            log.info("the acknowledgement of %s waits for the next epoch: %s", self.task, problem)
