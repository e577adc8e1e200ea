"""One value per key."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from tidegate.core.copies import copier_of
from tidegate.core.types import codec_of
from tidegate.graph.states import StateSpec
from tidegate.state.accessors.accessor import ABSENT, FLUSHED_AT_ONCE, IMMUTABLE, KeyedAccessor, cleared_sample
from tidegate.state.accessors.object_size import object_bytes, spread
from tidegate.state.accessors.ttl import Expiry
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.keys.key_scope import KeyScope
from tidegate.state.port import StateStore

if TYPE_CHECKING:
    from tidegate.state.keys.key_index import KeyIndex


class ValueAccessor(KeyedAccessor):
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
        # Raw keys of what was read. Most of it is written again, and its key need not be encoded twice.
        self._prefixes: dict[Any, bytes] = {}
        fetch, clear = self._fetch, self.clear

        def value() -> Any:
            try:
                # A hit is the usual case, and `try` costs nothing then.
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
                # Nearly always, `cleared` is empty, and an empty dict is tested faster than it is searched.
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
        # The same variables as above, so both pairs of closures see one cache.
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
        if raw is None or (self.expiry is not None and self.expiry.expired(raw)):
            return None
        return self._read(raw)

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
                # The expired entry is removed with the next flush.
                self._cleared[key] = group
                if expiry.return_expired:
                    return self._read(raw)
        if value is None:
            value = copy.deepcopy(self._default) if self._fresh_default else self._default
        self._live[key] = value
        return value

    def values(self, keys: KeyIndex) -> Any:
        """Return the values of these keys as an array; see `value_columns.as_array`."""
        from tidegate.state.accessors.value_columns import as_array  # noqa: PLC0415 start-up time

        return as_array(self.read_many(keys.keys, keys.groups), self._type, self._default)

    def update_all(self, keys: KeyIndex, values: Any) -> None:
        """Write one value for each of these keys. None clears."""
        from tidegate.state.accessors.value_columns import as_values  # noqa: PLC0415 start-up time

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
            # Sorted keys share blocks of the backend.
            missing.sort()
            for (_, place), raw in zip(missing, self._store.get_many([prefix for prefix, _ in missing])):
                found[place] = self._admitted(keys[place], groups[place], raw)
        return found if self._copied is None else list(map(self._copied, found))

    def write_many(self, keys: Sequence[Any], groups: Sequence[int], values: Sequence[Any]) -> None:
        """Do what `update` does for each of these distinct keys."""
        if self._copied is not None:
            values = list(map(self._copied, values))
        live, dirty, cleared = self._live, self._dirty, self._cleared
        # As a whole, without a step for each key. The few that are None are taken out again below.
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

    def encodings(self) -> Iterator[tuple[Any, Callable[[], object]]]:
        """Yield each key with changes, and what encodes these."""
        return ((key, partial(self._encode, self._live[key])) for key in self._dirty)

    def flush(self) -> None:
        prefix, encode, live = self._prefix, self._encode, self._live
        known = self._prefixes.get
        self.written += len(self._dirty)
        dirty = iter(self._dirty.items())
        # In portions: all encoded values at once would double the memory of the cache.
        while puts := [(known(k) or prefix(k, g), encode(live[k])) for k, g in islice(dirty, FLUSHED_AT_ONCE)]:
            self._store.write(puts)
        if self._cleared:
            self._store.write((), [known(key) or prefix(key, group) for key, group in self._cleared.items()])
        self._dirty.clear()
        self._cleared.clear()

    def forget(self) -> None:
        self._live.clear()
        self._prefixes.clear()

    def _forget_changes(self) -> None:
        self._dirty.clear()
        self._cleared.clear()

    def cached(self) -> int:
        return len(self._live) + len(self._cleared)

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        # In proportion: an entry that was cleared takes less than one with a value.
        gone = cleared_sample(self._cleared, most * len(self._cleared) // max(1, self.cached()))
        seen = list(spread(self._live.items(), len(self._live), max(1, most - len(gone))))
        keys = [*(key for key, _ in seen), *gone]
        size = sum(object_bytes(value) for _, value in seen)
        size += sum(object_bytes(key) + getsizeof(self._prefixes.get(key)) for key in keys)
        tables = self._live, self._dirty, self._prefixes, self._cleared
        return len(keys), size + sum(map(getsizeof, tables)) * len(keys) // max(1, self.cached())
