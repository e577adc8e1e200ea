"""States that combine added elements: one stored value per key with a reduce or an aggregate function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.state.access import ValueAccessor


class _Folding:
    """Built on a value accessor, and shares its cache, time to live and rollback."""

    __slots__ = ("_value", "cached", "clear", "expiry", "flush", "forget", "pending", "stored")

    def __init__(self, value: ValueAccessor) -> None:
        self._value: Any = value
        self.clear, self.stored, self.expiry = value.clear, value.stored, value.expiry
        self.flush, self.forget, self.cached = value.flush, value.forget, value.cached
        self.pending = value.pending

    @property
    def written(self) -> int:
        return int(self._value.written)

    def mark(self) -> None:
        self._value.mark()

    def verify(self) -> None:
        self._value.verify()

    def roll_back(self) -> None:
        self._value.roll_back()


class ReducingAccessor(_Folding):
    """`ReducingState`: the first element unchanged, then `reduce(so far, element)`."""

    __slots__ = ("_reduce",)

    def __init__(self, value: ValueAccessor, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(value)
        self._reduce = reduce

    def get(self) -> Any:
        """None where nothing was added."""
        return self._value.value()

    def add(self, element: Any) -> None:
        so_far = self._value.value()
        self._value.update(element if so_far is None else self._reduce(so_far, element))


class AggregatingAccessor(_Folding):
    """`AggregatingState`: stores the accumulator, reads return the result."""

    __slots__ = ("_function",)

    def __init__(self, value: ValueAccessor, function: Any) -> None:
        super().__init__(value)
        self._function = function

    def get(self) -> Any:
        """None where nothing was added."""
        accumulator = self._value.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, element: Any) -> None:
        accumulator = self._value.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._value.update(self._function.add(element, accumulator))
