"""Keys as bytes: the codec of keys and map keys, and the layout of an entry's key. Permanently fixed, see decision 0001.

    entry key = key group (2, big endian) · state id (2, big endian) · key · namespace · rest
    namespace = 00                                    none
              | 01 · start ms (8) · end ms (8)        a time window, sign bits flipped
              | 02 · text, escaped · 00 00            a name
    rest      = nothing (ValueState) | map key (MapState) | term (4) · epoch (8) · part (4) (ListState)

Key and namespace have no length prefix: no encoding is a prefix of another, so every entry can be split into its parts,
and the entries of one (key group, state, key, namespace) are contiguous, in the order of their map keys. Key groups end
at 7F FF, so entries without a key can start with 80 00 and above.

Encoding a string, int or bigint key takes 0.2–0.3 µs, a pair of them 0.5 µs, a timestamp 0.7 µs (see decision 0001).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tidegate.core.ids import EpochId, KeyGroup, Term, ordinal
from tidegate.schema.key_values import NAN, InvalidKey, normalized
from tidegate.schema.schema import DataType
from tidegate.state.keys.ordered import Decode, Encode, Form, column_form, damaged, decode_string, encode_bytes
from tidegate.state.keys.python_keys import python_form

__all__ = [
    "NAN",
    "OF_NO_KEY",
    "VOID_NAMESPACE",
    "InvalidKey",
    "KeyCodec",
    "Namespace",
    "StateKey",
    "TimeWindow",
    "entry_key",
    "key_group_range",
    "list_segment",
    "namespace_bytes",
    "normalized",
    "prefix_end",
    "read_namespace",
    "read_segment",
    "split_entry_key",
    "state_of",
    "state_prefix",
]

_head = struct.Struct(">HH")
_group = struct.Struct(">H")
# The ordinal of a term, not its random bits: segments need order, not identity (decision 0028).
_segment = struct.Struct(">IQI")
_window = struct.Struct(">BQQ")
_SIGN = 1 << 63

OF_NO_KEY = b"\x80\x00", b"\xff\xff"
"""Start and end of the entries without a key: operator state, and internal records of a task."""
VOID_NAMESPACE = b"\x00"
"""The namespace of state that is not windowed."""


class KeyCodec:
    """Converts keys to bytes and back. Bytes compare like keys (None first, NaN last), and no key's bytes are a prefix
    of another's.

    A key of one column is its value, a key of several is a tuple, and None is allowed in each. `encode` accepts keys
    that are not normalized; `decode(data, offset)` returns the normalized key and the end of its bytes. Can be pickled.
    """

    __slots__ = ("_made_from", "decode", "encode", "normalized")

    def __init__(self, types: Sequence[DataType]) -> None:
        if not types:
            raise ValueError("A key needs at least one column.")
        self._set(_concatenated([column_form(type) for type in types]), (KeyCodec, (tuple(types),)))

    @classmethod
    def of_python(cls, tp: Any) -> KeyCodec:
        """Return the codec of a Python type, for the map keys of MapState. Raises UnsupportedType."""
        codec = cls.__new__(cls)
        codec._set(python_form(tp), (KeyCodec.of_python, (tp,)))
        return codec

    def _set(self, form: Form, made_from: tuple[Any, ...]) -> None:
        # Closures as attributes: a method call would add a third to the cost of encoding.
        self.normalized = form.normalized
        self.encode: Encode = form.encode
        self.decode: Decode = form.decode
        self._made_from = made_from

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made_from


class TimeWindow(NamedTuple):
    """The window [start, end), in milliseconds since 1970."""

    start_ms: int
    end_ms: int

    @property
    def start(self) -> int:
        return self.start_ms

    @property
    def end(self) -> int:
        return self.end_ms

    def max_timestamp(self) -> int:
        """The last millisecond that belongs to the window."""
        return self.end_ms - 1


Namespace = TimeWindow | str | None


class StateKey(NamedTuple):
    """An entry's key, split into its parts. `rest` is the encoded map key, the list segment, or empty."""

    key_group: KeyGroup
    state_id: int
    key: Any
    namespace: Namespace
    rest: bytes


def state_prefix(key_group: int, state_id: int) -> bytes:
    """Return the prefix of all entries of one state in one key group."""
    return _head.pack(key_group, state_id)


