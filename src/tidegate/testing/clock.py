"""Clocks for tests: one that is advanced manually, and the machine's own clocks with an adjustable wall clock."""

from __future__ import annotations

from tidegate.core.clock import SYSTEM_CLOCK, Instant, MonotonicMs, WallMs


def at(monotonic_ms: int, wall_ms: int | None = None) -> Instant:
    """Create an instant. Without `wall_ms`, both clocks show the same."""
    return Instant(MonotonicMs(monotonic_ms), WallMs(monotonic_ms if wall_ms is None else wall_ms))


class ManualClock:
    """Stands still until it is advanced."""

    def __init__(self, monotonic_ms: int = 0, wall_ms: int = 0) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def now(self) -> Instant:
        return at(self._monotonic_ms, self._wall_ms)

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass on both clocks."""
        self._monotonic_ms += elapsed_ms
        self._wall_ms += elapsed_ms

    def step_wall(self, step_ms: int) -> None:
        """Set the wall clock forward or back. No time passes."""
        self._wall_ms += step_ms


class SteppedClock:
    """The machine's own clocks, with a wall clock that can be set while a job runs."""

    def __init__(self) -> None:
        self._offset_ms = 0

    def now(self) -> Instant:
        real = SYSTEM_CLOCK.now()
        return at(real.monotonic_ms, real.wall_ms + self._offset_ms)

    def step_wall(self, step_ms: int) -> None:
        """Set the wall clock forward or back. No time passes."""
        self._offset_ms += step_ms
