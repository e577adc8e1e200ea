"""Changes the parallelism of a running job: refuses what is impossible, ends the attempt at a checkpoint, and answers.

What happens in which order are the steps of `checkpoints.rescale`. The first two are carried out here, on a thread of their own;
then the query ends, and the supervisor carries out the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial

from tidegate.checkpoint.effects import run
from tidegate.core.errors import EpochFailed, PreconditionFailed
from tidegate.core.log_setup import in_this_context
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.rescale import (
    EndAttempt,
    HeldEpochs,
    HoldEpochs,
    RescaleEffect,
    RescaleInPlace,
    TakeCheckpoint,
    TakeLastCheckpoint,
)
from tidegate.runtime.driver.attempt import Attempt, Stopping
from tidegate.runtime.driver.epoch_lock import EpochLock
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.monitoring.rescale_history import (
    Rescale,
    RescaleHistory,
    RescalePhase,
    RescaleReason,
    RescaleRequester,
)

log = logging.getLogger("tidegate")


class RescaleRefused(PreconditionFailed):
    """The job cannot be rescaled as asked. It runs on as it is."""

    code = "RESCALE_REFUSED"


class RescaleFailed(EpochFailed):
    """A rescale has failed. The job continues with its old parallelism, from a checkpoint that contains all it did."""

    code = "RESCALE_FAILED"
    retryable = True


class Rescaler:
    """One for each run, for one rescale at a time. `attempt` returns the attempt that runs now."""

    def __init__(self, job: RunningJob, lock: EpochLock, attempt: Callable[[], Attempt]) -> None:
        self._job = job
        self._lock = lock
        self._attempt = attempt
        self._asking = threading.Lock()
        self._answer: Future[Rescale] | None = None
        self._due: RescaleInPlace | None = None
        """The attempt has ended for this one. Changed under the epoch lock."""
        self._closed = False
        self.history = RescaleHistory(self._completed)
        if job.autoscaler is not None and job.loop is not None:
            job.autoscaler.act_by(lambda parallelism: self.ask(parallelism, RescaleRequester.AUTOSCALER))

    @property
    def due(self) -> RescaleInPlace | None:
        """The rescale that the attempt has ended for, until the next attempt runs."""
        return self._due

    def ask(self, parallelism: int, by: RescaleRequester = RescaleRequester.USER) -> Future[Rescale]:
        """Begin a rescale. Raises `RescaleRefused` if it is impossible; completes when the job runs again."""
        with self._asking:
            before = self._job.settings.parallelism
            self._check(parallelism)
            answer: Future[Rescale] = Future()
            self.history.begin(before, parallelism, by)
            if parallelism == before:
                answer.set_result(self.history.end(RescaleReason.NO_CHANGE))
                return answer
            self._answer = answer

        log.info("rescaling job %s from %d to %d (requested by: %s)", self._job.name, before, parallelism, by.lower())
        # A thread of its own: the first checkpoint takes as long as uploads do, and whoever asked may be a REST request.
        threading.Thread(
            target=in_this_context(self._end_attempt),
            args=(RescaleInPlace(before, parallelism),),
            name="tidegate-rescale",
            daemon=True,
        ).start()
        return answer

    def _check(self, parallelism: int) -> None:
        job, most = self._job, self._job.settings.max_parallelism
        if job.loop is None:
            raise RescaleRefused(
                "A job without checkpoints cannot be rescaled: it would lose its state. Start it with checkpoint=…."
            )
        if parallelism < 1:
            raise RescaleRefused(f"Parallelism {parallelism} is impossible: a job has at least one slot.")
        if parallelism > most:
            raise RescaleRefused(
                f"Parallelism {parallelism} is above max parallelism {most}, which decides the key group of every key and is "
                f"fixed for the life of the state. Rescale to {most} at most, or write a savepoint for a greater one offline "
                "with `tidegate savepoint copy --max-parallelism`."
            )
        if self._answer is not None:
            raise RescaleRefused("Another rescale of the job is in progress. Ask again when it has ended.")
        if self._closed or job.stop.is_asked():
            raise RescaleRefused("The job is not running: it stops, or has ended.")
        if self._attempt().error is not None:
            raise RescaleRefused(
                "The job is not running: it returns to its latest checkpoint after a failure. Ask again when it runs."
            )

    # -- steps 1 and 2, on a thread of their own -----------------------------------------------------------------------

    def _end_attempt(self, rescale: RescaleInPlace) -> None:
        attempt = self._attempt()
        try:
            with ExitStack() as held:
                failure = run(rescale.end_attempt(), partial(self._carry_out, rescale, attempt, held))
            if failure is not None:
                raise failure
        except Stopping:
            self.give_way()
        except Exception as error:
            log.warning("job %s is not rescaled: %s", self._job.name, error)
            self.fail(error)
        else:
            # Not under the epoch lock: Spark waits for a batch, which may wait for the lock.
            attempt.stop_query()

    def _carry_out(
        self, rescale: RescaleInPlace, attempt: Attempt, held: ExitStack, effect: RescaleEffect
    ) -> HeldEpochs | BaseException | None:
        """`held` keeps the epoch lock until the steps have ended."""
        job, loop = self._job, self._job.loop
        assert loop is not None  # `_check` has refused a job without checkpoints
        match effect:
            case TakeCheckpoint():
                self.history.enter(RescalePhase.SAVING)
                self._take_checkpoint(loop)
            case HoldEpochs():
                job.rescale_waits.set()  # A batch that is held for a sink makes way.
                held.enter_context(attempt.between_epochs())
                self.history.enter(RescalePhase.ENDING)
                return attempt.epochs.held(loop)
            case TakeLastCheckpoint():
                return attempt.epochs.take_last_checkpoint(loop)
            case EndAttempt():
                self._due = rescale
                attempt.retire()
            case _:
                raise TypeError(f"{effect} is carried out by the supervisor")
        return None

    def _take_checkpoint(self, loop: CheckpointLoop) -> None:
        try:
            loop.request(awaits_output=False).result(self._job.timeout_s)
        except TimeoutError:
            raise EpochFailed(
                f"its checkpoint did not complete within {self._job.timeout_s:g} s (execution.checkpointing.timeout)."
            ) from None

    # -- called by the supervisor --------------------------------------------------------------------------------------

    def take(self) -> RescaleInPlace | None:
        """After the end of a query: return the rescale that it ended for. If there is none, the job ends, and is not rescaled."""
        with self._lock:
            if self._due is None:
                self._closed = True
                self._attempt().retire()
            else:
                self.history.enter(RescalePhase.RESTORING)
            return self._due

    def reopen(self) -> None:
        """The job did not end: it has failed at its end, and an attempt runs again."""
        with self._lock:
            self._closed = False

    def succeed(self) -> None:
        answer, ended = self._end(RescaleReason.SUCCEEDED)
        if answer is None or ended is None:
            return
        new, pause_ms = ended.new_parallelism, ended.pause_ms
        log.info("job %s runs with parallelism %d after a pause of %d ms", self._job.name, new, pause_ms)
        answer.set_result(ended)

    def fail(self, error: BaseException, reason: RescaleReason = RescaleReason.EXCEPTION_OCCURRED) -> None:
        """End the rescale in progress, if there is one: the job continues as it was, or ends."""
        answer, _ = self._end(reason, str(error))
        if answer is not None:
            answer.set_exception(RescaleFailed(f"The job keeps parallelism {self._job.settings.parallelism}: {error}"))

    def give_way(self) -> None:
        """The job stops, or returns to a checkpoint after a failure: that comes first."""
        if self._job.stop.is_asked():
            self.fail(Stopping("the job stops."), RescaleReason.JOB_CANCELING)
        elif self._closed:
            self.fail(Stopping("the job has ended."), RescaleReason.JOB_FINISHED)
        else:
            self.fail(
                Stopping("the job returns to its latest checkpoint after a failure."), RescaleReason.JOB_RESTARTING
            )

    def _end(self, reason: RescaleReason, message: str | None = None) -> tuple[Future[Rescale] | None, Rescale | None]:
        """Return the answer that somebody waits for, and the rescale. None if no rescale is in progress."""
        self._job.rescale_waits.clear()
        with self._asking:
            answer, self._answer, self._due = self._answer, None, None
            return (None, None) if answer is None else (answer, self.history.end(reason, message))

    def _completed(self, rescale: Rescale) -> None:
        self._job.metrics.rescaled()
        self._job.events.rescaled(rescale.old_parallelism, rescale.new_parallelism)
