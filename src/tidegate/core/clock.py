"""Monotonic time and wall time, kept apart by their types.

Monotonic time is for everything that waits: cadence, pauses, deadlines, backoff, durations. It never goes backwards and
never jumps. Wall time is for people: timestamps in metadata, statistics, the REST API and logs. An administrator or NTP
may shift the wall clock by hours at any moment, so no decision depends on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NewType, Protocol

MonotonicMs = NewType("MonotonicMs", int)
"""Milliseconds since an arbitrary moment. Comparable only within one process, so it is never stored."""

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970-01-01 UTC, according to this machine. Shown and stored, never waited for."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment, read from both clocks."""

    monotonic_ms: MonotonicMs
    wall_ms: WallMs

    def plus(self, duration_ms: int) -> MonotonicMs:
        """Return the deadline of something due in `duration_ms`."""
        return MonotonicMs(self.monotonic_ms + duration_ms)

    def since(self, earlier: Instant) -> int:
        """Return the milliseconds elapsed since `earlier`, regardless of changes to the wall clock."""
        return self.monotonic_ms - earlier.monotonic_ms


class Clock(Protocol):
    """The source of time for a process. Tests and the simulation pass their own."""

    def now(self) -> Instant: ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        return Instant(MonotonicMs(time.monotonic_ns() // 1_000_000), WallMs(time.time_ns() // 1_000_000))


SYSTEM_CLOCK = SystemClock()
