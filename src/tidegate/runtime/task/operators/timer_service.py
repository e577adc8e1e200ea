"""The time service of a function: the clocks of the epoch, and timers of the current key."""

from __future__ import annotations

from datetime import datetime

from tidegate.core.errors import GraphError
from tidegate.core.times import EpochTime, TimeDomain, time_ms
from tidegate.state.accessors.timers import TimerState
from tidegate.state.keys.key_scope import KeyScope


class KeyTimerService:
    """One for each operator and attempt. Without `on_timer` it offers only clocks."""

    def __init__(self, scope: KeyScope, timers: TimerState | None, time: EpochTime) -> None:
        self._scope = scope
        self._timers = timers
        self.clock_ms = time.clock_ms
        self.watermark_ms = time.applied_ms

    def current_processing_time(self) -> int:
        return self.clock_ms

    def current_watermark(self) -> int:
        return self.watermark_ms

    def register_event_time_timer(self, timestamp: int | datetime) -> None:
        scope = self._scope
        self._known().register(TimeDomain.EVENT_TIME, time_ms(timestamp), scope.key, scope.key_group)

    def register_processing_time_timer(self, timestamp: int | datetime) -> None:
        scope = self._scope
        self._known().register(TimeDomain.PROCESSING_TIME, time_ms(timestamp), scope.key, scope.key_group)

    def delete_event_time_timer(self, timestamp: int | datetime) -> None:
        scope = self._scope
        self._known().delete(TimeDomain.EVENT_TIME, time_ms(timestamp), scope.key, scope.key_group)

    def delete_processing_time_timer(self, timestamp: int | datetime) -> None:
        scope = self._scope
        self._known().delete(TimeDomain.PROCESSING_TIME, time_ms(timestamp), scope.key, scope.key_group)

    def advance(self, time: EpochTime) -> None:
        """Finish the rows of the epoch: its watermark applies from now on. Neither clock moves backwards."""
        self.clock_ms = max(self.clock_ms, time.clock_ms)
        self.watermark_ms = max(self.watermark_ms, time.watermark_ms)

    def _known(self) -> TimerState:
        if self._timers is None:
            raise GraphError(
                "The function sets a timer but has no method on_timer, so nothing would happen when it fires. Add def "
                "on_timer(self, timestamp, ctx) to its class."
            )
        return self._timers
