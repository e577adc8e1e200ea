"""The driver's view of time. Pure.

Event time: every task reports the greatest event time it read from each source, or from each split of a source that
distinguishes them. The watermark of an epoch is fixed before the epoch begins, from what the previous epochs saw: the
minimum over the splits that are not idle, of sources that are not idle, of (greatest event time less the allowed disorder
less one millisecond), or of the result of the source's own generator. It never moves backwards.

Processing time: see `processing_time`, which is read once for each epoch and passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.core.errors import WrongValue
from tidegate.core.ids import Uid
from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK, EpochTime
from tidegate.graph.event_times import of_split_name
from tidegate.graph.model import Source


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks after an epoch. A checkpoint restores the part that it contains; `active_ms` starts over."""

    clock_ms: int = 0
    watermark_ms: int = MIN_WATERMARK
    """Applied by the last epoch."""
    greatest: Mapping[str, int] = field(default_factory=dict)
    """The greatest event time seen in each source, and in each split that is not idle (see `event_times.split_name`)."""
    active_ms: Mapping[str, int] = field(default_factory=dict)
    """The clock of the epoch in which each of them last had a row."""

    def next(self, sources: Iterable[Source], clock_ms: int, *, final: bool = False) -> EpochTime:
        """Return the clocks of an epoch that begins now. `final`: no row will follow, so all event time has passed."""
        clock = max(self.clock_ms, clock_ms)
        # The maximum: a source that was idle and comes back behind the others must not move event time back.
        watermark = MAX_WATERMARK if final else max(self.watermark_ms, self._watermark(sources, clock))
        return EpochTime(clock, self.watermark_ms, watermark)

    def after(self, time: EpochTime, seen: Mapping[str, int], sources: Iterable[Source] = ()) -> Clocks:
        """Return the clocks after an accepted epoch; `seen` are the greatest event times of the sources that had rows, or
        of their splits. Splits that have become idle are dropped: for example files, which will never have another row.
        """
        reported = dict(seen)
        for name, ms in seen.items():
            uid, _ = of_split_name(name)
            # The source as a whole too: it is what remains when all its splits have become idle.
            reported[uid] = max(ms, reported.get(uid, ms))
        greatest = {**self.greatest, **{name: max(ms, self.greatest.get(name, ms)) for name, ms in reported.items()}}
        active = {**self.active_ms, **dict.fromkeys(reported, time.clock_ms)}
        limits = {source.uid: source.idleness_ms for source in sources}
        for name in list(greatest):
            uid, split = of_split_name(name)
            if split and _past(limits.get(Uid(uid)), active.get(name), time.clock_ms):
                del greatest[name]
                active.pop(name, None)
        return Clocks(time.clock_ms, time.watermark_ms, greatest, active)

    def began(self, sources: Iterable[Source], clock_ms: int) -> Clocks:
        """Return the clocks of a run that begins or resumes from a checkpoint: no source has been idle yet."""
        clock = max(self.clock_ms, clock_ms)
        active = dict.fromkeys([*(source.uid for source in sources), *self.greatest], clock)
        return Clocks(clock, self.watermark_ms, self.greatest, active)

    def split_watermarks(self, sources: Iterable[Source]) -> dict[tuple[str, str], int]:
        """By source and split, for sources that distinguish splits: the watermark of each that is not idle. Sources with a
        generator are left out, because that is a function of the user."""
        splits = {source.uid: source for source in sources if source.split is not None and source.generator is None}
        found = {of_split_name(name): greatest for name, greatest in self.greatest.items()}
        return {
            (uid, split): _mark(splits[Uid(uid)], greatest, self.clock_ms)
            for (uid, split), greatest in found.items()
            if split and uid in splits
        }

    def _watermark(self, sources: Iterable[Source], clock: int) -> int:
        marks = [
            min(
                (_mark(source, self.greatest[name], clock) for name in self._splits(source, clock)),
                default=MIN_WATERMARK,
            )
            for source in sources
            if source.event_time is not None and not self._idle(source.uid, source, clock)
        ]
        return min(marks, default=MIN_WATERMARK)

    def _splits(self, source: Source, clock: int) -> list[str]:
        """Return the parts of a source that are not idle: its splits, or the source itself if it has none."""
        own = [name for name in self.greatest if of_split_name(name)[0] == source.uid]
        splits = [name for name in own if name != source.uid] if source.split is not None else []
        return [name for name in splits if not self._idle(name, source, clock)] or [n for n in own if n == source.uid]

    def _idle(self, name: str, source: Source, clock: int) -> bool:
        return _past(source.idleness_ms, self.active_ms.get(name), clock)


def _past(limit_ms: int | None, active_ms: int | None, clock: int) -> bool:
    return limit_ms is not None and active_ms is not None and clock - active_ms >= limit_ms


def _mark(source: Source, greatest: int, clock: int) -> int:
    if source.generator is None:
        return greatest - source.out_of_orderness_ms - 1
    made = source.generator(greatest, clock)
    if isinstance(made, bool) or not isinstance(made, int):
        raise WrongValue(
            f"The watermark function of source {str(source.uid)!r} returned {made!r}. It must return milliseconds "
            "since 1970 as an int."
        )
    return min(max(made, MIN_WATERMARK), MAX_WATERMARK)


Pending = tuple[int | None, int | None]
"""The earliest timers of a task: in event time, in processing time."""


def is_due(pending: Pending, time: EpochTime) -> bool:
    """Whether a task with these timers has work in an epoch with these clocks, even without a row."""
    event, processing = pending
    return (event is not None and event <= time.watermark_ms) or (
        processing is not None and processing <= time.clock_ms
    )
