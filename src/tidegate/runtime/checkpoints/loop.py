"""The checkpoints and the output of a running job: epochs report what they did, one thread does the rest.

The thread takes and completes checkpoints, cleans up and releases output, one after the other; epochs report to
it and continue. What it does are the steps of a term (`checkpointer`, `output`, `owned_term`), which yield what they
need, and `edge` carries that out. The thread never waits for the
target of a sink: the threads of `sink_threads` do, and post their results. The heartbeat has its own thread
(`ownership`).
"""

from __future__ import annotations

import os
import uuid
from concurrent.futures import Future
from threading import Event

from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.savepoint_target import check_target
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.job_log.entry import CheckpointRef, RunOutcome
from tidegate.checkpoint.output.release_plan import Backoff, WaitingOutput
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.choices import JobEnd, Retention
from tidegate.config.errors import OptionError
from tidegate.core.errors import EpochFailed
from tidegate.runtime.checkpoints.answers import fail_all
from tidegate.runtime.checkpoints.edge import TermEdge
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.loop_thread import LoopThread
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.sink_threads import SinkThreads
from tidegate.runtime.checkpoints.term import RunningTerm
from tidegate.runtime.checkpoints.term_effects import TermSteps
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.savepoint.snapshot import CANONICAL, location
from tidegate.storage.open import is_object_store
from tidegate.storage.routed import is_absolute

_JOIN_S = 60.0
"""How long the end of a run waits for threads that are still at work."""
_LAST_OUTPUT_S = 10.0
"""How long the end of a run waits for sinks that are committing before it records in the log that the run has ended."""


