"""Accessors that can undo the changes of one row, for operators that continue after a function fails on a row.

`mark` starts a row, `verify` checks that what it wrote can be stored. The first time the row accesses a key, or an
entry of a key's map, the cached value is recorded; `roll_back` restores it. Mutable values are recorded as bytes, since
the function may have mutated the cached object itself. Values that were only read are dropped from the cache and read
from the store again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.core.times import TimeDomain
from tidegate.state.accessors.accessor import ABSENT, IMMUTABLE
from tidegate.state.accessors.heap_timers import HeapTimers
from tidegate.state.accessors.list_accessor import ListAccessor
from tidegate.state.accessors.map_accessor import MapAccessor
from tidegate.state.accessors.timers import TimerState
from tidegate.state.accessors.ttl import unstamped
from tidegate.state.accessors.value_accessor import ValueAccessor
from tidegate.state.keys.entry_keys import Namespace


class GuardedValue(ValueAccessor):
    __slots__ = ("_before",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._before: dict[Any, tuple[Any, int | None, int | None]] = {}
        # The closures of the base class. `isolate` may wrap these guarded ones later.
        unguarded_value, unguarded_update = self.value, self.update

        def guarded_value() -> Any:
            self._touch()
            return unguarded_value()

        def guarded_update(value: Any) -> None:
            self._touch()
            unguarded_update(value)

        self.value = guarded_value
        self.update = guarded_update

    def clear(self) -> None:
        self._touch()
        super().clear()

    def read_many(self, keys: Sequence[Any], groups: Sequence[int]) -> list[Any]:
        self._touch_all(keys)
        return super().read_many(keys, groups)

    def write_many(self, keys: Sequence[Any], groups: Sequence[int], values: Sequence[Any]) -> None:
        self._touch_all(keys)
        super().write_many(keys, groups, values)

    def _touch_all(self, keys: Sequence[Any]) -> None:
        scope = self._scope
        current = scope.key
        for scope.key in keys:
            self._touch()
        scope.key = current

    def _touch(self) -> None:
        key = self._scope.key
        if key not in self._before:
            dirty = self._dirty.get(key)
            held = self._live.get(key)
            if dirty is not None and not isinstance(held, IMMUTABLE):
                # Only if it is not written yet: otherwise the store has it.
                held = _Bytes(self._encode(held))
            self._before[key] = (held, dirty, self._cleared.get(key))

    def mark(self) -> None:
        self._before.clear()

    def verify(self) -> None:
        for key in self._before:
            if key in self._dirty:
                self._encode(self._live[key])

    def roll_back(self) -> None:
        for key, (held, dirty, cleared) in self._before.items():
            if dirty is None:
                # It was only read before: the next row reads it from the store again.
                self._live.pop(key, None)
                self._dirty.pop(key, None)
            else:
                self._live[key] = self._decode(unstamped(held.raw)) if isinstance(held, _Bytes) else held
                self._dirty[key] = dirty
            if cleared is None:
                self._cleared.pop(key, None)
            else:
                self._cleared[key] = cleared
        self._before.clear()


class _Bytes:
    """A recorded value."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw


