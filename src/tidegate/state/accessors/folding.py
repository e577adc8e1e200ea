"""States that combine added elements: one stored value per key with a reduce or an aggregate function.

The stored value belongs to the state. A reduce or aggregate function may change it in place; objects that it is given,
returns or keeps are copied (see `core.copies`). Types whose values cannot change need none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.core.copies import copier_of, detached, is_nested
from tidegate.state.accessors.value_accessor import ValueAccessor


class _Folding:
    """Built on a value accessor, and shares its cache, time to live and rollback."""

    __slots__ = (
        "_value",
        "cached",
        "clear",
        "drop_cached",
        "encodings",
        "expiry",
        "flush",
        "forget",
        "key_bytes",
        "pending",
        "sampled_bytes",
        "stored",
    )

    def __init__(self, value: ValueAccessor) -> None:
        # Methods are taken over as attributes: one call instead of two for each access.
        self._value: Any = value
        self.clear = value.clear
        self.stored = value.stored
        self.expiry = value.expiry
        self.flush = value.flush
        self.encodings = value.encodings
        self.forget = value.forget
        self.cached = value.cached
        self.pending = value.pending
        self.key_bytes = value.key_bytes
        self.drop_cached = value.drop_cached
        self.sampled_bytes = value.sampled_bytes

    def value_bytes(self, _: Any) -> int | None:
        """The size of the stored value, whatever was added or computed from it."""
        return self._value.value_bytes(self._value.value())  # type: ignore[no-any-return]

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


class CopyingReducingAccessor(ReducingAccessor):
    """The same for mutable values: an object that was added or returned does not become the stored one."""

    __slots__ = ("_copied",)

    def __init__(self, value: ValueAccessor, reduce: Callable[[Any, Any], Any], copied: Callable[[Any], Any]) -> None:
        super().__init__(value, reduce)
        self._copied = copied

    def get(self) -> Any:
        return self._copied(self._value.value())

    def add(self, element: Any) -> None:
        element, so_far = self._copied(element), self._value.value()
        made = element if so_far is None else self._reduce(so_far, element)
        # What the function returned may be an object of its own, which it could change later. Its arguments belong to
        # the state already.
        self._value.update(made if made is so_far or made is element else self._copied(made))


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


class CopyingAggregatingAccessor(AggregatingAccessor):
    """The same for mutable accumulators. One that the function changes in place is not copied with each element."""

    __slots__ = ("_copied", "_nested")

    def __init__(self, value: ValueAccessor, function: Any, copied: Callable[[Any], Any], nested: bool) -> None:
        super().__init__(value, function)
        self._copied = copied
        self._nested = nested

    def get(self) -> Any:
        accumulator = self._value.value()
        if accumulator is None:
            return None
        result = self._function.get_result(accumulator)
        if result is accumulator:
            return self._copied(result)
        # The function may return a part of the accumulator, or a tuple that contains it.
        return detached(result) if self._nested or isinstance(result, tuple) else result

    def add(self, element: Any) -> None:
        if self._nested:
            # The function may put the element itself into the accumulator.
            element = detached(element)
        held = self._value.value()
        made = self._function.add(element, self._function.create_accumulator() if held is None else held)
        self._value.update(made if made is held else self._copied(made))


def reducing(value: ValueAccessor, tp: Any, reduce: Callable[[Any, Any], Any]) -> ReducingAccessor:
    """Return the accessor of a `ReducingState` of type `tp`."""
    copied = copier_of(tp)
    return ReducingAccessor(value, reduce) if copied is None else CopyingReducingAccessor(value, reduce, copied)


def aggregating(value: ValueAccessor, tp: Any, function: Any) -> AggregatingAccessor:
    """Return the accessor of an `AggregatingState` whose accumulators have the type `tp`."""
    copied = copier_of(tp)
    if copied is None:
        return AggregatingAccessor(value, function)
    return CopyingAggregatingAccessor(value, function, copied, is_nested(tp))
