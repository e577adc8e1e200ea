"""Operator state: lists and broadcast maps that belong to a task, not to a key. Small, read as a whole; only changes
are written.

    80 00 · state id (2)                → number of elements (8)
    80 00 · state id (2) · place (8)    → one element
    80 01 · …                           the same, for what a restore gave to a union list: see `GIVEN`

Key groups end at 7F FF, so these entries belong to no key and to no keyed share of a restore. Elements are looked up by
position and never scanned, since the first scan makes the hashmap backend sort all its keys. A broadcast map is a list
of its entries, each with a fixed position.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tidegate.core.copies import copier_of
from tidegate.core.errors import CorruptState, StateError
from tidegate.core.types import codec_of
from tidegate.graph.states import Distribution, StateSpec
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.port import StateStore

OWN = 0x8000
GIVEN = 0x8001
"""The elements of all tasks, as a restore passes them to the reader of a union list. The task's own share, which it
contributes to the next restore, stays under `OWN`: a task that gets no rows before the next checkpoint must not make
the union longer. Removed when the function writes its list."""

_head = struct.Struct(">HH")
_count = struct.Struct(">Q")


class Lookup(Protocol):
    """The part of a store that is needed to read elements."""

    def get(self, key: bytes) -> bytes | None: ...
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...


def read_elements(store: Lookup, state_id: int, head: int = OWN) -> list[bytes] | None:
    """Return the stored elements of a state in order, or None if it was never written."""
    start = _head.pack(head, state_id)
    raw = store.get(start)
    if raw is None:
        return None
    found = store.get_many([start + _count.pack(place) for place in range(_count.unpack(raw)[0])])
    # The count says that there are so many.
    if None in found:
        raise CorruptState(f"Operator state {state_id} has lost elements. Restore the job from a checkpoint.")
    return found  # type: ignore[return-value]


def element_entries(elements: Sequence[bytes], state_id: int, head: int = OWN) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries to write to a store that has none of this state."""
    start = _head.pack(head, state_id)
    yield start, _count.pack(len(elements))
    for place, raw in enumerate(elements):
        yield start + _count.pack(place), raw


def _rewrite(store: StateStore, state_id: int, before: Sequence[bytes] | None, now: Sequence[bytes], head: int) -> None:
    """Write the differences."""
    known = before or ()
    start = _head.pack(head, state_id)
    puts = [
        (start + _count.pack(place), raw) for place, raw in enumerate(now) if place >= len(known) or known[place] != raw
    ]
    if before is None or len(known) != len(now):
        puts.append((start, _count.pack(len(now))))
    # Places beyond the new end are deleted: they would come back if the list grew again.
    store.write(puts, [start + _count.pack(place) for place in range(len(now), len(known))])


class OperatorList:
    """`ListState(…, operator=True)`: the elements of this task."""

    def __init__(self, store: StateStore, state_id: int, spec: StateSpec) -> None:
        codec = codec_of(spec.value)
        self._encode = codec.encode
        self._decode = codec.decode
        self._copied = copier_of(spec.value)
        self._store = store
        self._id = state_id
        self._own = read_elements(store, state_id)
        given = read_elements(store, state_id, GIVEN) if spec.distribution is Distribution.UNION else None
        self._given = given
        self.restored = self._own is not None or given is not None
        # After a restore, a union list shows the elements of all tasks.
        self._elements = [self._decode(raw) for raw in (given if given is not None else self._own or ())]
        self._changed = False
        self._before: tuple[list[Any], int] | None = None

    def get(self) -> Iterator[Any]:
        found = tuple(self._elements)
        return iter(found) if self._copied is None else map(self._copied, found)

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        added = self._taken(values)
        self._touch()
        self._elements.extend(added)

    def update(self, values: Iterable[Any]) -> None:
        elements = self._taken(values)
        self._touch()
        self._elements = elements

    def _taken(self, values: Iterable[Any]) -> list[Any]:
        """Values that belong to the state. Taken before anything changes: `values` may read this very list."""
        return list(values if self._copied is None else map(self._copied, values))

    def clear(self) -> None:
        self.update(())

    __iter__ = get

    def __len__(self) -> int:
        return len(self._elements)

    def stored(self) -> list[Any]:
        return list(self._elements)

    def _touch(self) -> None:
        self._changed = True
        if self._before is None:
            # No copy: `add` appends to this very list, and `update` puts another one in its place.
            self._before = (self._elements, len(self._elements))

    def mark(self) -> None:
        self._before = None

    def roll_back(self) -> None:
        if self._before is not None:
            elements, length = self._before
            self._elements = elements
            del self._elements[length:]
            self._before = None

    def flush(self) -> None:
        if self._changed:
            now = [self._encode(element) for element in self._elements]
            _rewrite(self._store, self._id, self._own, now, OWN)
            if self._given is not None:
                start = _head.pack(GIVEN, self._id)
                # The function has written its list, so what the restore gave it is over. From now on this task holds
                # what it wrote.
                places = [start + _count.pack(place) for place in range(len(self._given))]
                self._store.write((), [start, *places])
            self._own = now
            self._given = None
            self._changed = False

    def differs(self) -> bool:
        """Whether it is not what the version has that the attempt started from."""
        return self._changed and (
            self._given is not None or self._own != [self._encode(each) for each in self._elements]
        )

    def held(self) -> int:
        """The number of elements in a snapshot."""
        return len(self._own or ())


