"""Serialization of Python state types.

Bytes are MessagePack. A struct of layout "map" is a map by field name, so fields can be added and moved; NamedTuples
are arrays. A datetime with a time zone is stored as its instant and read back in UTC; one without a time zone stays
without. `type_schema` defines which types can be stored and how they are described.
"""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, cast

from tidegate.core.errors import StateError, WrongValue
from tidegate.core.type_schema import ADVICE, TypeSchema, schema_of, show_type

__all__ = ["Codec", "TypeSchema", "codec_of", "schema_of", "show_type"]


@dataclass(frozen=True, slots=True)
class Codec:
    """Converts values of one type to bytes and back.

    `encode` raises WrongValue for a value that does not fit the type, so nothing unreadable is ever stored. `decode`
    raises StateError for bytes of another type.
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


@cache
def codec_of(tp: Any) -> Codec:
    """Return the codec of a type; one per type and process. Raises UnsupportedType as `schema_of` does."""
    import msgspec  # noqa: PLC0415 start-up time

    schema = schema_of(tp)
    raw_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
    raw_decode = msgspec.msgpack.Decoder(tp).decode
    shown = show_type(tp)

    def decode(data: bytes) -> Any:
        try:
            return raw_decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StateError(
                f"A stored value cannot be read as {shown}: {error}. If the type was changed, change it back, or "
                "convert the state in a savepoint."
            ) from error

    optional = schema["type"] == "optional"
    kind = schema["of"]["type"] if optional else schema["type"]

    # Most state is scalars. For these, comparing the class replaces the decoding that checks all other types.
    exact = _SCALARS.get(kind)
    if exact is not None:
        classes = (*exact, type(None)) if optional else exact

        def encode_scalar(value: Any) -> bytes:
            try:
                if value.__class__ not in classes:
                    value = _plain(value)
                    # As for type checkers, an int may stand where a float is declared.
                    if kind == "float" and value.__class__ is int:
                        value = float(value)
                    if value.__class__ not in classes:
                        _refuse_value(value, shown, None)
                return raw_encode(value)
            except (TypeError, ValueError, OverflowError) as error:
                _refuse_value(value, shown, error)

        return Codec(encode_scalar, decode)

    def encode(value: Any) -> bytes:
        # Encoding does not check the declared type. A wrong value would only surface at the next read, when it is
        # already part of checkpoints, so it is worth the cost of decoding it here.
        try:
            data = raw_encode(value)
            raw_decode(data)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            _refuse_value(value, shown, error)
        return data

    return Codec(encode, decode)


_SCALARS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float,),
    "str": (str,),
    "bytes": (bytes,),
    "datetime": (datetime.datetime,),
    "date": (datetime.date,),
    "time": (datetime.time,),
    "timedelta": (datetime.timedelta,),
    "uuid": (uuid.UUID,),
}


def _plain(value: Any) -> Any:
    """Return the plain value of a NumPy scalar or of an instance of a built-in type's subclass. Raises TypeError for
    anything else."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if not isinstance(value, enum.Enum):
        for base in (float, int, str, bytes):
            if isinstance(value, base):
                return cast(Callable[[Any], Any], base)(value)
    raise TypeError(f"{type(value).__name__} is not a type of state. {ADVICE}")


def _refuse_value(value: Any, shown: str, error: Exception | None) -> NoReturn:
    text = repr(value)
    text = text if len(text) <= 200 else text[:200] + "…"
    if isinstance(error, OverflowError) and "date" not in str(error):
        why = "Integers are kept in 64 bits; use Decimal, or str, for larger ones."
    elif isinstance(error, OverflowError):
        why = "In UTC it lies outside the years 1 to 9999."
    # msgspec writes "Expected `int`, got `str` - at `$.field`". Only the part after `$` says more than our own sentence.
    elif error is not None and not str(error).startswith("Expected `"):
        why = f"{error}."
    elif "$" in str(error):
        why = f"{error}. Convert it, or change the declared type."
    else:
        why = "Convert it, or change the declared type."
    raise WrongValue(f"Cannot store {text} ({type(value).__name__}) as {shown}. {why}") from error
