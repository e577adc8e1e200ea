"""Keeps a job running: one attempt after the other until the job ends, each from the latest checkpoint.

With checkpoints, a run survives its failures: it returns to the latest checkpoint and continues from there, in the same
process as long as that lives.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from tidegate.checkpoint.effects import run
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.config.choices import JobEnd
from tidegate.core.errors import (
    EpochFailed,
)
from tidegate.core.log_setup import in_this_context
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.rescale import ClaimAgain, RescaleEffect, RescaleInPlace, RestoreTasks
from tidegate.runtime.driver.attempt import Attempt, Stopping
from tidegate.runtime.driver.epoch_lock import EpochLock
from tidegate.runtime.driver.failure_response import Failure, FailureResponse, reader_late
from tidegate.runtime.driver.rescaler import Rescaler
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.sources.kafka_source import recognise
from tidegate.runtime.sources.reader_start import is_reader_late

log = logging.getLogger("tidegate")


class Supervisor:
    """Starts the first attempt when constructed, and raises if it cannot. `start` monitors it in a thread."""

    def __init__(self, job: RunningJob, most_failures: int) -> None:
        self._job = job
        self.lock = EpochLock()
        self._response = FailureResponse(job, most_failures)
        self.failures: deque[Failure] = self._response.failures
        self.restarts = 0
        self.outcome: BaseException | None = None
        """The error that ended the run, if it failed."""
        self.last_savepoint: str | None = None
        """The savepoint that the job ended with."""
        self.ended = threading.Event()
        self.rescaler = Rescaler(job, self.lock, lambda: self.attempt)
        self.attempt = self._begin_first()
        job.metrics.statuses.enter("RUNNING")
        self.announce_status()

    def start(self) -> None:
        threading.Thread(target=in_this_context(self._supervise), name="tidegate-run", daemon=True).start()

    @property
    def status(self) -> str:
        """The status, in Flink's terms."""
        if self.ended.is_set():
            return self._final_status()
        if self._job.stop.is_asked():
            return "CANCELLING"
        return "RUNNING" if self.attempt.error is None and self.rescaler.due is None else "RESTARTING"

    def _final_status(self) -> str:
        if self.outcome is not None:
            return "FAILED"
        return "FINISHED" if self.last_savepoint is not None or not self._job.stop.is_asked() else "CANCELED"

    def announce_status(self) -> None:
        """Notify listeners if it has changed."""
        self._job.events.status(self.status)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _begin(self, prepare: Callable[[], None]) -> Attempt:
        """Start an attempt, after `prepare`, while the epoch lock is held."""
        with ExitStack() as held:
            held.enter_context(self.lock)
            prepare()
            return self._start_attempt(held)

    def _start_attempt(self, held: ExitStack) -> Attempt:
        """Start an attempt while `held` has the epoch lock. If it cannot start, its batches are rejected, and its query is
        stopped without the lock: one of its batches may be waiting for it, and Spark waits for its batches.
        """
        attempt = Attempt(self._job, self.lock)
        try:
            attempt.restore()
        except BaseException:
            attempt.retire()
            held.close()
            try:
                attempt.query.stop()
            finally:
                attempt.discard_directory()
            raise
        # Only once its state is restored: whoever stops or rescales the job meanwhile finds the attempt before it.
        self.attempt = attempt
        return attempt

    def _begin_first(self) -> Attempt:
        """Start the first attempt. If Spark has not provided what it needs, or its first epoch fails, the restart strategy
        decides, as after any failure; every other error is about the job itself, and whoever starts it should see it.
        """
        prepare: Callable[[], None] = lambda: None  # noqa: E731
        while True:
            try:
                return self._begin(prepare)
            except EpochFailed as error:
                loop = self._response.await_restart(error)
                if loop.broken is not None:
                    raise loop.broken from error
                prepare = loop.rewind

    def _supervise(self) -> None:
        try:
            while True:
                try:
                    self._wait_for_query()
                    asked = self.rescaler.take()
                    if asked is not None:
                        self._rescale(asked)
                        continue
                    # The sources are exhausted, or somebody has asked for the end. A failure in it goes back like any other.
                    self._conclude()
                    return
                except Exception as error:
                    if self._job.stop.is_asked() and isinstance(error, Stopping):
                        self._conclude()
                        return
                    self._go_back(error)
        except BaseException as error:
            self.outcome = error
        finally:
            with self.lock:
                # Whatever ended the run: a batch that Spark still delivers must be refused before anything is closed.
                self.attempt.retire()
            try:
                self._close()
                self._job.progress.end()
            finally:
                self._notify_end()
                self.ended.set()

    def _notify_end(self) -> None:
        """Notify metrics and listeners. Whatever goes wrong here, the run has ended."""
        try:
            self._job.metrics.statuses.enter("ENDED")
            self._job.events.status(self._final_status())
            self._job.events.close()
        except Exception:
            log.exception("could not notify listeners that the run ended")

    def _wait_for_query(self) -> None:
        attempt = self.attempt
        while True:
            try:
                attempt.query.awaitTermination()
                break
            except Exception as error:
                if self.rescaler.due is not None:
                    return  # The attempt has ended at a checkpoint: whatever its query says, nothing is lost.
                if self._job.stop.is_asked() and (attempt.error is None or isinstance(attempt.error, Stopping)):
                    return
                if attempt.error is not None or not is_reader_late(error):
                    raise (attempt.error or recognise(error)) from None
                if not attempt.start_query_again():
                    if self._job.stop.is_asked() or self.rescaler.due is not None:
                        return
                    raise attempt.error or reader_late(self._job.settings.slot_timeout_ms) from error
        if self.rescaler.due is not None:
            return  # A batch that was held for a sink has made way, and was refused.
        if attempt.error is not None:
            raise attempt.error

    def _go_back(self, error: Exception) -> None:
        """After a failure: wait as the restart strategy says, restore everything, start a new attempt. Or raise.

        From the failure on, no epoch runs, nor during the return to the checkpoint, which holds the epoch lock.
        """
        job = self._job
        with self.lock:
            self.attempt.error = self.attempt.error or error
            if self.rescaler.due is not None:
                self.rescaler.give_way()

        job.metrics.statuses.enter("RESTARTING")
        while True:
            # It may be another one in the next round: a claim that succeeded before the restore failed has replaced it.
            loop = self._response.await_restart(error, announce=self.announce_status)
            try:
                self._begin_again(loop)
                return
            except Stopping:
                raise error from None
            except Exception as again:
                error = again

    def _begin_again(self, loop: CheckpointLoop) -> None:
        """Raises `Stopping` if the job was asked to stop: whoever asked has stopped the query of the old attempt."""

        def prepare() -> None:
            if self._job.stop.is_asked():
                raise Stopping
            self.attempt.retire()
            if loop.broken is None:
                loop.rewind()
            else:
                log.warning("the job is claimed again: %s", loop.broken)
                self._job.loop = self._claim_again(loop.claim_again(), loop)
            # Only after the return is certain. The next attempt has a directory of its own.
            self.attempt.discard_directory()

        self._begin(prepare)
        self.rescaler.reopen()
        self.restarts += 1
        self._job.metrics.statuses.enter("RUNNING")
        self.announce_status()

    def _claim_again(self, owned: Ownership, before: CheckpointLoop) -> CheckpointLoop:
        """Take checkpoints under a new term. The thread that wrote them is gone, possibly in the middle of a write whose outcome
        is unknown. The claim has decided that: the log has the entry, or never will.
        """
        job = self._job
        try:
            owned.check_output(job.committers.committers, job.allow_non_restored_state)
            job.continue_under(owned.store.entry)
            return CheckpointLoop(owned, job.description, before.sinks, before.statistics)
        except BaseException:
            owned.stop()
            raise

    def _rescale(self, rescale: RescaleInPlace) -> None:
        """Continue with another parallelism: the last attempt has ended for that, at a checkpoint. If no attempt can start, raise
        why: it is a failure like any other.
        """
        job = self._job
        job.metrics.statuses.enter("RESTARTING")
        self.announce_status()
        try:
            with ExitStack() as held:
                continues = run(rescale.continue_in_new_term(), partial(self._carry_out, held))
        finally:
            if rescale.failure is not None:
                self.rescaler.fail(rescale.failure)
        if not continues:
            if rescale.failure is not None:
                raise rescale.failure  # The state of no attempt is complete: nothing can be saved.
            self.rescaler.give_way()
            raise Stopping
        if rescale.failure is None:
            self.rescaler.succeed()
        job.metrics.statuses.enter("RUNNING")
        self.announce_status()

    def _carry_out(self, held: ExitStack, effect: RescaleEffect) -> bool:
        """`held` keeps the epoch lock from the claim until the new attempt has begun: whoever stops the job then finds either
        that it has not been claimed, or the query of the new attempt.
        """
        match effect:
            case ClaimAgain(parallelism):
                held.close()  # The claim before this one, with the other parallelism, may have failed with the lock held.
                held.enter_context(self.lock)
                return self._claim_with(parallelism)
            case RestoreTasks():
                self.attempt.discard_directory()
                self._start_attempt(held)
                held.close()
                return True
            case _:
                raise TypeError(f"{effect} is carried out by the rescaler")

    def _claim_with(self, parallelism: int) -> bool:
        """Claim the job under a new term with so many slots. Return False if it is asked to stop."""
        job, loop = self._job, self._job.loop
        if job.stop.is_asked() or loop is None:
            return False
        self.attempt.retire()
        # Before the claim, whose loop counts the tasks that a checkpoint needs.
        job.change_parallelism(parallelism)
        job.loop = self._claim_again(loop.claim_again("the job was rescaled"), loop)
        return True

    # -- the end -----------------------------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """End the job, because the sources are exhausted or a stop was requested: a last checkpoint makes its output visible."""
        job, epochs, stop = self._job, self.attempt.epochs, self._job.stop
        if not stop.is_asked():
            with self.lock:
                # Timers that are due by the last rows fire now; nobody else would run an epoch for them.
                epochs.run_out()

        loop = job.loop
        if loop is None or stop.cancelled:
            return
        if stop.begin_drain(job.trigger.drain):
            with self.lock:
                epochs.drain()

        with self.lock:
            if stop.savepoint is None:
                ref = epochs.run_until(loop, loop.request(awaits_output=False, final=True))
                # A stop that comes now changes nothing: the next start must not find that all its rows are late.
                job.has_drained = epochs.drains and job.trigger.drain
                epochs.await_output(loop, f"checkpoint {ref.id}")
            else:
                target, format = stop.savepoint
                answer = loop.savepoint(target, terminal=True, format=format)
                # From here on, the log says that the job has ended with it.
                self.last_savepoint = epochs.run_until(loop, answer)
                epochs.await_output(loop, f"the savepoint {self.last_savepoint}")
            epochs.notify_of_last_checkpoint(loop)

    def _close(self) -> None:
        job, error = self._job, self.outcome
        try:
            if job.loop is None or (not isinstance(error, ClaimLost) and job.loop.is_owner()):
                # This driver may remove local versions of the lineage only while it owns the job.
                job.runner.close(leave=job.loop is not None and self._can_continue(job.loop))
            if job.loop is not None:
                self._end(job.loop, error)
        finally:
            # Last: until here output may be committed.
            job.committers.close()
            job.runner.discard_anchor()
            self.attempt.discard_directory()

    def _how_it_ends(self) -> JobEnd:
        return self._job.graceful_end if self.outcome is None else JobEnd.FAILED

    def _can_continue(self, loop: CheckpointLoop) -> bool:
        """Whether the next run can start from a checkpoint or savepoint of this one."""
        return self.last_savepoint is not None or loop.keeps_checkpoints(self._how_it_ends())

    def _end(self, loop: CheckpointLoop, error: BaseException | None) -> None:
        end = self._how_it_ends()
        try:
            if isinstance(error, ClaimLost) or self.last_savepoint is not None:
                loop.leave()  # The savepoint in the log has already recorded it.
            else:
                loop.finish(end)
        except Exception as problem:
            log.warning("the end of the run could not be recorded in its log: %s", problem)
            loop.leave()
            if self.outcome is None:
                self.outcome = problem
