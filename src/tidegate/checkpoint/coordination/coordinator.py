"""The checkpoint coordinator: messages in, actions out. No I/O, no clock, no thread; time comes with each message.

`timing` decides when. Monotonic time alone decides what is due; the wall time of a message is used only in statistics and
metadata.

A checkpoint's life: requested → triggered on the last finished epoch → every task's upload acknowledged → completed by
the driver, with a log entry; or failed with a reason, at any point before its log entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.checkpoint.coordination.announcements import Ahead
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason, ToleranceTracker, exceeded
from tidegate.checkpoint.coordination.pending import PendingCheckpoint, Stage
from tidegate.checkpoint.coordination.requests import (
    TOO_MANY,
    CheckpointRequest,
    Load,
    RequestKind,
    RequestQueue,
    RunNow,
    Wait,
)
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.coordination.timing import Timing
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.files.task_part import UploadAck
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.core.clock import Instant, MonotonicMs
from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import EpochId, TaskId

Reason = CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class StartUpload:
    """Have the tasks make the versions of `epoch` durable for this checkpoint. Repeat it for those that have not
    acknowledged."""

    id: int
    epoch: EpochId
    request: CheckpointRequest
    base: str | None
    """Metadata name of the only checkpoint whose handles may be reused."""


@dataclass(frozen=True, slots=True)
class CompleteCheckpoint:
    """All tasks have acknowledged. The driver responds with `on_completed` or `on_completion_failed`."""

    pending: PendingCheckpoint


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Answer the request: the checkpoint is in the log. Listeners learn of it from the statistics."""

    ref: CheckpointRef
    request: CheckpointRequest


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Have tasks stop uploading for it, and report the failure to the requester."""

    id: int | None
    """None if it was rejected before it started."""
    request: CheckpointRequest
    reason: CheckpointFailureReason
    message: str = ""
    """What happened, if the reason alone does not say."""
    epoch: EpochId | None = None
    """The epoch that it was to contain, if it was started."""

    @property
    def why(self) -> str:
        return f"{self.reason.message}: {self.message}" if self.message else f"{self.reason.message}."


@dataclass(frozen=True, slots=True)
class DiscardFiles:
    """Uploads of a checkpoint that will never complete; nothing else may reference them."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailJob:
    """Too many checkpoints failed. The restart strategy decides what follows."""

    message: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `tick` no later than this."""

    at_ms: MonotonicMs


Action: TypeAlias = StartUpload | CompleteCheckpoint | NotifyComplete | NotifyAborted | DiscardFiles | FailJob | WakeAt


class Coordinator:
    """One per term. `tasks` are all tasks of the job; `base` is the checkpoint that it was restored from."""

    def __init__(
        self, timing: Timing, tasks: Iterable[TaskId], last_id: int = 0, base: CheckpointRef | None = None
    ) -> None:
        self.statistics = CheckpointStatsTracker()
        self._timing = timing
        self._tasks = frozenset(tasks)
        self._queue = RequestQueue()
        self._pending: dict[int, PendingCheckpoint] = {}
        self._tolerance = ToleranceTracker(timing.cadence.tolerable_failures)
        self._next_id = last_id + 1
        self._base = base
        self._finished: EpochId | None = None
        # Whether anything has changed since the last trigger. An idle job takes no checkpoints.
        self._moved = False
        # Dropped checkpoints that are not deleted yet. More than max-concurrent of them hold back the next one, so that
        # a slow clean-up does not pile up objects.
        self._cleaning = 0
        self._closed = False
        self._drains = False
        self._seen: Ahead | None = Ahead()
        """What epochs have begun. None since something was announced: an epoch may have begun with it."""
        self._reserved: dict[int, str | None] = {}
        """Ids under which tasks store files that checkpoints of other ids may contain, and the base whose files they reuse."""
        self._begun: int | None = None
        """While an epoch is being finished: the id under which its tasks have begun to store their versions."""

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        return tuple(self._pending.values())

    def in_flight(self) -> InFlight:
        """What clean-up must leave alone."""
        lowest = min((*self._pending, *self._reserved), default=self._next_id)
        bases = (*(pending.base for pending in self._pending.values()), *self._reserved.values())
        return InFlight(lowest, frozenset(base for base in bases if base is not None))

    def look(self, ahead: Ahead) -> None:
        """Learn what epochs have begun. Every message that may start a checkpoint, and `reserve`, comes after a look. No epoch
        may begin with an announcement between the two: `announce` ends what was seen."""
        self._seen = ahead

    def reserve(self, base: str | None) -> int:
        """Return an id that no checkpoint gets. Clean-up spares files that are stored under it, and those of `base`, until it
        is returned or everything is aborted."""
        id = self._next_id
        if _looked(self._seen).has_begun_with(id):
            id += 1
        self._next_id = id + 1
        # Before anything is stored under it: a sweep that begins now already spares the id.
        self._reserved[id] = base
        return id

    def return_id(self, id: int) -> None:
        self._reserved.pop(id, None)

    def start(self, now: Instant, first_delay_ms: int) -> list[Action]:
        """Begin the period."""
        self._timing.begin(now, first_delay_ms)
        return self._trigger_due(now)

    def announce(self, expected_ms: int, now: Instant) -> int | None:
        """Return the id of the checkpoint that will be taken of the epoch that runs next, if it takes about as long as
        expected. The tasks of that epoch may store their versions under it as soon as they have sealed them.

        An epoch that has begun with the id reports it to `epoch_finished`. If another checkpoint is triggered before, the
        id is never used. None while a checkpoint is in progress: its files are not known yet, and would be stored again.
        """
        self._seen = None
        earliest = self.announces_at(expected_ms)
        if earliest is None or now.monotonic_ms < earliest:
            return None
        return self._next_id

    def announces_at(self, expected_ms: int) -> MonotonicMs | None:
        """Return from when on an epoch that takes about as long as expected ends when a checkpoint is due. None: that depends
        on more than time."""
        if self._closed or self._drains or self._pending:
            return None
        return self._timing.announces_at(expected_ms, is_requested=self._queue.has_periodic)

    def epoch_finished(
        self,
        epoch: EpochId,
        moved: bool,
        now: Instant,
        announced: int | None = None,
        took_ms: int | None = None,
        drains: bool = False,
    ) -> list[Action]:
        """An epoch was accepted. `moved`: positions, state or committables have changed. `announced`: the id under which its
        tasks have begun to store their versions. Unless that is void, the checkpoint is taken, also if it is due a little
        later. `took_ms`: how long it took; None: uploads need not wait for another one. `drains`: event time has ended with it,
        so only the checkpoint that the job ends with may contain it."""
        if self._closed:
            return []
        self._finished = epoch
        self._drains = drains
        # Not `= moved`: an epoch that changed something stays worth a checkpoint, however many empty ones follow.
        self._moved = self._moved or moved
        # A savepoint or a materialization may have taken an id meanwhile. What tasks stored under the announced one is of no use.
        is_void = announced is not None and announced != self._next_id
        self._timing.epoch_ended(now, took_ms, announced=announced is not None, is_void=is_void)
        if announced is None or is_void:
            return self._trigger_due(now)
        self._timing.take_early(now)
        # `_id_for` reads it: the checkpoint that is triggered within this call gets the announced id.
        self._begun = announced
        actions = self._trigger_due(now)
        self._begun = None
        # Used or not, its tasks may have stored files under it.
        self._next_id = max(self._next_id, announced + 1)
        return actions

    def request(self, request: CheckpointRequest, now: Instant) -> list[Action]:
        """Request a checkpoint. The outcome is a `NotifyComplete` or `NotifyAborted` with this request."""
        if self._closed:
            return [NotifyAborted(None, request, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)]
        out = self._queue.add(request)
        # The request that falls out of a full queue may be another one than this.
        refused: list[Action] = [] if out is None else [NotifyAborted(None, out, TOO_MANY)]
        return refused + self._trigger_due(now)

    def tick(self, now: Instant) -> list[Action]:
        """Time has passed: expire and trigger what is due."""
        actions: list[Action] = []
        for pending in list(self._pending.values()):
            # A checkpoint whose entry is being written cannot expire: only the log knows whether it exists.
            if pending.stage is not Stage.COMPLETING and now.monotonic_ms >= pending.deadline_ms:
                actions += self._fail(pending, Reason.CHECKPOINT_EXPIRED, now)
        return actions + self._trigger_due(now)

    def acknowledge(self, ack: UploadAck, now: Instant) -> list[Action]:
        """Record an acknowledgement. Safe in any order, any number of times, however late.

        The next sweep finds the files of a late one.
        """
        pending = self._pending.get(ack.checkpoint_id)
        if pending is None:
            return []
        if not pending.acknowledge(ack, now):
            # It was acknowledged before, or the task is of another parallelism.
            return _second(pending, ack)
        if not pending.is_complete or pending.stage is not Stage.UPLOADING:
            return []
        if _must_be_held(pending, self._base):
            # All of its files are stored, but it does not exist yet. A checkpoint is requested for it at once: at the
            # next period it might be minutes away.
            pending.stage = Stage.HELD
            self._queue.add(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=now.monotonic_ms, forced=True))
            return self._trigger_due(now)
        return self._complete(pending)

    def _complete(self, pending: PendingCheckpoint) -> list[Action]:
        """Ids enter the log in order: while the entry of a newer checkpoint is being written, an older one waits for
        the outcome."""
        if not pending.request.kind.is_savepoint and any(
            other.id > pending.id and other.stage is Stage.COMPLETING and not other.request.kind.is_savepoint
            for other in self._pending.values()
        ):
            return []
        pending.stage = Stage.COMPLETING
        return [CompleteCheckpoint(pending)]

    def decline(
        self, checkpoint_id: int, reason: CheckpointFailureReason, now: Instant, message: str = ""
    ) -> list[Action]:
        """A task cannot do its part."""
        pending = self._pending.get(checkpoint_id)
        # It is over; or it is too late to decline: all tasks have acknowledged, this one in another attempt.
        if pending is None or pending.stage is Stage.COMPLETING:
            return []
        return self._fail(pending, reason, now, message) + self._trigger_due(now)

    def on_completed(
        self, checkpoint_id: int, ref: CheckpointRef, dropped: Iterable[int], now: Instant
    ) -> list[Action]:
        """The checkpoint is in the log (for a savepoint: its metadata is written). Older pending ones are subsumed."""
        done = self._pending.pop(checkpoint_id)
        self.statistics.completed(done, now, ref.metadata)
        self._tolerance.succeeded()
        actions: list[Action] = [NotifyComplete(ref, done.request)]
        # Nothing follows it: what else is pending is aborted, and no period begins.
        if done.request.kind is RequestKind.TERMINAL_SAVEPOINT:
            return actions + self.close(now)
        if not done.request.kind.is_savepoint:
            # Savepoints never become the base: their owner may delete them.
            self._base = ref
            self._timing.completed(now, late=self._finished is not None and ref.epoch < self._finished)
            gone = tuple(dropped)
            self._cleaning += len(gone)
            self.statistics.dropped(gone)
            for older in list(self._pending.values()):
                # Its epoch is contained in the newer one. Completing it now would put ids into the log out of order.
                if older.id < checkpoint_id and not older.request.kind.is_savepoint:
                    actions += self._fail(older, Reason.CHECKPOINT_SUBSUMED, now)
                # The log protects its epoch from now on: see `_must_be_held`.
                elif older.stage is Stage.HELD and older.epoch <= ref.epoch:
                    older.stage = Stage.COMPLETING
                    actions.append(CompleteCheckpoint(older))
        return actions + self._trigger_due(now)

    def on_completion_failed(self, checkpoint_id: int, now: Instant, message: str = "") -> list[Action]:
        """Its metadata or entry certainly does not exist. A caller that cannot be certain must stop the driver instead."""
        failed = self._fail(self._pending[checkpoint_id], Reason.FINALIZE_CHECKPOINT_FAILURE, now, message)
        # They were waiting for the outcome of the newer one (`_complete`), and nothing else wakes them.
        for older in [p for p in self._pending.values() if p.stage is Stage.UPLOADING and p.is_complete]:
            failed += self._complete(older)
        return failed + self._trigger_due(now)

    def cleaned(self, checkpoints: int, now: Instant) -> list[Action]:
        """This many dropped checkpoints were deleted."""
        self._cleaning = max(0, self._cleaning - checkpoints)
        return self._trigger_due(now)

    def close(self, now: Instant) -> list[Action]:
        """The run is over: trigger no more checkpoints."""
        actions = self.abort_all(Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, now)
        # After the aborts, which would otherwise be refused as messages to a closed coordinator.
        self._closed = True
        self._timing.end()
        return actions

    def abort_all(self, reason: CheckpointFailureReason, now: Instant) -> list[Action]:
        """Abort everything before a rewind: pending checkpoints belong to epochs that are discarded. Requests fail, too.

        Not during a publication: only the log can tell its outcome.
        """
        actions: list[Action] = []
        for pending in list(self._pending.values()):
            actions += self._fail(pending, reason, now)
        self._finished = None
        # No epoch of the new attempt has ended, so there is nothing that a checkpoint could contain.
        self._moved = False
        self._reserved.clear()
        # Tasks of the discarded epoch may have stored files under the announced id, which the epochs that follow must
        # not use.
        if _looked(self._seen).has_begun_with(self._next_id):
            self._next_id += 1
        actions += [NotifyAborted(None, request, reason) for request in self._queue.remove(lambda r: True)]
        self._timing.begin_again(now)
        return actions

    def _trigger_due(self, now: Instant) -> list[Action]:
        """Trigger what can be triggered, and return when to check again."""
        ahead = _looked(self._seen)
        # The queue keeps one periodic request, however many periods pass.
        if self._timing.next_period(now):
            self._queue.add(CheckpointRequest(kind=RequestKind.PERIODIC, at_ms=now.monotonic_ms))
        actions: list[Action] = []
        wakes = [p.deadline_ms for p in self._pending.values() if p.stage is not Stage.COMPLETING]

        # Several may start at once: a savepoint does not count for max-concurrent.
        while self._finished is not None and not _is_ending(self._pending):
            load = Load(_under_way(self._pending), self._cleaning, self._timing.pause_ends_ms)
            max_concurrent = self._timing.cadence.max_concurrent
            choice = self._queue.take(load, max_concurrent, now.monotonic_ms, only_final=self._drains)
            if isinstance(choice, Wait):
                wakes += [] if choice.until_ms is None else [choice.until_ms]
                break
            if choice.request.kind is RequestKind.PERIODIC:
                # With another checkpoint in progress none would be announced to the next epoch, so there is nothing to
                # wait for.
                until_ms = None if self._begun or self._pending else self._timing.waits_for_epoch_until(now)
                wakes += [] if until_ms is None else [until_ms]
                if until_ms is not None or self._must_wait_for_epoch(ahead):
                    # `take` removed it. It keeps its age, so it does not lose its place.
                    self._queue.add(choice.request)
                    break
                if not self._moved and self._base is not None:
                    continue  # nothing changed since the last one; the next period requests again
            started = self._trigger(choice, now)
            actions.append(started)
            wakes.append(self._pending[started.id].deadline_ms)
        if self._timing.due_ms is not None:
            wakes.append(self._timing.due_ms)
        return [*actions, WakeAt(min(wakes))] if wakes else actions

    def _must_wait_for_epoch(self, ahead: Ahead) -> bool:
        """Whether a periodic checkpoint waits for the end of the epoch that runs. One of the epoch before could not begin
        sooner than the next epoch, and would grow old meanwhile. A request by hand means what is finished now."""
        return self._begun is None and (ahead.runs or ahead.has_begun_with(self._next_id))

    def _trigger(self, run: RunNow, now: Instant) -> StartUpload:
        assert self._finished is not None
        # Files of a savepoint or of another job are never named by a checkpoint of this one: it must outlive them.
        owned = self._base is not None and self._base.owned
        reusable = owned and not run.request.kind.is_savepoint and not run.request.full
        base = self._base.metadata if self._base is not None and reusable else None
        id = self._id_for(run.request)
        pending = PendingCheckpoint(
            id=id,
            epoch=self._finished,
            request=run.request,
            triggered=now,
            deadline_ms=now.plus(self._timing.cadence.timeout_ms),
            tasks=self._tasks,
            base=base,
        )
        self._pending[id] = pending
        if not run.request.kind.is_savepoint:
            # What a savepoint contains is still missing in the checkpoints.
            self._moved = False
        self.statistics.triggered(pending)
        return StartUpload(id, pending.epoch, run.request, base)

    def _id_for(self, request: CheckpointRequest) -> int:
        """Return the next id, unless tasks have begun to store something under it that is not what the request wants."""
        id, begun = self._next_id, self._begun
        suits = begun == id and not request.kind.is_savepoint and request.full is None
        if not suits and (begun == id or _looked(self._seen).has_begun_with(id)):
            id += 1
        self._begun = None
        self._next_id = id + 1
        return id

    def _fail(
        self, pending: PendingCheckpoint, reason: CheckpointFailureReason, now: Instant, message: str = ""
    ) -> list[Action]:
        # First: what follows must see the queue without it.
        del self._pending[pending.id]
        # What it would have contained is in no checkpoint now.
        self._moved = True
        self.statistics.failed(pending, now, reason, message)
        actions: list[Action] = [NotifyAborted(pending.id, pending.request, reason, message, epoch=pending.epoch)]
        files = tuple(path for ack in pending.acks.values() for path in ack.new_files)
        if files:
            actions.append(DiscardFiles(files))
        # A savepoint that fails is reported to who asked for it, and endangers no progress of the job.
        if not pending.request.kind.is_savepoint and self._tolerance.failed(pending.id, reason):
            actions.append(FailJob(exceeded(reason)))
        return actions


def _looked(seen: Ahead | None) -> Ahead:
    if seen is None:
        raise ProtocolViolation("The coordinator got a message without having looked at what epochs have begun.")
    return seen


def _under_way(pending: Mapping[int, PendingCheckpoint]) -> int:
    """The checkpoints that max-concurrent counts. Savepoints are excluded: one that cannot be written would
    otherwise block all checkpoints, and with them output, until it expires."""
    return sum(not each.request.kind.is_savepoint for each in pending.values())


def _is_ending(pending: Mapping[int, PendingCheckpoint]) -> bool:
    """Whether the savepoint that ends the job is in progress: it would undo a checkpoint of a later epoch."""
    return any(each.request.kind is RequestKind.TERMINAL_SAVEPOINT for each in pending.values())


def _must_be_held(pending: PendingCheckpoint, base: CheckpointRef | None) -> bool:
    """A savepoint is not the base of restarts (its owner may delete it), so it alone does not protect its epoch
    from a rewind.

    If its epoch were discarded, the output of the epochs run instead would overtake its uncommitted output, which
    would then be lost to a job that starts from it later. So it exists only once the log has a checkpoint of its
    epoch or a later one.
    """
    if pending.request.kind is not RequestKind.SAVEPOINT:
        return False
    return base is None or base.epoch < pending.epoch


def _second(pending: PendingCheckpoint, ack: UploadAck) -> list[Action]:
    """Handle another attempt's upload of the same task: the first one counts, and files that only the second
    uploaded are not needed."""
    first = pending.acks.get(ack.task)
    if first is None:
        return []
    extra = tuple(path for path in ack.new_files if path not in first.new_files)
    return [DiscardFiles(extra)] if extra else []
