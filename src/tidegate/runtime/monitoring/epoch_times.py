"""When the last epochs ended and whether one runs: the time that figures of the last epoch are shares of."""

from __future__ import annotations

from tidegate.core.clock import Clock, Instant


class EpochTimes:
    """One thread writes, any thread reads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ended: Instant | None = None
        self._running_since: Instant | None = None
        self._begins_ms: int = clock.now().monotonic_ms
        """When the time began that the figures of the last epoch are shares of: at the end of the epoch before it. Of the first
        epoch, at its own end: what its tasks measured covers the time before."""

    def began(self) -> None:
        self._running_since = self._clock.now()

    def over(self) -> None:
        """The epoch that ran was accepted, or has failed."""
        self._running_since = None

    def ended(self) -> None:
        """An epoch was accepted."""
        now = self._clock.now()
        self._begins_ms = (self._last_ended or now).monotonic_ms
        self._last_ended = now

    @property
    def running_since_ms(self) -> int | None:
        """When the epoch that runs now began, in milliseconds since 1970; None between two epochs."""
        since = self._running_since
        return None if since is None else since.wall_ms

    def period_ms(self) -> int:
        """Return the time that the figures of the last epoch are shares of. It grows while no epoch runs, so a job without rows
        is idle, and not as busy as it last was."""
        is_running = self._running_since is not None
        until = self._last_ended if is_running and self._last_ended is not None else self._clock.now()
        return max(0, until.monotonic_ms - self._begins_ms)
