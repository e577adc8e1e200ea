"""Which elements of a window are evaluated when it fires. With an evictor, a window keeps every row, not only an aggregate."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import NamedTuple, Self

from tidegate.api.rows import Row
from tidegate.api.window import Window
from tidegate.core.durations import Duration, argument_ms


class TimestampedValue(NamedTuple):
    """A row of a window, and its time in milliseconds."""

    timestamp: int
    value: Row


class Evictor(ABC):  # noqa: B024 (either method alone makes an evictor)
    """Removes elements from a window, before or after its function sees them. Both methods return what stays, in order."""

    def evict_before(self, elements: Sequence[TimestampedValue], window: Window, /) -> Sequence[TimestampedValue]:
        """Return the elements that the function of the window sees."""
        return elements

    def evict_after(self, elements: Sequence[TimestampedValue], window: Window, /) -> Sequence[TimestampedValue]:
        """Return the elements that stay in the window after its function has seen them."""
        return elements


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
        return cls(argument_ms("window_size", window_size), do_evict_after)

    def _kept(self, elements: Sequence[TimestampedValue]) -> Sequence[TimestampedValue]:
        oldest = max((element.timestamp for element in elements), default=0) - self._size
        return [element for element in elements if element.timestamp > oldest]
