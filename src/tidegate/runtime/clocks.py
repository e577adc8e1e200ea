"""What the driver knows of time, and what it makes of it. Pure.

Event time: every task reports the greatest event time it read from each source. The watermark of an epoch is fixed before
the epoch begins, from what the epochs before it saw: the least over the sources that are not idle of (greatest event time
less the allowed disorder less one millisecond). It never goes back.

Processing time: the wall clock, read once for each epoch. It never goes back either, also not when a job moves to a machine
whose clock is behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.core.ids import Uid
from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK, EpochTime
from tidegate.graph.model import Source


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks after an epoch. What of them is in a checkpoint comes back with it; `active_ms` begins anew."""

    clock_ms: int = 0
    watermark_ms: int = MIN_WATERMARK
    """Applied by the last epoch."""
    greatest: Mapping[Uid, int] = field(default_factory=dict)
    """The greatest event time seen in each source."""
    active_ms: Mapping[Uid, int] = field(default_factory=dict)
    """The clock of the epoch in which each source last had a row."""

    def next(self, sources: Iterable[Source], wall_ms: int, *, final: bool = False) -> EpochTime:
        """The clocks of an epoch that begins now. `final`: no row will come after it, so all event time has passed."""
        clock = max(self.clock_ms, wall_ms)
        watermark = MAX_WATERMARK if final else max(self.watermark_ms, self._watermark(sources, clock))
        return EpochTime(clock, self.watermark_ms, watermark)

    def after(self, time: EpochTime, seen: Mapping[Uid, int]) -> Clocks:
        """An epoch with these clocks was accepted; `seen` are the greatest event times of the sources that had rows."""
        greatest = {**self.greatest, **{uid: max(ms, self.greatest.get(uid, ms)) for uid, ms in seen.items()}}
        active = {**self.active_ms, **dict.fromkeys(seen, time.clock_ms)}
        return Clocks(time.clock_ms, time.watermark_ms, greatest, active)

    def began(self, sources: Iterable[Source], wall_ms: int) -> Clocks:
        """A run begins, or goes on from a checkpoint: no source has been idle for any time yet."""
        clock = max(self.clock_ms, wall_ms)
        return Clocks(clock, self.watermark_ms, self.greatest, {source.uid: clock for source in sources})

    def _watermark(self, sources: Iterable[Source], clock: int) -> int:
        marks = [
            self.greatest[source.uid] - source.out_of_orderness_ms - 1 if source.uid in self.greatest else MIN_WATERMARK
            for source in sources
            if source.event_time is not None and not self._idle(source, clock)
        ]
        return min(marks, default=MIN_WATERMARK)

    def _idle(self, source: Source, clock: int) -> bool:
        return source.idleness_ms is not None and clock - self.active_ms.get(source.uid, clock) >= source.idleness_ms


Pending = tuple[int | None, int | None]
"""The earliest timers of a task: in event time, in processing time."""


def is_due(pending: Pending, time: EpochTime) -> bool:
    """Whether a task with these timers has something to do in an epoch with these clocks, even without a row."""
    event, processing = pending
    return (event is not None and event <= time.watermark_ms) or (
        processing is not None and processing <= time.clock_ms
    )
