"""What joins call for a pair of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from tidegate.graph.listening import NotifiesFunction


class OpenedFunction(Protocol):
    """A function that a task opens before the first row and closes after the last."""

    def open(self, ctx: Any, /) -> None: ...
    def close(self) -> None: ...


class JoinFunction(OpenedFunction, Protocol):
    """An object that makes any number of rows of a pair."""

    def process_element(self, left: Any, right: Any, ctx: Any, /) -> Iterable[Any] | None: ...


class Join(NotifiesFunction, ABC):
    """Makes rows of pairs, with a function in one of the forms that users may pass."""

    @property
    def notified(self) -> object:
        return None

    def open(self, ctx: Any) -> None:
        """Open the function, if it is an object."""

    def close(self) -> None:
        """Close it."""

    @abstractmethod
    def pair(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        """Return the rows of a pair. There is no context in a window."""


class JoinByFunction(Join):
    """With a `JoinFunction`."""

    def __init__(self, function: JoinFunction) -> None:
        self._function = function

    @property
    def notified(self) -> object:
        return self._function

    def open(self, ctx: Any) -> None:
        self._function.open(ctx)

    def close(self) -> None:
        self._function.close()

    def pair(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        return self._function.process_element(left, right, ctx) or ()


class JoinByCall(Join):
    """With a callable of two rows, which returns one row or None.

    A function class of the user's own may be callable without being a join function. It is opened and closed, and notified of
    checkpoints, as other functions are: `function` is then the same object as `call`.
    """

    def __init__(self, call: Callable[[Any, Any], Any], function: OpenedFunction | None = None) -> None:
        self._call = call
        self._function = function

    @property
    def notified(self) -> object:
        return self._function

    def open(self, ctx: Any) -> None:
        if self._function is not None:
            self._function.open(ctx)

    def close(self) -> None:
        if self._function is not None:
            self._function.close()

    def pair(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        row = self._call(left, right)
        return () if row is None else (row,)


class PairsOfWindow(NotifiesFunction):
    """The function of a window join: all pairs of elements, one from either side."""

    def __init__(self, join: Join) -> None:
        self._join = join

    @property
    def notified(self) -> object:
        return self._join.notified

    def open(self, ctx: Any, /) -> None:
        self._join.open(ctx)

    def close(self) -> None:
        self._join.close()

    def process(self, key: Any, context: Any, elements: Iterable[Any], /) -> Sequence[Any]:
        # Twice, once for each side, and `elements` may be read only once.
        rows = list(elements)
        left = [row for side, row in rows if side == 0]
        right = [row for side, row in rows if side == 1]
        pair = self._join.pair
        return [out for one in left for other in right for out in pair(one, other, None)]

    def clear(self, context: Any, /) -> None:
        """It has no state of its own."""
