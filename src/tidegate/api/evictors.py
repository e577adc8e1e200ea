"""Which elements of a window are evaluated when it fires. With an evictor, a window keeps every row, not only an aggregate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tidegate.core.durations import Duration, argument_ms
from tidegate.operators.evictor import Evictor, TimestampedValue
from tidegate.operators.window import Window

__all__ = ["CountEvictor", "Evictor", "TimeEvictor", "TimestampedValue"]


class _Once(Evictor):
    def __init__(self, do_evict_after: bool) -> None:
        self._after = do_evict_after

    def evict_before(self, elements: Sequence[TimestampedValue], window: Window) -> Sequence[TimestampedValue]:
        return elements if self._after else self._kept(elements)

    def evict_after(self, elements: Sequence[TimestampedValue], window: Window) -> Sequence[TimestampedValue]:
        return self._kept(elements) if self._after else elements

    def _kept(self, elements: Sequence[TimestampedValue]) -> Sequence[TimestampedValue]:
        raise NotImplementedError


class CountEvictor(_Once):
    """Keeps the last n elements."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._max = max_count

    @classmethod
    def of(cls, max_count: int, do_evict_after: bool = False) -> Self:
        """`CountEvictor.of(10)`."""
        return cls(max_count, do_evict_after)

    def _kept(self, elements: Sequence[TimestampedValue]) -> Sequence[TimestampedValue]:
        return elements[-self._max :]


class TimeEvictor(_Once):
    """Keeps the elements that are at most a given time older than the latest."""

    def __init__(self, window_size_ms: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._size = window_size_ms

    @classmethod
    def of(cls, window_size: Duration, do_evict_after: bool = False) -> Self:
        """`TimeEvictor.of("5 s")`."""
        return cls(argument_ms("window_size", window_size, of="TimeEvictor.of"), do_evict_after)

    def _kept(self, elements: Sequence[TimestampedValue]) -> Sequence[TimestampedValue]:
        oldest = max((element.timestamp for element in elements), default=0) - self._size
        return [element for element in elements if element.timestamp > oldest]
