"""The rescales of a run: what was asked for, how far it got, and how long it took. States and reasons are Flink's."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from tidegate.core.clock import SYSTEM_CLOCK, Clock, Instant

KEPT = 100
"""How many rescales are remembered."""


class RescaleState(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    IGNORED = "IGNORED"


class RescaleReason(StrEnum):
    """Why a rescale has ended."""

    SUCCEEDED = "SUCCEEDED"
    EXCEPTION_OCCURRED = "EXCEPTION_OCCURRED"
    NO_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_RESTARTING = "JOB_FAILOVER_RESTARTING"
    JOB_CANCELING = "JOB_CANCELING"

    @property
    def state(self) -> RescaleState:
        if self is RescaleReason.SUCCEEDED:
            return RescaleState.COMPLETED
        return RescaleState.FAILED if self is RescaleReason.EXCEPTION_OCCURRED else RescaleState.IGNORED


class RescaleRequester(StrEnum):
    """Who asked for a rescale."""

    USER = "USER"
    AUTOSCALER = "AUTOSCALER"


class RescalePhase(StrEnum):
    """What the job does, under the names of Flink's scheduler states."""

    SAVING = "Executing"
    """It runs; a checkpoint stores what has changed."""
    ENDING = "Restarting"
    """No batch is read: a checkpoint of the last epoch is taken, and the query ends."""
    RESTORING = "CreatingExecutionGraph"
    """The job is claimed under a new term, and the new tasks restore their state."""


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    phase: RescalePhase
    entered_ms: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """One rescale. Times are milliseconds since 1970."""

    uuid: str
    number: int
    old_parallelism: int
    new_parallelism: int
    started_ms: int
    ended_ms: int | None = None
    reason: RescaleReason | None = None
    """None while it is in progress."""
    phases: tuple[PhaseSpan, ...] = ()
    message: str | None = None
    """What went wrong."""
    requested_by: RescaleRequester = RescaleRequester.USER

    @property
    def state(self) -> RescaleState:
        return RescaleState.IN_PROGRESS if self.reason is None else self.reason.state

    @property
    def duration_ms(self) -> int:
        return sum(span.duration_ms for span in self.phases)

    @property
    def pause_ms(self) -> int:
        """How long no batch was read."""
        return sum(span.duration_ms for span in self.phases if span.phase is not RescalePhase.SAVING)


class RescaleHistory:
    """The last rescales of a run, newest first. One thread after the other changes it, any thread reads."""

    def __init__(self, on_completed: Callable[[Rescale], None] = lambda rescale: None, clock: Clock = SYSTEM_CLOCK):
        self._on_completed = on_completed
        self._clock = clock
        self._past: deque[Rescale] = deque(maxlen=KEPT)
        self._entered: tuple[RescalePhase, Instant] | None = None
        self.current: Rescale | None = None
        """The one in progress."""
        self.counts = dict.fromkeys(RescaleState, 0)

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        current = self.current
        return (*(() if current is None else (current,)), *reversed(self._past))

    def begin(
        self, old_parallelism: int, new_parallelism: int, by: RescaleRequester = RescaleRequester.USER
    ) -> Rescale:
        now, number = self._clock.now(), sum(self.counts.values()) + 1
        self.current = Rescale(
            uuid=str(uuid.uuid4()),
            number=number,
            old_parallelism=old_parallelism,
            new_parallelism=new_parallelism,
            started_ms=now.wall_ms,
            requested_by=by,
        )
        return self.current

    def enter(self, phase: RescalePhase) -> None:
        """The phase before has ended, and this one begins."""
        self._leave()
        self._entered = phase, self._clock.now()

    def end(self, reason: RescaleReason, message: str | None = None) -> Rescale:
        self._leave()
        assert self.current is not None
        ended = replace(self.current, ended_ms=self._clock.now().wall_ms, reason=reason, message=message)
        self.counts[ended.state] += 1
        # Before `current` is cleared: a reader between the two sees it twice, and never not at all.
        self._past.append(ended)
        self.current = None
        if ended.state is RescaleState.COMPLETED:
            self._on_completed(ended)
        return ended

    def _leave(self) -> None:
        if self._entered is not None and self.current is not None:
            phase, since = self._entered
            span = PhaseSpan(phase, since.wall_ms, self._clock.now().since(since))
            self.current = replace(self.current, phases=(*self.current.phases, span))
        self._entered = None
