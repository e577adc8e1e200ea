"""Ordered bytes: an encoding in which bytes compare like values, and no value's bytes are a prefix of another's.

The format is permanently fixed, see decision 0001. A value is a tag byte and a body:

| value | bytes |
|---|---|
| null | `00` |
| boolean | `02` · `00` or `01` |
| any integer | `02` · 8 bytes big endian, sign bit flipped |
| any float | `02` · 8 bytes of the double: sign bit flipped, all bits if negative |
| string, binary | `02` · bytes (UTF-8), each `00` followed by `FF` · `00 00` |
| date | `02` · 4 bytes big endian, days since 1970, sign bit flipped |
| timestamp, timestamp_ntz | `02` · 8 bytes big endian, microseconds since 1970, sign bit flipped |
| decimal of a column | `02` · 16 bytes big endian, digits at the column's scale, sign bit flipped |

`01` and `03` belong to integers beyond 64 bits, which only map keys can have (see `python_keys`).
This is per-record code: every type has its own closures, the common case first and conversions only after an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from tidegate.core.errors import CorruptState
from tidegate.schema.key_values import (
    EPOCH,
    EPOCH_DAY,
    EPOCH_NTZ,
    EXACT,
    INT_BITS,
    NAN,
    InvalidKey,
    Normalize,
    datetime_us,
    normalizer,
    unscaled,
)
from tidegate.schema.schema import DataType

Encode = Callable[[Any], bytes]


class Decode(Protocol):
    """Reads the value at byte `at`; returns it and the end of its bytes. Raises CorruptState."""

    def __call__(self, data: bytes, at: int = 0) -> tuple[Any, int]: ...


NULL, BELOW, PRESENT, ABOVE = b"\x00", b"\x01", b"\x02", b"\x03"
TAG = PRESENT[0]
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_tagged_long = struct.Struct(">BQ")
_tagged_int = struct.Struct(">BI")
_double, _bits = struct.Struct("<d"), struct.Struct("<q")
_float = struct.Struct("<f")
_NAN_BYTES = b"\x02\xff\xf8" + bytes(6)
_FIRST_US, _LAST_US = datetime_us(datetime.min), datetime_us(datetime.max)
# What a fast path may raise for a value of another type.
_WRONG = (TypeError, ValueError, AttributeError, ArithmeticError, struct.error)


@dataclass(frozen=True, slots=True)
class Form:
    """How values of one type are normalized, encoded and decoded. `decode(encode(v), 0)[0] == normalized(v)`."""

    normalized: Normalize
    encode: Encode
    decode: Decode


def column_form(type: DataType) -> Form:
    """Return the form of a key column. Nulls are allowed and sort first."""
    checked = normalizer(type)
    match type.kind:
        case "boolean":
            return Form(checked, _encode_bool(checked), decode_bool)
        case "tinyint" | "smallint" | "int":
            return Form(checked, _encode_narrow(checked, 1 << INT_BITS[type.kind] - 1), decode_long)
        case "bigint":
            return Form(checked, _encode_bigint(checked), decode_long)
        case "float":
            return Form(checked, lambda value: NULL if value is None else encode_double(checked(value)), decode_double)
        case "double":
            return Form(checked, _encode_double(checked), decode_double)
        case "string":
            return Form(checked, _encode_string(checked), decode_string)
        case "binary":
            return Form(checked, _encode_binary(checked), decode_binary)
        case "date":
            return Form(checked, _encode_date(checked), decode_date)
        case "timestamp":
            return Form(checked, _encode_datetime(checked, EPOCH), decode_timestamp)
        case "timestamp_ntz":
            return Form(checked, _encode_datetime(checked, EPOCH_NTZ), decode_ntz)
    assert type.scale is not None  # a decimal: canonical_of has refused all other kinds
    return Form(checked, _encode_decimal(checked, type.scale), _decode_decimal(type.scale))


# Writing. Each column encoder has a fast path for normalized values; others go through `checked`, which rejects invalid ones.


def encode_long(value: int) -> bytes:
    """Raises struct.error beyond 64 bits."""
    return _tagged_long.pack(TAG, value + _SIGN)


def encode_double(value: float) -> bytes:
    if value != value:
        return _NAN_BYTES
    # -0.0 + 0.0 is 0.0: one zero.
    bits: int = _bits.unpack(_double.pack(value + 0.0))[0]
    return _tagged_long.pack(TAG, bits + _SIGN if bits >= 0 else _ALL ^ (bits & _ALL))


def encode_bytes(value: bytes) -> bytes:
    return b"\x02" + value.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _long_bytes(value: int | None) -> bytes:
    return NULL if value is None else _tagged_long.pack(TAG, value + _SIGN)


def _encode_bool(checked: Normalize) -> Encode:
    written = {None: NULL, False: b"\x02\x00", True: b"\x02\x01"}
    return lambda value: written[value if value is None or value is True else checked(value)]


def _encode_narrow(checked: Normalize, bound: int) -> Encode:
    pack = _tagged_long.pack

    def encode(value: Any) -> bytes:
        try:
            if -bound <= value < bound:
                return pack(2, value + 0x8000000000000000)
        except _WRONG:
            pass
        return _long_bytes(checked(value))

    return encode


def _encode_bigint(checked: Normalize) -> Encode:
    pack = _tagged_long.pack

    def encode(value: Any) -> bytes:
        try:
            return pack(2, value + 0x8000000000000000)
        except _WRONG:
            return _long_bytes(checked(value))

    return encode


def _encode_double(checked: Normalize) -> Encode:
    def encode(value: Any) -> bytes:
        if value is None:
            return NULL
        try:
            return encode_double(value)
        except _WRONG:
            return encode_double(checked(value))

    return encode


def _encode_string(checked: Normalize) -> Encode:
    def encode(value: Any) -> bytes:
        try:
            return b"\x02" + value.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x00"  # type: ignore[no-any-return]
        except _WRONG:
            value = checked(value)
            return NULL if value is None else encode_bytes(value.encode())

    return encode


def _encode_binary(checked: Normalize) -> Encode:
    def encode(value: Any) -> bytes:
        try:
            return b"\x02" + value.replace(b"\x00", b"\x00\xff") + b"\x00\x00"  # type: ignore[no-any-return]
        except _WRONG:
            value = checked(value)
            return NULL if value is None else encode_bytes(value)

    return encode


def _encode_date(checked: Normalize) -> Encode:
    def encode(value: Any) -> bytes:
        if type(value) is not date:
            value = checked(value)
            if value is None:
                return NULL
        return _tagged_int.pack(TAG, value.toordinal() - EPOCH_DAY + 0x80000000)

    return encode


def _encode_datetime(checked: Normalize, epoch: datetime) -> Encode:
    def encode(value: Any) -> bytes:
        try:
            since = value - epoch  # rejects a mix of naive and aware
            us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
            if _FIRST_US <= us <= _LAST_US:
                return _tagged_long.pack(TAG, us + _SIGN)
        except _WRONG:
            pass
        value = checked(value)
        return NULL if value is None else _tagged_long.pack(TAG, datetime_us(value) + _SIGN)

    return encode


def _encode_decimal(checked: Normalize, scale: int) -> Encode:
    def encode(value: Any) -> bytes:
        value = checked(value)
        return NULL if value is None else b"\x02" + (unscaled(value, scale) + (1 << 127)).to_bytes(16, "big")

    return encode


# Reading. Bytes that no encoder wrote are rejected.


def decode_bool(data: bytes, at: int = 0) -> tuple[bool | None, int]:
    if data[at : at + 1] == NULL:
        return None, at + 1
    body = data[at : at + 2]
    if body not in (b"\x02\x00", b"\x02\x01"):
        raise damaged(data, at)
    return body[1] == 1, at + 2


def decode_long(data: bytes, at: int = 0) -> tuple[int | None, int]:
    try:
        tag, value = _tagged_long.unpack_from(data, at)
    except struct.error:
        tag = -1
    if tag == TAG:
        return value - 0x8000000000000000, at + 9
    return null_or_damaged(data, at)


def decode_double(data: bytes, at: int = 0) -> tuple[float | None, int]:
    flipped, end = decode_long(data, at)
    if flipped is None:
        return None, end
    if data[at:end] == _NAN_BYTES:
        return NAN, end
    # Undo the flip: decode_long returns the bits of a positive double, or the inverted bits of a negative one.
    bits = flipped if flipped >= 0 else ~(flipped + _SIGN)
    return _double.unpack(_bits.pack(bits))[0], end


def decode_binary(data: bytes, at: int = 0) -> tuple[bytes | None, int]:
    if data[at : at + 1] != PRESENT:
        return null_or_damaged(data, at)
    # A zero within the text is followed by ff, so the first pair of zeros is the end.
    end = data.find(b"\x00\x00", at + 1)
    if end < 0:
        raise damaged(data, at)
    return data[at + 1 : end].replace(b"\x00\xff", b"\x00"), end + 2


def decode_string(data: bytes, at: int = 0) -> tuple[str | None, int]:
    text, end = decode_binary(data, at)
    try:
        return None if text is None else text.decode(), end
    except UnicodeDecodeError:
        raise damaged(data, at) from None


def decode_date(data: bytes, at: int = 0) -> tuple[date | None, int]:
    try:
        tag, days = _tagged_int.unpack_from(data, at)
        if tag == TAG:
            return date.fromordinal(days - 0x80000000 + EPOCH_DAY), at + 5
    except (struct.error, ValueError, OverflowError):
        pass
    return null_or_damaged(data, at)


def decode_timestamp(data: bytes, at: int = 0) -> tuple[datetime | None, int]:
    return _decode_since(EPOCH, data, at)


def decode_ntz(data: bytes, at: int = 0) -> tuple[datetime | None, int]:
    return _decode_since(EPOCH_NTZ, data, at)


def _decode_since(epoch: datetime, data: bytes, at: int) -> tuple[datetime | None, int]:
    us, end = decode_long(data, at)
    try:
        return None if us is None else epoch + timedelta(microseconds=us), end
    except OverflowError:
        raise damaged(data, at) from None


def _decode_decimal(scale: int) -> Decode:
    def decode(data: bytes, at: int = 0) -> tuple[Decimal | None, int]:
        body = data[at : at + 17]
        if body[:1] != PRESENT or len(body) < 17:
            return null_or_damaged(data, at)
        return EXACT.scaleb(Decimal(int.from_bytes(body[1:], "big") - (1 << 127)), -scale), at + 17

    return decode


def null_or_damaged(data: bytes, at: int) -> tuple[None, int]:
    """Decode a null; raise if there is neither a null nor a value of this type."""
    if data[at : at + 1] == NULL:
        return None, at + 1
    raise damaged(data, at)


def damaged(data: bytes, at: int) -> CorruptState:
    return CorruptState(
        f"The key bytes {data[:64].hex(' ')} cannot be read at byte {at}: they are damaged or belong to a key of "
        "another type. Restore from the last checkpoint, with the key types it was written with."
    )


__all__ = ["Decode", "Encode", "Form", "InvalidKey", "column_form"]
