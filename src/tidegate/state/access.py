"""What a function touches when it says `self.total.value()`: typed views of a store, for the key being processed.

Reads go through an in-memory cache of the attempt, writes stay in it until `flush`, so a key that is hit a thousand times in
an epoch costs one read and one write of the backend. This is per-record code: it trades some beauty for speed (a method
call and one dict operation per access; `benchmarks keyed-count` holds it against a plain dict).

Bytes of an entry: `prefix(key group, state id, key)` · nothing (value) | user key (map) | segment (list). A list is stored in
segments, one or more per epoch that added to it, named by (term, epoch, part): appending never reads, and segments sort in the
order of their adding because epochs only grow.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, get_args

from tidegate.core.errors import WrongValue
from tidegate.core.ids import EpochId
from tidegate.core.types import codec_of
from tidegate.graph.states import StateKind, StateSpec
from tidegate.state.keys import VOID_NAMESPACE, KeyCodec, list_segment, prefix_end
from tidegate.state.port import StateStore
from tidegate.state.timers import Timers

_IMMUTABLE = (int, float, str, bytes, bool, tuple, frozenset, type(None))
_HEAD = struct.Struct(">HH")
SEGMENT_ELEMENTS = 4096
"""Most elements of a list in one stored segment."""
_SMALL_LIST = 1024


class Scope:
    """The key being processed. One per operator and attempt; every accessor of the operator reads it."""

    __slots__ = ("key", "key_group")

    def __init__(self) -> None:
        self.key: Any = None
        self.key_group = -1


class Accessor(Protocol):
    """One state of one operator during one attempt."""

    def flush(self) -> None:
        """Hand everything changed to the store."""

    def forget(self) -> None:
        """Drop cached entries. Only after `flush`."""

    def cached(self) -> int:
        """Entries held in memory."""


class _Keyed:
    """What all keyed accessors share: where they are (scope), where entries go (store), how an entry's key begins."""

    __slots__ = ("_encode_key", "_id", "_scope", "_store")

    def __init__(self, scope: Scope, store: StateStore, state_id: int, keys: KeyCodec) -> None:
        self._scope = scope
        self._store = store
        self._id = state_id
        self._encode_key = keys.encode

    def _prefix(self, key: Any, key_group: int) -> bytes:
        return _HEAD.pack(key_group, self._id) + self._encode_key(key) + VOID_NAMESPACE


class ValueAccessor(_Keyed):
    """`ValueState`: one value per key.

    `value` and `update` are closures over what they touch: a bound method would look up four attributes of `self` at each
    call, a third of its cost.
    """

    __slots__ = (
        "_cleared",
        "_decode",
        "_default",
        "_dirty",
        "_encode",
        "_fresh_default",
        "_live",
        "_prefixes",
        "update",
        "value",
    )

    def __init__(self, scope: Scope, store: StateStore, state_id: int, keys: KeyCodec, spec: StateSpec) -> None:
        super().__init__(scope, store, state_id, keys)
        codec = codec_of(spec.value)
        self._encode, self._decode = codec.encode, codec.decode
        self._default = spec.default
        self._fresh_default = not isinstance(spec.default, _IMMUTABLE)
        live: dict[Any, Any] = {}
        dirty: dict[Any, int] = {}
        cleared: dict[Any, int] = {}
        self._live, self._dirty, self._cleared = live, dirty, cleared
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

        self.value = value
        self.update = update

    def clear(self) -> None:
        key = self._scope.key
        self._live.pop(key, None)
        self._dirty.pop(key, None)
        self._cleared[key] = self._scope.key_group

    def stored(self) -> Any:
        """The value written last, or None: what a snapshot would hold, without the default."""
        key, group = self._scope.key, self._scope.key_group
        if key in self._dirty:
            return self._live[key]
        prefix = self._prefixes[key] = self._prefix(key, group)
        raw = None if key in self._cleared else self._store.get(prefix)
        return None if raw is None else self._decode(raw)

    def _fetch(self) -> Any:
        value = self.stored()
        if value is None:
            value = copy.deepcopy(self._default) if self._fresh_default else self._default
        self._live[self._scope.key] = value
        return value

    def flush(self) -> None:
        prefix, encode, live = self._prefix, self._encode, self._live
        known = self._prefixes.get
        self._store.write(
            [(known(key) or prefix(key, group), encode(live[key])) for key, group in self._dirty.items()],
            [prefix(key, group) for key, group in self._cleared.items()],
        )
        self._dirty.clear()
        self._cleared.clear()

    def forget(self) -> None:
        self._live.clear()
        self._prefixes.clear()

    def cached(self) -> int:
        return len(self._live) + len(self._cleared)


