"""Jobs read from storage alone, with no driver alive: which exist, what they retain, how they ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.errors import ControlError, TidegateError
from tidegate.core.redaction import redacted
from tidegate.savepoint.snapshot import StoredSnapshot, location, split_location
from tidegate.storage import ObjectMissing, Storage, open_storage
from tidegate.storage.port import decode_segment
from tidegate.storage.routed import is_absolute

log = logging.getLogger("tidegate")


class JobNotFound(ControlError):
    """A directory holds no job's log."""

    code = "JOB_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One job's directory, and the newest entry of its log, which decides what the job consists of."""

    storage: Storage
    layout: JobLayout
    newest: Entry

    @staticmethod
    def read(storage: Storage, layout: JobLayout) -> StoredJob | None:
        """Read the newest entry of a job's log. Return None if there is no log."""
        end = perform(newest(layout), storage)
        if end is None:
            return None
        return StoredJob(storage, layout, end)

    @property
    def name(self) -> str:
        return self.layout.job

    @property
    def url(self) -> str:
        return f"{location(self.storage.url)}/{self.layout.root}"

    def snapshots(self, newest_first: bool = False) -> Iterator[tuple[CheckpointRef, StoredSnapshot]]:
        """Yield the retained checkpoints, and savepoints that the job has claimed. Each is opened when the iteration reaches it.

        A savepoint in another store is left out: the directory may be a stranger's, and reading it must not send the reader's
        credentials to a host that the stranger chose.
        """
        for ref in reversed(self.newest.retained) if newest_first else self.newest.retained:
            if not is_absolute(ref.metadata):
                yield ref, StoredSnapshot.within(self.storage, ref.metadata)
            elif self.may_open(ref.metadata):
                yield ref, StoredSnapshot.open(ref.metadata)

    def readable_snapshots(self) -> tuple[list[tuple[CheckpointRef, StoredSnapshot]], list[str]]:
        """Return the snapshots that can be read, and what is wrong with the others."""
        snapshots: list[tuple[CheckpointRef, StoredSnapshot]] = []
        problems: list[str] = []
        for ref in self.newest.retained:
            try:
                # One at a time, so that a damaged one does not hide the others.
                snapshots += replace(self, newest=replace(self.newest, retained=(ref,))).snapshots()
            except UNREADABLE as error:
                problems.append(f"checkpoint {ref.id} cannot be read: {error}")
            if is_absolute(ref.metadata) and not self.may_open(ref.metadata):
                problems.append(f"savepoint {ref.id} is in another store and is not opened: {redacted(ref.metadata)}")
        return snapshots, problems

    def may_open(self, path: str) -> bool:
        """Return whether a path that the directory names is in the same store as the directory: on the same disk, or in the same
        bucket of the same host."""
        return _store_of(path) == _store_of(self.storage.url)


UNREADABLE = (TidegateError, ValueError, LookupError, RecursionError, OSError)
"""What reading a directory that somebody else wrote, or damaged, may raise."""


def _store_of(path: str) -> tuple[str, str]:
    scheme, remote, rest = path.partition("://")
    if not remote or scheme == "file":
        return "file", ""
    return scheme, rest.partition("/")[0]


def jobs_in(
    directory: str, on_broken: Callable[[str, Exception], None] | None = None, **options: Any
) -> tuple[StoredJob, ...]:
    """Return the job whose directory this is, or all jobs of a checkpoint directory. Raises JobNotFound when there is none.

    A job whose log cannot be read does not hide the others: `on_broken` is called with its name and the error. If no job
    can be read, that error is raised.
    """
    url = location(directory)
    own = open_storage(url, **options)

    # The first entry of a log is never deleted, so it marks the directory of a job.
    if _exists(own, JobLayout("x").log(1).removeprefix("x/")):
        above, folder = split_location(url)
        candidates = [_job(open_storage(above, **options), folder)]
    else:
        candidates = []
        broken: list[Exception] = []
        for folder in own.folders():
            try:
                if "log" in own.folders(folder):
                    candidates.append(_job(own, folder))
            except UNREADABLE as error:
                broken.append(error)
                (on_broken or _warn)(decode_segment(folder), error)
        if broken and not any(candidates):
            raise broken[0]  # more useful than "holds no job"
    jobs = tuple(job for job in candidates if job is not None)
    if not jobs:
        raise JobNotFound(
            f"{directory} holds no job: there is no log in it or right below it. Name the job's directory, or the one given as "
            "execution.checkpointing.dir."
        )
    return jobs


def _warn(job: str, error: Exception) -> None:
    log.warning("the job %r cannot be read: %s", job, error)


def _job(storage: Storage, folder: str) -> StoredJob | None:
    return StoredJob.read(storage, JobLayout(decode_segment(folder)))


def _exists(storage: Storage, path: str) -> bool:
    try:
        storage.size(path)
    except ObjectMissing:
        return False
    return True
