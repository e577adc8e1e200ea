"""Processing time: the clock of a job, read once for each epoch.

It starts at the wall clock, or where the checkpoint stopped if that is later, and then advances with monotonic time. While
it differs from the wall clock, it runs slower or faster until they meet:

- ahead of the wall clock (the previous run, or this one until a moment ago, had a fast clock): at half speed or more, so
  that timers, idleness and time to live never stand still. It meets the wall clock after at most twice the difference.
- behind it (the wall clock was set forward, or the machine was suspended): at up to ten times the speed, so that a wall
  clock that is wrong for a moment does not expire state. It meets the wall clock after at most a ninth of the difference.

It never moves backwards.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidegate.core.clock import SYSTEM_CLOCK, Clock, Instant, MonotonicMs
from tidegate.core.durations import show_ms

log = logging.getLogger("tidegate")

SLOWDOWN = 2
"""Ahead of the wall clock, processing time advances by at least elapsed time divided by this."""
SPEEDUP = 10
"""Behind the wall clock, processing time advances by at most elapsed time multiplied by this."""
WARN_MS = 10_000
"""Differences of at least this much are reported."""


@dataclass(frozen=True, slots=True)
class ProcessingTime:
    """The clock of a job at one moment. Pure: time is passed in."""

    clock_ms: int
    """Milliseconds since 1970."""
    as_of_ms: MonotonicMs
    ahead_ms: int = 0
    """How far it was ahead of the wall clock; negative: behind."""

    @staticmethod
    def begin(now: Instant, checkpoint_ms: int = 0) -> ProcessingTime:
        """Return the time of a run that begins, possibly from a checkpoint with this clock. Timers that
        came due in between are due now.
        """
        clock_ms = max(checkpoint_ms, now.wall_ms)
        return ProcessingTime(clock_ms, now.monotonic_ms, clock_ms - now.wall_ms)

    def at(self, now: Instant) -> ProcessingTime:
        """Return the time this many milliseconds later."""
        elapsed_ms = max(0, now.monotonic_ms - self.as_of_ms)
        slowest_ms, rest_ms = divmod(elapsed_ms, SLOWDOWN)
        fastest_ms = elapsed_ms * SPEEDUP
        clock_ms = min(max(now.wall_ms, self.clock_ms + slowest_ms), self.clock_ms + fastest_ms)
        # The remainder of the division counts next time: a clock that is read every millisecond must not stand still.
        left_ms = rest_ms if clock_ms == self.clock_ms + slowest_ms else 0
        return ProcessingTime(clock_ms, MonotonicMs(now.monotonic_ms - left_ms), clock_ms - now.wall_ms)

    def at_least(self, clock_ms: int) -> ProcessingTime:
        """Return the time of a run that returns to a checkpoint with this clock."""
        later_ms = max(0, clock_ms - self.clock_ms)
        return ProcessingTime(self.clock_ms + later_ms, self.as_of_ms, self.ahead_ms + later_ms)


class ProcessingClock:
    """The clock of one run. One thread advances it; any thread may read it."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.now
        self._time = ProcessingTime.begin(clock.now())

    def peek(self) -> int:
        """Return the time that an epoch starting now would have."""
        return self._time.at(self._now()).clock_ms

    def advance(self) -> int:
        """Start an epoch. Return its processing time."""
        return self._set(self._time.at(self._now()))

    def resume(self, checkpoint_ms: int) -> int:
        """Start from, or return to, a checkpoint with this clock. Return the processing time."""
        return self._set(self._time.at(self._now()).at_least(checkpoint_ms))

    def _set(self, time: ProcessingTime) -> int:
        before_ms = self._time.ahead_ms
        self._time = time
        differed, differs = abs(before_ms) >= WARN_MS, abs(time.ahead_ms) >= WARN_MS
        if differs and (not differed or abs(time.ahead_ms) > abs(before_ms) + WARN_MS):
            if time.ahead_ms > 0:
                how, longest_ms = f"ahead of the wall clock, so it runs at 1/{SLOWDOWN} of the speed", SLOWDOWN
            else:
                how, longest_ms = f"behind the wall clock, so it runs at up to {SPEEDUP} times the speed", 1
            log.warning(
                "processing time is %s %s until they meet, in %s at most; check the clocks of the machines that run this job",
                show_ms(abs(time.ahead_ms)),
                how,
                show_ms(abs(time.ahead_ms) * longest_ms),
            )
        elif differed and not differs:
            log.info("processing time is back within %s of the wall clock", show_ms(WARN_MS))
        return time.clock_ms
