"""Releases the output of completed checkpoints: decides what each sink commits now, and records what is committed.

Steps, which never wait for a target: sinks commit on their own threads (`sink_threads`) or in tasks, and report the result.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tidegate.checkpoint.coordination.coordinator import WakeAt
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.effects import CommitFailed
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.metadata import CommittedMark
from tidegate.checkpoint.output.committer_choice import CommitterChoice
from tidegate.checkpoint.output.release_plan import (
    Backoff,
    Bounds,
    CommitBatch,
    ReleaseSchedule,
    WaitingOutput,
    summary,
)
from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.sink import Committable, Settled
from tidegate.core.errors import ConnectorError
from tidegate.core.ids import EpochId, Lineage, Term, Uid
from tidegate.runtime.checkpoints.answers import fail_all
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.checkpoints.sink_threads import CommitResult, OutputStopped
from tidegate.runtime.checkpoints.term_effects import StartCommit, StartSweep, TermSteps, uncounted
from tidegate.runtime.epochs.job_description import TaskSink
from tidegate.runtime.exchange.messages import TaskCommitResult
from tidegate.storage import StorageError

log = logging.getLogger("tidegate")

_RECORD_AGAIN_MS = 1_000
"""When to retry a COMMITTED record that storage did not accept."""


class OutputNotPublished(ConnectorError):
    """A job ended, and its targets did not take all its output in time. The rows are kept."""

    code = "OUTPUT_NOT_PUBLISHED"

    def __init__(self, place: str, waiting: Sequence[WaitingOutput], why: str, stopped: bool = True) -> None:
        """`stopped`: the job was stopped; otherwise it has read all its input, and may be restarted."""
        self.path = place
        self.waiting = tuple(waiting)
        listed = "; ".join(str(each) for each in waiting) or "nothing is known to wait"
        end = "has stopped" if stopped else "has read all its input and ends"
        super().__init__(
            f"The job {end} with {place}, but not all its output is published: {why} Still waiting: {listed}. The "
            "rows are kept. Start the job again under the same name when its targets are available, and it publishes "
            "them."
        )

    @classmethod
    def in_time(
        cls, place: str, waiting: Sequence[WaitingOutput], seconds: float, stopped: bool = True
    ) -> OutputNotPublished:
        """Create the error for a timeout. If nothing waits, the targets are not to blame: storage did not accept the record."""
        within = f"within {seconds:.3g} s (execution.output.stop-timeout, --stop-within)."
        if waiting:
            return cls(place, waiting, f"a sink did not accept its output {within}", stopped)
        return cls(
            place, waiting, f"the sinks accepted it, but storage did not accept the record of that {within}", stopped
        )


@dataclass(frozen=True, slots=True)
class _AwaitedOutput:
    """A request that completes when all output up to an epoch is committed."""

    epoch: EpochId
    answer: Future[Any]
    result: CheckpointRef | None


class Sinks(Protocol):
    """The sinks of a job, as far as the release of their output must know them."""

    unasked: set[Uid]
    """Sinks whose targets could not be asked for their markers when the job started, and have taken nothing since."""

    @property
    def uids(self) -> Collection[Uid]: ...


class OutputRelease:
    """The output that waits for each sink, what is in progress, and who waits for it."""

    def __init__(
        self,
        ownership: OwnedTerm,
        sinks: Sinks,
        task_sinks: Mapping[Uid, TaskSink],
        statistics: CheckpointStatsTracker,
        backoff: Backoff | None,
        choice: CommitterChoice | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._ownership = ownership
        self._sinks = sinks
        self._task_sinks = task_sinks
        self._statistics = statistics
        self._history = ownership.history
        self._store = ownership.store
        self._chance = chance
        self.schedule = ReleaseSchedule(backoff)
        either = [uid for uid, sink in task_sinks.items() if sink.small_by_driver]
        self._choice = choice or CommitterChoice(either)
        self._awaited: list[_AwaitedOutput] = []
        self.for_tasks: tuple[CommitBatch, ...] = ()
        """The output that tasks are asked to commit. Replaced as a whole: the thread that runs epochs reads it."""
        self.committed_up_to: dict[Uid, EpochId] = {}
        """The epoch up to which this driver knows all output of a sink to be committed."""
        self.waiting: tuple[WaitingOutput, ...] = summary(self._store.due(), self.schedule)
        """The output that completed checkpoints carry and that is not known to be committed. Replaced as a
        whole: any thread may read it.
        """

    def held_by(self) -> WaitingOutput | None:
        """The sink for which too much output waits, if there is one: no batch is read until it has caught up."""
        config = self._history.config
        bounds = Bounds(config.max_waiting_epochs, config.max_waiting_bytes)
        return next((each for each in self.waiting if bounds.exceeded_by(each)), None)

    def release(self) -> TermSteps[None]:
        """Start to commit the output of each sink that is neither at work nor waiting after a failure."""
        due, now = self._store.due(), self._history.clock.now()
        # Small output is committed by the driver, large output by tasks: see decision 0010.
        by_driver = self._choice.of_driver(due, self.schedule.busy, now)
        stable = {uid: sink.stable for uid, sink in self._task_sinks.items() if uid not in by_driver}
        for batch in self.schedule.begin(due, now, stable):
            yield StartCommit(self._compared(batch))
        # Also when nothing began: what tasks committed meanwhile must leave the orders, or every epoch repeats them.
        self.for_tasks = tuple(map(self._compared, self.schedule.for_tasks(due, now, stable)))
        self.waiting = summary(due, self.schedule)
        again_ms = self.schedule.wake_ms(now)
        if again_ms is not None:
            yield WakeAt(again_ms)

    def on_result(self, result: CommitResult) -> TermSteps[None]:
        """A `StartCommit` has ended."""
        batch, error = result.batch, result.error
        for outcome in result.outcomes:
            self._statistics.commits[outcome.name] += 1
        if error is None:
            now = self._history.clock.now()
            self.schedule.succeeded(batch.sink, now)
            self._sinks.unasked.discard(batch.sink)
            self._choice.succeeded(batch.sink)
            parts = len(batch.committables)
            self._statistics.sinks.committed(batch.sink, result.duration_ms, parts, now.wall_ms)
            self._store.output_committed(batch)
            yield from self.record()
        # A target without markers would show these rows twice if they were offered again.
        elif result.taken:
            self._store.output_committed(CommitBatch(batch.sink, result.taken))

        if isinstance(error, CommitFailed):
            self._choice.failed(batch.sink, self._history.clock.now())
            self._offer_again(batch.sink, batch.last, str(error))
        elif isinstance(error, OutputStopped):
            yield from self._stop(error)
        elif error is not None:
            raise error
        yield from self.release()

    def on_committed_by_tasks(self, results: Sequence[TaskCommitResult]) -> TermSteps[None]:
        """Tasks have carried out orders to commit."""
        for each in results:
            sink = Uid(each.sink)
            marks, taken = (
                [CommittedMark(Lineage(m.lineage), sink, m.slot, EpochId(Term(m.term), m.number)) for m in some]
                for some in (each.marks, each.taken)
            )

            # `taken` before the error is judged: a failure in the middle of an order leaves the first part committed.
            self._store.ledger.confirm(taken)
            epoch = max(mark.epoch for mark in marks)
            self._statistics.commits.update(each.outcomes)

            outcome = CommitOutcome[each.outcome]
            if each.error is None:
                now = self._history.clock.now()
                self.schedule.succeeded(sink, now, by_tasks=True)
                self._sinks.unasked.discard(sink)
                parts = sum(each.outcomes.values())
                self._statistics.sinks.committed(sink, each.duration_ms, parts, now.wall_ms)
                self._store.ledger.confirm(marks)
            elif self._store.ledger.up_to(epoch).since(sink) is None:
                continue  # The driver has committed it meanwhile.
            elif outcome.stops_the_job:
                which = f"up to epoch {epoch}"
                yield from self._stop(
                    OutputStopped(sink=sink, which=which, epoch=epoch, outcome=outcome, error=each.error)
                )
            else:
                self._offer_again(sink, epoch, each.error, by_tasks=True)

        if results:
            yield from self.record()
            # The sink is free again, and what became due meanwhile waits for it.
            yield from self.release()

    def _offer_again(self, sink: Uid, epoch: EpochId, error: str, *, by_tasks: bool = False) -> None:
        now = self._history.clock.now()
        again_ms = self.schedule.failed(sink, error, now, self._chance(), by_tasks=by_tasks)
        log.warning(
            "sink %s did not accept its output up to epoch %s; it is retried in %.1f s: %s",
            sink,
            epoch,
            (again_ms - now.monotonic_ms) / 1000,
            error,
        )

    def _stop(self, error: OutputStopped) -> TermSteps[None]:
        """Stop the job. The rows stay in the checkpoint that carries them, and no later ones of the sink may overtake them.

        Repeating epochs does not help, so this replaces a failure that a restart would resolve. If another driver has taken over,
        that is the reason: its output is in the target, and this driver's history does not know it. Raises `ClaimLost` then.
        """
        yield from uncounted(self._ownership.check_held())
        log.error("%s", error)
        self.schedule.refused(error.sink, str(error))
        self._ownership.failure.set(error, over=(CheckpointsFailed,))
        yield from self.record()

    def _compared(self, batch: CommitBatch) -> CommitBatch:
        """Until a target that could not be asked has taken output, its committer asks first."""
        if batch.sink not in self._sinks.unasked:
            return batch
        return replace(batch, compare_with=self._store.entry.history)

    def record(self) -> TermSteps[None]:
        """Record what is committed, and complete the requests that wait for it."""
        try:
            yield from uncounted(self._store.record())
        except StorageError as error:
            log.warning("storage did not accept the record of committed output: %s", error)
            yield WakeAt(self._history.clock.now().plus(_RECORD_AGAIN_MS))
            return

        due, newest = self._store.due(), self._store.due_epoch
        waiting_sinks = set(due.waiting_sinks())
        if newest is not None:
            # After the record: sinks may remove what is needed to commit again up to here, and a start that finds no record
            # would.
            self.committed_up_to |= {uid: newest for uid in self._sinks.uids if uid not in waiting_sinks}
            self._statistics.sinks.committed_up_to(set(self._sinks.uids) - waiting_sinks, newest)

        # By epoch, not by sink: whoever waits was promised all output up to that epoch.
        first = due.first()
        ready = [each for each in self._awaited if first is None or first > each.epoch]
        self._awaited = [each for each in self._awaited if each not in ready]
        for each in ready:
            with contextlib.suppress(InvalidStateError):
                each.answer.set_result(each.result)

        if isinstance(self._ownership.failure.error, OutputStopped):
            # The output is not retried before the next start.
            self.refuse(self._ownership.failure.error)
            self._awaited.clear()

    def await_committed(self, answer: Future[Any], epoch: EpochId, result: CheckpointRef | None = None) -> None:
        """Complete the request with `result` when all output up to `epoch` is committed, and storage has the record of that."""
        self._awaited.append(_AwaitedOutput(epoch, answer, result))

    def complete_when_committed(self, answer: Future[Any]) -> TermSteps[None]:
        """Complete the request when all output that may be visible by now is committed and recorded. Retry all sinks now."""
        self.schedule.hurry()
        self.await_committed(answer, self.newest_due())
        # In this order: the record completes the request at once if nothing is left to commit.
        yield from self.release()
        yield from self.record()

    def refuse(self, error: BaseException) -> None:
        """Fail all requests that wait for output. May be called by any thread."""
        fail_all([each.answer for each in tuple(self._awaited)], error)

    def newest_due(self) -> EpochId:
        """Return the last epoch whose output may be committed by now."""
        return self._store.due().newest() or EpochId(Term(0), 0)

    def sweep_targets(self, committed_up_to: Mapping[Uid, EpochId]) -> TermSteps[None]:
        """Let sinks remove what discarded attempts left in their targets. `committed_up_to` was known before the newest
        entry was won: a start from that entry, or from a later one, commits it again only if a checkpoint carries it."""
        lineage = self._store.entry.lineage
        waiting: dict[Uid, list[Committable]] = {uid: [] for uid in committed_up_to}
        for each in self._store.uncommitted_output() if committed_up_to else ():
            if each.lineage == lineage and each.sink in committed_up_to and each.epoch <= committed_up_to[each.sink]:
                waiting[each.sink].append(each)
        for uid, epoch in committed_up_to.items():
            yield StartSweep(Settled(lineage, uid, epoch, tuple(waiting[uid])))

    def record_last(self, results: Iterable[CommitResult]) -> TermSteps[None]:
        """Record what sinks committed while the loop was stopping: these results were not received before it ended."""
        # After `ClaimLost` the record is the successor's: it asks the targets for their markers.
        taken = [result.batch for result in results if result.error is None]
        if not taken or isinstance(self._ownership.failure.error, ClaimLost):
            return
        for batch in taken:
            self._store.output_committed(batch)
        try:
            yield from uncounted(self._store.record())
        except StorageError as error:
            log.warning("storage did not accept the record of committed output; it will be offered again: %s", error)
