"""What follows a failure: a restart after a pause, or the end of the job."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tidegate.checkpoint.job_log.entry import LogCorrupt
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.config import restart_strategy
from tidegate.config.declared.waiting import SLOT_TIMEOUT
from tidegate.config.restart_strategy import FailureHistory, GiveUp
from tidegate.connectors.kafka.errors import KafkaRefused
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.durations import show_ms
from tidegate.core.errors import (
    EpochFailed,
    GraphError,
    PreconditionFailed,
    RestoreError,
    SchemaError,
    TidegateError,
    UnsupportedType,
    UserCodeError,
)
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.sink_threads import OutputStopped
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.epochs.runner import StateLost
from tidegate.runtime.exchange.user_code import SinkWriteFailed

log = logging.getLogger("tidegate")

_HOPELESS = (
    RestoreError,
    PreconditionFailed,
    GraphError,
    ClaimLost,
    LogCorrupt,
    OutputStopped,
    KafkaRefused,
)
"""Errors that would recur, or that a restart must not undo: another driver owns the job."""
_OF_A_TARGET = (SchemaError, UnsupportedType)
"""Of those, errors about a table or topic that somebody may be changing right now: the restart strategy decides."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that ended an attempt of a run."""

    at_ms: int
    kind: str
    """`user-code`, `state-lost`, `engine`, or the code of the error in lower case."""
    message: str
    restarted: bool


class FailureResponse:
    """Records the failures of a run, and decides about each with the restart strategy. Used by one thread at a time."""

    def __init__(self, job: RunningJob, most_failures: int) -> None:
        self._job = job
        self.failures: deque[Failure] = deque(maxlen=most_failures)
        self._memory = FailureHistory()

    def await_restart(self, error: Exception, announce: Callable[[], None] = lambda: None) -> CheckpointLoop:
        """Record a failure and wait as long as the restart strategy says; `announce` is called in between. Raises the error if
        the job is not to be started again."""
        job = self._job
        loop, kind = job.loop, kind_of(error)

        # A driver that was paused wakes up to files that its successor has deleted. Whatever it stumbles over first, the reason
        # is that it has lost its claim, and only that tells its user, and who started it, what to do.
        # Not if the term broke: the newest entry may be one of this driver's own, and the claim that follows finds out.
        if loop is not None and loop.broken is None:
            lost = loop.ownership.claim_lost()
            if lost is not None:
                self._give_up(lost, kind_of(lost))

        # Without checkpoints there is nothing to return to, and whoever asked for the stop waits for its result.
        if loop is None or job.durability is None or job.stop.is_asked():
            self._give_up(error, kind)
        # Before the restart strategy: these must not use up its attempts, nor wait.
        if _is_hopeless(error) or job.is_session_dead():
            self._give_up(error, kind)
        if loop.broken is not None and _is_hopeless(loop.broken):
            self._give_up(loop.broken, kind_of(loop.broken))

        now_ms = SYSTEM_CLOCK.now().monotonic_ms
        strategy = job.durability.restart
        self._memory, decision = restart_strategy.on_failure(strategy, self._memory, now_ms, random.uniform)
        if isinstance(decision, GiveUp):
            log.error("the job fails permanently: %s", decision.reason)
            self._give_up(error, kind)

        self._note(error, kind, decision.delay_ms, loop.ownership.restore_point().checkpoint_id)
        # After the failure is recorded, so that listeners who ask for the reason find it.
        announce()
        if job.stop.wait(decision.delay_ms / 1000):
            raise error
        return loop

    def _give_up(self, error: BaseException, kind: str) -> NoReturn:
        self._note(error, kind)
        raise error

    def _note(self, error: BaseException, kind: str, delay_ms: int | None = None, back_to: int | None = None) -> None:
        """Record a failure. Without a delay, the job is not restarted."""
        restarted = delay_ms is not None
        self.failures.append(Failure(SYSTEM_CLOCK.now().wall_ms, kind, str(error), restarted))
        self._job.events.failure(error, kind, can_restart=restarted, checkpoint_id=back_to, delay_ms=delay_ms or 0)


def reader_late(timeout_ms: int) -> EpochFailed:
    """The error of a job whose query Spark could not start for so long."""
    return EpochFailed(
        f"For {show_ms(timeout_ms)} ({SLOT_TIMEOUT.key}), Spark could not start the process that plans a source: each time it "
        "did not answer within 10 s. Check that the driver's Python can run it, and that the driver's host is not overloaded."
    )


def _is_hopeless(error: BaseException) -> bool:
    if isinstance(error, UserCodeError | SinkWriteFailed):
        return error.fatal
    return isinstance(error, _HOPELESS) and not isinstance(error, _OF_A_TARGET)


def kind_of(error: BaseException) -> str:
    """The kind of a failure, as people read it."""
    match error:
        case UserCodeError():
            return "user-code"
        case StateLost():
            return "state-lost"
        case TidegateError():
            return error.code.lower()
    return "engine"
