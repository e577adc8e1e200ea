"""Keys that people type, and values that JSON can carry."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from tidegate.core.errors import ControlError
from tidegate.savepoint.schema_codec import Schema, show_schema
from tidegate.schema.datatype import DataType


class UnreadableText(ControlError):
    """What was typed is not a value of the expected type."""

    code = "UNREADABLE_TEXT"

    def __init__(self, text: str, expected: str) -> None:
        super().__init__(f"{text!r} is not a value of type {expected}. {_FORMS}")


_FORMS = (
    "Texts are taken as they are; write numbers as 12 or 1.5, booleans as true or false, dates and times as 2026-01-31 and "
    "2026-01-31T12:00:00Z, bytes as hexadecimal, tuples as a JSON array."
)
# Types of key columns as Spark names them, and how a text of each is read.
_COLUMNS = {
    "string": "str",
    "binary": "bytes",
    "boolean": "bool",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "int",
    "float": "float",
    "double": "float",
    "date": "date",
    "timestamp": "datetime",
    "timestamp_ntz": "datetime",
    "decimal": "decimal",
}


def key_from(texts: Sequence[str], types: Sequence[DataType]) -> Any:
    """Return a key made of one text for each of its columns. Raises UnreadableText."""
    if len(texts) != len(types):
        shown = ", ".join(type.ddl() for type in types)
        raise UnreadableText(" ".join(texts), f"({shown}): {len(types)} values, one for each column")
    values = [_value(text, {"type": _COLUMNS[type.kind]}) for text, type in zip(texts, types)]
    return values[0] if len(values) == 1 else tuple(values)


def value_from(text: str, schema: Schema) -> Any:
    """Return a map key made of a text. Raises UnreadableText."""
    return _value(text, schema)


def _value(text: str, schema: Schema) -> Any:
    try:
        match schema:
            case {"type": "optional", "of": inner}:
                return None if text == "null" else _value(text, inner)
            case {"type": "enum", "members": members}:
                return next(m["value"] for m in members if text in (m["name"], str(m["value"])))
            case {"type": "tuple", "elements": elements}:
                return tuple(_value(_plain(part), e) for part, e in zip(json.loads(text), elements, strict=True))
            case {"type": "tuple", "variadic": element}:
                return tuple(_value(_plain(part), element) for part in json.loads(text))
            case {"type": "bool"}:
                return {"true": True, "false": False}[text.lower()]
        return _READERS[schema["type"]](text)
    except (ValueError, KeyError, TypeError, StopIteration, InvalidOperation):
        raise UnreadableText(text, show_schema(schema)) from None


def _plain(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part)


_READERS: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bytes": bytes.fromhex,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
}


def jsonable(value: Any) -> Any:
    """Convert a value of state to what JSON can carry: bytes in base64, moments in ISO 8601, maps with other keys as pairs."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            # JSON has neither NaN nor infinity.
            return value if value == value and abs(value) != float("inf") else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | UUID():
            return str(value)
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: jsonable(item) for key, item in value.items()}
        case Mapping():
            return [[jsonable(key), jsonable(item)] for key, item in value.items()]
        case set() | frozenset():
            return sorted((jsonable(item) for item in value), key=json.dumps)
    if hasattr(value, "_asdict"):
        return {key: jsonable(item) for key, item in value._asdict().items()}
    return [jsonable(item) for item in value]
