"""Classes of rows as schemas: what a user wrote as a dataclass, NamedTuple or msgspec.Struct, as columns."""

from __future__ import annotations

from typing import Any

from tidegate.core.errors import SchemaError
from tidegate.core.type_schema import TypeSchema, schema_of, show_type
from tidegate.schema.datatype import DataType, Field
from tidegate.schema.schema import Schema

_SCALARS = {
    "bool": DataType("boolean"),
    "int": DataType("bigint"),
    "float": DataType("double"),
    "str": DataType("string"),
    "bytes": DataType("binary"),
    "datetime": DataType("timestamp"),
    "date": DataType("date"),
    "decimal": DataType("decimal", precision=38, scale=18),  # what Spark takes for Decimal in Python
}


def schema_of_rows(rows: type) -> Schema:
    """Return the columns of rows of this class. A field without a default that cannot be None is NOT NULL."""
    described = schema_of(rows)
    if described["type"] != "struct":
        raise SchemaError(
            f"{show_type(rows)} is no class of rows. Write a dataclass, NamedTuple or msgspec.Struct with a field for each "
            "column."
        )
    return Schema(_fields(described, rows.__name__))


def _fields(described: TypeSchema, at: str) -> tuple[Field, ...]:
    return tuple(_field(each, f"{at}.{each['name']}") for each in described["fields"])


def _field(described: TypeSchema, at: str) -> Field:
    inner, optional = _without_none(described["type"])
    # A field with a default may be left out, which is a null in a column.
    return Field(described["name"], _type(inner, at), nullable=optional or "default" in described)


def _type(described: TypeSchema, at: str) -> DataType:
    kind = described["type"]
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "list":
        return DataType("array", element=_inner(described["element"], f"{at}[]"))
    if kind == "dict":
        key = _inner(described["key"], f"{at}{{}}")
        return DataType("map", key=key, value=_inner(described["value"], f"{at}{{}}"))
    if kind == "struct":
        return DataType("struct", fields=_fields(described, at))
    raise SchemaError(
        f"{at} is a {kind}, and a column has no such type. Use bool, int, float, str, bytes, datetime, date, Decimal, list[T], "
        "dict[K, V], T | None, or a class of these."
    )


def _inner(described: TypeSchema, at: str) -> DataType:
    """Elements of arrays and values of maps may always be null."""
    return _type(_without_none(described)[0], at)


def _without_none(described: TypeSchema) -> tuple[Any, bool]:
    if described["type"] == "optional":
        return described["of"], True
    return described, False
