"""Who commits output to targets that take it from any process: the driver or the tasks. Pure.

The driver commits as soon as the checkpoint is complete. An order to tasks travels with the next epoch and comes to whichever
process runs the slot then, which must take the slot over from another one first: that costs an epoch, and more. But tasks
commit many slots at once, and rows do not pass through the driver. So the driver commits as long as little waits.

Either may take over from the other at any time. An order may still be carried out by a task when the driver commits the same
output, as it may when a job was claimed by another driver: markers decide who was first, the other one skips. Both commit in
the order of epochs, and neither begins anything later before the target has confirmed it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from tidegate.checkpoint.output.sink_output import OutputUpTo
from tidegate.core.clock import Instant, MonotonicMs
from tidegate.core.ids import Uid


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterLimits:
    """When the driver hands a sink over to tasks, and takes it back."""

    small_bytes: int = 4 << 20
    """If more than this waits, tasks commit, until no more than half of it does."""
    stay_ms: int = 10_000
    """How long tasks commit at least: whoever takes over has to take the slots from the others."""
    first_rest_ms: int = 60_000
    """How long tasks commit after the driver has failed, which doubles with each failure: perhaps only they reach the target."""
    longest_rest_ms: int = 3_600_000


class CommitterChoice:
    """Chooses for each sink of `either`. Time is passed with each call."""

    def __init__(self, either: Iterable[Uid], limits: CommitterLimits | None = None) -> None:
        self._either = frozenset(either)
        self._limits = limits or CommitterLimits()
        self._tasks_until_ms: dict[Uid, MonotonicMs] = {}
        """The sinks that tasks commit to, and until when they do so at least."""
        self._failures: dict[Uid, int] = {}

    def of_driver(self, due: OutputUpTo, busy: Container[Uid], now: Instant) -> frozenset[Uid]:
        """Return the sinks that the driver commits to now, given what waits. It keeps those that it is committing to."""
        for sink in self._either:
            # A commit of the driver is under way. Who commits next is decided when it has ended.
            if sink in busy:
                continue
            size_bytes = due.size_bytes(sink)
            until_ms, small_bytes = self._tasks_until_ms.get(sink), self._limits.small_bytes
            if size_bytes > small_bytes:
                self._tasks_until_ms[sink] = max(until_ms or MonotonicMs(0), now.plus(self._limits.stay_ms))
            # Half: with one limit for both directions, a sink near it would change hands all the time.
            elif until_ms is not None and now.monotonic_ms >= until_ms and size_bytes <= small_bytes // 2:
                del self._tasks_until_ms[sink]
        return self._either - self._tasks_until_ms.keys()

    def succeeded(self, sink: Uid) -> None:
        """The driver has committed to the sink."""
        self._failures.pop(sink, None)

    def failed(self, sink: Uid, now: Instant) -> None:
        """The driver could not commit to the sink: tasks try it for a while, longer after each failure."""
        if sink in self._either:
            before = self._failures.get(sink, 0)
            self._failures[sink] = before + 1
            # 2^16 minutes are far beyond the limit below; without a bound, the shift would make ever longer integers.
            rest_ms = self._limits.first_rest_ms << min(before, 16)
            self._tasks_until_ms[sink] = now.plus(min(self._limits.longest_rest_ms, rest_ms))
