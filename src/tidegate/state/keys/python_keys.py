"""Ordered bytes of Python types: the user keys of MapState, declared as `MapState(str, int)` and not as columns.

Beyond what columns have (see `ordered`):

| value | bytes |
|---|---|
| int beyond 64 bits | `03` · 4 bytes length · magnitude; negative: `01` · both with all bits flipped |
| datetime | `02` · `00` naive or `01` aware · 8 bytes as a timestamp |
| Decimal | `02` · `01` -inf, `03` zero, `05` inf, `06` NaN |
| … positive | `02` · `04` · 8 bytes exponent of the first digit, as an integer · digits as text · `00` |
| … negative | `02` · `02` · the same with all bits flipped |
| UUID | `02` · 16 bytes |
| enum | its value, an int or a str |
| tuple[A, B] | `02` · A · B |
| tuple[A, ...] | `02` · (`01` · A)* · `00` |

Digits have no trailing zeros. Only `Optional` types take None.
"""

from __future__ import annotations

import operator
import struct
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from tidegate.core.errors import UnsupportedType
from tidegate.schema import key_values as values
from tidegate.schema.key_values import InvalidKey, Normalize, datetime_us
from tidegate.schema.schema import DataType
from tidegate.state.keys.ordered import (
    ABOVE,
    BELOW,
    NULL,
    PRESENT,
    Decode,
    Encode,
    Form,
    column_form,
    damaged,
    decode_binary,
    decode_bool,
    decode_date,
    decode_double,
    decode_long,
    decode_ntz,
    decode_string,
    decode_timestamp,
    encode_bytes,
    encode_double,
    encode_long,
)

_NAN = Decimal("NaN")
_INFINITE = {b"\x01": Decimal("-Infinity"), b"\x05": Decimal("Infinity"), b"\x06": _NAN, b"\x03": Decimal(0)}
_length = struct.Struct(">I")
_WRONG = (TypeError, ValueError, AttributeError, ArithmeticError, struct.error)


def python_form(tp: Any) -> Form:
    """Return the form of a Python type. Raises UnsupportedType for types whose values have no order."""
    # A NewType is stored as what it is based on.
    while hasattr(tp, "__supertype__"):
        tp = tp.__supertype__
    origin = typing.get_origin(tp)
    if origin is typing.Annotated:
        return python_form(typing.get_args(tp)[0])
    if origin is typing.Union or origin is types.UnionType:
        members = [member for member in typing.get_args(tp) if member is not type(None)]
        # A union of several types has no order.
        if len(members) == 1:
            return _optional(python_form(members[0]))
    elif origin is tuple:
        members = list(typing.get_args(tp))
        if len(members) == 2 and members[1] is Ellipsis:
            return _repeated(python_form(members[0]), str(tp))
        return _product([python_form(member) for member in members if member != ()], str(tp))
    elif isinstance(tp, type) and issubclass(tp, Enum):
        return _enum(tp)
    elif tp in _FORMS:
        return _FORMS[tp]()
    raise UnsupportedType(
        f"{tp} cannot be the key of a MapState. Use int, float, str, bytes, bool, datetime, date, Decimal, UUID, an "
        "enum, a tuple of these, or an Optional of one."
    )


def _form(name: str, convert: Normalize, encode: Encode, decode: Decode) -> Form:
    """`encode` may have a fast path for the common case; if it fails, the value is normalized first, or rejected."""

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except _WRONG as error:
            raise InvalidKey(value, name, str(error)) from None

    def encode_checked(value: Any) -> bytes:
        try:
            return encode(value)
        except _WRONG:
            return encode(checked(value))

    def decode_checked(data: bytes, at: int = 0) -> tuple[Any, int]:
        value, end = decode(data, at)
        if value is None:
            raise damaged(data, at)
        return value, end

    return Form(checked, encode_checked, decode_checked)


def _optional(form: Form) -> Form:
    def normalized(value: Any) -> Any:
        return None if value is None else form.normalized(value)

    def encode(value: Any) -> bytes:
        return NULL if value is None else form.encode(value)

    def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
        return (None, at + 1) if data[at : at + 1] == NULL else form.decode(data, at)

    return Form(normalized, encode, decode)


# int


def _int() -> Form:
    return _form("int", _canonical_int, _encode_int, _decode_int)


def _canonical_int(value: Any) -> int:
    return int(operator.index(value))


