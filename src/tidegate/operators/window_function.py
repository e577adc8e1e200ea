"""What a firing window calls, and how its result becomes rows. Users derive from `api.window_function`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tidegate.core.times import moment
from tidegate.state.keys.entry_keys import TimeWindow

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates

Emitter: TypeAlias = Callable[[Any, Any, Sequence[Any]], Iterable[Any] | None]
"""Rows out of a firing window: (key, context, elements)."""


class WindowFunction(Protocol):
    """A function of windows. Its `process` is the emitter of its operator."""

    def open(self, ctx: Any, /) -> None: ...
    def process(self, key: Any, context: Any, elements: Iterable[Any], /) -> Iterable[Any] | None: ...
    def clear(self, context: Any, /) -> None: ...
    def close(self) -> None: ...


class TakesStates(ABC):
    """A function that takes all states of its operator before `open`, instead of having them set as attributes after it."""

    @abstractmethod
    def attach_states(self, states: KeyedStates) -> None: ...


def emit_result(key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
    """The result is the row."""
    return elements


def emit_columns(key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
    """Key, start and end of the window, and the values."""
    window = context.window()
    start = end = None
    if isinstance(window, TimeWindow):
        start = moment(window.start_ms)
        end = moment(window.end_ms)
    # A key of one column is its value, a key of several a tuple.
    head = key if isinstance(key, tuple) else (key,)
    return [(*head, start, end, *values) for values in elements]