class ListAccessor(_Keyed):
    """`ListState`: elements per key, in the order they were added."""

    __slots__ = ("_added", "_decode", "_encode", "_epoch", "_part", "_stored")

    def __init__(
        self, scope: Scope, store: StateStore, state_id: int, keys: KeyCodec, spec: StateSpec, epoch: EpochId
    ) -> None:
        super().__init__(scope, store, state_id, keys)
        codec = codec_of(list[spec.value])  # type: ignore[name-defined]
        self._encode, self._decode = codec.encode, codec.decode
        self._epoch = epoch
        self._stored: dict[Any, tuple[Any, ...]] = {}
        self._added: dict[Any, tuple[int, list[Any]]] = {}
        self._part = 0

    def get(self) -> Iterator[Any]:
        """Elements one by one; a long list is never in memory as a whole. Adding while iterating is not seen."""
        scope = self._scope
        key = scope.key
        entry = self._added.get(key)
        added = tuple(entry[1]) if entry else ()
        stored = self._stored.get(key)
        if stored is None:
            return self._stream(key, scope.key_group, added)
        return iter(stored + added)

    def add(self, value: Any) -> None:
        scope = self._scope
        entry = self._added.get(scope.key)
        if entry is None:
            self._added[scope.key] = (scope.key_group, [value])
        else:
            entry[1].append(value)

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
        start = self._prefix(key, self._scope.key_group)
        self._store.delete_range(start, prefix_end(start))
        self._added.pop(key, None)
        self._stored[key] = ()

    __iter__ = get

    def _stream(self, key: Any, group: int, added: tuple[Any, ...]) -> Iterator[Any]:
        start = self._prefix(key, group)
        small: list[Any] | None = []
        for _, raw in self._store.scan(start, prefix_end(start)):
            elements = self._decode(raw)
            if small is not None:
                small.extend(elements)
                if len(small) > _SMALL_LIST:
                    small = None
            yield from elements
        if small is not None:
            self._stored.setdefault(key, tuple(small))
        yield from added

    def flush(self) -> None:
        puts: list[tuple[bytes, bytes]] = []
        for key, (group, elements) in self._added.items():
            start = self._prefix(key, group)
            for first in range(0, len(elements), SEGMENT_ELEMENTS):
                part = self._encode(elements[first : first + SEGMENT_ELEMENTS])
                puts.append((start + list_segment(self._epoch, self._part), part))
                # Counted over all keys: the order of one key's parts is all that matters.
                self._part += 1
            self._stored.pop(key, None)
        self._store.write(puts)
        self._added.clear()

    def forget(self) -> None:
        self._stored.clear()

    def cached(self) -> int:
        return sum(len(e) for e in self._stored.values()) + sum(len(e[1]) for e in self._added.values())


_ABSENT = object()


