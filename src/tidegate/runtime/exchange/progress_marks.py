"""Marks that show the driver that the tasks of a Spark job make progress, while it runs.

An epoch is one Spark job, and so is the placement of tasks. Public PySpark says nothing about a job before it ends. The tasks
therefore leave marks where the driver can see them: in the job's storage, or, for a job without checkpoints, in the local root,
which the driver shares with tasks on its own host. A mark has no content; that it is new says that rows, timers or files have
moved since the last one.

The driver deletes marks when it has seen them. One that arrives when nobody looks any more has the name of a staged file of its
epoch, so the sweep deletes it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate.checkpoint.layout import JobLayout
from tidegate.core.ids import EpochId, Lineage
from tidegate.runtime.exchange.assignment import Archive
from tidegate.state.disk.local_root import LocalRoot
from tidegate.storage import Storage, open_storage, unique_name

_NAME = ".progress"
SHARE_OF_LIMIT = 6
"""A task leaves a mark, and the driver looks for marks, this many times within the time that an epoch may be silent."""


class ProgressMarks(Protocol):
    """The marks of one epoch."""

    def leave(self) -> None:
        """In a task: rows, timers or files have moved. Raises `StorageError` or `OSError`."""
        ...

    def take(self) -> bool:
        """In the driver: return whether there are new marks since the last call. Raises `StorageError` or `OSError`."""
        ...


@dataclass(frozen=True, slots=True)
class StoredMarks:
    """Marks in the job's storage."""

    storage: Storage
    layout: JobLayout
    epoch: EpochId

    def leave(self) -> None:
        self.storage.put(f"{self.layout.progress(self.epoch)}/{unique_name()}", b"")

    def take(self) -> bool:
        marks = [mark.path for mark in self.storage.list(self.layout.progress(self.epoch))]
        if marks:
            self.storage.delete(marks)
        return bool(marks)


@dataclass(frozen=True, slots=True)
class LocalMarks:
    """One file beside the versions of this host: tasks here, and a driver here, see it."""

    file: Path
    epoch: EpochId

    @classmethod
    def of(cls, root: LocalRoot, job: str, lineage: Lineage, epoch: EpochId) -> LocalMarks:
        return cls(root.lineage_directory(job, lineage) / _NAME, epoch)

    def leave(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(str(self.epoch))

    def take(self) -> bool:
        try:
            if self.file.read_text() != str(self.epoch):
                return False  # Of an epoch that has ended, or half written: then there is another one soon.
            self.file.unlink()
        except FileNotFoundError:
            return False
        return True

    def is_fresh(self, seconds: float) -> bool:
        """Whether a task of this host has left a mark so recently. After a clock was set back, none is."""
        try:
            age_s = time.time() - self.file.stat().st_mtime
            return 0 <= age_s < seconds and self.file.read_text() == str(self.epoch)
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class MarkPlace:
    """Where the tasks of a job leave their marks, for tasks and driver alike."""

    job: str
    lineage: Lineage
    archive: Archive | None
    """None: a job without checkpoints. Only a driver on the same host sees the marks of its tasks."""
    local_dir: str | None

    def of(self, epoch: EpochId) -> ProgressMarks:
        return self._local(epoch) if self.archive is None else self._stored(self.archive, epoch)

    def leave(self, epoch: EpochId, fresh_s: float) -> None:
        """In a task: leave a mark, unless another task of this host has just done so. One request for all of them is enough."""
        local = self._local(epoch)
        if local.is_fresh(fresh_s):
            return
        if self.archive is not None:
            self._stored(self.archive, epoch).leave()
        # After the stored one: if that failed, the next task of the host tries again.
        local.leave()

    def _local(self, epoch: EpochId) -> LocalMarks:
        return LocalMarks.of(LocalRoot.open(self.local_dir), self.job, self.lineage, epoch)

    def _stored(self, archive: Archive, epoch: EpochId) -> StoredMarks:
        key = f"{archive.url} {sorted(archive.options.items())}"
        if key not in _stores:
            _stores[key] = open_storage(archive.url, **archive.options)
        return StoredMarks(_stores[key], JobLayout(self.job), epoch)


_stores: dict[str, Storage] = {}
"""Of this process. Not those of uploads and downloads: requests to them are progress, and a mark itself is none."""