class CheckpointLoop:
    """One for each term. Every method may be called by any thread unless it says otherwise."""

    def __init__(
        self,
        ownership: Ownership,
        job: JobDescription,
        sinks: SinkThreads,
        statistics: CheckpointStatsTracker | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Start taking checkpoints. `sinks` and `statistics` are those of the previous term, if the job is claimed again;
        `backoff` determines how long a sink waits after a failure.
        """
        self.ownership = ownership
        self.sinks = sinks
        self._history = ownership.history
        self._failure = ownership.failure
        url = self._history.storage.url
        prices = self._history.config.prices if is_object_store(url) else None
        self.statistics = statistics or CheckpointStatsTracker(directory=location(url), prices=prices)
        self._thread = LoopThread("tidegate-checkpoints", self._history.clock, self._on_wake, ownership.fail)
        self._asked: set[Future[None]] = set()
        """Requests for committed output that the thread has not seen yet."""
        self._over: BaseException | None = None
        """Why no further request is completed."""
        self.term = RunningTerm(ownership, job, sinks, self.statistics, backoff=backoff)
        self._answers = self.term.answers
        self.output = self.term.output
        self.timing = self.term.timing
        self.uploads = self.term.uploads
        self.checkpointer = self.term.checkpointer
        self.edge = TermEdge(self.term, self._thread, sinks)
        ownership.watch(self._answer_no_more)
        # The first message: whatever is requested from here on comes after it.
        self.edge.post(self.term.begin)
        self._thread.start()

    # -- called by the thread that runs epochs -----------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error that makes it impossible to continue, if there is one."""
        self._failure.check()

    @property
    def failed(self) -> Event:
        return self._failure.event

    @property
    def broken(self) -> BaseException | None:
        """Return what ended the term, if anything did. Then the job must be claimed again."""
        error = self._failure.error
        return self._over if error is None or isinstance(error, CheckpointsFailed) else error

    @property
    def waiting_output(self) -> tuple[WaitingOutput, ...]:
        """Return the output that completed checkpoints carry and that is not known to be committed."""
        return self.output.waiting

    def held_by(self) -> WaitingOutput | None:
        """Return the sink for which too much output waits, if there is one: no batch is read until it has caught up."""
        return self.output.held_by()

    def epoch_finished(
        self, report: EpochReport, snapshot: EpochSnapshot, moved: bool, output: bool = True, drains: bool = False
    ) -> None:
        """Report an accepted epoch. Returns immediately. `output`: what its sinks prepared waits for a checkpoint. `drains`:
        event time has ended with it, so only the checkpoint that the job ends with may contain it."""
        waits = report.committables if output else ()
        self.uploads.ended(snapshot, sum(len(each.payload) for each in waits))
        self.edge.post(lambda: self.checkpointer.on_epoch(report, snapshot, moved, output, drains))

    def begin_at(self, snapshot: EpochSnapshot) -> None:
        """Report that the run is at a checkpoint, or at the very beginning; no epoch has moved it yet."""
        self.edge.post(lambda: self.checkpointer.begin_at(snapshot))

    def rewind(self) -> None:
        """Forget the epochs after the latest checkpoint. Waits until the message in progress has been carried out."""
        self._thread.call(lambda: self.edge.run(self.checkpointer.on_rewind()))

    # -- requests ----------------------------------------------------------------------------------------------------

    def request(
        self, awaits_output: bool = True, full: bool | None = None, final: bool = False
    ) -> Future[CheckpointRef]:
        """Take a checkpoint of the last epoch now, whatever the interval says; with `full`, one that shares no file with
        earlier ones, with `full=False` an incremental one, otherwise as configured. `final`: the job ends with it.

        The future completes when its output is committed; with `awaits_output=False`, when the checkpoint is complete.
        """
        token = uuid.uuid4().hex
        answer = self._answers.expect(token, for_output=awaits_output)
        self._ask(RequestKind.MANUAL, token, forced=True, full=full, final=final)
        return answer

    def savepoint(self, target: str | None, terminal: bool, format: str = CANONICAL) -> Future[str]:
        """Take a savepoint of the last epoch, in a new folder below `target`. The result is the path of that folder."""
        lineage = self.ownership.store.entry.lineage
        folder = f"{_savepoints_below(self._history.config, target).rstrip('/')}/savepoint-{lineage[:6]}-{uuid.uuid4().hex[:12]}"
        token = uuid.uuid4().hex
        answer: Future[str] = Future()
        self._answers.expect(token).add_done_callback(lambda done: _pass_on(done, answer, folder))
        kind = RequestKind.TERMINAL_SAVEPOINT if terminal else RequestKind.SAVEPOINT
        self._ask(kind, token, target=folder, format=format)
        return answer

    def check_target(self, target: str | None) -> None:
        """Raise `BadSavepointTarget` if no savepoint can be written below `target`, `OptionError` if none is known."""
        check_target(self._history.storage, _savepoints_below(self._history.config, target))

    def _ask(
        self,
        kind: RequestKind,
        token: str,
        *,
        forced: bool = False,
        full: bool | None = None,
        target: str | None = None,
        format: str | None = None,
        final: bool = False,
    ) -> None:
        request = CheckpointRequest(
            kind=kind,
            at_ms=self._history.clock.now().monotonic_ms,
            token=token,
            forced=forced,
            full=full,
            target=target,
            format=format,
            final=final,
        )
        self.edge.post(lambda: self.checkpointer.request(request))
        self._refuse_if_over()

    def output_committed(self) -> Future[None]:
        """Completes when all output that may be visible by now is committed, and storage has the record of it."""
        answer: Future[None] = Future()
        self._asked.add(answer)

        def wait() -> TermSteps[None]:
            # First the other list has it: the heartbeat's thread may refuse everything that waits, at any moment.
            yield from self.output.complete_when_committed(answer)
            self._asked.discard(answer)

        self.edge.post(wait)
        self._refuse_if_over()
        return answer

    def _refuse_if_over(self) -> None:
        """If the thread has ended, fail the requests that wait for it."""
        if self._over is not None:
            self._refuse_answers(self._over)

    def _answer_no_more(self, error: BaseException) -> None:
        self._over = self._over or error
        self._refuse_answers(error)

    def _refuse_answers(self, error: BaseException) -> None:
        self._answers.refuse(error)
        fail_all(tuple(self._asked), error)
        self.output.refuse(error)

    # -- the end -----------------------------------------------------------------------------------------------------

    def keeps_checkpoints(self, end: JobEnd) -> bool:
        """Whether a run that ends like this leaves its checkpoints. One that has read all its input continues with the next
        start, whatever retention says about other endings."""
        return end is JobEnd.SUSPENDED or Retention(self._history.config.retention).keeps(end)

    def finish(self, end: JobEnd) -> None:
        """End the run gracefully, and record it in the log."""
        keep = self.keeps_checkpoints(end)
        try:
            # Let sinks finish first: a checkpoint whose output is committed need not be kept for it.
            self.sinks.stop(_LAST_OUTPUT_S)
            self._thread.call(lambda: self.edge.run(self.checkpointer.finish(RunOutcome(end), keep)))
        finally:
            self.leave()

    def leave(self) -> None:
        """Stop without a log entry, as a crash would."""
        self._stop()
        self.sinks.stop(_JOIN_S)
        # A thread that still waits for storage is in the middle of a message, and only one is carried out at a time.
        if not self._thread.is_alive:
            self.edge.record_last_results()
        self._answer_no_more(EpochFailed("The run of the job has ended."))

    def claim_again(self, reason: str = "the job was claimed again after a failure") -> Ownership:
        """After `broken`, or to rescale: own the job under a new term. Raises `ClaimLost` if another driver owns it.

        If it fails, it may be called again.
        """
        # First: a request that comes while the thread stops is refused, instead of waiting for nobody.
        self._over = self._over or EpochFailed(f"The checkpoint failed: {reason}.")
        self._stop()
        if self._thread.is_alive:
            raise EpochFailed("The thread that writes checkpoints is still waiting for storage.")
        # After the thread has ended. The outcome of what it was writing is for the claim to decide.
        self._refuse_answers(EpochFailed(f"The checkpoint failed: {reason}."))
        return self.ownership.followed_by(self.term.claimed_again())

    def is_owner(self) -> bool:
        """Whether no other driver has claimed the job, according to its log now."""
        return self.ownership.is_held()

    def is_own_thread(self) -> bool:
        """Whether the caller runs on a thread of the loop or of a sink, for example in a user callback."""
        return self._thread.is_current or self.sinks.is_own_thread()

    def _stop(self) -> None:
        self.ownership.stop()
        self._thread.stop(_JOIN_S)

    def _on_wake(self) -> None:
        self.edge.run(self.term.wake())


def _pass_on(done: Future[CheckpointRef], answer: Future[str], folder: str) -> None:
    error = done.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(folder)


def _savepoints_below(config: CheckpointConfig, target: str | None) -> str:
    below = target or config.savepoint_dir
    if below is None:
        raise OptionError(
            (
                "There is no directory for the savepoint: name one (`tidegate savepoint JOB DIR`, "
                "`tidegate stop JOB --savepoint-path DIR`), "
                "or set execution.checkpointing.savepoint-dir.",
            )
        )
    return below if is_absolute(below) else os.path.abspath(below)
