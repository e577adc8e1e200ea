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
    """Keeps the last n elements.

    Args:
        max_count: How many elements stay in the window.
        do_evict_after: Evict after the function of the window has seen the elements, so that it sees all of them. By
        default, it sees only those that stay.

    Examples:
        >>> class Ids(tg.ProcessWindowFunction):
        ...     def process(self, key, context, orders):
        ...         yield key, [order.id for order in orders]
        >>> windows = orders.key_by("user").window(tg.GlobalWindows.create()).trigger(tg.CountTrigger.of(1))
        >>> last_two = windows.evictor(tg.CountEvictor.of(2)).process("last", Ids(), schema="user string, ids array<bigint>")
        >>> with tg.testing.harness(last_two) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0), (3, "ann", 9.0, T0))
        ...     h.output()[-1]
        Struct(user='ann', ids=[2, 3])
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._max = max_count

    @classmethod
    def of(cls, max_count: int, do_evict_after: bool = False) -> Self:
        """Keep the last `max_count` elements: `CountEvictor.of(10)`.

        Args:
            max_count: How many elements stay in the window.
            do_evict_after: Evict after the function of the window has seen the elements, so that it sees all of them. By
                default, it sees only those that stay.
        """
        return cls(max_count, do_evict_after)

    def _kept(self, elements: Sequence[TimestampedValue]) -> Sequence[TimestampedValue]:
        return elements[-self._max :]


class TimeEvictor(_Once):
    """Keeps the elements that are less than a given time older than the latest.

    Args:
        window_size_ms: The age, in milliseconds before the latest element, at which elements leave the window.
        do_evict_after: Evict after the function of the window has seen the elements, so that it sees all of them. By
        default, it sees only those that stay.

    Examples:
        >>> class Ids(tg.ProcessWindowFunction):
        ...     def process(self, key, context, orders):
        ...         yield key, [order.id for order in orders]
        >>> windows = orders.key_by("user").window(tg.GlobalWindows.create()).trigger(tg.CountTrigger.of(1))
        >>> recent = windows.evictor(tg.TimeEvictor.of("5 s")).process("recent", Ids(), schema="user string, ids array<bigint>")
        >>> with tg.testing.harness(recent) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0 + timedelta(seconds=9)))
        ...     h.output()[-1]
        Struct(user='ann', ids=[2])
    """

    def __init__(self, window_size_ms: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._size = window_size_ms

    @classmethod
    def of(cls, window_size: Duration, do_evict_after: bool = False) -> Self:
        """Keep the elements of the last `window_size`: `TimeEvictor.of("5 s")`.

        Args:
            window_size: The age, before the latest element, at which elements leave the window.
            do_evict_after: Evict after the function of the window has seen the elements, so that it sees all of them. By
                default, it sees only those that stay.
        """
        return cls(argument_ms("window_size", window_size, of="TimeEvictor.of"), do_evict_after)

    def _kept(self, elements: Sequence[TimestampedValue]) -> Sequence[TimestampedValue]:
        # From the latest element, not from the clock, as in Flink.
        oldest = max((element.timestamp for element in elements), default=0) - self._size
        return [element for element in elements if element.timestamp > oldest]
