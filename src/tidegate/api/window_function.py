"""A function of windows, and what it sees."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeAlias

from tidegate.api.functions import Function
from tidegate.api.rows import In, K, Key, Row, Typed, W, W_co


class WindowContext(Protocol[W_co]):
    """Given to `ProcessWindowFunction.process`."""

    def window(self) -> W_co:
        """The window; a `TimeWindow` has `start` and `end` in milliseconds, `max_timestamp()`."""
        ...

    def current_processing_time(self) -> int:
        """Return the clock of the epoch, in milliseconds since 1970-01-01 UTC."""
        ...

    def current_watermark(self) -> int:
        """Return how far event time has progressed, in milliseconds since 1970-01-01 UTC."""
        ...

    def output(self, tag: str, row: object) -> None:
        """Send a row to a side output that the operator declares.

        Args:
            tag: The name of the side output.
            row: A row in one of the forms in which functions emit rows.
        """
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Measure a block of the function: `with context.span("parse"):`.

        Args:
            name: What metrics and traces call the block.
        """
        ...


class ProcessWindowFunction(Function, Typed, Generic[In, K, W]):
    """Sees all rows of a window at once; behind `aggregate` and `reduce`, their one result.

    State that it declares belongs to the key and is shared by its windows; declared with `.per_window()`, each window
    has its own until it is removed.

    Examples:
        >>> class Largest(tg.ProcessWindowFunction):
        ...     def process(self, key, context, orders):
        ...         yield key, max(order.amount for order in orders)
        >>> windows = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
        >>> largest = windows.process("largest", Largest(), schema="user string, amount double")
        >>> with tg.testing.harness(largest) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.advance_watermark(T0 + timedelta(minutes=1))
        ...     h.output()
        [Struct(user='ann', amount=7.0)]
    """

    @abstractmethod
    def process(self, key: K, context: WindowContext[W], elements: Iterable[In], /) -> Iterable[object] | None:
        """Yield or return the rows to emit for a window that fires.

        Args:
            key: The value of the key column, or a tuple of them where there are several.
            context: The window, its times, and side outputs.
            elements: The rows of the window, in the order in which they arrived; behind `aggregate` and `reduce`, their one
                result.
        """

    def clear(self, context: WindowContext[W], /) -> None:
        """Clear state that was kept for a window. Called once, when the window is removed.

        Args:
            context: The window and its times.
        """


WindowFunction: TypeAlias = ProcessWindowFunction[Row, Key, Any]
"""A function of windows of any kind."""