def state_of(key: bytes) -> int:
    """Return the state id in the key of an entry, keyed or not."""
    return int.from_bytes(key[2:4], "big")


def entry_key(prefix: bytes, key: bytes, namespace: bytes = VOID_NAMESPACE, rest: bytes = b"") -> bytes:
    """Return a whole entry key, or, for MapState and ListState without `rest`, the prefix of all its entries."""
    return prefix + key + namespace + rest


def split_entry_key(data: bytes, codec: KeyCodec) -> StateKey:
    """Split an entry key into its parts. Raises CorruptState."""
    try:
        group, state_id = _head.unpack_from(data)
    except struct.error:
        raise damaged(data, 0) from None
    key, at = codec.decode(data, _head.size)
    namespace, at = read_namespace(data, at)
    return StateKey(key_group=KeyGroup(group), state_id=state_id, key=key, namespace=namespace, rest=data[at:])


def prefix_end(prefix: bytes) -> bytes:
    """Return the first byte string after all that start with `prefix`: the end of its range in a scan."""
    # 0xff has no successor, so the byte before it counts up.
    kept = prefix.rstrip(b"\xff")
    if not kept:
        raise ValueError(f"No byte string comes after all that begin with {prefix!r}; scan to the end instead.")
    return kept[:-1] + bytes((kept[-1] + 1,))


def key_group_range(first: int, last: int) -> tuple[bytes, bytes]:
    """Return start and end of a scan over the key groups `first` to `last`, inclusive."""
    return _group.pack(first), _group.pack(last + 1)


@lru_cache(maxsize=1024)
def namespace_bytes(namespace: Namespace) -> bytes:
    """Encode a namespace. Many keys share few windows, so recent results are cached."""
    match namespace:
        case None:
            return VOID_NAMESPACE
        case TimeWindow(start_ms, end_ms):
            return _window.pack(1, start_ms + _SIGN, end_ms + _SIGN)
    return encode_bytes(namespace.encode())


def read_namespace(data: bytes, at: int = 0) -> tuple[Namespace, int]:
    """Decode a namespace; return it and the end of its bytes. Raises CorruptState."""
    match data[at : at + 1]:
        case b"\x00":
            return None, at + 1
        case b"\x01" if len(data) >= at + _window.size:
            _, start, end = _window.unpack_from(data, at)
            return TimeWindow(start - _SIGN, end - _SIGN), at + _window.size
        case b"\x02":
            return decode_string(data, at)
    raise damaged(data, at)


def list_segment(epoch: EpochId, part: int) -> bytes:
    """Return the `rest` of a ListState segment: a part of what one epoch added. Epochs only grow, so parts sort in
    insertion order."""
    return _segment.pack(ordinal(epoch.term), epoch.number, part)


def read_segment(rest: bytes) -> tuple[EpochId, int]:
    if len(rest) != _segment.size:
        raise damaged(rest, 0)
    term, number, part = _segment.unpack(rest)
    return EpochId(Term(term), number), part


def _concatenated(forms: list[Form]) -> Form:
    if len(forms) == 1:
        return forms[0]
    count = len(forms)

    def normalized(key: Any) -> tuple[Any, ...]:
        _check_tuple(key, count)
        return tuple([form.normalized(value) for form, value in zip(forms, key)])

    encoders = [form.encode for form in forms]
    decoders = [form.decode for form in forms]

    def encode(key: Any) -> bytes:
        _check_tuple(key, count)
        return b"".join([encode(value) for encode, value in zip(encoders, key)])

    def decode(data: bytes, at: int = 0) -> tuple[tuple[Any, ...], int]:
        values = []
        for one in decoders:
            value, at = one(data, at)
            values.append(value)
        return tuple(values), at

    if count == 2:  # the common composite, without the loop
        first, second = encoders

        def encode(key: Any) -> bytes:
            if type(key) is not tuple or len(key) != 2:
                _check_tuple(key, 2)
            a, b = key
            return first(a) + second(b)

    return Form(normalized, encode, decode)


def _check_tuple(key: Any, count: int) -> None:
    if not isinstance(key, tuple) or len(key) != count:
        raise InvalidKey(key, f"tuple of {count} columns", "Give one value for each key column, in their order.")
