"""State accessors, such as `self.total` in `self.total.value()`: typed views of a store for the key being processed.

Reads go through an in-memory cache of the attempt, and writes stay in it until `flush`, so a key that is accessed a
thousand times in an epoch costs one read and one write of the backend. This is per-record code: it trades some beauty
for speed (a method call and one dict operation per access; `benchmarks keyed-count` compares it with a plain dict).

Bytes of an entry: `prefix(key group, state id, key)` · nothing (value) | user key (map) | segment (list). A list is
stored in segments, one or more per epoch that added to it, named by (term, epoch, part): appending never reads, and
segments sort in insertion order because epochs only grow. With a time to live, every stored value starts with a stamp
(see `ttl`).
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Protocol, get_args

from tidegate.core.copies import copier_of
from tidegate.core.errors import StateError
from tidegate.core.ids import EpochId
from tidegate.core.types import Codec, codec_of
from tidegate.graph.states import StateSpec
from tidegate.state.key_scope import KeyScope
from tidegate.state.keys import VOID_NAMESPACE, KeyCodec, list_segment, prefix_end
from tidegate.state.object_size import object_bytes, places_of, spread
from tidegate.state.port import StateStore
from tidegate.state.ttl import Expiry, unstamped

if TYPE_CHECKING:
    from tidegate.state.key_index import KeyIndex

IMMUTABLE = (int, float, str, bytes, bool, tuple, frozenset, type(None))
_HEAD = struct.Struct(">HH")
SEGMENT_ELEMENTS = 4096
"""Maximum number of list elements in one stored segment."""
_SMALL_LIST = 1024
_FLUSHED_AT_ONCE = 1000
"""Encoded entries that a flush holds in memory."""


class Accessor(Protocol):
    """One state of one operator during one attempt."""

    def flush(self) -> None:
        """Write all changes to the store."""

    def forget(self) -> None:
        """Drop cached entries. Call `flush` first."""

    def cached(self) -> int:
        """The number of entries in memory."""

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        """Return the number of entries under at most `most` keys, and about how many bytes these take."""

    def release(self) -> None:
        """Drop everything that is cached, written or not. The attempt is over."""


class _Keyed:
    """Shared by all keyed accessors: the current key (scope), the store, and the prefix of entry keys."""

    __slots__ = (
        "_copied", "_decode", "_encode", "_encode_key", "_encode_user_key", "_id", "_scope", "_store", "expiry", "written",
    )  # fmt: skip
    _live: dict[Any, Any]

    def __init__(
        self,
        scope: KeyScope,
        store: StateStore,
        state_id: int,
        keys: KeyCodec,
        codec: Codec,
        expiry: Expiry | None,
        copied: Callable[[Any], Any] | None = None,
    ) -> None:
        self._scope = scope
        self._store = store
        self._id = state_id
        self._encode_key = keys.encode
        self._encode_user_key = keys.encode
        """For the keys of entries, which only maps have; they have a codec of their own for them."""
        self._decode = codec.decode
        self._encode = codec.encode if expiry is None else expiry.stamping(codec.encode)
        self._copied = copied
        """Copies values on the way in and out, if they are mutable."""
        self.expiry = expiry
        self.written = 0
        """Entries written to the store so far."""

    def _read(self, raw: bytes) -> Any:
        """Decode a stored value, with or without a stamp. Without a declared time to live, few values have one."""
        if self.expiry is None:
            try:
                return self._decode(raw)
            except StateError:
                pass
        return self._decode(unstamped(raw))

    def _prefix(self, key: Any, key_group: int) -> bytes:
        return _HEAD.pack(key_group, self._id) + self._encode_key(key) + VOID_NAMESPACE

    def forget(self) -> None:
        """See `Accessor`."""
        self._live.clear()

    def release(self) -> None:
        """See `Accessor`."""
        self.forget()
        for changes in ("_dirty", "_added", "_cleared"):
            getattr(self, changes, {}).clear()

    def key_bytes(self, *user_key: Any) -> int:
        """The size of the current key as it is stored, with key group and state id, and of the key of a map's entry."""
        head = len(self._prefix(self._scope.key, self._scope.key_group))
        return head + sum(len(self._encode_user_key(each)) for each in user_key)

    def value_bytes(self, value: Any) -> int | None:
        """The size that a value has when it is stored. None: it is absent. Raises WrongValue if it cannot be stored."""
        return None if value is None else len(self._encode(value))