class BroadcastMap:
    """`BroadcastState`: a map that is identical in every task, entirely in memory, ordered by key.

    Values are copied when they are put, not when they are read: a function may read all of them for every row.
    """

    def __init__(self, store: StateStore, state_id: int, spec: StateSpec) -> None:
        codec = codec_of(tuple[spec.map_key, spec.value])  # type: ignore[name-defined]
        self._encode = codec.encode
        self._copied = copier_of(spec.value)
        keys = KeyCodec.of_python(spec.map_key)
        self._normalized = keys.normalized
        # Bytes of keys sort like the keys, also where Python has no order, as between None and a str.
        self._order = keys.encode
        self._store = store
        self._id = state_id
        self._name = spec.name
        self._own = read_elements(store, state_id)
        self.restored = self._own is not None
        pairs = [codec.decode(raw) for raw in self._own or ()]
        self._entries: dict[Any, Any] = {self._normalized(key): value for key, value in pairs}
        self._places = list(self._entries)
        self._sorted: list[Any] | None = None
        self._changed = False
        self._before: dict[Any, Any] | None = None
        self.writable = False

    def get(self, key: Any) -> Any:
        return self._entries.get(self._normalized(key))

    def contains(self, key: Any) -> bool:
        return self._normalized(key) in self._entries

    def put(self, key: Any, value: Any) -> None:
        self._touch()
        self._entries[self._normalized(key)] = value if self._copied is None else self._copied(value)

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._touch()
        self._entries.pop(self._normalized(key), None)

    def clear(self) -> None:
        self._touch()
        self._entries = {}

    def keys(self) -> Iterator[Any]:
        if self._sorted is None:
            self._sorted = sorted(self._entries, key=self._order)
        return iter(self._sorted)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter([(key, self._entries[key]) for key in self.keys()])

    def values(self) -> Iterator[Any]:
        return iter([self._entries[key] for key in self.keys()])

    def is_empty(self) -> bool:
        return not self._entries

    __contains__ = contains
    __iter__ = keys
    __setitem__ = put
    __delitem__ = remove

    def __getitem__(self, key: Any) -> Any:
        return self._entries[self._normalized(key)]

    def __len__(self) -> int:
        return len(self._entries)

    def stored(self) -> dict[Any, Any]:
        return dict(self.items())

    def _touch(self) -> None:
        if not self.writable:
            raise StateError(
                f"The broadcast state {self._name!r} is read-only here, since tasks would diverge. Change it in "
                "process_broadcast_element, which every task calls with the same rows."
            )
        if self._before is None:
            # A copy of the references, once for each row that changes the map.
            self._before = dict(self._entries)
        self._changed = True
        self._sorted = None

    def mark(self) -> None:
        self._before = None

    def roll_back(self) -> None:
        if self._before is not None:
            self._entries = self._before
            self._before = None
            self._sorted = None

    def flush(self) -> None:
        if self._changed:
            self._places = _placed(self._places, self._entries)
            now = [self._encode((key, self._entries[key])) for key in self._places]
            _rewrite(self._store, self._id, self._own, now, OWN)
            self._own = now
            self._changed = False


def _placed(places: Sequence[Any], entries: Mapping[Any, Any]) -> list[Any]:
    """Keep keys in their positions. Positions of removed keys are filled by keys beyond the new end, then by new keys."""
    end = len(entries)
    had = set(places)
    unplaced = [key for key in entries if key not in had][::-1] + [key for key in places[end:] if key in entries]
    placed = [key if key in entries else unplaced.pop() for key in places[:end]]
    return placed + unplaced[::-1]


class OperatorStates:
    """All operator state of one function in one attempt."""

    def __init__(self, store: StateStore | None, specs: Iterable[StateSpec], ids: Callable[[str], int]) -> None:
        self.lists: dict[str, OperatorList] = {}
        self.maps: dict[str, BroadcastMap] = {}
        self._specs = {spec.name: spec for spec in specs if not spec.keyed}
        self._ids = {name: ids(name) for name in self._specs}
        for name, spec in self._specs.items():
            assert store is not None, "a store is needed where states are declared"
            if spec.distribution is Distribution.BROADCAST:
                self.maps[name] = BroadcastMap(store, self._ids[name], spec)
            else:
                self.lists[name] = OperatorList(store, self._ids[name], spec)
        self.all: dict[str, Any] = {**self.lists, **self.maps}

    @property
    def restored(self) -> bool:
        return any(state.restored for state in self.all.values())

    def bind(self, function: object) -> None:
        """Bind the declared state `seen` to `function.seen`."""
        for name, state in self.all.items():
            setattr(function, name, state)

    def state(self, name: str, wanted: Distribution) -> Any:
        """Return the declared state of that name and distribution."""
        spec = self._specs.get(name)
        if spec is None or spec.distribution is not wanted:
            known = ", ".join(f"{each.name} ({each.distribution})" for each in self._specs.values()) or "none"
            raise StateError(
                f"The function declares no {wanted} operator state {name!r}; it has: {known}. State is declared on the "
                f"class: {name} = ListState(…, operator=True), with union=True for a union list, or BroadcastState(…)."
            )
        return self.maps[name] if wanted is Distribution.BROADCAST else self.lists[name]

    def set_writable(self, writable: bool) -> None:
        """Set whether broadcast state may be changed."""
        for state in self.maps.values():
            state.writable = writable

    def mark(self) -> None:
        for state in self.all.values():
            state.mark()

    def roll_back(self) -> None:
        for state in self.all.values():
            state.roll_back()

    def flush(self) -> None:
        for state in self.all.values():
            state.flush()

    def differ(self) -> bool:
        """Whether a list is not what the version has that the attempt started from."""
        return any(each.differs() for each in self.lists.values())

    def held(self) -> dict[int, int]:
        """Return the list lengths by state id, for `StateStore.seal`. Call `flush` first."""
        return {self._ids[name]: state.held() for name, state in self.lists.items()}