def _encode_int(value: int) -> bytes:
    try:
        return encode_long(value)
    except struct.error:
        number = _canonical_int(value)
    size = (number.bit_length() + 7) // 8
    if number > 0:
        return ABOVE + _length.pack(size) + number.to_bytes(size, "big")
    # More digits mean a smaller number: flipped, so that it sorts before.
    flipped_size = _length.pack(0xFFFFFFFF - size)
    return BELOW + flipped_size + ((1 << 8 * size) - 1 + number).to_bytes(size, "big")


def _decode_int(data: bytes, at: int = 0) -> tuple[int | None, int]:
    tag = data[at : at + 1]
    if tag not in (ABOVE, BELOW):
        return decode_long(data, at)
    try:
        (size,) = _length.unpack_from(data, at + 1)
    except struct.error:
        raise damaged(data, at) from None
    size = size if tag == ABOVE else 0xFFFFFFFF - size
    end = at + 5 + size
    if end > len(data):
        raise damaged(data, at)
    number = int.from_bytes(data[at + 5 : end], "big")
    return number if tag == ABOVE else number + 1 - (1 << 8 * size), end


# Types that share their bytes with a column


def _of_column(kind: str, name: str, convert: Normalize, decode: Decode) -> Form:
    column = column_form(DataType(kind))

    def encode(value: Any) -> bytes:
        if value is None:
            raise TypeError("Declare the key Optional to use None.")
        return column.encode(value)

    return _form(name, convert, encode, decode)


def _float() -> Form:
    return _form("float", values.canonical_float, encode_double, decode_double)


def _str() -> Form:
    def encode(value: Any) -> bytes:
        return b"\x02" + value.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x00"  # type: ignore[no-any-return]

    return _form("str", values.canonical_str, encode, decode_string)


def _bytes() -> Form:
    return _form("bytes", values.canonical_bytes, encode_bytes, decode_binary)


def _bool() -> Form:
    return _of_column("boolean", "bool", values.normalized_bool, decode_bool)


def _date() -> Form:
    return _of_column("date", "date", values.canonical_date, decode_date)


# datetime


def _datetime() -> Form:
    return _form("datetime", _canonical_datetime, _encode_datetime, _decode_datetime)


def _canonical_datetime(value: Any) -> datetime:
    aware = isinstance(value, datetime) and value.utcoffset() is not None
    return values.canonical_timestamp(value) if aware else values.canonical_ntz(value)


def _encode_datetime(value: Any) -> bytes:
    moment = _canonical_datetime(value)
    kind = b"\x02\x00" if moment.tzinfo is None else b"\x02\x01"
    return kind + encode_long(datetime_us(moment))[1:]


def _decode_datetime(data: bytes, at: int = 0) -> tuple[datetime | None, int]:
    kind = data[at : at + 2]
    if kind not in (b"\x02\x00", b"\x02\x01"):
        raise damaged(data, at)
    decode = decode_ntz if kind == b"\x02\x00" else decode_timestamp
    value, end = decode(PRESENT + data[at + 2 : at + 10], 0)
    return value, at + 1 + end


# Decimal without a scale


def _decimal() -> Form:
    return _form("Decimal", _canonical_decimal, _encode_decimal, _decode_decimal)


def _canonical_decimal(value: Any) -> Decimal:
    """Without trailing zeros: 1, 1.0 and 1.00 are equal, so they are one key. Never rounded."""
    number = value if isinstance(value, Decimal) else Decimal(operator.index(value))
    if number.is_nan():
        return _NAN
    if not number:
        return _INFINITE[b"\x03"]
    if not number.is_finite():
        return _INFINITE[b"\x05" if number > 0 else b"\x01"]
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return Decimal((sign, tuple(map(int, kept)), int(exponent) + len(text) - len(kept)))


def _encode_decimal(value: Any) -> bytes:
    number = _canonical_decimal(value)
    if number.is_nan():
        return b"\x02\x06"
    if not number:
        return b"\x02\x03"
    if not number.is_finite():
        return b"\x02\x05" if number > 0 else b"\x02\x01"
    sign, digits, _ = number.as_tuple()
    body = encode_long(number.adjusted())[1:] + "".join(map(str, digits)).encode() + b"\x00"
    return b"\x02\x02" + _flipped(body) if sign else b"\x02\x04" + body


