"""Uploads that ride with the tasks of a worker process: begun by one task, gone on with while later ones run.

A thread does the work and may outlive its task. That is welcome and only a hint: it dies with the process, and any
other process of the host goes on from the records on disk. What counts is read from there, never from memory.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.storage import RoutedStorage, Storage, StorageError, open_storage
from tidegate.checkpoint.version_upload import Stopped, UploadOrder, VersionUpload
from tidegate.core.errors import TidegateError
from tidegate.core.ids import AttemptId, TaskId, Term
from tidegate.runtime.program import Archive
from tidegate.state.port import StateBackend

log = logging.getLogger("tidegate")

_rides: dict[tuple[str, str], Ride] = {}
_stores: dict[str, Storage] = {}
_guard = threading.Lock()


def storage_of(archive: Archive) -> Storage:
    """The job's storage, opened once for each worker process."""
    key = f"{archive.url} {sorted(archive.options.items())}"
    found = _stores.get(key)
    if found is None:
        # Two threads may open it at once; either store will do.
        made = RoutedStorage(open_storage(archive.url, **archive.options), archive.options)
        found = _stores.setdefault(key, made)
    return found


@dataclass
class Ride:
    """One upload that this process works at."""

    upload: VersionUpload
    moved: threading.Condition = field(default_factory=threading.Condition)
    parts: int = 0
    ended: bool = False
    wanted: bool = True
    error: str | None = None

    def wait(self, seconds: float) -> None:
        """Until a part more is stored, the end is reached, or time is up."""
        with self.moved:
            before = self.parts
            self.moved.wait_for(lambda: self.ended or self.parts > before, seconds)

    def progress(self) -> None:
        with self.moved:
            self.parts += 1
            self.moved.notify_all()

    def end(self, error: str | None) -> None:
        with self.moved:
            self.ended, self.error = True, error
            self.moved.notify_all()


@dataclass(frozen=True, slots=True)
class Passenger:
    """A task with an upload to see to."""

    order: UploadOrder
    ride: Ride

    def answer(self, seconds: float) -> tuple[bytes | None, str | None]:
        """The encoded part if the upload is done, or why it cannot be done; both None while it goes on."""
        done = self.ride.upload.finished()
        if done is None and not self.ride.ended:
            self.ride.wait(seconds)
            done = self.ride.upload.finished()
        return done, None if done is not None else self.ride.error


def board(
    archive: Archive, job: str, directory: Path, task: TaskId, term: Term, attempt: AttemptId, backend: StateBackend,
    orders: tuple[UploadOrder, ...],
) -> list[Passenger]:  # fmt: skip
    """Begin, or go on with, the uploads a task is asked for. Those of the task that are no longer asked for end."""
    passengers: list[Passenger] = []
    wanted = {(str(directory), f"{term}-{order.checkpoint_id}"): order for order in orders}
    with _guard:
        for key in [key for key in _rides if key[0] == str(directory) and key not in wanted]:
            _rides.pop(key).wanted = False
    for key, order in wanted.items():
        with _guard:
            ride = _rides.get(key)
            if ride is None or (ride.ended and ride.upload.finished() is None):
                ride = _rides[key] = Ride(_upload(archive, job, directory, task, term, order, backend))
                _start(ride, directory, task, attempt, backend, order)
        passengers.append(Passenger(order, ride))
    return passengers


def _upload(
    archive: Archive, job: str, directory: Path, task: TaskId, term: Term, order: UploadOrder, backend: StateBackend
) -> VersionUpload:
    storage, layout = storage_of(archive), JobLayout(job)
    if order.tables is None:
        return VersionUpload(storage, layout, directory, task, term, order)
    from tidegate.savepoint.canonical_upload import (
        CanonicalUpload,
    )  # Reads and writes Parquet, which is slow to import.

    return CanonicalUpload(storage, layout, directory, task, term, order, backend)


def _start(
    ride: Ride, directory: Path, task: TaskId, attempt: AttemptId, backend: StateBackend, order: UploadOrder
) -> None:
    def work() -> None:
        error: str | None = None
        try:
            manifest = backend.manifest(directory, order.version)
            ride.upload.run(manifest, attempt, lambda: ride.wanted, ride.progress)
        except Stopped:
            pass
        except StorageError as problem:
            if problem.retryable:
                # The store's own patience is used up. The driver gives the order again, until the checkpoint times out.
                log.warning("the upload of %s for checkpoint %d goes on later: %s", task, order.checkpoint_id, problem)
            else:
                error = str(problem)  # No right to write there, no such bucket, no such kind of store: time cures none.
        except TidegateError as problem:
            error = str(problem)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        ride.end(error)

    threading.Thread(target=work, name=f"tidegate-upload-{task}-{order.checkpoint_id}", daemon=True).start()
