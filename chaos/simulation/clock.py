"""Discrete events in order of simulated time."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, event))

    def run(self, until_ms: float, done: Callable[[], bool]) -> None:
        """Let events happen until `done`, until none is left, or until the time is over."""
        events = self._events
        while events and not done():
            at, _, event = heapq.heappop(events)
            if at > until_ms:
                return
            self.now_ms = at
            event()
