"""All keyed states of one operator in one attempt: created from their declarations, bound to the function, flushed together."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, cast

from tidegate.core.errors import GraphError, WrongValue
from tidegate.core.ids import EpochId
from tidegate.graph.states import StateKind, StateSpec
from tidegate.schema.key_values import InvalidKey
from tidegate.state.accessors.access_meter import AccessMeter
from tidegate.state.accessors.accessor import Accessor
from tidegate.state.accessors.folding import aggregating, reducing
from tidegate.state.accessors.heap_timers import HeapTimers
from tidegate.state.accessors.list_accessor import ListAccessor
from tidegate.state.accessors.map_accessor import MapAccessor
from tidegate.state.accessors.rollback import GuardedHeapTimers, GuardedList, GuardedMap, GuardedTimers, GuardedValue
from tidegate.state.accessors.timers import TimerState
from tidegate.state.accessors.ttl import Expiry, StateClock, sweep
from tidegate.state.accessors.value_accessor import ValueAccessor
from tidegate.state.accessors.windowed import (
    GuardedWindowedList,
    GuardedWindowedMap,
    GuardedWindowedValue,
    WindowedList,
    WindowedMap,
    WindowedValue,
)
from tidegate.state.accessors.write_cache import WriteCache
from tidegate.state.keys.entry_keys import KeyCodec, prefix_end, state_prefix
from tidegate.state.keys.key_scope import KeyScope
from tidegate.state.port import EntryTooLarge, StateStore, TimerPlacingStore

_LONGEST_KEY = 200
"""Characters of a key that a message shows."""
_KINDS: dict[tuple[bool, bool], tuple[Any, Any, Any]] = {
    (False, False): (ValueAccessor, ListAccessor, MapAccessor),
    (False, True): (WindowedValue, WindowedList, WindowedMap),
    (True, False): (GuardedValue, GuardedList, GuardedMap),
    (True, True): (GuardedWindowedValue, GuardedWindowedList, GuardedWindowedMap),
}
"""Accessors of values, lists and maps, by whether they are guarded and whether they are per window."""
_TIMERS: dict[tuple[bool, bool], type[TimerState]] = {
    (False, False): TimerState,
    (False, True): HeapTimers,
    (True, False): GuardedTimers,
    (True, True): GuardedHeapTimers,
}
"""Timers, by whether they are guarded and whether they are in memory."""


def _wrong_key(accessor: Any) -> Any:
    """Return the first key whose changes cannot be encoded."""
    for key, encode in accessor.encodings():
        try:
            encode()
        except (WrongValue, InvalidKey):
            return key
    return None


def writes_of(function: object, state: str) -> tuple[tuple[str, int, str, str], ...]:
    """Return where a user's function writes one of its states: file, line, method, text. Empty without source code."""
    write = re.compile(rf"\bself\.{re.escape(state)}\.(update|add|put|append)(_all)?\(")
    found = []
    for cls in type(function).__mro__:
        # Only the user's own code: the message is about a line that the user can change.
        if cls.__module__.partition(".")[0] in ("tidegate", "builtins", "abc", "typing"):
            continue
        for method in [each for each in vars(cls).values() if isinstance(each, FunctionType)]:
            try:
                lines, first = inspect.getsourcelines(method)
            except (OSError, TypeError):
                continue  # typed into a shell, or the file is gone
            for number, line in enumerate(lines, first):
                if write.search(line):
                    found.append((method.__code__.co_filename, number, method.__name__, line.rstrip("\n")))
    return tuple(found)


