"""Typed state entries: converts the bytes of a store to readable keys and values, and back.

The snapshot's description of an operator and its states contains everything needed. A list has one stored entry per
segment, and one typed entry per element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from tidegate.checkpoint.metadata import Distribution, OperatorInfo, StateInfo, UntrustedSnapshot
from tidegate.core.errors import StateError
from tidegate.core.ids import EpochId, KeyGroup, Uid
from tidegate.core.times import TimeDomain
from tidegate.core.type_schema import TypeSchema
from tidegate.savepoint.schema_codec import python_type, schema_codec
from tidegate.schema.datatype import DataType
from tidegate.schema.ddl import Parser
from tidegate.state.accessors.list_accessor import SEGMENT_ELEMENTS
from tidegate.state.accessors.timers import read_timer, timer_key
from tidegate.state.accessors.ttl import Stamp, stamp_of, unstamped
from tidegate.state.keys.entry_keys import (
    VOID_NAMESPACE,
    KeyCodec,
    Namespace,
    entry_key,
    list_segment,
    namespace_bytes,
    prefix_end,
    read_namespace,
    split_entry_key,
    state_prefix,
)

ByteEntry = tuple[bytes, bytes]


class UnreadableState(StateError):
    """A state whose layout this version of tidegate does not know, or cannot read outside a job."""

    code = "UNREADABLE_STATE"


class StateEntry(NamedTuple):
    """One value of one state.

    `map_key` belongs to maps, `position` (from 0) to lists; both are None otherwise. A timer is an entry whose map key
    is the name of its clock and whose value is its time in ms. Operator state has no key; its key group is -1.
    """

    uid: Uid
    state: str
    key_group: KeyGroup
    key: Any
    namespace: Namespace
    map_key: Any
    position: int | None
    value: Any
    stamp: Stamp | None = None
    """For an entry with a time to live: when it was last renewed."""


class Shape(Enum):
    """How entries of a state are laid out. Several kinds share one."""

    VALUE = auto()
    LIST = auto()
    MAP = auto()
    TIMERS = auto()


SHAPES: Mapping[str, Shape] = {
    "value": Shape.VALUE,
    "reducing": Shape.VALUE,
    "aggregating": Shape.VALUE,
    "list": Shape.LIST,
    "map": Shape.MAP,
    "sorted_map": Shape.MAP,
    "timers": Shape.TIMERS,
}
"""Supported kinds of state."""

NO_GROUP = KeyGroup(-1)
"""The key group of operator state, which has none."""


class StateLayout:
    """How the entries of one state are stored: its id, and the codecs of its key, map key and values."""

    def __init__(self, operator: OperatorInfo, state: StateInfo) -> None:
        """Raises UnreadableState, UnknownSchema, SchemaError for an unsupported key, or UntrustedSnapshot."""
        try:
            self._follow(operator, state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
            raise UntrustedSnapshot(
                f"State {state.name!r} of {operator.uid!r} is described by something that is not a type"
            ) from None

    def _follow(self, operator: OperatorInfo, state: StateInfo) -> None:
        shape = SHAPES.get(state.kind)
        if shape is None or (shape is Shape.MAP) != (state.map_key is not None):
            raise UnreadableState(
                f"State {state.name!r} of {operator.uid!r} is of kind {state.kind!r}, which this tidegate does not know. "
                "Read it with the tidegate that wrote it, or a later one."
            )
        self.uid = operator.uid
        self.info = state
        self.shape = shape
        self.keyed = state.distribution is Distribution.KEYED
        self.key_types = key_types(operator) if self.keyed else ()
        # Operator state has no key. The codec is never used then, but the attribute has one type.
        self.keys = KeyCodec(self.key_types or (DataType("string"),))
        self.is_list = shape is Shape.LIST
        self.map_key: TypeSchema | None = None if state.map_key is None else dict(state.map_key)
        if shape is Shape.TIMERS:
            self.map_key = {"type": "str"}
        self.map_keys = None if self.map_key is None else KeyCodec.of_python(python_type(self.map_key))
        self.value: TypeSchema = dict(state.value)
        self.values = schema_codec(self._stored_type())

    def _stored_type(self) -> TypeSchema:
        if self.keyed:
            return {"type": "list", "element": self.value} if self.is_list else self.value
        # An element of operator state; a broadcast map is a list of pairs.
        return self.value if self.map_key is None else {"type": "tuple", "elements": [self.map_key, self.value]}

    @property
    def id(self) -> int:
        return self.info.id

    def key_group(self, key: Any, max_parallelism: int) -> KeyGroup:
        """The key group of a key. Raises InvalidKey for a key of another type."""
        from tidegate.state.keys.key_groups import key_group  # noqa: PLC0415 start-up time
        from tidegate.state.keys.murmur3 import hash_key  # noqa: PLC0415 start-up time

        return key_group(hash_key(self.keys.normalized(key), self.key_types), max_parallelism)

    def prefix(self, key_group: int, key: Any, namespace: Namespace = None) -> bytes:
        """Return the prefix of all entries of one key. Not for timers, which are ordered by time."""
        return entry_key(state_prefix(key_group, self.id), self.keys.encode(key), namespace_bytes(namespace))

    def typed(self, entries: Iterable[ByteEntry]) -> Iterator[StateEntry]:
        """Yield typed entries of keyed state, in order. Those of one list must be contiguous, as in a scan."""
        if self.shape is Shape.LIST:
            return ListElementReader(self).of(entries)
        if self.shape is Shape.TIMERS:
            return self._timers(entries)
        return self._single(entries)

    def _single(self, entries: Iterable[ByteEntry]) -> Iterator[StateEntry]:
        uid, name, decode = self.uid, self.info.name, self.values.decode
        namespace: Namespace
        map_keys, decode_key = self.map_keys, self.keys.decode
        for raw_key, raw in entries:
            # `split_entry_key` inlined: there are millions of these.
            key, at = decode_key(raw_key, 4)
            if raw_key[at : at + 1] == VOID_NAMESPACE:
                namespace, at = None, at + 1
            else:
                namespace, at = read_namespace(raw_key, at)
            map_key = None if map_keys is None else map_keys.decode(raw_key, at)[0]
            group = KeyGroup(raw_key[0] << 8 | raw_key[1])
            stamp = stamp_of(raw)
            value = decode(raw if stamp is None else unstamped(raw))
            yield StateEntry(
                uid=uid,
                state=name,
                key_group=group,
                key=key,
                namespace=namespace,
                map_key=map_key,
                position=None,
                value=value,
                stamp=stamp,
            )

    def _timers(self, entries: Iterable[ByteEntry]) -> Iterator[StateEntry]:
        for raw_key, _ in entries:
            domain, timer = read_timer(raw_key, self.keys)
            group, clock = KeyGroup(timer.key_group), domain.name
            yield StateEntry(
                uid=self.uid,
                state=self.info.name,
                key_group=group,
                key=timer.key,
                namespace=timer.namespace,
                map_key=clock,
                position=None,
                value=timer.time_ms,
            )

    def stored(self, entries: Iterable[StateEntry], epoch: EpochId) -> Iterator[ByteEntry]:
        """Yield stored entries. Elements of one list must be contiguous and in order; `epoch` names their segments.

        Raises InvalidKey or WrongValue if a value does not fit the declared types.
        """
        if self.shape is Shape.LIST:
            return self._segments(entries, epoch)
        if self.shape is Shape.TIMERS:
            return (
                (
                    timer_key(
                        e.key_group, self.id, TimeDomain[e.map_key], e.value, self.keys.encode(e.key), e.namespace
                    ),
                    b"",
                )
                for e in entries
            )
        return self._stored_singly(entries)

    def _stored_singly(self, entries: Iterable[StateEntry]) -> Iterator[ByteEntry]:
        encode, encode_key, id = self.values.encode, self.keys.encode, self.id
        encode_map_key = None if self.map_keys is None else self.map_keys.encode
        for _, _, group, key, namespace, map_key, _, value, stamp in entries:
            space = VOID_NAMESPACE if namespace is None else namespace_bytes(namespace)
            start = state_prefix(group, id) + encode_key(key) + space
            raw = encode(value)
            yield (
                start if encode_map_key is None else start + encode_map_key(map_key),
                raw if stamp is None else stamp.before(raw),
            )

    def _segments(self, entries: Iterable[StateEntry], epoch: EpochId) -> Iterator[ByteEntry]:
        before: tuple[bytes, Stamp | None] = (b"", None)
        part = 0
        elements: list[Any] = []
        for entry in entries:
            here = self.prefix(entry.key_group, entry.key, entry.namespace), entry.stamp
            if elements and (here != before or len(elements) == SEGMENT_ELEMENTS):
                yield self._segment(*before, elements, list_segment(epoch, part))
                # Parts grow through all lists of this state: names of segments need order within a list, and may have
                # gaps.
                elements, part = [], part + 1
            before = here
            elements.append(entry.value)
        if elements:
            yield self._segment(*before, elements, list_segment(epoch, part))

    def _segment(self, start: bytes, stamp: Stamp | None, elements: list[Any], name: bytes) -> ByteEntry:
        raw = self.values.encode(elements)
        return start + name, raw if stamp is None else stamp.before(raw)

    def typed_elements(self, elements: Iterable[bytes], first: int = 0) -> Iterator[StateEntry]:
        """Yield typed entries of operator state from the elements of one task."""
        for position, raw in enumerate(elements, first):
            value = self.values.decode(raw)
            map_key, value = (None, value) if self.map_key is None else value
            yield StateEntry(
                uid=self.uid,
                state=self.info.name,
                key_group=NO_GROUP,
                key=None,
                namespace=None,
                map_key=map_key,
                position=position,
                value=value,
            )

    def stored_element(self, entry: StateEntry) -> bytes:
        """Inverse of `typed_elements`, for one entry."""
        return self.values.encode(entry.value if self.map_key is None else (entry.map_key, entry.value))

    def range_in(self, key_group: int) -> tuple[bytes, bytes]:
        """Return start and end of a scan over this state in one key group."""
        start = state_prefix(key_group, self.id)
        return start, prefix_end(start)


class ListElementReader:
    """Reads the elements of lists, segment by segment, and counts them. Entries can be passed in parts."""

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout
        self._before = b""
        self._position = 0

    def of(self, entries: Iterable[ByteEntry]) -> Iterator[StateEntry]:
        layout = self._layout
        for raw_key, raw in entries:
            group, _, key, namespace, rest = split_entry_key(raw_key, layout.keys)
            # The rest of a segment's key is its name: epoch and part. What is before it is the list.
            of, stamp = raw_key[: -len(rest)], stamp_of(raw)
            if of != self._before:
                self._before = of
                self._position = 0
            for value in layout.values.decode(unstamped(raw)):
                yield StateEntry(
                    uid=layout.uid,
                    state=layout.info.name,
                    key_group=group,
                    key=key,
                    namespace=namespace,
                    map_key=None,
                    position=self._position,
                    value=value,
                    stamp=stamp,
                )
                self._position += 1


def key_types(operator: OperatorInfo) -> tuple[DataType, ...]:
    """Return the types of an operator's key columns. Raises UnreadableState if it has no key."""
    columns = (operator.key or {}).get("columns")
    if not columns:
        raise UnreadableState(
            f"The snapshot does not say by which columns {operator.uid!r} is keyed, so its keyed state cannot be read."
        )
    return tuple(Parser(ddl).whole_type() for ddl in columns)


def by_state(layouts: Iterable[StateLayout]) -> Callable[[bytes], StateLayout | None]:
    """Return a function that finds the layout of an entry by the state id in its key."""
    known = {layout.id.to_bytes(2, "big"): layout for layout in layouts if layout.keyed}
    return lambda raw_key: known.get(raw_key[2:4])
