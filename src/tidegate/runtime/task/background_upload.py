"""Uploads in the background of a Python worker process: one task starts them, and they continue while later tasks run.

A thread does the work and may outlive its task. That saves time, but nothing relies on it: the thread dies with its
process, and any other process of the host continues from the records on disk. Only those records count.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.version_upload import Stopped, UploadOrder, VersionUpload
from tidegate.core.errors import TidegateError
from tidegate.core.ids import AttemptId, TaskId, Term
from tidegate.runtime.exchange.assignment import Archive
from tidegate.state.port import StateBackend
from tidegate.storage import RoutedStorage, Storage, StorageError, open_storage

log = logging.getLogger("tidegate")

_workers: dict[tuple[str, str], UploadWorker] = {}
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


def traffic_since_last_report(archive: Archive | None) -> dict[str, tuple[int, int]]:
    """Return requests and bytes by kind that this process has sent to the job's storage, each once."""
    found = None if archive is None else _stores.get(_key(archive))
    return {} if found is None else found.traffic.take()


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

    def must_be_repeated(self) -> bool:
        """Whether it ended without a result. An error that waiting does not cure is a result: the task declines the
        checkpoint with it."""
        return self.ended and self.error is None and self.upload.finished() is None

    def wait(self, seconds: float) -> None:
        """Wait until one more part is stored, the upload ends, or the time is up."""
        with self.moved:
            before = self.parts
            self.moved.wait_for(lambda: self.ended or self.parts > before, seconds)

    def progress(self) -> None:
        with self.moved:
            self.parts += 1
            self.moved.notify_all()

    def end(self, error: str | None, *, failed: bool = False) -> None:
        with self.moved:
            self.failed = failed
            self.error, self.ended = error, True  # In this order: who sees the end reads the error without the lock.
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
        done = self.worker.upload.finished()
        if done is None and not self.worker.ended:
            self.worker.wait(seconds)
            done = self.worker.upload.finished()
        return done, None if done is not None else self.worker.error


def start_uploads(
    archive: Archive, job: str, directory: Path, task: TaskId, term: Term, attempt: AttemptId, backend: StateBackend,
    orders: tuple[UploadOrder, ...],
) -> list[UploadHandle]:  # fmt: skip
    """Start or continue the uploads requested from a task, and cancel its uploads that are no longer requested."""
    upload_handles: list[UploadHandle] = []
    wanted = {(str(directory), f"{term}-{order.checkpoint_id}"): order for order in orders}
    with _lock:
        for key in [key for key in _workers if key[0] == str(directory) and key not in wanted]:
            _workers.pop(key).wanted = False
    for key, order in wanted.items():
        with _lock:
            before = worker = _workers.get(key)
            if worker is None or worker.must_be_repeated():
                upload = _upload(archive, job, directory, task, term, order, backend)
                worker = _workers[key] = UploadWorker(upload=upload)
                _start(worker, directory, task, attempt, backend, order)
        started = worker is not before
        upload_handles.append(UploadHandle(order, worker, started, started and before is not None and before.failed))
    return upload_handles


def _upload(
    archive: Archive, job: str, directory: Path, task: TaskId, term: Term, order: UploadOrder, backend: StateBackend
) -> VersionUpload:
    storage, layout = storage_of(archive), JobLayout(job)
    if order.tables is None:
        return VersionUpload(storage=storage, layout=layout, directory=directory, task=task, term=term, order=order)
    # Late, for start-up time: it reads and writes Parquet, which is slow to import.
    from tidegate.savepoint.canonical_upload import CanonicalUpload  # noqa: PLC0415 start-up time

    return CanonicalUpload(
        storage=storage, layout=layout, directory=directory, task=task, term=term, order=order, backend=backend
    )


def _start(
    worker: UploadWorker, directory: Path, task: TaskId, attempt: AttemptId, backend: StateBackend, order: UploadOrder
) -> None:
    def work() -> None:
        error: str | None = None
        failed = True
        try:
            manifest = backend.manifest(directory, order.version)
            worker.upload.run(manifest, attempt, lambda: worker.wanted, worker.progress)
            failed = False
        except Stopped:
            failed = False
        except StorageError as problem:
            if problem.retryable:
                # The storage has used up its retries. The driver repeats the order until the checkpoint times out.
                log.warning(
                    "the upload of %s for checkpoint %d will be continued later: %s", task, order.checkpoint_id, problem
                )
            else:
                error = str(problem)  # No permission, no such bucket, an unknown scheme: waiting does not help.
        except TidegateError as problem:
            error = str(problem)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        worker.end(error, failed=failed)

    threading.Thread(target=work, name=f"tidegate-upload-{task}-{order.checkpoint_id}", daemon=True).start()
