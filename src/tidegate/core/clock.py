"""Monotonic time and wall time, kept apart by their types.

Monotonic time is for everything that waits: cadence, pauses, deadlines, backoff, durations. It never goes back and never
jumps. Wall time is for people: timestamps in metadata, statistics, the REST API and logs. An operator or NTP may set the
wall clock by hours at any moment, so no decision depends on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NewType, Protocol

MonotonicMs = NewType("MonotonicMs", int)
"""Milliseconds since an arbitrary moment. Comparable within one process only, so it is never stored."""

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970-01-01 UTC, according to this machine. Shown and stored, never waited for."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment, read from both clocks."""

    monotonic_ms: MonotonicMs
    wall_ms: WallMs

    def plus(self, duration_ms: int) -> MonotonicMs:
        """The moment to wait for when something is due in `duration_ms`."""
        return MonotonicMs(self.monotonic_ms + duration_ms)

    def since(self, earlier: Instant) -> int:
        """Milliseconds that have passed, however the wall clock was set in between."""
        return self.monotonic_ms - earlier.monotonic_ms


class Clock(Protocol):
    """Where a process reads the time. Tests and the simulation pass one of their own."""

    def now(self) -> Instant: ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        return Instant(MonotonicMs(time.monotonic_ns() // 1_000_000), WallMs(time.time_ns() // 1_000_000))


SYSTEM_CLOCK = SystemClock()