def _decode_decimal(data: bytes, at: int = 0) -> tuple[Decimal | None, int]:
    tag, kind = data[at : at + 1], data[at + 1 : at + 2]
    if tag == PRESENT and kind in _INFINITE:
        return _INFINITE[kind], at + 2
    negative = kind == b"\x02"
    # The digits end with 00, which is ff where all bits are flipped. The first eight bytes are the exponent and may
    # have any value.
    end = data.find(b"\xff" if negative else b"\x00", at + 10)
    if tag != PRESENT or kind not in (b"\x02", b"\x04") or end < 0:
        raise damaged(data, at)
    body = data[at + 2 : end]
    if negative:
        body = _flipped(body)
    adjusted = int.from_bytes(body[:8], "big") - (1 << 63)
    digits = tuple(byte - 48 for byte in body[8:])
    if not digits or not all(0 <= digit <= 9 for digit in digits):
        raise damaged(data, at)
    return Decimal((int(negative), digits, adjusted - len(digits) + 1)), end + 1


def _flipped(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


# UUID, enums, tuples


def _uuid() -> Form:
    def convert(value: Any) -> UUID:
        if not isinstance(value, UUID):
            raise TypeError("Use a uuid.UUID.")
        return value

    def encode(value: Any) -> bytes:
        return b"\x02" + value.bytes  # type: ignore[no-any-return]

    def decode(data: bytes, at: int = 0) -> tuple[UUID | None, int]:
        body = data[at : at + 17]
        if body[:1] != PRESENT or len(body) < 17:
            raise damaged(data, at)
        return UUID(bytes=body[1:]), at + 17

    return _form("UUID", convert, encode, decode)


def _enum(tp: type[Enum]) -> Form:
    kinds = {type(member.value) for member in tp}
    if kinds not in ({int}, {str}):
        raise UnsupportedType(
            f"The enum {tp.__name__} cannot be a key: all its values must be of type int, or all of type str."
        )
    inner = python_form(kinds.pop())

    def encode(value: Any) -> bytes:
        return inner.encode(tp(value)._value_)

    def decode(data: bytes, at: int = 0) -> tuple[Enum, int]:
        value, end = inner.decode(data, at)
        try:
            return tp(value), end
        except ValueError:
            raise UnsupportedType(
                f"State holds the key {value!r}, which is no longer a member of {tp.__name__}. Put the member back."
            ) from None

    return _form(tp.__name__, tp, encode, decode)


def _product(forms: list[Form], name: str) -> Form:
    """A tuple of fixed length."""

    def normalized(value: Any) -> tuple[Any, ...]:
        return tuple(form.normalized(part) for form, part in zip(forms, _a_tuple(value), strict=True))

    def encode(value: Any) -> bytes:
        return PRESENT + b"".join([form.encode(part) for form, part in zip(forms, _a_tuple(value), strict=True)])

    def decode(data: bytes, at: int = 0) -> tuple[tuple[Any, ...], int]:
        if data[at : at + 1] != PRESENT:
            raise damaged(data, at)
        parts, at = [], at + 1
        for form in forms:
            part, at = form.decode(data, at)
            parts.append(part)
        return tuple(parts), at

    return _form(name, normalized, encode, decode)


def _repeated(form: Form, name: str) -> Form:
    """A tuple of any length: `01` announces an element, `00` the end."""

    def normalized(value: Any) -> tuple[Any, ...]:
        return tuple(form.normalized(part) for part in _a_tuple(value))

    def encode(value: Any) -> bytes:
        return PRESENT + b"".join([b"\x01" + form.encode(part) for part in _a_tuple(value)]) + b"\x00"

    def decode(data: bytes, at: int = 0) -> tuple[tuple[Any, ...], int]:
        if data[at : at + 1] != PRESENT:
            raise damaged(data, at)
        parts, at = [], at + 1
        while data[at : at + 1] == b"\x01":
            part, at = form.decode(data, at + 1)
            parts.append(part)
        if data[at : at + 1] != b"\x00":
            raise damaged(data, at)
        return tuple(parts), at + 1

    return _form(name, normalized, encode, decode)


def _a_tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise TypeError("Use a tuple.")
    return value


_FORMS: dict[Any, Callable[[], Form]] = {
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    bool: _bool,
    date: _date,
    datetime: _datetime,
    Decimal: _decimal,
    UUID: _uuid,
}
