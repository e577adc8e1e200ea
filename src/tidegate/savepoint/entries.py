"""Entries of state, typed: from the bytes of a store to keys and values that a person can read, and back.

Everything needed is in the snapshot's own description of an operator and its states. A list is one entry of the store
for every segment, and one typed entry for every element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tidegate.checkpoint.metadata import Distribution, OperatorInfo, StateInfo
from tidegate.core.errors import StateError
from tidegate.core.ids import EpochId, KeyGroup, Uid
from tidegate.core.type_schema import TypeSchema
from tidegate.graph.datatype import DataType
from tidegate.graph.ddl import Parser
from tidegate.savepoint.plain import plain_codec, python_type
from tidegate.state.access import SEGMENT_ELEMENTS
from tidegate.state.keys import (
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
    """A state whose layout this tidegate does not know, or cannot read outside a job."""

    code = "UNREADABLE_STATE"


class StateEntry(NamedTuple):
    """One value of one state. `map_key` belongs to maps, `position` (from 0) to lists; both are None elsewhere."""

    uid: Uid
    state: str
    key_group: KeyGroup
    key: Any
    namespace: Namespace
    map_key: Any
    position: int | None
    value: Any


class StateLayout:
    """How the entries of one state are written: its number, the codec of its key, its map key and its values."""

    def __init__(self, operator: OperatorInfo, state: StateInfo) -> None:
        """Raises UnreadableState, UnknownSchema, or SchemaError for a key that cannot be understood."""
        if state.distribution is not Distribution.KEYED:
            raise UnreadableState(
                f"State {state.name!r} of {operator.uid!r} is operator state ({state.distribution}), which cannot be read "
                "outside a job yet. Drop it, or use a native copy."
            )
        self.uid, self.info = operator.uid, state
        self.key_types = key_types(operator)
        self.keys = KeyCodec(self.key_types)
        self.is_list = state.kind == "list"
        self.map_key: TypeSchema | None = None if state.map_key is None else dict(state.map_key)
        if state.kind not in KNOWN_KINDS or (state.kind == "map") != (self.map_key is not None):
            raise UnreadableState(
                f"State {state.name!r} of {operator.uid!r} is of kind {state.kind!r}, which this tidegate does not know. "
                "Read it with the tidegate that wrote it, or a later one."
            )
        self.map_keys = None if self.map_key is None else KeyCodec.of_python(python_type(self.map_key))
        self.value: TypeSchema = dict(state.value)
        self.values = plain_codec({"type": "list", "element": self.value} if self.is_list else self.value)

    @property
    def id(self) -> int:
        return self.info.id

    def key_group(self, key: Any, max_parallelism: int) -> KeyGroup:
        """The key group of a key. Raises InvalidKey for a key of another type."""
        from tidegate.state.key_groups import key_group
        from tidegate.state.murmur3 import hash_key

        return key_group(hash_key(self.keys.canonical(key), self.key_types), max_parallelism)

    def prefix(self, key_group: int, key: Any, namespace: Namespace = None) -> bytes:
        """Begins every entry of one key."""
        return entry_key(state_prefix(key_group, self.id), self.keys.encode(key), namespace_bytes(namespace))

    def typed(self, entries: Iterable[ByteEntry]) -> Iterator[StateEntry]:
        """Typed entries, in order. Those of one list must come together, as they do from a scan."""
        uid, name, decode = self.uid, self.info.name, self.values.decode
        namespace: Namespace
        if self.is_list:
            yield from self._elements(entries)
            return
        map_keys, decode_key = self.map_keys, self.keys.decode
        for raw_key, raw in entries:
            # `split_entry_key` written out: there are millions of these.
            key, at = decode_key(raw_key, 4)
            if raw_key[at : at + 1] == VOID_NAMESPACE:
                namespace, at = None, at + 1
            else:
                namespace, at = read_namespace(raw_key, at)
            map_key = None if map_keys is None else map_keys.decode(raw_key, at)[0]
            group = KeyGroup(raw_key[0] << 8 | raw_key[1])
            yield StateEntry(uid, name, group, key, namespace, map_key, None, decode(raw))

    def _elements(self, entries: Iterable[ByteEntry]) -> Iterator[StateEntry]:
        before, position = b"", 0
        for raw_key, raw in entries:
            group, _, key, namespace, rest = split_entry_key(raw_key, self.keys)
            of = raw_key[: -len(rest)]
            if of != before:
                before, position = of, 0
            for value in self.values.decode(raw):
                yield StateEntry(self.uid, self.info.name, group, key, namespace, None, position, value)
                position += 1

    def stored(self, entries: Iterable[StateEntry], epoch: EpochId) -> Iterator[ByteEntry]:
        """Entries as a store holds them. Elements of one list come together and in order; `epoch` names their segments.

        Raises InvalidKey or WrongValue for what does not fit the declared types.
        """
        if self.is_list:
            yield from self._segments(entries, epoch)
            return
        encode, encode_key, id = self.values.encode, self.keys.encode, self.id
        encode_map_key = None if self.map_keys is None else self.map_keys.encode
        for _, _, group, key, namespace, map_key, _, value in entries:
            space = VOID_NAMESPACE if namespace is None else namespace_bytes(namespace)
            start = state_prefix(group, id) + encode_key(key) + space
            yield start if encode_map_key is None else start + encode_map_key(map_key), encode(value)

    def _segments(self, entries: Iterable[StateEntry], epoch: EpochId) -> Iterator[ByteEntry]:
        before, part = b"", 0
        elements: list[Any] = []
        for entry in entries:
            start = self.prefix(entry.key_group, entry.key, entry.namespace)
            if elements and (start != before or len(elements) == SEGMENT_ELEMENTS):
                yield before + list_segment(epoch, part), self.values.encode(elements)
                elements, part = [], part + 1
            before = start
            elements.append(entry.value)
        if elements:
            yield before + list_segment(epoch, part), self.values.encode(elements)

    def range_in(self, key_group: int) -> tuple[bytes, bytes]:
        """Start and end of a scan over this state in one key group."""
        start = state_prefix(key_group, self.id)
        return start, prefix_end(start)


KNOWN_KINDS = frozenset({"value", "list", "map"})
"""Kinds of state whose bytes are understood here."""


def key_types(operator: OperatorInfo) -> tuple[DataType, ...]:
    """The types of an operator's key columns. Raises UnreadableState where it has no key."""
    columns = (operator.key or {}).get("columns")
    if not columns:
        raise UnreadableState(
            f"The snapshot does not say by which columns {operator.uid!r} is keyed, so its keyed state cannot be read."
        )
    return tuple(Parser(ddl).whole_type() for ddl in columns)


def by_state(layouts: Iterable[StateLayout]) -> Callable[[bytes], StateLayout | None]:
    """Finds the layout of an entry by the number in its key."""
    known = {layout.id.to_bytes(2, "big"): layout for layout in layouts}
    return lambda raw_key: known.get(raw_key[2:4])
