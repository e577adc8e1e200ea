"""All keyed states of one operator in one attempt: created from their declarations, bound to the function, flushed together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidegate.core.errors import GraphError, WrongValue
from tidegate.core.ids import EpochId
from tidegate.graph.states import StateKind, StateSpec
from tidegate.state.access import ListAccessor, MapAccessor, ValueAccessor
from tidegate.state.access_meter import AccessMeter
from tidegate.state.folding import aggregating, reducing
from tidegate.state.heap_timers import HeapTimers
from tidegate.state.key_scope import KeyScope
from tidegate.state.keys import KeyCodec, prefix_end, state_prefix
from tidegate.state.port import EntryTooLarge, StateStore
from tidegate.state.rollback import GuardedHeapTimers, GuardedList, GuardedMap, GuardedTimers, GuardedValue
from tidegate.state.timers import TimerState
from tidegate.state.ttl import Expiry, StateClock, sweep
from tidegate.state.windowed import (
    GuardedWindowedList,
    GuardedWindowedMap,
    GuardedWindowedValue,
    WindowedList,
    WindowedMap,
    WindowedValue,
)
from tidegate.state.write_cache import WriteCache

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
        self.accessors: dict[str, Any] = {}
        self.ids: dict[str, int] = {}
        self._specs = {spec.name: spec for spec in specs if spec.keyed}
        self._store = store
        self._keys = keys
        self._id_of = ids
        for spec in self._specs.values():
            assert store is not None, "a store is needed where states are declared"
            id = self.ids[spec.name] = ids(spec.name)
            expiry = None if spec.ttl is None else Expiry(spec.ttl, self.clock)
            values, lists, maps = _KINDS[guarded, spec.windowed]
            common = (self.window_scope if spec.windowed else self.scope, store, id, keys, spec, expiry)
            match spec.kind:
                case StateKind.TIMERS:
                    in_memory = bool(getattr(store, "timers_on_heap", False))
                    kind = _TIMERS[guarded, in_memory]
                    self.timers = kind(store, id, keys, groups)
                case StateKind.VALUE:
                    self.accessors[spec.name] = values(*common)
                    self.accessors[spec.name].isolate(spec.value)
                case StateKind.LIST:
                    self.accessors[spec.name] = lists(*common, epoch)
                case StateKind.MAP | StateKind.SORTED_MAP:
                    self.accessors[spec.name] = maps(*common)
                case StateKind.REDUCING:
                    self.accessors[spec.name] = reducing(values(*common), spec.value, spec.function)
                case StateKind.AGGREGATING:
                    self.accessors[spec.name] = aggregating(values(*common), spec.value, spec.function)

        timers = [] if self.timers is None else [self.timers]
        self._caching: list[Any] = [*self.accessors.values(), *timers]
        self.cache = WriteCache(self._caching, cache_bytes)
        if meter is not None:
            self.accessors = {name: meter.around(each, self._specs[name]) for name, each in self.accessors.items()}
        self._guarded: list[Any] = [*self.accessors.values(), *timers]

    def bind(self, function: Any) -> None:
        """Bind the accessor of the declared state `total` to `function.total`. Built-in operators written as functions
        receive all states through `attach_states`."""
        attach = getattr(function, "attach_states", None)
        if attach is not None:
            attach(self)
            return
        for name, accessor in self.accessors.items():
            setattr(function, name, accessor)

    def check_bound(self, function: Any) -> None:
        """Raise GraphError if the function has overwritten a state attribute."""
        if hasattr(function, "attach_states"):
            return
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
            mortal = [accessor for accessor in self.accessors.values() if accessor.expiry is not None]
            for accessor in mortal:
                accessor.flush()
                accessor.forget()
            self.clock.now_ms, self.clock.watermark_ms = now_ms, watermark_ms

    def keys_of(self, name: str) -> Iterator[tuple[Any, int]]:
        """Yield every key of the task that has an entry in a state, with its key group, as of this call.

        May include a key whose map was emptied entry by entry since the last flush. Only one key group at a time is in
        memory.
        """
        accessor, id = self.accessors[name], self.ids[name]
        gone, unwritten = accessor.pending()
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
            if next(self._store.scan(prefix, prefix_end(prefix)), None) is not None:
                self._store.delete_range(prefix, prefix_end(prefix))

    def mark(self) -> None:
        """Start recording changes for `roll_back`. Only if guarded."""
        for accessor in self._guarded:
            accessor.mark()

    def verify(self) -> None:
        """Raise WrongValue if a value written since `mark` cannot be stored. Only if guarded."""
        for accessor in self.accessors.values():
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
            except WrongValue as error:
                raise WrongValue(f"State {name!r} was given a value of another type than declared. {error}") from None
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
            if config is not None and config.cleanup_entries:
                assert self._store is not None
                budget = max(config.cleanup_entries, 2 * accessor.written)
                sweep(self._store, self.ids[name], self.groups, accessor.expiry, budget)

    def bound_memory(self) -> None:
        """Write and drop cached entries if they take too much memory. Called between batches of rows."""
        if self.cache.is_full(self.CACHE_ENTRIES):
            self.flush()
            for each in self._caching:
                each.forget()
            self.cache.emptied()

    def release(self) -> None:
        """Drop everything that is cached. The attempt is over: accessors and what they refer to are cyclic garbage, which may
        stay in memory for many epochs."""
        for each in self._caching:
            each.release()
