"""How long a run has had each status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidegate.core.clock import Clock

TIMED = ("INITIALIZING", "RUNNING", "RESTARTING")
"""The statuses whose time is measured. The others end a run, or last as long as a stop."""


class StatusTimes:
    """Starts as INITIALIZING. One thread writes, any thread reads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._current = TIMED[0]
        self._since = clock.now()
        self._ended = Counter[str]()

    def enter(self, status: str) -> None:
        now = self._clock.now()
        if status != self._current:
            self._ended = self._ended + Counter({self._current: now.since(self._since)})
            self._current = status
            self._since = now

    def current_ms(self) -> Mapping[str, int]:
        """How long the current status has lasted, and 0 for the others."""
        return {status: self._now_ms() if status == self._current else 0 for status in TIMED}

    def total_ms(self) -> Mapping[str, int]:
        return {status: self._ended[status] + self.current_ms()[status] for status in TIMED}

    def _now_ms(self) -> int:
        return self._clock.now().since(self._since)