class KeyedStates:
    """All keyed states of one operator in one attempt."""

    CACHE_ENTRIES = 400_000
    """Above this many cached entries, an operator flushes and clears its cache, unless it has a limit in bytes."""

    def __init__(  # noqa: PLR0913 all that the states of an operator depend on
        self,
        store: StateStore | None,
        specs: Iterable[StateSpec],
        ids: Callable[[str], int],
        keys: KeyCodec,
        epoch: EpochId,
        groups: tuple[int, int] = (0, 0),
        clock: StateClock | None = None,
        guarded: bool = False,
        meter: AccessMeter | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        """`groups` are the key groups of the task. `guarded`: the state changes of one row can be undone (see `rollback`).
        `meter` measures accesses; None: accessors are bound as they are. `cache_bytes` is how much memory cached entries may
        take; None: their number is limited."""
        self.scope = KeyScope()
        self.window_scope = KeyScope()
        """The scope of windowed states: its key is (key, window)."""
        self.timers: TimerState | None = None
        self.clock = clock or StateClock()
        self.groups = groups
        self.accessors: dict[str, Accessor] = {}
        self.ids: dict[str, int] = {}
        self._function: object = None
        """Whose states they are, for errors."""
        self._specs = {spec.name: spec for spec in specs if spec.keyed}
        self._store = store
        self._keys = keys
        self._id_of = ids
        for spec in self._specs.values():
            # Stateless operators have no store.
            assert store is not None, "a store is needed where states are declared"
            id = self.ids[spec.name] = ids(spec.name)
            expiry = None if spec.ttl is None else Expiry(spec.ttl, self.clock)
            values, lists, maps = _KINDS[guarded, spec.windowed]
            # All accessors take the same first arguments.
            common = (self.window_scope if spec.windowed else self.scope, store, id, keys, spec, expiry)
            match spec.kind:
                case StateKind.TIMERS:
                    in_memory = isinstance(store, TimerPlacingStore) and store.timers_on_heap
                    kind = _TIMERS[guarded, in_memory]
                    self.timers = kind(store, id, keys, groups)
                case StateKind.VALUE:
                    accessor = values(*common)
                    accessor.isolate(spec.value)
                    self.accessors[spec.name] = accessor
                case StateKind.LIST:
                    self.accessors[spec.name] = lists(*common, epoch)
                case StateKind.MAP | StateKind.SORTED_MAP:
                    self.accessors[spec.name] = maps(*common)
                case StateKind.REDUCING:
                    self.accessors[spec.name] = reducing(values(*common), spec.value, spec.function)
                case StateKind.AGGREGATING:
                    self.accessors[spec.name] = aggregating(values(*common), spec.value, spec.function)

        timers = [] if self.timers is None else [self.timers]
        # Before accessors are measured: flushing and sizing go past the wrappers.
        self._caching: list[Any] = [*self.accessors.values(), *timers]
        self.cache = WriteCache(self._caching, cache_bytes)
        if meter is not None:
            self.accessors = {name: meter.around(each, self._specs[name]) for name, each in self.accessors.items()}
        # The methods of guarded states, which others do not have; see `rollback`.
        self._verified: list[Any] = [*self.accessors.values()]
        self._guarded: list[Any] = [*self._verified, *timers]

    def value_state(self, name: str) -> ValueAccessor:
        """Return the state of that name, which is declared as one value."""
        return cast(ValueAccessor, self.accessors[name])

    def list_state(self, name: str) -> ListAccessor:
        """Return the state of that name, which is declared as a list."""
        return cast(ListAccessor, self.accessors[name])

    def map_state(self, name: str) -> MapAccessor:
        """Return the state of that name, which is declared as a map."""
        return cast(MapAccessor, self.accessors[name])

    def required_timers(self) -> TimerState:
        """Return the timers of an operator that declares `TIMERS`."""
        assert self.timers is not None, "the operator declares timers"
        return self.timers

    def bind(self, function: object) -> None:
        """Bind the accessor of the declared state `total` to `function.total`."""
        self._function = function
        for name, accessor in self.accessors.items():
            setattr(function, name, accessor)

    def check_bound(self, function: object) -> None:
        """Raise GraphError if the function has overwritten a state attribute."""
        attributes = vars(function)
        for name, accessor in self.accessors.items():
            if attributes.get(name) is not accessor:
                raise GraphError(
                    f"{type(function).__name__} assigned to its state {name!r}, which replaces the state itself. Write "
                    f"self.{name}.update(…) to change what it holds, and self.{name}.value() to read it; or rename the variable."
                )

    def set_time(self, now_ms: int, watermark_ms: int) -> None:
        """Advance the clock between rows. Earlier writes keep their time."""
        if (now_ms, watermark_ms) != (self.clock.now_ms, self.clock.watermark_ms):
            expiring = [accessor for accessor in self.accessors.values() if accessor.expiry is not None]
            for accessor in expiring:
                # With the old time: what was written before the clock moved keeps its stamp.
                accessor.flush()
                # Whether a cached entry has expired was decided by the old time.
                accessor.forget()
            self.clock.now_ms = now_ms
            self.clock.watermark_ms = watermark_ms

    def keys_of(self, name: str) -> Iterator[tuple[Any, int]]:
        """Yield every key of the task that has an entry in a state, with its key group, as of this call.

        May include a key whose map was emptied entry by entry since the last flush. Only one key group at a time is in
        memory.
        """
        accessor, id = self.accessors[name], self.ids[name]
        gone, unwritten = accessor.pending()
        # A snapshot of what is pending: the caller may change state for the keys that it gets.
        gone = set(gone)
        by_group: dict[int, list[Any]] = {}
        for key, group in unwritten.items():
            by_group.setdefault(group, []).append(key)
        assert self._store is not None
        for group in range(self.groups[0], self.groups[1] + 1):
            prefix = state_prefix(group, id)
            found = dict.fromkeys(by_group.get(group, ()))
            for raw_key, raw in self._store.scan(prefix, prefix_end(prefix)):
                if accessor.expiry is None or not accessor.expiry.expired(raw):
                    key = self._keys.decode(raw_key, len(prefix))[0]
                    if key not in gone:
                        found[key] = None
            for key in found:
                yield key, group

    def expiries(self) -> dict[int, Expiry]:
        """The expiries of states with a time to live, by state id."""
        return {self.ids[name]: a.expiry for name, a in self.accessors.items() if a.expiry is not None}

    def purge(self, name: str) -> None:
        """Delete all entries of a state that the operator no longer declares. Does nothing if it never had any."""
        try:
            id = self._id_of(name)
        except KeyError:
            return
        if self._store is None:
            return
        for group in range(self.groups[0], self.groups[1] + 1):
            prefix = state_prefix(group, id)
            # A range tombstone in every key group would slow reads down for nothing.
            if next(self._store.scan(prefix, prefix_end(prefix)), None) is not None:
                self._store.delete_range(prefix, prefix_end(prefix))

    def mark(self) -> None:
        """Start recording changes for `roll_back`. Only if guarded."""
        for accessor in self._guarded:
            accessor.mark()

    def verify(self) -> None:
        """Raise WrongValue if a value written since `mark` cannot be stored. Only if guarded."""
        for accessor in self._verified:
            accessor.verify()

    def roll_back(self) -> None:
        """Undo everything since `mark`."""
        for accessor in self._guarded:
            accessor.roll_back()

    def flush(self) -> None:
        if self.timers is not None:
            self.timers.flush()
        for name, accessor in self.accessors.items():
            try:
                accessor.flush()
            except (WrongValue, InvalidKey) as error:
                what = "a value of another type" if isinstance(error, WrongValue) else "a map key of another type"
                wrong = WrongValue(f"State {name!r} was given {what} than declared. {error}")
                # Only now, after the error: trying every key costs as much as the flush.
                wrong.key = _wrong_key(accessor)
                wrong.writes = writes_of(self._function, name)
                raise wrong from None
            except EntryTooLarge as error:
                raise WrongValue(self._too_large(name, error)) from None

    def _too_large(self, name: str, error: EntryTooLarge) -> str:
        try:
            key = repr(self._keys.decode(error.key, len(state_prefix(0, 0)))[0])
        except Exception:
            key = repr(error.key)
        shown = key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…"
        return (
            f"State {name!r} was given {error.size_bytes} bytes for key {shown}, and RocksDB holds at most "
            f"{error.limit_bytes} in one key or value. Divide the value, for example into entries of a MapState."
        )

    def clean_up(self) -> None:
        """Search for expired entries, as many as the state's config says. Called after `flush`, before a seal."""
        for name, accessor in self.accessors.items():
            config = self._specs[name].ttl
            expiry = accessor.expiry
            if config is not None and expiry is not None and config.cleanup_entries:
                assert self._store is not None
                # Twice what was written: the search keeps up with any rate of writing (decision 0008).
                budget = max(config.cleanup_entries, 2 * accessor.written)
                sweep(self._store, self.ids[name], self.groups, expiry, budget)

    def bound_memory(self) -> None:
        """Write and drop cached entries if they take too much memory. Called between batches of rows."""
        if self.cache.is_full(self.CACHE_ENTRIES):
            self.flush()
            for each in self._caching:
                each.forget()
            self.cache.emptied()

    def drop_cached(self) -> None:
        """Drop everything that is cached. The attempt is over: accessors and what they refer to are cyclic garbage, which may
        stay in memory for many epochs."""
        for each in self._caching:
            each.drop_cached()
