"""Elements per key, stored in segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.core.copies import copier_of
from tidegate.core.ids import EpochId
from tidegate.core.types import codec_of
from tidegate.graph.states import StateSpec
from tidegate.state.accessors.accessor import FLUSHED_AT_ONCE, KeyedAccessor, bytes_of_keys, cleared_sample
from tidegate.state.accessors.object_size import object_bytes, places_of, spread
from tidegate.state.accessors.ttl import Expiry, unstamped
from tidegate.state.keys.entry_keys import KeyCodec, list_segment, prefix_end
from tidegate.state.keys.key_scope import KeyScope
from tidegate.state.port import StateStore

if TYPE_CHECKING:
    pass

SEGMENT_ELEMENTS = 4096
"""Maximum number of list elements in one stored segment."""
_SMALL_LIST = 1024


class ListAccessor(KeyedAccessor):
    """`ListState`: elements per key, in the order they were added.

    All elements of a segment were added at the same time, so they share its stamp.
    """

    __slots__ = ("_added", "_cleared", "_epoch", "_part", "_stored")

    def __init__(
        self,
        scope: KeyScope,
        store: StateStore,
        state_id: int,
        keys: KeyCodec,
        spec: StateSpec,
        expiry: Expiry | None,
        epoch: EpochId,
    ) -> None:
        super().__init__(scope, store, state_id, keys, codec_of(list[spec.value]), expiry, copier_of(spec.value))  # type: ignore[name-defined]
        self._epoch = epoch
        self._stored: dict[Any, tuple[Any, ...]] = {}
        self._added: dict[Any, tuple[int, list[Any]]] = {}
        self._cleared: dict[Any, int] = {}
        # Numbers the segments that this attempt writes, also over several flushes.
        self._part = 0

    def get(self) -> Iterator[Any]:
        """Yield elements one by one; a long list is never entirely in memory. Elements added while iterating are not seen."""
        scope = self._scope
        key = scope.key
        entry = self._added.get(key)
        added = tuple(entry[1]) if entry else ()
        stored = self._stored.get(key)
        found = self._stream(key, scope.key_group, added) if stored is None else iter(stored + added)
        return found if self._copied is None else map(self._copied, found)

    def add(self, value: Any) -> None:
        if self._copied is not None:
            value = self._copied(value)
        scope = self._scope
        entry = self._added.get(scope.key)
        if entry is None:
            self._added[scope.key] = (scope.key_group, [value])
        else:
            entry[1].append(value)

    def value_bytes(self, value: Any) -> int | None:
        """The size of one element, stored by itself."""
        return super().value_bytes([value])

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the whole list."""
        elements = list(values)
        self.clear()
        self.add_all(elements)

    def clear(self) -> None:
        key = self._scope.key
        self._cleared[key] = self._scope.key_group
        self._added.pop(key, None)
        # Known to be empty from now on, without a look into the store.
        self._stored[key] = ()

    __iter__ = get

    def stored(self) -> list[Any] | None:
        """Return all elements, or None if there are none. Renews nothing."""
        entry = self._added.get(self._scope.key)
        return [*self._stream(self._scope.key, self._scope.key_group, tuple(entry[1]) if entry else (), True)] or None

    def _stream(self, key: Any, group: int, added: tuple[Any, ...], peek: bool = False) -> Iterator[Any]:
        start, expiry = self._prefix(key, group), self.expiry
        small: list[Any] | None = None if peek else []
        for raw_key, raw in () if key in self._cleared else self._store.scan(start, prefix_end(start)):
            if expiry is not None:
                if expiry.expired(raw):
                    if not peek:
                        self._store.write((), [raw_key])
                    if peek or not expiry.return_expired:
                        continue
                    small = None  # expired elements are seen once
                elif not peek and expiry.to_be_renewed(raw):
                    self._store.write([(raw_key, expiry.stamped(unstamped(raw)))])
            elements = self._read(raw)
            if small is not None:
                small.extend(elements)
                if len(small) > _SMALL_LIST:
                    small = None
            yield from elements
        if small is not None:
            # Only after the last element: a function that stops early has not read the whole list. `setdefault`,
            # because the function may have cleared the list meanwhile.
            self._stored.setdefault(key, tuple(small))
        yield from added

    def pending(self) -> tuple[Iterable[Any], Mapping[Any, int]]:
        return self._cleared, {key: group for key, (group, _) in self._added.items()}

    def encodings(self) -> Iterator[tuple[Any, Callable[[], object]]]:
        return ((key, partial(self._encode, added)) for key, (_, added) in self._added.items())

    def flush(self) -> None:
        for key, group in self._cleared.items():
            start = self._prefix(key, group)
            self._store.delete_range(start, prefix_end(start))
        puts: list[tuple[bytes, bytes]] = []
        for key, (group, elements) in self._added.items():
            start = self._prefix(key, group)
            for first in range(0, len(elements), SEGMENT_ELEMENTS):
                part = self._encode(elements[first : first + SEGMENT_ELEMENTS])
                puts.append((start + list_segment(self._epoch, self._part), part))
                # Counted across all keys: only the order of one key's parts matters.
                self._part += 1
            # It lacks what was added. The next read finds all of it in the store.
            self._stored.pop(key, None)
            if len(puts) >= FLUSHED_AT_ONCE:
                self._write(puts)
        self._write(puts)
        self._added.clear()
        self._cleared.clear()

    def _write(self, puts: list[tuple[bytes, bytes]]) -> None:
        self._store.write(puts)
        self.written += len(puts)
        puts.clear()

    def forget(self) -> None:
        self._stored.clear()

    def _forget_changes(self) -> None:
        self._added.clear()
        self._cleared.clear()

    def cached(self) -> int:
        held = sum(map(len, self._stored.values())) + sum(len(e[1]) for e in self._added.values())
        return held + len(self._cleared)

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        keys = len(self._added) + len(self._stored) + len(self._cleared)
        gone = cleared_sample(self._cleared, most * len(self._cleared) // max(1, keys))
        added = spread(self._added.items(), len(self._added), most)
        stored = spread(self._stored.items(), len(self._stored), most)
        seen = [*((key, elements) for key, (_, elements) in added), *stored]
        size = sum(object_bytes(key) + object_bytes(elements) for key, elements in seen)
        size += places_of(seen, self._added, self._stored) + bytes_of_keys(gone, self._cleared)
        return sum(len(elements) for _, elements in seen) + len(gone), size
