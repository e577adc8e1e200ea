"""Rows as state values: the Python type of a schema, its description in snapshots, and rows rebuilt from stored tuples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.core.type_schema import TypeSchema, schema_of
from tidegate.schema.schema import DataType, Schema


def row_type(schema: Schema) -> Any:
    """Return the tuple type for rows of the schema. Every column may be None: rows are stored as received."""
    return tuple[tuple(python_type(field.type) | None for field in schema)]  # type: ignore[misc]


def python_type(type: DataType) -> Any:
    """Return the Python type of a column's values, apart from None."""
    match type.kind:
        case "array":
            assert type.element is not None
            return list[python_type(type.element) | None]  # type: ignore[misc]
        case "map":
            assert type.key is not None
            assert type.value is not None
            return dict[python_type(type.key), python_type(type.value) | None]  # type: ignore[misc]
        case "struct":
            return row_type(Schema(type.fields or ()))
    return type.python_type()


def named_fields(schema: Schema, name: str) -> TypeSchema:
    """Describe rows of the schema for snapshots, with the names of their fields. The bytes are those of `row_type`."""
    fields = [{"name": field.name, "type": _optional(field.type, field.name)} for field in schema]
    return {"type": "struct", "name": name, "layout": "array", "fields": fields}


def _optional(type: DataType, name: str) -> TypeSchema:
    return {"type": "optional", "of": _described(type, name)}


def _described(type: DataType, name: str) -> TypeSchema:
    match type.kind:
        case "array" if type.element is not None:
            return {"type": "list", "element": _optional(type.element, name)}
        case "map" if type.key is not None and type.value is not None:
            return {"type": "dict", "key": schema_of(python_type(type.key)), "value": _optional(type.value, name)}
        case "struct":
            return named_fields(Schema(type.fields or ()), name)
    return schema_of(python_type(type))


def restorer(schema: Schema) -> Callable[[Any], Any]:
    """Makes a row, with its names, out of a stored tuple. Structs inside it get theirs too."""
    from tidegate.schema.columns import struct_class  # noqa: PLC0415 start-up time

    # Bypasses the class's own `__new__`, which is twice as slow (see `columns.rows`).
    make = partial(tuple.__new__, struct_class(schema.fields))
    parts = [_restorer(field.type) for field in schema]
    if all(part is None for part in parts):
        return make
    return lambda stored: make(value if part is None else part(value) for part, value in zip(parts, stored))


def _restorer(type: DataType) -> Callable[[Any], Any] | None:
    match type.kind:
        case "struct":
            whole = restorer(Schema(type.fields or ()))
            return lambda value: None if value is None else whole(value)
        case "array" if type.element is not None:
            inner = _restorer(type.element)
            return None if inner is None else lambda value: None if value is None else [inner(item) for item in value]
        case "map" if type.value is not None:
            each = _restorer(type.value)
            return None if each is None else lambda value: value and {key: each(item) for key, item in value.items()}
    return None
