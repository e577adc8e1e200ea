"""JSON schemas and column types, in both directions."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tidegate.core.errors import SchemaError
from tidegate.schema.datatype import DataType, Field

Convert = Callable[[Any], Any]

_PLAIN = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_JSON = {
    "boolean": {"type": "boolean"},
    "tinyint": {"type": "integer"},
    "smallint": {"type": "integer"},
    "int": {"type": "integer"},
    "bigint": {"type": "integer"},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "decimal": {"type": "number"},
    "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
    "timestamp_ntz": {"type": "string"},
}


class JsonTypes:
    """One schema, read as a column type. JSON has no types for times and bytes: such values stay strings."""

    def __init__(self, text: str) -> None:
        try:
            self._root = json.loads(text)
        except json.JSONDecodeError as error:
            raise SchemaError(f"This is not a JSON schema: {error}.") from None
        self._open: list[str] = []
        self.type = self._read(self._root, "the schema")

    def _read(self, schema: Any, at: str) -> DataType:
        if not isinstance(schema, Mapping):
            raise SchemaError(f"{at} allows any value, and a column has a type. Read with a schema that names one.")
        if "$ref" in schema:
            return self._reference(schema["$ref"], at)
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                return self._read(_only([each for each in schema[choice] if each != {"type": "null"}], at), at)
        kind = schema.get("type", "object" if "properties" in schema else "string" if "enum" in schema else None)
        if isinstance(kind, list):
            kind = _only([each for each in kind if each != "null"], at)
        if kind in _PLAIN:
            return DataType(_PLAIN[kind])
        if kind == "array" and "items" in schema:
            return DataType("array", element=self._read(schema["items"], f"{at}[]"))
        if kind == "object" and schema.get("properties"):
            found = schema["properties"].items()
            return DataType(
                "struct", fields=tuple(Field(name, self._read(each, f"{at}.{name}")) for name, each in found)
            )
        if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
            value = self._read(schema["additionalProperties"], f"{at}{{}}")
            return DataType("map", key=DataType("string"), value=value)
        raise SchemaError(f"{at} has no type that a column can have ({kind!r}). Read with a schema that names one.")

    def _reference(self, reference: str, at: str) -> DataType:
        if reference in self._open:
            raise SchemaError(
                f"{at} contains itself ({reference}), and a column cannot. Read with a schema without it."
            )
        if not reference.startswith("#"):
            raise SchemaError(
                f"{at} refers to {reference!r} outside of the schema. Schemas with references to others cannot be read as "
                "columns: give one that contains all it needs, as schema=…"
            )
        found = self._root
        for step in filter(None, reference[1:].split("/")):
            found = found[step]
        self._open.append(reference)
        type = self._read(found, at)
        self._open.pop()
        return type


def _only(choices: list[Any], at: str) -> Any:
    if len(choices) != 1:
        raise SchemaError(
            f"{at} is one of {len(choices)} types, and a column has one. Read with a schema in which it is one type, or null "
            "and one type."
        )
    return choices[0]


def json_schema(type: DataType, *, nullable: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a column."""
    found = _json_schema(type)
    return {"oneOf": [{"type": "null"}, found]} if nullable else found


def _json_schema(type: DataType) -> dict[str, Any]:
    match type.kind:
        case "struct":
            fields = type.fields or ()
            properties = {field.name: json_schema(field.type, nullable=field.nullable) for field in fields}
            return {"type": "object", "properties": properties, "required": [f.name for f in fields if not f.nullable]}
        case "array":
            assert type.element is not None
            return {"type": "array", "items": json_schema(type.element, nullable=True)}
        case "map":
            assert type.key is not None
            assert type.value is not None
            if type.key.kind != "string":
                raise SchemaError(f"Keys of a map in JSON are strings, not {type.key.ddl()}. Cast them.")
            return {"type": "object", "additionalProperties": json_schema(type.value, nullable=True)}
    return _JSON[type.kind]


def as_json(type: DataType, scalars: Mapping[str, Convert] | None = None) -> Convert | None:
    """Return a function that converts values as Arrow returns them to values that JSON has. None: nothing to convert.

    `scalars` says what becomes of values without parts, by kind: by default, all that Python's own encoder cannot write.
    """
    scalars = _SCALARS if scalars is None else scalars
    match type.kind:
        case "struct":
            fixes = {
                field.name: fix for field in type.fields or () if (fix := as_json(field.type, scalars)) is not None
            }
            return _optional(lambda row: row | {name: fix(row[name]) for name, fix in fixes.items()}) if fixes else None
        case "array":
            assert type.element is not None
            each = as_json(type.element, scalars)
            return each and _optional(lambda values: [each(value) for value in values])
        case "map":
            assert type.value is not None
            inner = as_json(type.value, scalars) or (lambda value: value)
            return _optional(lambda pairs: {key: inner(value) for key, value in pairs})
    return scalars.get(type.kind)


def _optional(fix: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else fix(value)


def _text(value: date | datetime) -> str:
    return value.isoformat()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _number(value: Decimal) -> float | int:
    # An integer keeps all its digits; a float has about sixteen.
    return int(value) if value == value.to_integral_value() else float(value)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"JSON has no number for {value}")
    return value


FINITE: Mapping[str, Convert] = {"float": _optional(_finite), "double": _optional(_finite)}
"""What an encoder needs that writes dates, bytes and decimals itself, and NaN as null."""

_SCALARS: Mapping[str, Convert] = {
    **FINITE,
    "date": _optional(_text),
    "timestamp": _optional(_text),
    "timestamp_ntz": _optional(_text),
    "binary": _optional(_base64),
    "decimal": _optional(_number),
}
