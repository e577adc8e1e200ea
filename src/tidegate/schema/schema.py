"""Row schemas: named, typed columns as in Spark DDL, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.errors import SchemaError, UnsupportedType
from tidegate.core.nearest import no_column
from tidegate.schema.datatype import EXAMPLE, KEY_KINDS, KINDS, DataType, Field, refuse_duplicates
from tidegate.schema.ddl import Parser

__all__ = ["EXAMPLE", "KEY_KINDS", "KINDS", "DataType", "Field", "Schema"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a stream, in order. Names are unique, ignoring case."""

    fields: tuple[Field, ...]
    names: tuple[str, ...] = field(init=False, compare=False, repr=False)
    _positions: dict[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        refuse_duplicates(self.fields, "schema")
        names = tuple(column.name for column in self.fields)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_positions", {name: position for position, name in enumerate(names)})

    @staticmethod
    def parse(ddl: str) -> Schema:
        """Parse Spark DDL: `"user string, total double NOT NULL"`. Raises SchemaError, or UnsupportedType for Spark
        types that tidegate does not support."""
        if not isinstance(ddl, str):
            raise SchemaError(f"A schema is written as text, such as {EXAMPLE!r}; got {ddl!r}.")
        fields = Parser(ddl).schema()
        if not fields:
            raise SchemaError(f"The schema {ddl!r} has no columns. A right form is: {EXAMPLE}")
        return Schema(fields)

    @staticmethod
    def from_spark_json(json: Mapping[str, Any]) -> Schema:
        """The schema of a DataFrame: `Schema.from_spark_json(df.schema.jsonValue())`."""
        return Schema(_fields_from_json(json))

    def ddl(self) -> str:
        """The schema as DDL. `Schema.parse` of it yields an equal schema."""
        return ", ".join(column.ddl() for column in self.fields)

    __str__ = ddl

    def index(self, name: str) -> int:
        try:
            return self._positions[name]
        except KeyError:
            raise SchemaError(no_column(name, self.names)) from None

    def select(self, names: Iterable[str]) -> Schema:
        """The named columns, in the order given."""
        return Schema(tuple(self.fields[self.index(name)] for name in names))

    def to_arrow(self) -> Any:
        """The `pyarrow.Schema` in which Spark exchanges such rows with Python."""
        import pyarrow as pa  # noqa: PLC0415 start-up time

        return pa.schema([column.to_arrow() for column in self.fields])

    def same_rows(self, other: Schema) -> bool:
        """Whether both describe the same rows: equal names and types in the same order, nullable or not."""
        return self.names == other.names and all(
            a.type.without_nullability() == b.type.without_nullability() for a, b in zip(self.fields, other.fields)
        )

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


def as_schema(schema: str | Schema) -> Schema:
    """Convert Spark DDL to a schema; return a schema unchanged."""
    return schema if isinstance(schema, Schema) else Schema.parse(schema)


def _fields_from_json(json: Mapping[str, Any]) -> tuple[Field, ...]:
    if json.get("type") != "struct" or "fields" not in json:
        raise SchemaError("This is not the JSON of a Spark schema; pass df.schema.jsonValue().")
    return tuple(_field_from_json(column) for column in json["fields"])


def _field_from_json(json: Mapping[str, Any]) -> Field:
    # Spark stores a collation in the metadata and reports the type as plain string.
    if "__COLLATIONS" in (json.get("metadata") or {}):
        raise UnsupportedType(
            f"Column {json['name']!r} is a collated string. tidegate compares strings by their bytes; "
            f"select cast({json['name']} as string) collate UTF8_BINARY before it enters the job."
        )
    return Field(json["name"], _type_from_json(json["type"], json["name"]), bool(json.get("nullable", True)))


def _type_from_json(json: Any, column: str) -> DataType:
    if isinstance(json, str):
        # Types that are not nested are texts in Spark's JSON, which the parser of DDL reads as well.
        try:
            return Parser(json).whole_type()
        except UnsupportedType as error:
            raise UnsupportedType(f"Column {column!r} has the type {json}. {error}") from None
        except SchemaError:
            raise UnsupportedType(
                f"Column {column!r} has the type {json!r}, which tidegate does not carry; cast it to one of "
                f"{', '.join(sorted(KINDS))}."
            ) from None
    match json.get("type"):
        case "array":
            return DataType("array", element=_type_from_json(json["elementType"], column))
        case "map":
            return DataType(
                "map", key=_type_from_json(json["keyType"], column), value=_type_from_json(json["valueType"], column)
            )
        case "struct":
            return DataType("struct", fields=_fields_from_json(json))
    raise UnsupportedType(
        f"Column {column!r} has a user-defined type, which tidegate does not carry; select its parts as a struct."
    )
