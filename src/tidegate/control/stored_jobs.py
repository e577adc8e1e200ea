"""Jobs as their storage tells of them, with no driver alive: which there are, what they retain, how they ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.entry import CheckpointRef, Entry
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.log import newest
from tidegate.core.errors import ControlError
from tidegate.savepoint.snapshot import StoredSnapshot, location, split_location
from tidegate.storage import ObjectMissing, Storage, open_storage
from tidegate.storage.port import decode_segment
from tidegate.storage.routed import is_absolute


class JobNotFound(ControlError):
    """A directory holds no job's log."""

    code = "JOB_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One job's directory, and the newest entry of its log: all that is true about it."""

    storage: Storage
    layout: JobLayout
    newest: Entry

    @staticmethod
    def read(storage: Storage, layout: JobLayout) -> StoredJob | None:
        """The job as its log tells now; None if it has none."""
        end = perform(newest(layout), storage)
        return None if end is None else StoredJob(storage, layout, end)

    @property
    def name(self) -> str:
        return self.layout.job

    @property
    def url(self) -> str:
        return f"{location(self.storage.url)}/{self.layout.root}"

    def snapshots(self, newest_first: bool = False) -> Iterator[tuple[CheckpointRef, StoredSnapshot]]:
        """The retained checkpoints, and savepoints that the job has claimed. Each is opened when the caller comes to it."""
        for ref in reversed(self.newest.retained) if newest_first else self.newest.retained:
            if is_absolute(ref.metadata):
                yield ref, StoredSnapshot.open(ref.metadata)
            else:
                yield ref, StoredSnapshot.within(self.storage, ref.metadata)


def jobs_in(directory: str, **options: Any) -> tuple[StoredJob, ...]:
    """The job whose directory this is, or all jobs of a checkpoint directory. Raises JobNotFound when there is none."""
    url = location(directory)
    own = open_storage(url, **options)
    if _exists(own, JobLayout("x").log(1).removeprefix("x/")):
        above, folder = split_location(url)
        found = [_job(open_storage(above, **options), folder)]
    else:
        found = [_job(own, folder) for folder in own.folders() if "log" in own.folders(folder)]
    jobs = tuple(job for job in found if job is not None)
    if not jobs:
        raise JobNotFound(
            f"{directory} holds no job: there is no log in it or right below it. Name the job's directory, or the one given as "
            "execution.checkpointing.dir."
        )
    return jobs


def _job(storage: Storage, folder: str) -> StoredJob | None:
    return StoredJob.read(storage, JobLayout(decode_segment(folder)))


def _exists(storage: Storage, path: str) -> bool:
    try:
        storage.size(path)
    except ObjectMissing:
        return False
    return True
