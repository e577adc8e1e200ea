"""The checkpoint work of tasks: which uploads are in progress, and which versions must stay on local disk.

The thread of the checkpoint loop changes it; the thread that runs epochs reads it through `work` and `has_work`. Attributes
that both use are replaced as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock

from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.metadata import CheckpointMetadata, TaskState
from tidegate.checkpoint.task_part import digest_of
from tidegate.core.ids import TaskId
from tidegate.runtime.driver.checkpoint_work import plan_checkpoint_work
from tidegate.runtime.driver.epoch_snapshot import Announced, EpochSnapshot, PendingUpload
from tidegate.runtime.driver.job_description import JobDescription
from tidegate.runtime.driver.output_release import OutputRelease
from tidegate.runtime.driver.ownership import Ownership
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.state.version import VersionId


class PendingUploads:
    """The uploads of one term, and the snapshots that a checkpoint may still be taken of."""

    def __init__(self, ownership: Ownership, job: JobDescription, output: OutputRelease) -> None:
        self._job, self._output = job, output
        self._term, self._inline_bytes = ownership.store.term, ownership.history.config.inline_threshold_bytes
        self._uploads: dict[int, PendingUpload] = {}
        self._lock = Lock()
        self._next: Announced | None = None
        """The announcement that no epoch has taken yet."""
        self._taken = 0
        """The checkpoint that was announced to an epoch last."""
        self._unsettled = 0
        """The same, until the loop has seen the end of that epoch."""
        self.latest: EpochSnapshot | None = None
        self.unseen: deque[EpochSnapshot] = deque()
        """Snapshots of epochs that the loop has not seen yet."""
        self._kept: Mapping[TaskId, VersionId] = {}
        """Versions of the latest checkpoint: a rewind finds them on local disk."""
        self._stored: tuple[CheckpointRef | None, Mapping[TaskId, bytes]] = (None, {})
        """The latest checkpoint, and a digest of each task's files in it."""
        base = ownership.store.entry.base
        if base is not None and ownership.snapshot is not None:
            self.completed(base, ownership.snapshot)

    def work(self, empty: bool) -> dict[int, CheckpointWork]:
        """Return the checkpoint work of the tasks of the next epoch, by level. `empty`: the epoch has no rows."""
        # The loop moves a snapshot from the first to the second: reading in this order misses none.
        snapshots = list(self.unseen)
        snapshots += [] if self.latest is None else [self.latest]
        early = self._take_announcement()
        return plan_checkpoint_work(
            self._job, self._term, tuple(self._uploads.values()), snapshots, self._kept, self._stored,
            self._inline_bytes, empty, self._output.for_tasks, early, self._unsettled,
        )  # fmt: skip

    def announce(self, next: Announced | None) -> None:
        """Announce a checkpoint of the epoch that is planned next, or none."""
        with self._lock:
            self._next = next

    def withdraw(self, id: int) -> bool:
        """Take back the announcement of a checkpoint. Return False if an epoch has begun with it."""
        with self._lock:
            self._next = None
            return self._taken < id

    def settle(self, id: int | None) -> None:
        """The loop has seen the end of the epoch that began with this announcement."""
        with self._lock:
            if id == self._unsettled:
                self._unsettled = 0

    def _take_announcement(self) -> Announced | None:
        """Return the announcement for the epoch that is being planned. None if an epoch has taken it before: the loop may not
        have seen the end of that one yet."""
        with self._lock:
            taken, self._next = self._next, None
            if taken is None or taken.id <= self._taken:
                return None
            self._taken = self._unsettled = taken.id
            return taken

    def has_work(self) -> bool:
        """Whether uploads, or output that tasks publish, wait for an epoch."""
        return bool(self._output.for_tasks) or any(each.missing for each in self._uploads.values())

    def saw(self, snapshot: EpochSnapshot) -> None:
        """Mark the oldest unseen snapshot as seen by the loop."""
        self.latest = snapshot
        self.unseen.popleft()

    def add(self, upload: PendingUpload) -> None:
        self._uploads = {**self._uploads, upload.id: upload}

    def get(self, checkpoint_id: int) -> PendingUpload:
        return self._uploads[checkpoint_id]

    def awaits(self, checkpoint_id: int, task: TaskId) -> bool:
        """Whether the upload is under way, and this task has not acknowledged it."""
        upload = self._uploads.get(checkpoint_id)
        return upload is not None and task in upload.missing

    def acknowledge(self, checkpoint_id: int, task: TaskId, state: TaskState) -> bool:
        """Note an acknowledgement that is awaited. Return False if it is not of the version that was asked for."""
        upload = self._uploads[checkpoint_id]
        if state.version != upload.snapshot.versions[task]:
            return False
        self.add(replace(upload, missing=upload.missing - {task}))
        return True

    def forget(self, checkpoint_id: int | None) -> None:
        self._uploads = {id: each for id, each in self._uploads.items() if id != checkpoint_id}

    def forget_all(self) -> None:
        self._uploads = {}

    def completed(self, ref: CheckpointRef, metadata: CheckpointMetadata) -> None:
        """Make this checkpoint the latest: the next one uploads only what it does not have."""
        self.forget(ref.id)
        self._stored = (ref, {state.task: digest_of(state.files) for state in metadata.tasks})
        self._kept = {state.task: state.version for state in metadata.tasks if state.size_bytes}
