"""State as PyFlink's functions use it: the accessors of tidegate, with values converted where they are not stored as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidegate.flink.type_information import TypeInformation


class ConvertedValue:
    """A value whose type is converted."""

    def __init__(self, accessor: Any, type: TypeInformation) -> None:
        self._accessor = accessor
        self._to = type.to_stored or _same
        self._from = type.from_stored or _same
        self.clear: Callable[[], None] = accessor.clear  # nothing to convert, so no call in between

    def value(self) -> Any:
        found = self._accessor.value()
        return None if found is None else self._from(found)

    def update(self, value: Any) -> None:
        self._accessor.update(None if value is None else self._to(value))


class ConvertedList:
    """A list whose elements are converted."""

    def __init__(self, accessor: Any, element: TypeInformation) -> None:
        self._accessor = accessor
        self._to = element.to_stored or _same
        self._from = element.from_stored or _same
        self.clear: Callable[[], None] = accessor.clear

    def get(self) -> Iterator[Any]:
        return map(self._from, self._accessor.get())

    def add(self, value: Any) -> None:
        self._accessor.add(self._to(value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._accessor.add_all([self._to(value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        self._accessor.update([self._to(value) for value in values])

    __iter__ = get


class ConvertedMap:
    """A map, also of broadcast state. `state[key]` is None for a key that is not there, as in PyFlink."""

    def __init__(self, accessor: Any, key: TypeInformation, value: TypeInformation) -> None:
        self._accessor = accessor
        self._key_to = key.to_stored or _same
        self._key_from = key.from_stored or _same
        self._to = value.to_stored or _same
        self._from = value.from_stored or _same
        self.clear: Callable[[], None] = accessor.clear
        self.is_empty: Callable[[], bool] = accessor.is_empty

    def get(self, key: Any) -> Any:
        found = self._accessor.get(self._key_to(key))
        return None if found is None else self._from(found)

    def put(self, key: Any, value: Any) -> None:
        self._accessor.put(self._key_to(key), self._to(value))

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        self._accessor.put_all({self._key_to(key): self._to(value) for key, value in entries.items()})

    def remove(self, key: Any) -> None:
        self._accessor.remove(self._key_to(key))

    def contains(self, key: Any) -> bool:
        found: bool = self._accessor.contains(self._key_to(key))
        return found

    def items(self) -> Iterator[tuple[Any, Any]]:
        return ((self._key_from(key), self._from(value)) for key, value in self._accessor.items())

    def keys(self) -> Iterator[Any]:
        return map(self._key_from, self._accessor.keys())

    def values(self) -> Iterator[Any]:
        return map(self._from, self._accessor.values())

    __getitem__, __setitem__, __delitem__, __contains__, __iter__ = get, put, remove, contains, keys


class ConvertedAppend:
    """Added values whose combination is stored; `add` takes what the function takes."""

    def __init__(self, accessor: Any, add: Callable[[Any], Any], get: Callable[[Any], Any]) -> None:
        self._accessor = accessor
        self._add = add
        self._get = get
        self.clear: Callable[[], None] = accessor.clear

    def get(self) -> Any:
        found = self._accessor.get()
        return None if found is None else self._get(found)

    def add(self, value: Any) -> None:
        self._accessor.add(self._add(value))


class ConvertedReduce:
    """Combines stored values."""

    def __init__(self, reduce: Callable[[Any, Any], Any], type: TypeInformation) -> None:
        self._reduce = reduce
        self._to = type.to_stored or _same
        self._from = type.from_stored or _same

    def reduce(self, a: Any, b: Any) -> Any:
        return self._to(self._reduce(self._from(a), self._from(b)))


class ConvertedAggregate:
    """Keeps the accumulator of an aggregate function as it is stored."""

    def __init__(self, function: Any, accumulator: TypeInformation) -> None:
        self._function = function
        self._to = accumulator.to_stored or _same
        self._from = accumulator.from_stored or _same

    def create_accumulator(self) -> Any:
        return self._to(self._function.create_accumulator())

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._to(self._function.add(value, self._from(accumulator)))

    def get_result(self, accumulator: Any) -> Any:
        return self._function.get_result(self._from(accumulator))


def _same(value: Any) -> Any:
    return value
