"""The checkpoint work of tasks: which uploads are in progress, and which versions must stay on local disk.

The thread of the checkpoint loop changes it; the thread that runs epochs reads it through `work` and `has_work`. Attributes
that both use are replaced as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from tidegate.checkpoint.coordination.announcements import Announcements
from tidegate.checkpoint.coordination.timing import Timing
from tidegate.checkpoint.files.task_part import digest_of
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.metadata import CheckpointMetadata, TaskState
from tidegate.checkpoint.output.staging import InlineLimits
from tidegate.checkpoint.task.version_upload import Materialized, Stored
from tidegate.core.ids import TaskId
from tidegate.runtime.checkpoints.checkpoint_work import ChangelogPlan, UploadState, plan_checkpoint_work
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.checkpoints.notices import CheckpointNotices
from tidegate.runtime.checkpoints.output import OutputRelease
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.state.version import VersionId


class PendingUploads:
    """The uploads of one term, and the snapshots that a checkpoint may still be taken of."""

    def __init__(self, ownership: OwnedTerm, job: JobDescription, output: OutputRelease, timing: Timing) -> None:
        self._job = job
        self._output = output
        self._timing = timing
        self._term = ownership.store.term
        config = ownership.history.config
        self._inline_bytes = config.inline_threshold_bytes
        self._inline_output = InlineLimits(config.inline_output_bytes, config.max_inline_output_bytes)
        self._ledger = ownership.store.ledger
        self._uploads: dict[int, PendingUpload] = {}
        self.announcements = Announcements()
        self.notices = CheckpointNotices(job.listening)
        self.latest: EpochSnapshot | None = None
        self.unseen: deque[EpochSnapshot] = deque()
        """Snapshots of epochs that the loop has not seen yet."""
        self._unseen_output: deque[int] = deque()
        """The size of the committables of these epochs."""
        self._kept: Mapping[TaskId, VersionId] = {}
        """Versions of the latest checkpoint: a rewind finds them on local disk."""
        self._stored: tuple[CheckpointRef | None, Mapping[TaskId, bytes]] = (None, {})
        """The latest checkpoint, and a digest of each task's files in it."""
        self.materialized: Mapping[TaskId, Materialized] = {}
        """With a changelog: stored versions that the next checkpoint may start from."""
        self._truncated: Mapping[TaskId, VersionId] = {}
        """With a changelog: versions up to which no checkpoint needs changes."""
        base = ownership.store.entry.base
        if base is not None and ownership.snapshot is not None:
            # The first checkpoint of a term reuses files of the one that it took over, and its versions must survive the first
            # rewind.
            self.completed(base, ownership.snapshot)

    def work(self, empty: bool) -> dict[int, CheckpointWork]:
        """Begin an epoch: return the checkpoint work of its tasks, by level. `empty`: it has no rows."""
        # The loop moves a snapshot from the first to the second: reading in this order misses none.
        snapshots = list(self.unseen)
        # The same holds for its output, which the loop moves to the ledger.
        waiting_bytes = sum(list(self._unseen_output)) + self._ledger.payload_bytes
        inline_bytes = self._inline_output.share(waiting_bytes, self._job.sink_tasks)
        snapshots += [] if self.latest is None else [self.latest]

        # Once for each epoch: the announcement is taken, and no other epoch gets it.
        early = self.announcements.begin_epoch(empty)
        state = UploadState(
            uploading=tuple(self._uploads.values()),
            snapshots=snapshots,
            kept=self._kept,
            latest=self._stored,
            early=early,
            announced=self.announcements.unresolved,
            changelog=ChangelogPlan(self.materialized, self._truncated),
        )

        planned = plan_checkpoint_work(
            self._job,
            self._term,
            state,
            inline_bytes=self._inline_bytes,
            is_empty=empty,
            publications=self._output.for_tasks,
        )

        notices = self.notices.take(empty)
        work = {
            # An empty epoch ends soon, and brings them.
            level: replace(
                each,
                stores_acks=self._timing.stores_acks and not empty,
                notices=notices.get(level, ()),
                inline_output_bytes=inline_bytes,
            )
            for level, each in planned.items()
        }

        return {0: CheckpointWork(notices=notices[0]), **work} if 0 in notices else work

    def ended(self, snapshot: EpochSnapshot, output_bytes: int = 0) -> None:
        """The epoch has ended with this snapshot, which the loop has not seen yet, and with committables of this size, which
        wait for a checkpoint."""
        self._unseen_output.append(output_bytes)
        self.unseen.append(snapshot)
        self.announcements.end_epoch()

    def has_work(self) -> bool:
        """Whether uploads of a checkpoint, output that tasks commit, or notices for functions wait for an epoch."""
        waits = any(each.is_awaited and not each.materializes for each in self._uploads.values())
        return bool(self._output.for_tasks) or waits or self.notices.are_waiting()

    def saw(self, snapshot: EpochSnapshot) -> None:
        """Mark the oldest unseen snapshot as seen by the loop."""
        self.latest = snapshot
        # `latest` is set before the snapshot leaves `unseen`: the thread that runs epochs sees it in one of them.
        self.unseen.popleft()
        self._unseen_output.popleft()
        self.announcements.saw_end()

    def add(self, upload: PendingUpload) -> None:
        self._uploads = {**self._uploads, upload.id: upload}

    def get(self, checkpoint_id: int) -> PendingUpload:
        return self._uploads[checkpoint_id]

    def awaits(self, checkpoint_id: int, task: TaskId) -> bool:
        """Whether the upload is under way, and this task has not acknowledged it."""
        upload = self._uploads.get(checkpoint_id)
        return upload is not None and task in upload.tasks and task not in upload.acknowledged

    def is_materialization(self, checkpoint_id: int) -> bool:
        upload = self._uploads.get(checkpoint_id)
        return upload is not None and upload.materializes

    def acknowledge(self, checkpoint_id: int, task: TaskId, state: TaskState) -> bool:
        """Note an acknowledgement that is awaited. Return False if it is not of the version that was asked for."""
        upload = self._uploads[checkpoint_id]
        # Several attempts may have stored a version under an announced id. Only one of them is the job's state.
        if not upload.snapshot.contains(task, state.version):
            return False
        upload.acknowledged.add(task)
        return True

    def forget(self, checkpoint_id: int | None) -> None:
        self._uploads = {id: each for id, each in self._uploads.items() if id != checkpoint_id}

    def forget_all(self) -> None:
        """Forget all uploads, and the epoch that was running: it will not end. What functions did when they were notified of
        the latest checkpoint may be undone, so they are notified again."""
        self._uploads = {}
        self.announcements.abandon_epoch()
        if self._stored[0] is not None:
            self.notices.add(self._stored[0].epoch, complete=True)

    def offer(self, checkpoint_id: int) -> Mapping[TaskId, Materialized]:
        """Return the versions that a checkpoint may start from. For one that was announced, those that its tasks know of:
        others may have been stored since."""
        early = self.announcements.offered(checkpoint_id)
        return self.materialized if early is None else early

    def offered(self) -> frozenset[int]:
        """Return the ids under which versions are stored that checkpoints in progress may start from."""
        return frozenset(
            made.stored.checkpoint_id for each in self._uploads.values() for made in each.materialized.values()
        )

    def truncate(self, upto: Mapping[TaskId, Materialized]) -> None:
        """A checkpoint has completed that starts from these versions: no later one needs the changes before them."""
        self._truncated = {**self._truncated, **{task: made.version for task, made in upto.items()}}

    def known(self, base: CheckpointRef) -> dict[TaskId, Stored]:
        """Return the files of each task in a checkpoint, if it is the latest."""
        ref, digests = self._stored
        # Digests are kept of the latest checkpoint only. Without them a task uploads everything, which is slow and never wrong.
        if ref is None or ref.metadata != base.metadata:
            return {}
        return {task: Stored(ref.term, ref.id, digest) for task, digest in digests.items()}

    def completed(self, ref: CheckpointRef, metadata: CheckpointMetadata, upload_ms: int | None = None) -> None:
        """Make this checkpoint the latest: the next one uploads only what it does not have. `upload_ms`: how long its slowest
        upload took."""
        self._timing.upload_ms = upload_ms
        self.forget(ref.id)
        self.notices.add(ref.epoch, complete=True)
        self._stored = (ref, {state.task: digest_of(state) for state in metadata.tasks})
        # A task without bytes may have no version on disk, only the name of one: see `_empty_state`.
        self._kept = {state.task: state.version for state in metadata.tasks if state.size_bytes}
