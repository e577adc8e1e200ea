"""The checkpoint work of a task in the background: uploads of state, commits of output. Independent of Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.core.ids import AttemptId, Slot, TaskId
from tidegate.graph.model import SinkNode
from tidegate.runtime.exchange.assignment import Archive, TaskAssignment
from tidegate.runtime.exchange.messages import TaskCommitResult, Uploaded
from tidegate.runtime.exchange.program import LevelProgram
from tidegate.runtime.task.attempt_state import AttemptState
from tidegate.runtime.task.background_commit import BackgroundCommit
from tidegate.runtime.task.background_commit import begin as begin_commit
from tidegate.runtime.task.background_upload import TaskUploads, UploadHandle
from tidegate.state.version import VersionId


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """Uploads and commits that run while the task processes rows, and continue after it if they take longer."""

    uploads: Sequence[UploadHandle] = ()
    commits: Sequence[BackgroundCommit] = ()
    wait_ms: int = 0
    """How long `results` waits for all of them together."""

    @classmethod
    def start(
        cls, assignment: TaskAssignment, program: LevelProgram, slot: Slot, attempt: AttemptId, state: AttemptState
    ) -> BackgroundWork:
        """Start or continue the work that the assignment requests from this slot."""
        archive, work, term = assignment.archive, assignment.work, assignment.epoch.term
        if archive is None:
            return cls()
        if state.uploads or work.records:
            # Before the uploads: old records may fill the disk.
            state.forget_uploads()
        # Without orders, too: uploads of a checkpoint that was aborted are cancelled.
        own = _uploads(archive, assignment, program.level, slot, attempt, state)
        uploads = own.start(state.uploads, work.announced)
        if work.host_uploads is None:
            own.start_for_others(work.every_upload, state.directory_of)
        else:
            own.start_on_host(work.host_uploads, state.host, state.directory_of)
        commits: list[BackgroundCommit] = []
        if work.commits:
            sinks = {node.uid: node for node in program.nodes if isinstance(node, SinkNode)}
            commits = [
                begin_commit(
                    archive, assignment.job, assignment.lineage, term, sinks[order.sink], order, assignment.history
                )
                for order in work.commits[slot]
            ]
        return cls(uploads, commits, work.wait_ms)

    def with_early_upload(
        self,
        assignment: TaskAssignment,
        level: int,
        slot: Slot,
        attempt: AttemptId,
        state: AttemptState,
        version: VersionId | None,
    ) -> BackgroundWork:
        """Store the version that the task has sealed, if a checkpoint of this epoch is announced."""
        archive, early = assignment.archive, assignment.work.early
        if archive is None or early is None or version is None:
            return self
        orders = (*(handle.order for handle in self.uploads), early.order(slot, version))
        started = _uploads(archive, assignment, level, slot, attempt, state).start(orders, early.checkpoint_id)
        # The handles of the earlier orders say who has started those.
        return replace(self, uploads=[*self.uploads, started[-1]])

    def results(self) -> tuple[tuple[Uploaded, ...], tuple[TaskCommitResult, ...]]:
        """Return what has finished or failed. Wait up to `wait_ms` for the rest."""
        latest = time.monotonic() + self.wait_ms / 1000
        uploads = []
        for handle in self.uploads:
            # One limit for all of them together: rows wait meanwhile, however many uploads there are.
            part, error = handle.answer(max(0.0, latest - time.monotonic()))
            if part is not None or error is not None:
                uploads.append(Uploaded(handle.order.checkpoint_id, part, error))
        answers = [each.answer(max(0.0, latest - time.monotonic())) for each in self.commits]
        return tuple(uploads), tuple(answer for answer in answers if answer is not None)


def _uploads(
    archive: Archive, assignment: TaskAssignment, level: int, slot: Slot, attempt: AttemptId, state: AttemptState
) -> TaskUploads:
    return TaskUploads(
        archive=archive,
        job=assignment.job,
        directory=state.directory,
        task=TaskId(level, slot),
        term=assignment.epoch.term,
        attempt=attempt,
        backend=state.backend,
        stores_acks=assignment.work.stores_acks,
    )
