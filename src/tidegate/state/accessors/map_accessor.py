"""A map per key, stored entry by entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any, get_args

from tidegate.core.copies import copier_of
from tidegate.core.types import codec_of
from tidegate.graph.states import StateSpec
from tidegate.state.accessors.accessor import ABSENT, FLUSHED_AT_ONCE, KeyedAccessor, bytes_of_keys, cleared_sample
from tidegate.state.accessors.object_size import object_bytes, places_of, spread
from tidegate.state.accessors.ttl import Expiry, unstamped
from tidegate.state.keys.entry_keys import KeyCodec, prefix_end
from tidegate.state.keys.key_scope import KeyScope
from tidegate.state.port import StateStore

if TYPE_CHECKING:
    pass


class _MapEntries(KeyedAccessor):
    """What a map writes."""

    __slots__ = ()
    _dirty: dict[Any, Any]

    def _entries(self, key: Any, group: int, user_keys: Iterable[Any]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        prefix, entries = self._prefix(key, group), self._live.get(key, {})
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for user_key in user_keys:
            value = entries[user_key]
            raw_key = prefix + self._encode_user_key(user_key)
            if value is ABSENT:
                deletes.append(raw_key)
            else:
                puts.append((raw_key, self._encode(value)))
        return puts, deletes

    def encodings(self) -> Iterator[tuple[Any, Callable[[], object]]]:
        return ((key, partial(self._entries, key, *dirty)) for key, dirty in self._dirty.items())


class MapAccessor(_MapEntries):
    """`MapState` and `SortedMapState`: a map per key, one entry of the store per entry of the map."""

    __slots__ = ("_cleared", "_decode_user_key", "_dirty", "_live", "_normalized")

    def __init__(
        self, scope: KeyScope, store: StateStore, state_id: int, keys: KeyCodec, spec: StateSpec, expiry: Expiry | None
    ) -> None:
        super().__init__(scope, store, state_id, keys, codec_of(spec.value), expiry, copier_of(spec.value))
        user_keys = KeyCodec.of_python(spec.map_key)
        self._encode_user_key = user_keys.encode
        self._decode_user_key = user_keys.decode
        # One NaN and one zero, otherwise the cache would hold several entries for one in the store.
        self._normalized = user_keys.normalized if _has_floats(spec.map_key) else None
        self._live: dict[Any, dict[Any, Any]] = {}
        self._dirty: dict[Any, tuple[int, set[Any]]] = {}
        self._cleared: dict[Any, int] = {}
        """Maps to be cleared in the store before anything else is written. Their current content is in `_live`."""

    def get(self, user_key: Any) -> Any:
        value = self._lookup(user_key)
        if value is ABSENT:
            return None
        return value if self._copied is None else self._copied(value)

    def put(self, user_key: Any, value: Any) -> None:
        self._put(user_key, value if self._copied is None or value is ABSENT else self._copied(value))

    def _put(self, user_key: Any, value: Any) -> None:
        if self._normalized is not None:
            user_key = self._normalized(user_key)
        scope = self._scope
        key = scope.key
        entries = self._live.get(key)
        if entries is None:
            entries = self._live[key] = {}
        entries[user_key] = value
        dirty = self._dirty.get(key)
        if dirty is None:
            self._dirty[key] = (scope.key_group, {user_key})
        else:
            dirty[1].add(user_key)

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for user_key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self.put(user_key, value)

    def remove(self, user_key: Any) -> None:
        self.put(user_key, ABSENT)

    def contains(self, user_key: Any) -> bool:
        return self._lookup(user_key) is not ABSENT

    def items(self, start: Any = None, end: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield entries with start <= user key < end in the order of their user keys. None means unbounded.

        Changes made while iterating are not seen.
        """
        prefix, found = self._scan(start, end, reverse)
        for raw_key, raw in found:
            yield self._decode_user_key(raw_key, len(prefix))[0], self._read(raw)

    def keys(self, start: Any = None, end: Any = None, *, reverse: bool = False) -> Iterator[Any]:
        prefix, found = self._scan(start, end, reverse)
        for raw_key, _ in found:
            yield self._decode_user_key(raw_key, len(prefix))[0]

    def values(self, start: Any = None, end: Any = None, *, reverse: bool = False) -> Iterator[Any]:
        for _, raw in self._scan(start, end, reverse)[1]:
            yield self._read(raw)

    def first_key(self) -> Any:
        return next(self.keys(), None)

    def last_key(self) -> Any:
        return next(self.keys(reverse=True), None)

    def is_empty(self) -> bool:
        return next(self._scan()[1], None) is None

    def clear(self) -> None:
        key = self._scope.key
        self._cleared[key] = self._scope.key_group
        self._live.pop(key, None)
        self._dirty.pop(key, None)

    __contains__ = contains
    __iter__ = keys
    __setitem__ = put
    __delitem__ = remove

    def __getitem__(self, user_key: Any) -> Any:
        value = self._lookup(user_key)
        if value is ABSENT:
            raise KeyError(user_key)
        return value if self._copied is None else self._copied(value)

    def stored(self) -> dict[Any, Any] | None:
        """Return the whole map, or None if it is empty. Renews nothing."""
        prefix, found = self._scan(peek=True)
        return {self._decode_user_key(key, len(prefix))[0]: self._read(raw) for key, raw in found} or None

    def _lookup(self, user_key: Any) -> Any:
        if self._normalized is not None:
            user_key = self._normalized(user_key)
        key = self._scope.key
        entries = self._live.get(key)
        if entries is None:
            entries = self._live[key] = {}
        elif user_key in entries:
            return entries[user_key]
        raw_key = self._prefix(key, self._scope.key_group) + self._encode_user_key(user_key)
        raw = None if key in self._cleared else self._store.get(raw_key)
        value = ABSENT if raw is None else self._read(raw)
        if raw is not None and self.expiry is not None:
            if self.expiry.expired(raw):
                self.put(user_key, ABSENT)
                return value if self.expiry.return_expired else ABSENT
            # Written as a new value: the flush gives it a new stamp.
            if self.expiry.to_be_renewed(raw):
                self.put(user_key, value)
        entries[user_key] = value
        return value

    def _scan(
        self, start: Any = None, end: Any = None, reverse: bool = False, *, peek: bool = False
    ) -> tuple[bytes, Iterator[tuple[bytes, bytes]]]:
        """Return the common prefix of the raw keys, and the raw entries."""
        key = self._scope.key
        prefix = self._prefix(key, self._scope.key_group)
        low = prefix if start is None else prefix + self._encode_user_key(start)
        high = prefix_end(prefix) if end is None else prefix + self._encode_user_key(end)
        found: Iterator[tuple[bytes, bytes]]
        if key in self._cleared:
            # The store still has the old map, which is to be cleared. All that the map holds now is in memory.
            entries = self._entries(key, self._scope.key_group, self._live.get(key, ()))[0]
            found = iter(sorted((e for e in entries if low <= e[0] < high), reverse=reverse))
        else:
            # A scan reads the store, so the changes of this one key must be there.
            self._write_through(key)
            found = self._store.scan(low, high, reverse=reverse) if low < high else iter(())
        return prefix, found if self.expiry is None else self._unexpired(found, self.expiry, peek)

    def _write_through(self, key: Any) -> None:
        dirty = self._dirty.pop(key, None)
        if dirty is not None:
            puts, deletes = self._entries(key, *dirty)
            self._store.write(puts, deletes)
            self.written += len(puts)

    def _unexpired(
        self, found: Iterator[tuple[bytes, bytes]], expiry: Expiry, peek: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        for raw_key, raw in found:
            if expiry.expired(raw):
                if not peek:
                    # Removed as it is met. A scan does not see writes that come after it has begun.
                    self._store.write((), [raw_key])
                if peek or not expiry.return_expired:
                    continue
            elif not peek and expiry.to_be_renewed(raw):
                self._store.write([(raw_key, expiry.stamped(unstamped(raw)))])
            yield raw_key, raw

    def pending(self) -> tuple[Iterable[Any], Mapping[Any, int]]:
        live = self._live
        return self._cleared, {
            key: group for key, (group, names) in self._dirty.items() if any(live[key][n] is not ABSENT for n in names)
        }

    def flush(self) -> None:
        for key, group in self._cleared.items():
            start = self._prefix(key, group)
            self._store.delete_range(start, prefix_end(start))
        self._cleared.clear()
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key, dirty in self._dirty.items():
            more_puts, more_deletes = self._entries(key, *dirty)
            puts += more_puts
            deletes += more_deletes
            if len(puts) >= FLUSHED_AT_ONCE:
                self._store.write(puts)
                self.written += len(puts)
                puts = []
        self._store.write(puts, deletes)
        self.written += len(puts)
        self._dirty.clear()

    def _forget_changes(self) -> None:
        self._dirty.clear()
        self._cleared.clear()

    def cached(self) -> int:
        return sum(map(len, self._live.values())) + len(self._cleared)

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        gone = cleared_sample(self._cleared, most * len(self._cleared) // max(1, len(self._live) + len(self._cleared)))
        seen = list(spread(self._live.items(), len(self._live), max(1, most - len(gone))))
        size = sum(object_bytes(key) + object_bytes(entries) for key, entries in seen)
        size += sum(getsizeof(part) for key, _ in seen if key in self._dirty for part in self._dirty[key])
        size += places_of(seen, self._live, self._dirty) + bytes_of_keys(gone, self._cleared)
        return sum(len(entries) for _, entries in seen) + len(gone), size


def _has_floats(tp: Any) -> bool:
    return tp is float or any(_has_floats(part) for part in get_args(tp))
