"""Time windows, and which of them a row belongs to. Names and rules are Flink's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tidegate.api.rows import Row
from tidegate.api.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError
from tidegate.graph.combine import Panes, SessionParts
from tidegate.operators.trigger import Trigger
from tidegate.operators.window import GLOBAL, GlobalWindow, TimeWindow, Window
from tidegate.operators.window_assigner import WindowAssigner

__all__ = [
    "EventTimeSessionWindows",
    "GlobalWindow",
    "GlobalWindows",
    "ProcessingTimeSessionWindows",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeWindow",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
]


class _EventTime(WindowAssigner):
    def get_default_trigger(self) -> Trigger:
        return EventTimeTrigger()


class _ProcessingTime(WindowAssigner):
    is_event_time = False

    def get_default_trigger(self) -> Trigger:
        return ProcessingTimeTrigger()


class _Tumbling(WindowAssigner):
    has_fixed_windows = True

    def __init__(self, size_ms: int, offset_ms: int = 0) -> None:
        _check(size_ms > 0, f"windows of {size_ms} ms", "Give a size such as '1 min'.")
        _check(abs(offset_ms) < size_ms, f"an offset of {offset_ms} ms", "It must be shorter than the windows are.")
        self._size = size_ms
        self._offset = offset_ms

    @classmethod
    def of(cls, size: Duration, offset: Duration = 0) -> Self:
        """Windows of one size, one after the other: `of("1 h", "15 min")` begin at a quarter past.

        Args:
            size: The length of a window.
            offset: How much later than at a multiple of `size` since 1970-01-01 UTC a window begins; it may be negative, as for
                days of another time zone. By default, windows begin at the multiples.
        """
        of = f"{cls.__name__}.of"
        return cls(argument_ms("size", size, of=of), argument_ms("offset", offset, of=of))

    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        start = timestamp - (timestamp - self._offset) % self._size
        return (TimeWindow(start, start + self._size),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size} ms)"


class TumblingEventTimeWindows(_Tumbling, _EventTime):
    """Splits event time into windows of one size.

    Args:
        size_ms: The length of a window, in milliseconds. `of` takes it in any unit.
        offset_ms: The start of a window after a multiple of the size since 1970-01-01 UTC, in milliseconds. By default,
            windows begin at the multiples.

    Examples:
        >>> windows = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
        >>> counts = windows.aggregate("per-minute", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0 + timedelta(seconds=70)))
        ...     h.advance_watermark(T0 + timedelta(minutes=2))
        ...     [(row.user, row.n) for row in h.output()]
        [('ann', 1), ('ann', 1)]
    """

    def intervals(self) -> Panes:
        return Panes(self._size, self._size, self._offset)


class TumblingProcessingTimeWindows(_Tumbling, _ProcessingTime):
    """Splits processing time into windows of one size.

    Args:
        size_ms: The length of a window, in milliseconds. `of` takes it in any unit.
        offset_ms: The start of a window after a multiple of the size since 1970-01-01 UTC, in milliseconds. By default,
            windows begin at the multiples.

    Examples:
        >>> windows = orders.key_by("user").window(tg.TumblingProcessingTimeWindows.of("1 min"))
        >>> counts = windows.aggregate("per-minute", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.set_processing_time(T0)
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.set_processing_time(T0 + timedelta(minutes=1))
        ...     [(row.user, row.n) for row in h.output()]
        [('ann', 2)]
    """


class _Sliding(WindowAssigner):
    has_fixed_windows = True

    def __init__(self, size_ms: int, slide_ms: int, offset_ms: int = 0) -> None:
        _check(
            size_ms > 0 and slide_ms > 0, f"windows of {size_ms} ms every {slide_ms} ms", "Give both, as in '1 min'."
        )
        _check(abs(offset_ms) < slide_ms, f"an offset of {offset_ms} ms", "It must be shorter than the slide.")
        self._size = size_ms
        self._slide = slide_ms
        self._offset = offset_ms

    @classmethod
    def of(cls, size: Duration, slide: Duration, offset: Duration = 0) -> Self:
        """Windows of one size that begin every `slide`; where that is shorter, a row belongs to several.

        Args:
            size: The length of a window.
            slide: The time between the beginnings of two windows.
            offset: How much later than at a multiple of `slide` since 1970-01-01 UTC a window begins; it may be negative. By
                default, windows begin at the multiples.
        """
        of = f"{cls.__name__}.of"
        return cls(
            argument_ms("size", size, of=of), argument_ms("slide", slide, of=of), argument_ms("offset", offset, of=of)
        )

    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        # Python's modulo is never negative, so times before 1970 and negative offsets need no case of their own, unlike in Java.
        last = timestamp - (timestamp - self._offset) % self._slide
        return [TimeWindow(start, start + self._size) for start in range(last, timestamp - self._size, -self._slide)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size} ms every {self._slide} ms)"


class SlidingEventTimeWindows(_Sliding, _EventTime):
    """Event-time windows that may overlap.

    Args:
        size_ms: The length of a window, in milliseconds. `of` takes it in any unit.
        slide_ms: The time between the beginnings of two windows, in milliseconds.
        offset_ms: The start of a window after a multiple of the slide since 1970-01-01 UTC, in milliseconds. By default,
            windows begin at the multiples.

    Examples:
        >>> windows = orders.key_by("user").window(tg.SlidingEventTimeWindows.of("2 min", "1 min"))
        >>> counts = windows.aggregate("two-minutes", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0 + timedelta(seconds=70)))
        ...     h.advance_watermark(T0 + timedelta(minutes=3))
        ...     [row.n for row in h.output()]
        [1, 2, 1]
    """

    def intervals(self) -> Panes | None:
        # With gaps between windows a pane may be in none of them, which rows of it have to be asked for.
        return Panes(self._size, self._slide, self._offset) if self._slide <= self._size else None


class SlidingProcessingTimeWindows(_Sliding, _ProcessingTime):
    """Processing-time windows that may overlap.

    Args:
        size_ms: The length of a window, in milliseconds. `of` takes it in any unit.
        slide_ms: The time between the beginnings of two windows, in milliseconds.
        offset_ms: The start of a window after a multiple of the slide since 1970-01-01 UTC, in milliseconds. By default,
            windows begin at the multiples.

    Examples:
        >>> windows = orders.key_by("user").window(tg.SlidingProcessingTimeWindows.of("2 min", "1 min"))
        >>> counts = windows.aggregate("two-minutes", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.set_processing_time(T0)
        ...     h.process((1, "ann", 5.0, T0))
        ...     h.set_processing_time(T0 + timedelta(minutes=2))
        ...     [row.n for row in h.output()]
        [1, 1]
    """


class _Session(WindowAssigner):
    is_merging = True

    def __init__(self, gap_ms: int) -> None:
        _check(gap_ms > 0, f"a gap of {gap_ms} ms", "Give one such as '10 min'.")
        self._gap = gap_ms

    @classmethod
    def with_gap(cls, gap: Duration) -> Self:
        """Rows of one key that follow one another within `gap` share a window.

        Args:
            gap: The time without a row after which a session ends.
        """
        return cls(argument_ms("gap", gap, of=f"{cls.__name__}.with_gap"))

    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        return (TimeWindow(timestamp, timestamp + self._gap),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._gap} ms)"


class EventTimeSessionWindows(_Session, _EventTime):
    """Event-time sessions: a window ends when a key had no row for some time.

    Args:
        gap_ms: The time without a row after which a session ends, in milliseconds. `with_gap` takes it in any unit.

    Examples:
        >>> windows = orders.key_by("user").window(tg.EventTimeSessionWindows.with_gap("1 min"))
        >>> counts = windows.aggregate("sessions", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0 + timedelta(seconds=50)))
        ...     h.process((3, "ann", 9.0, T0 + timedelta(minutes=5)))
        ...     h.advance_watermark(T0 + timedelta(minutes=9))
        ...     [row.n for row in h.output()]
        [2, 1]
    """

    def intervals(self) -> SessionParts:
        return SessionParts(self._gap)


class ProcessingTimeSessionWindows(_Session, _ProcessingTime):
    """Processing-time sessions: a window ends when no row of a key was processed for some time.

    Args:
        gap_ms: The time without a row after which a session ends, in milliseconds. `with_gap` takes it in any unit.

    Examples:
        >>> windows = orders.key_by("user").window(tg.ProcessingTimeSessionWindows.with_gap("1 min"))
        >>> counts = windows.aggregate("sessions", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.set_processing_time(T0)
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.set_processing_time(T0 + timedelta(minutes=1))
        ...     [row.n for row in h.output()]
        [2]
    """


class GlobalWindows(WindowAssigner):
    """All rows of a key in one window; a trigger determines when it fires, otherwise it never does.

    Examples:
        >>> windows = orders.key_by("user").window(tg.GlobalWindows.create()).trigger(tg.CountTrigger.of(2))
        >>> counts = windows.aggregate("pairs", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     [row.n for row in h.output()]
        [2]
    """

    @classmethod
    def create(cls) -> Self:
        """All rows of a key in one window."""
        return cls()

    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        return (GLOBAL,)

    def get_default_trigger(self) -> Trigger:
        return NeverTrigger()

    def __repr__(self) -> str:
        return "GlobalWindows"


def _check(fits: bool, what: str, advice: str) -> None:
    if not fits:
        raise GraphError(f"There cannot be {what}. {advice}")