class ValueAccessor(_Keyed):
    """`ValueState`: one value per key.

    `value` and `update` are closures: a bound method would look up four attributes of `self` on each call, a third of
    its cost.
    """

    __slots__ = (
        "_cleared",
        "_default",
        "_dirty",
        "_fresh_default",
        "_live",
        "_plain",
        "_prefixes",
        "_type",
        "update",
        "value",
    )

    def __init__(
        self, scope: KeyScope, store: StateStore, state_id: int, keys: KeyCodec, spec: StateSpec, expiry: Expiry | None
    ) -> None:
        super().__init__(scope, store, state_id, keys, codec_of(spec.value), expiry)
        self._default = spec.default
        self._type = spec.value
        self._fresh_default = not isinstance(spec.default, IMMUTABLE)
        live: dict[Any, Any] = {}
        dirty: dict[Any, int] = {}
        cleared: dict[Any, int] = {}
        self._live = live
        self._dirty = dirty
        self._cleared = cleared
        self._prefixes: dict[Any, bytes] = {}
        fetch, clear = self._fetch, self.clear

        def value() -> Any:
            try:
                return live[scope.key]
            except KeyError:
                return fetch()

        def update(value: Any) -> None:
            if value is None:
                clear()
                return
            key = scope.key
            live[key] = value
            dirty[key] = scope.key_group
            if cleared:
                cleared.pop(key, None)

        self._plain = self.value, self.update = value, update

    def sampled(
        self, interval: int, measured_value: Callable[[], Any], measured_update: Callable[[Any], None]
    ) -> tuple[Callable[[], Any], Callable[[Any], None]] | None:
        """Return `value` and `update` that call the given functions once in `interval` times. None if values are copied or
        guarded on the way.

        What the closures above do is repeated here: to call them costs three times as much as to count.
        """
        if (self.value, self.update) != self._plain:
            return None
        scope, live, dirty, cleared = self._scope, self._live, self._dirty, self._cleared
        fetch, clear = self._fetch, self.clear
        reads_left = writes_left = interval

        def value() -> Any:
            nonlocal reads_left
            reads_left -= 1
            if reads_left:
                try:
                    return live[scope.key]
                except KeyError:
                    return fetch()
            reads_left = interval
            return measured_value()

        def update(value: Any) -> None:
            nonlocal writes_left
            writes_left -= 1
            if not writes_left:
                writes_left = interval
                measured_update(value)
                return
            if value is None:
                clear()
                return
            here = scope.key
            live[here] = value
            dirty[here] = scope.key_group
            if cleared:
                cleared.pop(here, None)

        return value, update

    def isolate(self, type: Any) -> None:
        """From now on, copy values on the way in and out (see `core.copies`). Not for accumulators, which aggregate
        functions are meant to mutate."""
        copied, read, update = copier_of(type), self.value, self.update
        self._copied = copied
        if copied is not None:
            self.value = lambda: copied(read())
            self.update = lambda value: update(copied(value))

    def clear(self) -> None:
        key = self._scope.key
        self._live.pop(key, None)
        self._dirty.pop(key, None)
        self._cleared[key] = self._scope.key_group

    def stored(self) -> Any:
        """Return the last written value or None: what a snapshot would hold, without the default. Renews nothing."""
        if self._scope.key in self._dirty:
            return self._live[self._scope.key]
        raw = self._raw()
        return None if raw is None or (self.expiry is not None and self.expiry.expired(raw)) else self._read(raw)

    def _raw(self) -> bytes | None:
        key = self._scope.key
        prefix = self._prefixes[key] = self._prefix(key, self._scope.key_group)
        return None if key in self._cleared else self._store.get(prefix)

    def _fetch(self) -> Any:
        return self._admitted(self._scope.key, self._scope.key_group, self._raw())

    def _admitted(self, key: Any, group: int, raw: bytes | None) -> Any:
        """Take what is stored for a key into the cache, and return the value that the function sees."""
        expiry, value = self.expiry, None
        if raw is not None:
            if expiry is None:
                value = self._read(raw)
            elif not expiry.expired(raw):
                value = self._read(raw)
                if expiry.to_be_renewed(raw):
                    self._dirty[key] = group
            else:
                self._cleared[key] = group
                if expiry.return_expired:
                    return self._read(raw)
        if value is None:
            value = copy.deepcopy(self._default) if self._fresh_default else self._default
        self._live[key] = value
        return value

    def values(self, keys: KeyIndex) -> Any:
        """Return the values of these keys as an array; see `value_columns.as_array`."""
        from tidegate.state.value_columns import as_array  # noqa: PLC0415 start-up time

        return as_array(self.read_many(keys.keys, keys.groups), self._type, self._default)

    def update_all(self, keys: KeyIndex, values: Any) -> None:
        """Write one value for each of these keys. None clears."""
        from tidegate.state.value_columns import as_values  # noqa: PLC0415 start-up time

        self.write_many(keys.keys, keys.groups, as_values(values, self._type, len(keys)))

    def clear_all(self, keys: KeyIndex) -> None:
        self.write_many(keys.keys, keys.groups, [None] * len(keys))

    def read_many(self, keys: Sequence[Any], groups: Sequence[int]) -> list[Any]:
        """Return what `value` returns for each of these distinct keys, with one sorted read of the backend."""
        live, cleared, prefixes = self._live, self._cleared, self._prefixes
        found = [live.get(key, ABSENT) for key in keys]
        missing: list[tuple[bytes, int]] = []
        for place, (key, held) in enumerate(zip(keys, found)):
            if held is ABSENT:
                prefix = prefixes[key] = self._prefix(key, groups[place])
                if key in cleared:
                    found[place] = self._admitted(key, groups[place], None)
                else:
                    missing.append((prefix, place))
        if missing:
            missing.sort()
            for (_, place), raw in zip(missing, self._store.get_many([prefix for prefix, _ in missing])):
                found[place] = self._admitted(keys[place], groups[place], raw)
        return found if self._copied is None else list(map(self._copied, found))

    def write_many(self, keys: Sequence[Any], groups: Sequence[int], values: Sequence[Any]) -> None:
        """Do what `update` does for each of these distinct keys."""
        if self._copied is not None:
            values = list(map(self._copied, values))
        live, dirty, cleared = self._live, self._dirty, self._cleared
        live.update(zip(keys, values))
        dirty.update(zip(keys, groups))
        if cleared:
            for key in keys:
                cleared.pop(key, None)
        if any(value is None for value in values):
            for key, group, value in zip(keys, groups, values):
                if value is None:
                    del live[key], dirty[key]
                    cleared[key] = group

    def take_many(self, keys: Sequence[Any], groups: Sequence[int]) -> list[Any]:
        """Remove and return the stored value of each key, or None. The keys must be distinct.

        A single backend read for all keys, in byte order, is much faster than one read per key. Only for states without
        a time to live.
        """
        live, cleared, dirty, prefixes = self._live, self._cleared, self._dirty, self._prefixes
        missing: list[tuple[bytes, int]] = []
        found: list[Any] = []
        for place, (key, group) in enumerate(zip(keys, groups)):
            held = live.pop(key, ABSENT)
            found.append(None if held is ABSENT else held)
            if held is ABSENT and key not in cleared:
                prefix = prefixes[key] = self._prefix(key, group)
                missing.append((prefix, place))
            dirty.pop(key, None)
            cleared[key] = group
        missing.sort()
        for (_, place), raw in zip(missing, self._store.get_many([prefix for prefix, _ in missing])):
            found[place] = None if raw is None else self._read(raw)
        return found

    def pending(self) -> tuple[Iterable[Any], Mapping[Any, int]]:
        """Return the keys to be deleted from the store, and the keys with unwritten values, with their key groups."""
        return self._cleared, self._dirty

    def flush(self) -> None:
        prefix, encode, live = self._prefix, self._encode, self._live
        known = self._prefixes.get
        self.written += len(self._dirty)
        dirty = iter(self._dirty.items())
        while puts := [(known(k) or prefix(k, g), encode(live[k])) for k, g in islice(dirty, _FLUSHED_AT_ONCE)]:
            self._store.write(puts)
        if self._cleared:
            self._store.write((), [known(key) or prefix(key, group) for key, group in self._cleared.items()])
        self._dirty.clear()
        self._cleared.clear()

    def forget(self) -> None:
        self._live.clear()
        self._prefixes.clear()

    def cached(self) -> int:
        return len(self._live) + len(self._cleared)

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        # In proportion: an entry that was cleared takes less than one with a value.
        gone = _cleared_of(self._cleared, most * len(self._cleared) // max(1, self.cached()))
        seen = list(spread(self._live.items(), len(self._live), max(1, most - len(gone))))
        keys = [*(key for key, _ in seen), *gone]
        size = sum(object_bytes(value) for _, value in seen)
        size += sum(object_bytes(key) + getsizeof(self._prefixes.get(key)) for key in keys)
        tables = self._live, self._dirty, self._prefixes, self._cleared
        return len(keys), size + sum(map(getsizeof, tables)) * len(keys) // max(1, self.cached())


class ListAccessor(_Keyed):
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
            self._stored.setdefault(key, tuple(small))
        yield from added

    def pending(self) -> tuple[Iterable[Any], Mapping[Any, int]]:
        return self._cleared, {key: group for key, (group, _) in self._added.items()}

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
            self._stored.pop(key, None)
            if len(puts) >= _FLUSHED_AT_ONCE:
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

    def cached(self) -> int:
        held = sum(map(len, self._stored.values())) + sum(len(e[1]) for e in self._added.values())
        return held + len(self._cleared)

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        keys = len(self._added) + len(self._stored) + len(self._cleared)
        gone = _cleared_of(self._cleared, most * len(self._cleared) // max(1, keys))
        added = spread(self._added.items(), len(self._added), most)
        stored = spread(self._stored.items(), len(self._stored), most)
        seen = [*((key, elements) for key, (_, elements) in added), *stored]
        size = sum(object_bytes(key) + object_bytes(elements) for key, elements in seen)
        size += places_of(seen, self._added, self._stored) + _bytes_of(gone, self._cleared)
        return sum(len(elements) for _, elements in seen) + len(gone), size


ABSENT = object()
"""Marks an entry in a cache that is known not to exist."""


class MapAccessor(_Keyed):
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
            entries = self._entries(key, self._scope.key_group, self._live.get(key, ()))[0]
            found = iter(sorted((e for e in entries if low <= e[0] < high), reverse=reverse))
        else:
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
                    self._store.write((), [raw_key])
                if peek or not expiry.return_expired:
                    continue
            elif not peek and expiry.to_be_renewed(raw):
                self._store.write([(raw_key, expiry.stamped(unstamped(raw)))])
            yield raw_key, raw

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
            if len(puts) >= _FLUSHED_AT_ONCE:
                self._store.write(puts)
                self.written += len(puts)
                puts = []
        self._store.write(puts, deletes)
        self.written += len(puts)
        self._dirty.clear()

    def cached(self) -> int:
        return sum(map(len, self._live.values())) + len(self._cleared)

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        gone = _cleared_of(self._cleared, most * len(self._cleared) // max(1, len(self._live) + len(self._cleared)))
        seen = list(spread(self._live.items(), len(self._live), max(1, most - len(gone))))
        size = sum(object_bytes(key) + object_bytes(entries) for key, entries in seen)
        size += sum(getsizeof(part) for key, _ in seen if key in self._dirty for part in self._dirty[key])
        size += places_of(seen, self._live, self._dirty) + _bytes_of(gone, self._cleared)
        return sum(len(entries) for _, entries in seen) + len(gone), size


def _cleared_of(cleared: Mapping[Any, int], most: int) -> list[Any]:
    """A sample of the keys that were cleared: at least one, if there is one."""
    return list(spread(cleared, len(cleared), max(1, most)))


def _bytes_of(gone: list[Any], cleared: Mapping[Any, int]) -> int:
    return sum(map(object_bytes, gone)) + places_of(gone, cleared)


def _has_floats(tp: Any) -> bool:
    return tp is float or any(_has_floats(part) for part in get_args(tp))
