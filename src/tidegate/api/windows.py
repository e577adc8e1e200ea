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
        """Windows of one size, one after the other: `of("1 h", "15 min")` begin at a quarter past."""
        of = f"{cls.__name__}.of"
        return cls(argument_ms("size", size, of=of), argument_ms("offset", offset, of=of))

    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        start = timestamp - (timestamp - self._offset) % self._size
        return (TimeWindow(start, start + self._size),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size} ms)"


class TumblingEventTimeWindows(_Tumbling, _EventTime):
    """Splits event time into windows of one size."""

    def intervals(self) -> Panes:
        return Panes(self._size, self._size, self._offset)


class TumblingProcessingTimeWindows(_Tumbling, _ProcessingTime):
    """Splits processing time into windows of one size."""


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
        """Windows of one size that begin every `slide`; where that is shorter, a row belongs to several."""
        of = f"{cls.__name__}.of"
        return cls(
            argument_ms("size", size, of=of), argument_ms("slide", slide, of=of), argument_ms("offset", offset, of=of)
        )

    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        last = timestamp - (timestamp - self._offset) % self._slide
        return [TimeWindow(start, start + self._size) for start in range(last, timestamp - self._size, -self._slide)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size} ms every {self._slide} ms)"


class SlidingEventTimeWindows(_Sliding, _EventTime):
    """Event-time windows that may overlap."""

    def intervals(self) -> Panes | None:
        # With gaps between windows a pane may be in none of them, which rows of it have to be asked for.
        return Panes(self._size, self._slide, self._offset) if self._slide <= self._size else None


class SlidingProcessingTimeWindows(_Sliding, _ProcessingTime):
    """Processing-time windows that may overlap."""


class _Session(WindowAssigner):
    is_merging = True

    def __init__(self, gap_ms: int) -> None:
        _check(gap_ms > 0, f"a gap of {gap_ms} ms", "Give one such as '10 min'.")
        self._gap = gap_ms

    @classmethod
    def with_gap(cls, gap: Duration) -> Self:
        """Rows of one key that follow one another within `gap` share a window."""
        return cls(argument_ms("gap", gap, of=f"{cls.__name__}.with_gap"))

    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        return (TimeWindow(timestamp, timestamp + self._gap),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._gap} ms)"


class EventTimeSessionWindows(_Session, _EventTime):
    """Event-time sessions."""

    def intervals(self) -> SessionParts:
        return SessionParts(self._gap)


class ProcessingTimeSessionWindows(_Session, _ProcessingTime):
    """Processing-time sessions."""


class GlobalWindows(WindowAssigner):
    """All rows of a key in one window; a trigger determines when it fires, otherwise it never does."""

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
