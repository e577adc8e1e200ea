"""Carries out the coordinator's decisions: starts uploads, completes checkpoints and savepoints, cleans up.

Each public method is one message, as steps (`term_effects`). One is carried out after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidegate.checkpoint.completed.completed_store import CheckpointNotCompleted, Draft, divided_output
from tidegate.checkpoint.coordination.announcements import Announced
from tidegate.checkpoint.coordination.coordinator import (
    Action,
    CompleteCheckpoint,
    Coordinator,
    DiscardFiles,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    StartUpload,
    WakeAt,
)
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.pending import PendingCheckpoint
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.statistics import Restored
from tidegate.checkpoint.coordination.stored_acks import StoredAcks
from tidegate.checkpoint.coordination.timing import Timing
from tidegate.checkpoint.effects import Put
from tidegate.checkpoint.files.contents import contents_of
from tidegate.checkpoint.files.output_objects import OutputParts
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.files.task_part import TaskPart, UploadAck, read_part, read_stored_part
from tidegate.checkpoint.job_log.entry import CheckpointRef, RunOutcome
from tidegate.checkpoint.metadata import CheckpointMetadata, TaskState, checksum_in, encode, operators
from tidegate.core.clock import Instant
from tidegate.core.errors import EpochFailed, ProtocolViolation
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, TaskId
from tidegate.runtime.checkpoints.answers import Answers
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.job_cleaning import JobCleaning
from tidegate.runtime.checkpoints.materializer import Materializer
from tidegate.runtime.checkpoints.metadata_builder import build_metadata
from tidegate.runtime.checkpoints.output import OutputRelease
from tidegate.runtime.checkpoints.owned_term import OwnedTerm, staged_by
from tidegate.runtime.checkpoints.storage_calls import CheckpointCalls
from tidegate.runtime.checkpoints.term_effects import TermSteps
from tidegate.runtime.checkpoints.uploads import PendingUploads
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.messages import Uploaded
from tidegate.runtime.sources.query_directory import read_sources
from tidegate.savepoint.snapshot import CANONICAL, CANONICAL_BACKEND
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.version import VersionId
from tidegate.storage import StorageError

log = logging.getLogger("tidegate")


class Checkpointer:
    """The checkpoints of one term: those in progress, and the work of tasks for them."""

    def __init__(
        self,
        ownership: OwnedTerm,
        job: JobDescription,
        uploads: PendingUploads,
        timing: Timing,
        output: OutputRelease,
        answers: Answers,
        calls: CheckpointCalls,
        chance: Callable[[], float],
    ) -> None:
        self._ownership = ownership
        self._job = job
        self._uploads = uploads
        self._timing = timing
        self._output = output
        self._answers = answers
        self._calls = calls
        self._chance = chance
        self._history = ownership.history
        self._store = ownership.store
        self._acks = StoredAcks(self._history.layout, ownership.store.term)
        self._cleaning = JobCleaning(self._history, ownership.store, self._acks)
        self._announcements = uploads.announcements
        entry = self._store.entry
        self._coordinator = Coordinator(timing, job.tasks, entry.last_id, entry.base)
        self._coordinator.statistics = calls.statistics
        self._materializer = Materializer(
            ownership, job, uploads, self._coordinator, cleaning=self._cleaning, chance=chance
        )
        if ownership.snapshot is not None and (base := entry.base) is not None:
            url = f"{self._history.storage.url}/{base.metadata}"
            calls.statistics.restored(Restored(base.id, self._now().wall_ms, not base.owned, url))

    def _now(self) -> Instant:
        return self._history.clock.now()

    def _informed(self) -> Coordinator:
        """Return the coordinator, which has looked at what epochs have begun. None can begin with an announcement until `_act`
        announces the next one."""
        self._coordinator.look(self._announcements.withdraw())
        return self._coordinator

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """The checkpoints in progress."""
        return self._coordinator.pending

    def in_flight(self) -> InFlight:
        """What clean-up must leave alone."""
        return self._coordinator.in_flight()

    def start(self) -> TermSteps[None]:
        """Start taking checkpoints."""
        first_ms = self._timing.cadence.first_delay_ms(self._chance())
        yield from self._act(self._informed().start(self._now(), first_ms))

    def begin_at(self, snapshot: EpochSnapshot) -> TermSteps[None]:
        """The run is at a checkpoint, or at the very beginning; no epoch has moved it yet."""
        self._uploads.latest = snapshot
        yield from self._act(self._informed().epoch_finished(snapshot.epoch, False, self._now()))

    def request(self, request: CheckpointRequest) -> TermSteps[None]:
        yield from self._act(self._informed().request(request, self._now()))

    def tick(self) -> TermSteps[None]:
        """Time has passed."""
        # First what tasks have stored while an epoch runs: it may complete a checkpoint that would expire now.
        now_ms = self._now().monotonic_ms
        expiring = [pending.id for pending in self._coordinator.pending if pending.deadline_ms <= now_ms]
        for checkpoint_id, part in (yield from self._acks.new(now_ms, expiring)):
            yield from self._acknowledge(checkpoint_id, read_stored_part(part))
        if (at_ms := self._acks.next_ms()) is not None:
            yield WakeAt(at_ms)

        yield from self._act(self._informed().tick(self._now()))

    def on_epoch(
        self, report: EpochReport, snapshot: EpochSnapshot, moved: bool, output: bool, drains: bool
    ) -> TermSteps[None]:
        """An epoch was accepted."""
        now = self._now()
        if not output:
            # Committed with its epoch and carried by no checkpoint: the rows are no longer needed.
            yield from self._cleaning.discard([path for each in report.committables for path in each.staged])
        else:
            self._store.ledger.accept(report.committables)
        self._uploads.saw(snapshot)  # after the ledger: see `PendingUploads.work`
        yield from self._output.on_committed_by_tasks(report.commit_results)
        self._timing.epoch_took(report.duration_ms, with_rows=report.rows_in > 0)
        begun = snapshot.announced
        took_ms = report.duration_ms if snapshot.versions else None  # without state, a checkpoint needs no other epoch
        actions = self._informed().epoch_finished(snapshot.epoch, moved, now, begun, took_ms, drains)
        self._announcements.resolve(begun)
        self._materializer.on_epoch(now)
        used = any(isinstance(each, StartUpload) and each.id == begun for each in actions)
        if begun is not None and (report.tries > 1 or not used):
            self._cleaning.expect_leftovers(checkpoints=2)  # tasks may still be storing what nobody needs
        yield from self._act(actions)
        for task, item in report.uploads:
            yield from self.on_upload(task, item)

    def on_upload(self, task: TaskId, item: Uploaded) -> TermSteps[None]:
        """A task has stored its version for a checkpoint, or cannot store it."""
        if item.part is not None:
            yield from self._acknowledge(item.checkpoint_id, read_part(item.part))
        elif item.error is not None and self._uploads.is_materialization(item.checkpoint_id):
            self._materializer.fail(item.checkpoint_id, task, item.error, self._now())
        elif item.error is not None:
            reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
            why = f"{task}: {item.error}"
            yield from self._act(self._informed().decline(item.checkpoint_id, reason, self._now(), why))

    def on_rewind(self) -> TermSteps[None]:
        """Forget the epochs after the latest checkpoint."""
        aborted = self._informed().abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, self._now())
        self._uploads.forget_all()
        self._materializer.forget()
        yield from self._act(aborted)  # It announces a checkpoint, which must not start from what is forgotten.
        self._cleaning.expect_leftovers()
        base = self._store.entry.base
        # A base of an earlier term means that no epoch of this one is in a checkpoint: the output of all of them goes.
        reached = None if base is None or base.epoch.term != self._store.term else base.epoch
        self._store.ledger.rewind(self._store.term, reached)
        # The return is what too many failed checkpoints asked for. Other errors stay: they are about the term.
        self._ownership.failure.clear(CheckpointsFailed)

    def abort(self) -> None:
        """Abort everything in progress: the job is claimed again, so none of it can complete. The loop's thread has ended."""
        self._informed().abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, self._now())

    def _act(self, actions: Iterable[Action]) -> TermSteps[None]:
        for action in actions:
            match action:
                case StartUpload():
                    yield from self._start_upload(action)
                case CompleteCheckpoint(pending):
                    yield from self._complete_checkpoint(pending)
                case NotifyComplete(ref, request):
                    yield from self._complete(ref, request)
                case NotifyAborted():
                    self._aborted(action)
                case DiscardFiles(paths):
                    yield from self._cleaning.discard(paths)
                case FailJob(message):
                    self._ownership.failure.set(CheckpointsFailed(message), over=())
                case WakeAt():
                    yield action
        # After all actions. What has ended by now needs no look at storage, and the announcement that `_informed` has
        # withdrawn must come back: epochs that begin without one make their checkpoint late.
        self._acks.watch_only(pending.id for pending in self._coordinator.pending)
        yield from self._announce(self._now())

    def _announce(self, now: Instant) -> TermSteps[None]:
        """Tell the next epoch which checkpoint will be taken of it, if that is known."""
        # An epoch with rows lasts longer than one without, so a checkpoint may be due at the end of only one of them.
        rows_ms = self._timing.epoch_ms(with_rows=True)
        empty_ms = self._timing.epoch_ms(with_rows=False)
        id = self._coordinator.announce(rows_ms, now)
        to_empty = self._coordinator.announce(empty_ms, now) is not None

        config, base = self._history.config, self._store.entry.base
        incremental = config.incremental and base is not None and base.owned
        changelog = incremental and config.changelog
        announced = None
        if id is not None:
            announced = Announced(
                id,
                incremental,
                to_empty,
                changelog,
                materialized=self._uploads.materialized if changelog else {},
                wait_ms=self._timing.early_wait_ms,
            )
        self._announcements.announce(announced, in_progress=bool(self._coordinator.pending))

        # What is not announced yet is announced when the time has come, though no other message arrives until then.
        for is_announced, expected_ms in ((id is not None, rows_ms), (to_empty, empty_ms)):
            if is_announced:
                continue
            at_ms = self._coordinator.announces_at(expected_ms)
            if at_ms is not None:
                yield WakeAt(at_ms)

    def _complete(self, ref: CheckpointRef, request: CheckpointRequest) -> TermSteps[None]:
        if self._answers.waits_for_output(request.token):
            self._output.await_committed(self._answers.take(request.token), ref.epoch, ref)
            yield from self._output.record()
        else:
            self._answers.give(request.token, ref)

    def _aborted(self, aborted: NotifyAborted) -> None:
        self._calls.record_calls(aborted.id)
        self._uploads.forget(aborted.id)
        self._cleaning.expect_leftovers()
        if aborted.epoch is not None and aborted.request.kind is not RequestKind.SAVEPOINT:
            self._uploads.notices.add(aborted.epoch, complete=False)
        if aborted.id is None and aborted.reason is not CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN:
            log.warning("a checkpoint was refused: %s", aborted.why)
        self._answers.give(aborted.request.token, EpochFailed(f"The checkpoint failed: {aborted.why}"))

    def _start_upload(self, action: StartUpload) -> TermSteps[None]:
        snapshot, job = self._uploads.latest, self._job
        if snapshot is None or snapshot.epoch != action.epoch:
            raise ProtocolViolation(
                f"A checkpoint of epoch {action.epoch} was started, but the job is at a different epoch."
            )
        full = not self._history.config.incremental if action.request.full is None else action.request.full
        base = self._store.entry.base if action.base is not None and not full else None
        changelog = self._history.config.changelog and base is not None

        try:
            # Now, not when the checkpoint completes: Spark deletes what its query directory keeps of old batches.
            sources = read_sources(snapshot.directory, snapshot.positions, len(job.sources))
        except (OSError, ProtocolViolation) as error:
            reason = CheckpointFailureReason.IO_EXCEPTION
            why = f"positions of the sources: {error}"
            yield from self._act(self._informed().decline(action.id, reason, self._now(), why))
            return

        # A task without a version has never had a row or timer, so there is nothing that it could store.
        missing = frozenset(task for task in job.tasks if task in snapshot.versions)
        tables = None
        if action.request.format == CANONICAL:
            tables = operators.with_undeclared_states(job.operators, self._ownership.snapshot, job.dropped_states)

        upload = PendingUpload(
            id=action.id,
            snapshot=snapshot,
            tasks=missing,
            sources=sources,
            base={} if base is None else self._uploads.known(base),
            folder=action.request.target,
            tables=tables,
            changelog=changelog,
            materialized=self._uploads.offer(action.id) if changelog else {},
        )
        self._uploads.add(upload)

        if missing:
            self._acks.watch(action.id, self._now().monotonic_ms)
            if (at_ms := self._acks.next_ms()) is not None:
                yield WakeAt(at_ms)

        backend = job.backend if tables is None else CANONICAL_BACKEND
        for task in job.tasks:
            if task not in missing:
                # Without state, it has nothing to upload.
                ack = UploadAck(checkpoint_id=action.id, task=task, state=_empty_state(job, task, snapshot, backend))
                yield from self._act(self._informed().acknowledge(ack, self._now()))

    def _acknowledge(self, checkpoint_id: int, part: TaskPart) -> TermSteps[None]:
        state, task = part.state, part.state.task
        if not self._uploads.awaits(checkpoint_id, task):
            return
        if not self._uploads.acknowledge(checkpoint_id, task, state):
            self._cleaning.expect_leftovers()  # of an attempt that was not accepted
            return
        if self._uploads.is_materialization(checkpoint_id):
            self._calls.add(part.requests)
            self._materializer.acknowledge(checkpoint_id, state, self._now())
            return
        ack = part.acknowledges(checkpoint_id)
        yield from self._act(self._informed().acknowledge(ack, self._now()))

    def _complete_checkpoint(self, pending: PendingCheckpoint) -> TermSteps[None]:
        """Write metadata and log entry, release the output, complete the request, clean up: in this order."""
        upload = self._uploads.get(pending.id)
        if upload.folder is not None:
            yield from self._complete_savepoint(pending, upload, upload.folder)
            return

        # Both before the entry is won: what it drops follows from the first, and for the second see
        # `OutputRelease.sweep_targets`.
        before = self._store.entry.retained
        committed_up_to = dict(self._output.committed_up_to)
        output = divided_output(self._store, pending.id, pending.epoch, self._ownership.shares(pending.request))

        try:
            metadata = yield from self._metadata(pending, upload, output)
        except StorageError as error:
            yield from self._not_completed(pending.id, error)
            return

        draft = _draft(pending, metadata, output, self._history.layout.metadata(pending.id))
        try:
            # Any other error leaves the outcome unknown, and ends the term.
            ref = yield from self._store.append_checkpoint(draft)
        except CheckpointNotCompleted as error:
            yield from self._not_completed(pending.id, error)
            return

        # From here the checkpoint exists, whatever happens. First what the next checkpoint starts from, so that the actions below
        # find it.
        self._uploads.completed(ref, metadata, pending.slowest_upload_ms)
        self._materializer.completed(upload, draft.changes)
        self._coordinator.statistics.metadata_bytes = len(draft.metadata)
        self._ownership.snapshot = metadata
        dropped = [old.id for old in before if old not in self._store.entry.retained]
        # Its output may be visible only from now on.
        actions = self._informed().on_completed(pending.id, ref, dropped, self._now())

        # Output first: this only starts commits, and what follows makes requests to storage, for which readers would wait.
        # The pin goes only now that this job can start from a checkpoint of its own.
        yield from self._output.release()
        yield from self._act(actions)
        yield from self._ownership.unpin_origin()
        yield from self.clean()

        self._calls.record_calls(pending.id)
        yield from self._output.sweep_targets(committed_up_to)
        yield from self._act(self._informed().cleaned(len(dropped), self._now()))

    def _complete_savepoint(self, pending: PendingCheckpoint, upload: PendingUpload, folder: str) -> TermSteps[None]:
        """Complete a savepoint whose files are all stored.

        1. Write `_metadata`, which completes it. A crash before leaves files that are not a savepoint; a
           crash after it, for a savepoint that was to end the job, leaves one that the job does not know: it
           resumes from its last checkpoint.
        2. If it ends the job, enter it into the log. From then on the job resumes from it.
        3. Release its output, as after every checkpoint; a crash before leaves that to the next start. A stop waits for it
           (`CheckpointLoop.output_committed`).
        """
        path = f"{folder}/_metadata"
        try:
            output = OutputParts(self._store.ledger.carried_by(pending.epoch))
            metadata = yield from self._metadata(pending, upload, output)
            data = encode(metadata)
            yield Put(path, data)
        except StorageError as error:
            yield from self._not_completed(pending.id, error)
            return

        reach("savepoint.1-metadata", id=pending.id, term=self._store.term)
        # The folder is the user's from now on: no task stores anything more in it.
        self._uploads.forget(pending.id)

        ref = CheckpointRef(
            id=pending.id,
            term=self._store.term,
            epoch=pending.epoch,
            lineage=self._store.entry.lineage,
            metadata=path,
            checksum=checksum_in(data),
            owned=False,
        )

        contents = contents_of(path, metadata, staged_by)
        if pending.request.kind is RequestKind.TERMINAL_SAVEPOINT:
            yield from self._store.append_terminal_savepoint(ref, contents)
            self._uploads.notices.add(ref.epoch, complete=True)
            self._ownership.snapshot = metadata
        else:
            # Not an entry: the user may delete it, so the job must not depend on it.
            self._store.follow_savepoint(ref, contents)

        actions = self._informed().on_completed(pending.id, ref, (), self._now())
        self._calls.record_calls(pending.id)
        yield from self._output.release()
        yield from self._act(actions)

        if self._store.entry.base == ref:
            # It ends the job. The next start begins from it, and knows nothing of a pin.
            yield from self._ownership.unpin_origin()

    def _not_completed(self, checkpoint_id: int, error: Exception) -> TermSteps[None]:
        self._uploads.forget(checkpoint_id)
        yield from self._act(self._informed().on_completion_failed(checkpoint_id, self._now(), str(error)))

    def _metadata(
        self, pending: PendingCheckpoint, upload: PendingUpload, output: OutputParts
    ) -> TermSteps[CheckpointMetadata]:
        return (
            yield from build_metadata(
                pending,
                upload,
                job=self._job,
                before=self._ownership.snapshot,
                lineage=self._store.entry.lineage,
                term=self._store.term,
                output=output,
                now=self._now(),
                shares=self._ownership.shares(pending.request),
            )
        )

    def finish(self, outcome: RunOutcome, keep: bool) -> TermSteps[None]:
        """End the run gracefully, and record it in the log."""
        yield from self._act(self._informed().close(self._now()))
        yield from self._store.finish(outcome, keep)
        yield from self.clean()

    def clean(self) -> TermSteps[None]:
        """Delete what no checkpoint needs any more."""
        yield from self._cleaning.clean(self.in_flight())


def _draft(pending: PendingCheckpoint, metadata: CheckpointMetadata, output: OutputParts, path: str) -> Draft:
    data = encode(metadata)
    return Draft(
        id=pending.id,
        epoch=pending.epoch,
        metadata=data,
        checksum=checksum_in(data),
        contents=contents_of(path, metadata, staged_by, output.objects),
        changes={str(task): ack.change for task, ack in pending.acks.items() if ack.change is not None},
        objects=output.new,
    )


def _empty_state(job: JobDescription, task: TaskId, snapshot: EpochSnapshot, backend: str) -> TaskState:
    return TaskState(
        task=task,
        key_groups=range_of_slot(task.slot, job.parallelism, job.max_parallelism),
        backend=backend,
        version=VersionId(snapshot.epoch, AttemptId(0)),
    )
