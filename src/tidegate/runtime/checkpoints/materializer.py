"""With a changelog: has tasks store whole versions in the background, and offers them to checkpoints.

1. When it is the turn of some tasks, an id is reserved and they are asked for the versions of the last epoch, with every epoch
   until they have answered. Until then checkpoints start from the versions they started from before.
2. Checkpoints that begin after the answer start from the new version. Clean-up spares its files, and those it shares with the
   checkpoint that was the latest then, because the id is reserved.
3. When such a checkpoint has completed, its metadata names the files, the id is released, and the changes before the version
   are removed from local disk. While another checkpoint in progress was offered the version, the id stays reserved. None is
   announced meanwhile, so there are no others.

A crash before 3 leaves files that the sweep of the next owner finds. If the job goes back, everything is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tidegate.checkpoint.coordination.coordinator import Coordinator
from tidegate.checkpoint.files.task_part import UNKNOWN, ListChange, digest_of
from tidegate.checkpoint.metadata import TaskState
from tidegate.checkpoint.task.version_upload import Materialized, Stored
from tidegate.core.clock import Instant
from tidegate.core.faults import reach
from tidegate.core.ids import TaskId
from tidegate.runtime.checkpoints.epoch_snapshot import PendingUpload
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.job_cleaning import JobCleaning
from tidegate.runtime.checkpoints.materializations import Materializations
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.checkpoints.uploads import PendingUploads
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.state.backends import WITH_CHANGELOG

log = logging.getLogger("tidegate")


class Materializer:
    """That of one term. Used by the thread of the checkpoint loop."""

    def __init__(
        self,
        ownership: OwnedTerm,
        job: JobDescription,
        uploads: PendingUploads,
        coordinator: Coordinator,
        *,
        cleaning: JobCleaning,
        chance: Callable[[], float],
    ) -> None:
        config = ownership.history.config
        tasks = job.tasks
        self._ownership = ownership
        self._uploads = uploads
        self._coordinator = coordinator
        self._cleaning = cleaning
        # Otherwise the last tasks of a job that restarts more often than the interval passes would never have their turn.
        first = int(chance() * len(tasks))
        self._turns = Materializations(config.materialize_interval_ms, tasks, config.materialize_failures, first)

    def on_epoch(self, now: Instant) -> None:
        """Ask the tasks whose turn it is for the versions of the epoch that has ended."""
        due, snapshot, latest = self._turns.due(now), self._uploads.latest, self._ownership.snapshot
        if not due or snapshot is None or latest is None:
            return

        # A task whose latest part has no changes starts from whole files anyway, and one whose version is stored already would
        # store the same again.
        changed = {state.task for state in latest.tasks if state.backend.endswith(WITH_CHANGELOG)}
        ready = {task: made.version for task, made in self._turns.ready.items()}
        tasks = frozenset(
            task for task in due if task in changed and snapshot.versions.get(task) not in (None, ready.get(task))
        )

        if not tasks:
            return

        # `reserve` takes the next id, so no epoch may begin with that one announced to it meanwhile.
        self._coordinator.look(self._uploads.announcements.withdraw())
        base = self._ownership.store.entry.base
        reuses = self._ownership.history.config.materialize_incrementally and base is not None and base.owned
        id = self._coordinator.reserve(base.metadata if base is not None and reuses else None)
        reach("materialize.1-reserved", id=id)

        stored = self._uploads.known(base) if base is not None and reuses else {}
        self._uploads.add(
            PendingUpload(
                id=id,
                snapshot=snapshot,
                tasks=tasks,
                sources=(),
                base={task: files for task, files in stored.items() if task in tasks},
                materializes=True,
            )
        )

        # Not durable: a crash forgets the turn with its id, and the files are swept.
        self._turns.begin(id, tasks, now)
        reach("materialize.2-asked", id=id)

    def acknowledge(self, id: int, state: TaskState, now: Instant) -> None:
        """A task has stored its version."""
        reach("materialize.3-stored", id=id)
        stored = Stored(self._ownership.store.term, id, digest_of(state))
        self._turns.acknowledge(state.task, Materialized(stored, state.version), now)
        self._close_turn(id)
        reach("materialize.4-offered", id=id)

    def fail(self, id: int, task: TaskId, error: str, now: Instant) -> None:
        """A task cannot store its version. The job fails if that happens too often in a row, as in Flink."""
        log.warning("%s could not store its whole state, and tries again later: %s", task, error)
        if self._turns.fail(task, now):
            message = f"{task} could not store its state, after others had failed in a row: {error}"
            self._ownership.failure.set(CheckpointsFailed(message), over=())
        self._close_turn(id)

    def completed(self, upload: PendingUpload, changes: Mapping[str, ListChange]) -> None:
        """A checkpoint has completed. The versions that it was offered are part of it, or are not needed. `changes` says by task
        how its files differ from those of the checkpoint before."""
        offered = upload.materialized
        if offered:
            reach("materialize.5-completed", id=upload.id)
        self._turns.use(offered)
        self._uploads.truncate(offered)
        self._offer()
        # A task that started from such a version has files that no checkpoint had before. Others have left files.
        if any((change := changes.get(str(task))) is None or change.base != UNKNOWN for task in offered):
            self._cleaning.expect_leftovers()
        if offered:
            reach("materialize.6-released", id=upload.id)

    def forget(self) -> None:
        """The job goes back."""
        self._turns.forget()
        self._offer()

    def _close_turn(self, id: int) -> None:
        if not self._turns.is_under_way(id):
            self._uploads.forget(id)
        self._offer()

    def _offer(self) -> None:
        self._uploads.materialized = self._turns.ready
        for id in self._turns.released(self._uploads.offered()):
            self._coordinator.return_id(id)
