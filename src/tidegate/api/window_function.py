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
        """Send a row to a side output that the operator declares."""
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Measure a block of the function: `with context.span("parse"):`."""
        ...


class ProcessWindowFunction(Function, Typed, Generic[In, K, W]):
    """Sees all rows of a window at once; behind `aggregate` and `reduce`, their one result.

    State that it declares belongs to the key and is shared by its windows; declared with `.per_window()`, each window
    has its own until it is removed.
    """

    @abstractmethod
    def process(self, key: K, context: WindowContext[W], elements: Iterable[In], /) -> Iterable[object] | None:
        """The window fires: yield or return rows to emit."""

    def clear(self, context: WindowContext[W], /) -> None:
        """The window is gone for good: clear what state was kept for it."""


WindowFunction: TypeAlias = ProcessWindowFunction[Row, Key, Any]
"""A function of windows of any kind."""
