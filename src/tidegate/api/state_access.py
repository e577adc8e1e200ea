"""State as the methods of a function use it: the accessors that replace the declarations while a job runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidegate.api.rows import StateArray

if TYPE_CHECKING:
    from tidegate.state.keys.key_index import KeyIndex

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
T_in = TypeVar("T_in", contravariant=True)
T_out = TypeVar("T_out", covariant=True)


class ValueAccess(Protocol[T]):
    """One value for the current key."""

    def value(self) -> T:
        """Return the value; the declared default if none was written or it was cleared."""
        ...

    def update(self, value: T) -> None:
        """Write `value`. None clears it."""
        ...

    def clear(self) -> None:
        """Remove everything that is stored for the key."""
        ...

    def values(self, keys: KeyIndex) -> StateArray:
        """Return the values of many keys, in a `KeyedBatchFunction`, in the order of the distinct `keys`.

        Numbers with a default are a numpy array; other numbers, strings, bytes and dates an Arrow array; everything else is a
        numpy array of Python objects.
        """
        ...

    def update_all(self, keys: KeyIndex, values: object) -> None:
        """Write one value for each key.

        Args:
            keys: The distinct keys, as `process_batch` gets them.
            values: An array or a list, in the order of the distinct keys. None clears.
        """
        ...

    def clear_all(self, keys: KeyIndex) -> None:
        """Remove the values of all distinct `keys`."""
        ...


class ListAccess(Protocol[T]):
    """A list for the current key."""

    def get(self) -> Iterable[T]:
        """Return the elements, in the order in which they were added."""
        ...

    def add(self, value: T) -> None:
        """Append `value`, without reading the other elements."""
        ...

    def add_all(self, values: Iterable[T]) -> None:
        """Append all `values`."""
        ...

    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list by `values`."""
        ...

    def clear(self) -> None:
        """Remove everything that is stored for the key."""
        ...

    def __iter__(self) -> Iterator[T]: ...


class MapAccess(Protocol[K, V]):
    """A map for the current key. Entries are read and written one by one; the whole map is never held in memory."""

    def get(self, key: K) -> V | None:
        """Return the value under `key`; None if there is none."""
        ...

    def put(self, key: K, value: V) -> None:
        """Write one entry: `value` under `key`."""
        ...

    def put_all(self, entries: Mapping[K, V]) -> None:
        """Write all `entries` of a mapping."""
        ...

    def remove(self, key: K) -> None:
        """Remove the entry under `key`, if it exists."""
        ...

    def contains(self, key: K) -> bool:
        """Return whether there is an entry under `key`."""
        ...

    def items(self) -> Iterable[tuple[K, V]]:
        """Iterate over the entries, one by one."""
        ...

    def keys(self) -> Iterable[K]:
        """Iterate over the keys of the entries."""
        ...

    def values(self) -> Iterable[V]:
        """Iterate over the values of the entries."""
        ...

    def is_empty(self) -> bool:
        """Return whether there is no entry."""
        ...

    def clear(self) -> None:
        """Remove everything that is stored for the key."""
        ...

    def __contains__(self, key: object) -> bool: ...
    def __iter__(self) -> Iterator[K]: ...
    def __getitem__(self, key: K) -> V: ...
    def __setitem__(self, key: K, value: V) -> None: ...
    def __delitem__(self, key: K) -> None: ...


class SortedMapAccess(MapAccess[K, V], Protocol[K, V]):
    """A map for the current key whose entries are ordered by their keys. A range is read without the rest."""

    def items(self, start: K | None = None, end: K | None = None, *, reverse: bool = False) -> Iterable[tuple[K, V]]:
        """Iterate over the entries of a range, one by one.

        Args:
            start: The least key of the range. By default, without a bound.
            end: The key that ends the range, and is not in it. By default, without a bound.
            reverse: From the greatest key to the least.
        """
        ...

    def keys(self, start: K | None = None, end: K | None = None, *, reverse: bool = False) -> Iterable[K]:
        """Iterate over the keys of a range.

        Args:
            start: The least key of the range. By default, without a bound.
            end: The key that ends the range, and is not in it. By default, without a bound.
            reverse: From the greatest key to the least.
        """
        ...

    def values(self, start: K | None = None, end: K | None = None, *, reverse: bool = False) -> Iterable[V]:
        """Iterate over the values of a range, in the order of their keys.

        Args:
            start: The least key of the range. By default, without a bound.
            end: The key that ends the range, and is not in it. By default, without a bound.
            reverse: From the greatest key to the least.
        """
        ...

    def first_key(self) -> K | None:
        """Return the smallest key; None if the map is empty."""
        ...

    def last_key(self) -> K | None:
        """Return the greatest key; None if the map is empty."""
        ...


class AppendAccess(Protocol[T_in, T_out]):
    """What was added for the current key, combined into one value."""

    def get(self) -> T_out | None:
        """Return the combined value; None if nothing was added."""
        ...

    def add(self, value: T_in) -> None:
        """Combine `value` with those added before."""
        ...

    def clear(self) -> None:
        """Remove everything that is stored for the key."""
        ...


class BroadcastAccess(MapAccess[K, V], Protocol[K, V]):
    """A map that is the same in every task. Writable on the broadcast side only; on the other, writing raises."""