class GuardedList(ListAccessor):
    __slots__ = ("_before",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._before: dict[Any, tuple[tuple[int, list[Any]] | None, int, tuple[Any, ...] | None, int | None]] = {}

    def add(self, value: Any) -> None:
        self._touch()
        super().add(value)

    def clear(self) -> None:
        self._touch()
        super().clear()

    def _touch(self) -> None:
        key = self._scope.key
        if key not in self._before:
            added = self._added.get(key)
            length = 0 if added is None else len(added[1])
            self._before[key] = (added, length, self._stored.get(key), self._cleared.get(key))

    def mark(self) -> None:
        self._before.clear()

    def verify(self) -> None:
        for key, (before, length, *_) in self._before.items():
            entry = self._added.get(key)
            if entry is not None:
                self._encode(entry[1][length if entry is before else 0 :])

    def roll_back(self) -> None:
        for key, (added, length, stored, cleared) in self._before.items():
            if added is None:
                self._added.pop(key, None)
            else:
                # Rows only append, so cutting undoes.
                del added[1][length:]
                self._added[key] = added
            if stored is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = stored
            if cleared is None:
                self._cleared.pop(key, None)
            else:
                self._cleared[key] = cleared
        self._before.clear()


class GuardedMap(MapAccessor):
    __slots__ = ("_emptied", "_entries_before", "_through")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._entries_before: dict[Any, dict[Any, tuple[int, bytes, bytes | None, bool]]] = {}
        """By key and user key: key group, raw key, raw value, and whether it was still unwritten."""
        self._emptied: dict[Any, tuple[dict[Any, Any], tuple[int, set[Any]] | None, int | None]] = {}
        """Keys whose map the row cleared, with the cache content at that time."""
        self._through: set[Any] = set()
        """Keys whose changes were flushed early because the row scanned them."""

    def put(self, user_key: Any, value: Any) -> None:
        self._touch(user_key)
        super().put(user_key, value)

    def clear(self) -> None:
        key = self._scope.key
        if key not in self._emptied:
            dirty = self._dirty.get(key)
            copied = None if dirty is None else (dirty[0], set(dirty[1]))
            self._emptied[key] = (dict(self._live.get(key, {})), copied, self._cleared.get(key))
        super().clear()

    __setitem__ = put

    def _lookup(self, user_key: Any) -> Any:
        self._touch(user_key)
        return super()._lookup(user_key)

    def _touch(self, user_key: Any) -> None:
        if self._normalized is not None:
            user_key = self._normalized(user_key)
        key, group = self._scope.key, self._scope.key_group
        before = self._entries_before.setdefault(key, {})
        # After a clear, the whole map is noted already.
        if user_key in before or key in self._emptied:
            return
        raw_key = self._prefix(key, group) + self._encode_user_key(user_key)
        dirty = self._dirty.get(key)
        if key in self._cleared or (dirty is not None and user_key in dirty[1]):
            value = self._live.get(key, {}).get(user_key, ABSENT)
            before[user_key] = (group, raw_key, None if value is ABSENT else self._encode(value), True)
        else:
            before[user_key] = (group, raw_key, self._store.get(raw_key), False)

    def _write_through(self, key: Any) -> None:
        self._through.add(key)
        super()._write_through(key)

    def _unexpired(self, found: Any, expiry: Any, peek: bool) -> Iterator[tuple[bytes, bytes]]:
        # Reads by a row that fails must not have removed or renewed anything.
        return super()._unexpired(found, expiry, True)

    def mark(self) -> None:
        self._entries_before.clear()
        self._emptied.clear()
        self._through.clear()

    def verify(self) -> None:
        for key in {*self._entries_before, *self._emptied}:
            live = self._live.get(key, {})
            _, names = self._dirty.get(key, (0, ()))
            touched = names if key in self._emptied else self._entries_before[key]
            for user_key in touched:
                value = live.get(user_key, ABSENT)
                if user_key in names and value is not ABSENT:
                    self._encode(value)

    def roll_back(self) -> None:
        # Whole maps first: entries that were noted before the clear are then put back into them.
        for key, (live, dirty, cleared) in self._emptied.items():
            self._live[key] = live
            self._dirty.pop(key, None)
            if dirty is not None:
                self._dirty[key] = dirty
            if cleared is None:
                self._cleared.pop(key, None)
        for key, before in self._entries_before.items():
            for user_key, (group, raw_key, raw, unwritten) in before.items():
                live = self._live.setdefault(key, {})
                _, names = self._dirty.setdefault(key, (group, set()))
                if unwritten:
                    live[user_key] = ABSENT if raw is None else self._read(raw)
                    names.add(user_key)
                    continue
                live.pop(user_key, None)
                names.discard(user_key)
                # The row scanned this map, so its changes are in the store, and must be undone there.
                if key in self._through:
                    self._store.write([] if raw is None else [(raw_key, raw)], [raw_key] if raw is None else [])
        self.mark()


class GuardedTimers(TimerState):
    """Timers that can undo what one row, or one firing timer, registered and deleted."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._before: dict[tuple[TimeDomain, Any], tuple[list[int | None], bool]] = {}

    def register(self, domain: TimeDomain, time_ms: int, key: Any, key_group: int, namespace: Namespace = None) -> None:
        self._touch(domain, (time_ms, key, namespace))
        super().register(domain, time_ms, key, key_group, namespace)

    def register_many(self, domain: TimeDomain, names: Sequence[Any], groups: Sequence[int]) -> None:
        for name in names:
            self._touch(domain, name)
        super().register_many(domain, names, groups)

    def delete(self, domain: TimeDomain, time_ms: int, key: Any, key_group: int, namespace: Namespace = None) -> None:
        self._touch(domain, (time_ms, key, namespace))
        super().delete(domain, time_ms, key, key_group, namespace)

    def _places(self, domain: TimeDomain) -> tuple[dict[Any, int], ...]:
        """Everything that registering and deleting a timer changes, each a key group by the timer's name."""
        return self._added[domain], self._removed[domain], self._fresh[domain]

    def _touch(self, domain: TimeDomain, name: Any) -> None:
        if (domain, name) not in self._before:
            groups = [place.get(name) for place in self._places(domain)]
            self._before[domain, name] = groups, name in self._cancelled[domain]

    def mark(self) -> None:
        self._before.clear()

    def roll_back(self) -> None:
        for (domain, name), (groups, cancelled) in self._before.items():
            for place, group in zip(self._places(domain), groups):
                if group is None:
                    place.pop(name, None)
                else:
                    place[name] = group
            (self._cancelled[domain].add if cancelled else self._cancelled[domain].discard)(name)
        self._before.clear()
        # The operator's notes may refer to timers that no longer exist.
        self.armed.clear()


class GuardedHeapTimers(GuardedTimers, HeapTimers):
    """The same for timers in memory. A deleted timer stays in the heap, where one that is not held is skipped."""

    def _places(self, domain: TimeDomain) -> tuple[dict[Any, int], ...]:
        return self._held(domain), self._added[domain], self._removed[domain]