class MapAccessor(_Keyed):
    """`MapState`: a map per key, one entry of the store per entry of the map."""

    __slots__ = ("_canonical", "_decode", "_decode_user_key", "_dirty", "_encode", "_encode_user_key", "_live")

    def __init__(self, scope: Scope, store: StateStore, state_id: int, keys: KeyCodec, spec: StateSpec) -> None:
        super().__init__(scope, store, state_id, keys)
        user_keys = KeyCodec.of_python(spec.map_key)
        self._encode_user_key, self._decode_user_key = user_keys.encode, user_keys.decode
        # One NaN and one zero, or the cache would hold several entries where the store has one.
        self._canonical = user_keys.canonical if _has_floats(spec.map_key) else None
        codec = codec_of(spec.value)
        self._encode, self._decode = codec.encode, codec.decode
        self._live: dict[Any, dict[Any, Any]] = {}
        self._dirty: dict[Any, tuple[int, set[Any]]] = {}

    def get(self, user_key: Any) -> Any:
        value = self._lookup(user_key)
        return None if value is _ABSENT else value

    def put(self, user_key: Any, value: Any) -> None:
        if self._canonical is not None:
            user_key = self._canonical(user_key)
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
        self.put(user_key, _ABSENT)

    def contains(self, user_key: Any) -> bool:
        return self._lookup(user_key) is not _ABSENT

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Entries in the order of their user keys' bytes, one by one. Changes made while iterating are not seen."""
        start, found = self._scan()
        for raw_key, raw in found:
            yield self._decode_user_key(raw_key, len(start))[0], self._decode(raw)

    def keys(self) -> Iterator[Any]:
        start, found = self._scan()
        for raw_key, _ in found:
            yield self._decode_user_key(raw_key, len(start))[0]

    def values(self) -> Iterator[Any]:
        for _, raw in self._scan()[1]:
            yield self._decode(raw)

    def is_empty(self) -> bool:
        return next(self._scan()[1], None) is None

    def clear(self) -> None:
        key = self._scope.key
        start = self._prefix(key, self._scope.key_group)
        self._store.delete_range(start, prefix_end(start))
        self._live.pop(key, None)
        self._dirty.pop(key, None)

    __contains__ = contains
    __iter__ = keys
    __setitem__ = put
    __delitem__ = remove

    def __getitem__(self, user_key: Any) -> Any:
        value = self._lookup(user_key)
        if value is _ABSENT:
            raise KeyError(user_key)
        return value

    def _lookup(self, user_key: Any) -> Any:
        if self._canonical is not None:
            user_key = self._canonical(user_key)
        key = self._scope.key
        entries = self._live.get(key)
        if entries is None:
            entries = self._live[key] = {}
        elif user_key in entries:
            return entries[user_key]
        raw = self._store.get(self._prefix(key, self._scope.key_group) + self._encode_user_key(user_key))
        value = _ABSENT if raw is None else self._decode(raw)
        entries[user_key] = value
        return value

    def _scan(self) -> tuple[bytes, Iterator[tuple[bytes, bytes]]]:
        key = self._scope.key
        dirty = self._dirty.pop(key, None)
        if dirty is not None:
            self._store.write(*self._entries(key, *dirty))
        start = self._prefix(key, self._scope.key_group)
        return start, self._store.scan(start, prefix_end(start))

    def _entries(self, key: Any, group: int, user_keys: set[Any]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        start, entries = self._prefix(key, group), self._live[key]
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for user_key in user_keys:
            value = entries[user_key]
            raw_key = start + self._encode_user_key(user_key)
            if value is _ABSENT:
                deletes.append(raw_key)
            else:
                puts.append((raw_key, self._encode(value)))
        return puts, deletes

    def flush(self) -> None:
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key, dirty in self._dirty.items():
            more_puts, more_deletes = self._entries(key, *dirty)
            puts += more_puts
            deletes += more_deletes
        self._store.write(puts, deletes)
        self._dirty.clear()

    def forget(self) -> None:
        self._live.clear()

    def cached(self) -> int:
        return sum(len(entries) for entries in self._live.values())


def _has_floats(tp: Any) -> bool:
    return tp is float or any(_has_floats(part) for part in get_args(tp))


def _windowed(
    scope: Scope, store: StateStore, state_id: int, keys: KeyCodec, spec: StateSpec, epoch: EpochId
) -> Accessor:
    from tidegate.state import windowed

    match spec.kind:
        case StateKind.VALUE:
            return windowed.WindowedValue(scope, store, state_id, keys, spec)
        case StateKind.LIST:
            return windowed.WindowedList(scope, store, state_id, keys, spec, epoch)
        case StateKind.MAP:
            return windowed.WindowedMap(scope, store, state_id, keys, spec)
    raise NotImplementedError(f"state kind {spec.kind} of windows")


class KeyedStates:
    """All keyed states of one operator in one attempt."""

    CACHE_ENTRIES = 400_000
    """Past this many cached entries an operator writes through and starts its cache anew, so memory stays bounded."""

    def __init__(
        self,
        store: StateStore | None,
        specs: Iterable[StateSpec],
        ids: Callable[[str], int],
        keys: KeyCodec,
        epoch: EpochId,
        key_groups: tuple[int, int] = (0, 0),
    ) -> None:
        self.scope = Scope()
        self.window_scope = Scope()
        """Of states that there are for each window: its key is (key, window)."""
        self.timers: Timers | None = None
        self.accessors: dict[str, Any] = {}
        for spec in specs:
            assert store is not None, "a store is needed where states are declared"
            common = (self.window_scope if spec.windowed else self.scope, store, ids(spec.name), keys, spec)
            if spec.kind is StateKind.TIMERS:
                self.timers = Timers(store, ids(spec.name), keys, key_groups)
            elif spec.windowed:
                self.accessors[spec.name] = _windowed(*common, epoch)
            elif spec.kind is StateKind.VALUE:
                self.accessors[spec.name] = ValueAccessor(*common)
            elif spec.kind is StateKind.LIST:
                self.accessors[spec.name] = ListAccessor(*common, epoch)
            elif spec.kind is StateKind.MAP:
                self.accessors[spec.name] = MapAccessor(*common)
            else:
                raise NotImplementedError(f"state kind {spec.kind}")

    def bind(self, function: Any) -> None:
        """Let `function.total` be the accessor of its declared state `total`. Operators of ours that are written as
        functions take all of it, through `attach_states`."""
        attach = getattr(function, "attach_states", None)
        if attach is not None:
            attach(self)
            return
        for name, accessor in self.accessors.items():
            setattr(function, name, accessor)

    def flush(self) -> None:
        if self.timers is not None:
            self.timers.flush()
        for name, accessor in self.accessors.items():
            try:
                accessor.flush()
            except WrongValue as error:
                raise WrongValue(f"State {name!r} was given a value of another type than declared. {error}") from None

    def bound_memory(self) -> None:
        """Called between batches of rows."""
        timers = 0 if self.timers is None else self.timers.cached()
        if timers + sum(accessor.cached() for accessor in self.accessors.values()) > self.CACHE_ENTRIES:
            self.flush()
            for accessor in self.accessors.values():
                accessor.forget()
            if self.timers is not None:
                self.timers.forget()
