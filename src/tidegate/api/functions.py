"""Functions of the user, with PyFlink's names. For map, filter and flat_map a plain callable does as well.

A function object is pickled when the job starts, and every task works on a copy of its own. What must outlive a task
belongs into declared state; attributes set while rows are processed are lost without notice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from tidegate.api.context import OnTimerContext, ProcessContext, RuntimeContext
from tidegate.api.states import declared_states
from tidegate.graph.states import TIMERS, StateSpec


class Function(ABC):  # noqa: B024 (each kind of function has its own abstract method)
    """What all functions have. Both methods are called once for each copy of the function, in its task."""

    def open(self, ctx: RuntimeContext) -> None:  # noqa: B027
        """Make what cannot be pickled: connections, models, compiled patterns. State is not there yet."""

    def close(self) -> None:  # noqa: B027
        """Give back what `open` took. Also called after a failure."""


class MapFunction(Function):
    """One row in, one row out."""

    @abstractmethod
    def map(self, row: Any) -> Any:
        """The row to emit: a tuple in the order of the schema, a dict, or a row."""


class FilterFunction(Function):
    """Keeps rows or drops them."""

    @abstractmethod
    def filter(self, row: Any) -> bool:
        """Whether to keep the row."""


class FlatMapFunction(Function):
    """One row in, any number of rows out."""

    @abstractmethod
    def flat_map(self, row: Any) -> Iterable[Any] | None:
        """The rows to emit, mostly by `yield`. None is no row."""


class KeyedProcessFunction(Function):
    """Sees the rows of a keyed stream one by one, with state and timers of their key.

    State is declared on the class: `total = ValueState(float, default=0.0)`.
    """

    @abstractmethod
    def process_element(self, row: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle one row; yield or return the rows to emit. `ctx.output(tag, row)` emits to a side output."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """A timer of the current key has come; `timestamp` is the time it was registered for, in milliseconds."""
        return None


class KeyedCoProcessFunction(Function):
    """Sees the rows of two keyed streams one by one, with state and timers of their key that both sides share."""

    @abstractmethod
    def process_element1(self, row: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle a row of the first stream, as `KeyedProcessFunction.process_element` does."""

    @abstractmethod
    def process_element2(self, row: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle a row of the second stream."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """A timer of the current key has come."""
        return None


_SILENT = (KeyedProcessFunction.on_timer, KeyedCoProcessFunction.on_timer)


def states_of(function: Any) -> tuple[StateSpec, ...]:
    """All state of a keyed function: what it declares, and its timers where it says what they do."""
    own = getattr(type(function), "on_timer", None)
    return (*declared_states(function), *((TIMERS,) if own is not None and own not in _SILENT else ()))
