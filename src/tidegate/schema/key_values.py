"""Normalized keys: the one Python value that represents a key which can be written in several ways. One key, one hash,
one byte string.

-0.0 is 0.0; every NaN is the object `NAN`, so that a dict finds it; floats have the width of their column, Decimals its
scale; aware datetimes are in UTC. A value that the column could not hold is rejected: no row can ever have that key.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, DecimalException, DivisionByZero, Inexact, InvalidOperation, Overflow
from functools import lru_cache, partial
from typing import Any

from tidegate.core.errors import StateError, UnsupportedType
from tidegate.schema.schema import DataType

NAN = math.nan
"""The only NaN among normalized keys."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_NTZ = datetime(1970, 1, 1)
EPOCH_DAY = EPOCH_NTZ.toordinal()
INT_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FLOAT = struct.Struct("<f")

EXACT = Context(prec=76, Emin=-999_999, Emax=999_999, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
"""Decimal arithmetic that raises rather than rounds. The caller's context does not affect keys."""

Normalize = Callable[[Any], Any]


class InvalidKey(StateError):
    """A value that cannot be a key of the declared type."""

    code = "INVALID_KEY"

    def __init__(self, value: Any, type: str, hint: str = "") -> None:
        self.value = value
        self.type = type
        text = repr(value)
        super().__init__(
            f"{text if len(text) <= 200 else text[:200] + '…'} cannot be a key of type {type}.{hint and ' ' + hint}"
        )


def normalized(value: Any, type: DataType) -> Any:
    """Normalize the value of one key column; None stays None. Raises InvalidKey."""
    return normalizer(type)(value)


@lru_cache(maxsize=512)
def normalizer(type: DataType) -> Normalize:
    """Return `normalized` specialized for one type, for normalizing many values."""
    convert, name = converter(type), type.ddl()

    def checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise InvalidKey(value, name, str(error)) from None

    return checked


@lru_cache(maxsize=512)
def converter(type: DataType) -> Normalize:
    """Return a function that normalizes any value but None. It raises TypeError, ValueError or ArithmeticError for an
    invalid key."""
    match type.kind:
        case "boolean":
            convert: Normalize = normalized_bool
        case "tinyint" | "smallint" | "int" | "bigint":
            convert = partial(_sized_int, 1 << INT_BITS[type.kind] - 1)
        case "float":
            convert = _float32
        case "double":
            convert = canonical_float
        case "string":
            convert = canonical_str
        case "binary":
            convert = canonical_bytes
        case "date":
            convert = canonical_date
        case "timestamp":
            convert = canonical_timestamp
        case "timestamp_ntz":
            convert = canonical_ntz
        case "decimal":
            assert type.precision is not None
            assert type.scale is not None
            convert = partial(_scaled_decimal, Decimal((0, (1,), -type.scale)), 10 ** (type.precision - type.scale))
        case _:
            raise UnsupportedType(
                f"{type.ddl()} cannot be a key. Key by columns of plain types, such as string or bigint."
            )
    return convert


def normalized_bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    # By name, so that numpy is not imported for it.
    if type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy":
        return bool(value)
    raise TypeError("Use True or False.")


def canonical_float(value: Any) -> float:
    number = float(value + 0.0)  # the addition turns -0.0 into 0.0, and raises for text
    return number if number == number else NAN


def canonical_str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("Use a str.")
    if not value.isascii():
        value.encode()  # rejects lone surrogates
    return value if type(value) is str else str.__str__(value)


def canonical_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("Use bytes.")
    return bytes(value)


def canonical_date(value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise TypeError("Use a datetime.date.")
    return value if type(value) is date else date(value.year, value.month, value.day)


def canonical_timestamp(value: Any) -> datetime:
    moment = _plain_datetime(value)
    if moment.utcoffset() is None:
        raise TypeError("It has no time zone; use an aware datetime, such as datetime(…, tzinfo=UTC).")
    return moment.astimezone(UTC)


def canonical_ntz(value: Any) -> datetime:
    moment = _plain_datetime(value)
    if moment.tzinfo is not None:
        raise TypeError("It has a time zone; use a naive datetime.")
    # Naive datetimes that differ only in `fold` are equal, and become one value.
    return moment.replace(fold=0) if moment.fold else moment


def date_days(value: date) -> int:
    """Days since 1970-01-01."""
    return value.toordinal() - EPOCH_DAY


def datetime_us(value: datetime) -> int:
    """Microseconds since 1970-01-01, in UTC if the value is aware."""
    since = value - (EPOCH_NTZ if value.tzinfo is None else EPOCH)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def unscaled(value: Decimal, scale: int) -> int:
    """Return the digits of a Decimal normalized for this scale as an integer."""
    return int(EXACT.scaleb(value, scale))


def _sized_int(bound: int, value: Any) -> int:
    number = operator.index(value)
    if not -bound <= number < bound:
        raise ValueError(f"It is outside of {-bound} to {bound - 1}.")
    return int(number)


def _float32(value: Any) -> float:
    number = canonical_float(value)
    return number if number is NAN else float(_FLOAT.unpack(_FLOAT.pack(number))[0])


def _plain_datetime(value: Any) -> datetime:
    if type(value) is datetime:
        return value
    if not isinstance(value, datetime):
        raise TypeError("Use a datetime.datetime.")
    clock = (value.hour, value.minute, value.second, value.microsecond)
    return datetime(value.year, value.month, value.day, *clock, tzinfo=value.tzinfo, fold=value.fold)


def _scaled_decimal(unit: Decimal, bound: int, value: Any) -> Decimal:
    # `index` accepts numpy's integers and no floats, whose digits would not be those that the user wrote.
    number = value if isinstance(value, Decimal) else Decimal(operator.index(value))
    if not number.is_finite():
        raise ValueError("It is not a finite number.")
    try:
        scaled = EXACT.plus(EXACT.quantize(number, unit))  # plus turns -0 into 0
    except DecimalException:
        raise ValueError("It does not fit the column's digits.") from None
    if not -bound < scaled < bound:  # abs() would round by the caller's context
        raise ValueError("It has more digits than the column.")
    return scaled
