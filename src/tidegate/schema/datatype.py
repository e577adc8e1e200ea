"""Column types: the Spark types that tidegate supports, as frozen data."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tidegate.core.errors import SchemaError

EXAMPLE = "user string, total double, tags array<string>, m map<string,int>, s struct<a:int,b:decimal(10,2)>"
"""A schema with every kind of type in it, shown if a schema cannot be parsed."""

_PYTHON_TYPES: dict[str, type] = {
    "boolean": bool,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
    "decimal": decimal.Decimal,
    "array": list,
    "map": dict,
    "struct": tuple,
}
KINDS = frozenset(_PYTHON_TYPES)
KEY_KINDS = KINDS - {"array", "map", "struct"}
"""Kinds allowed for key columns: those with one normalized byte string for equal values."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class DataType:
    """One type. The attributes other than `kind` belong to decimals, arrays, maps and structs and are None otherwise.

    Elements of arrays and values of maps may always be null.
    """

    kind: str
    _: KW_ONLY
    precision: int | None = None
    scale: int | None = None
    element: DataType | None = None
    key: DataType | None = None
    value: DataType | None = None
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SchemaError(f"There is no column type {self.kind!r}. The types are {', '.join(sorted(KINDS))}.")
        # The parts of a type are optional attributes of one class, so it is checked here which of them belong together.
        for kind, present in (
            ("decimal", self.precision is not None and self.scale is not None),
            ("array", self.element is not None),
            ("map", self.key is not None and self.value is not None),
            ("struct", self.fields is not None),
        ):
            if present != (self.kind == kind):
                raise SchemaError(f"A column type {self.kind!r} was made with the parts of another type.")
        if self.fields is not None:
            refuse_duplicates(self.fields, "struct")
        if self.precision is not None and self.scale is not None and not 0 <= self.scale <= self.precision <= 38:
            raise SchemaError(
                f"decimal({self.precision},{self.scale}) is out of range: precision is at most 38 and scale at most "
                "the precision. Use, for example, decimal(38,18)."
            )

    def ddl(self) -> str:
        """The type in Spark's DDL. Parsing it yields an equal type."""
        match self.kind:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "array":
                return f"array<{_the(self.element).ddl()}>"
            case "map":
                return f"map<{_the(self.key).ddl()},{_the(self.value).ddl()}>"
            case "struct":
                return f"struct<{','.join(field.ddl(':') for field in self.fields or ())}>"
        return self.kind

    __str__ = ddl

    def python_type(self) -> type:
        """The Python class of this type's values in a function; a struct is a tuple, both timestamps are datetimes."""
        return _PYTHON_TYPES[self.kind]

    def to_arrow(self) -> Any:
        """The `pyarrow.DataType` in which Spark exchanges this type with Python."""
        import pyarrow as pa  # noqa: PLC0415 start-up time

        match self.kind:
            case "decimal":
                return pa.decimal128(self.precision, self.scale)
            case "array":
                return pa.list_(pa.field("element", _the(self.element).to_arrow()))
            case "map":
                return pa.map_(_the(self.key).to_arrow(), _the(self.value).to_arrow())
            case "struct":
                return pa.struct([field.to_arrow() for field in self.fields or ()])
            case "timestamp":
                # Spark's timestamps are instants: the zone of the session only decides how they are shown.
                return pa.timestamp("us", tz="UTC")
            case "timestamp_ntz":
                return pa.timestamp("us")
        return {
            "boolean": pa.bool_,
            "tinyint": pa.int8,
            "smallint": pa.int16,
            "int": pa.int32,
            "bigint": pa.int64,
            "float": pa.float32,
            "double": pa.float64,
            "string": pa.string,
            "binary": pa.binary,
            "date": pa.date32,
        }[self.kind]()

    def without_nullability(self) -> DataType:
        """The same type with every struct field nullable, for comparing only the shape of rows."""
        match self.kind:
            case "array":
                return DataType("array", element=_the(self.element).without_nullability())
            case "map":
                return DataType(
                    "map", key=_the(self.key).without_nullability(), value=_the(self.value).without_nullability()
                )
            case "struct":
                return DataType(
                    "struct", fields=tuple(Field(f.name, f.type.without_nullability()) for f in self.fields or ())
                )
        return self


@dataclass(frozen=True, slots=True)
class Field:
    """A named column, or a named part of a struct."""

    name: str
    type: DataType
    nullable: bool = True

    def __post_init__(self) -> None:
        if not self.name:
            raise SchemaError(f"A column has an empty name. Give every column a name, as in {EXAMPLE!r}.")

    def ddl(self, separator: str = " ") -> str:
        name = self.name if _PLAIN_NAME.fullmatch(self.name) else "`" + self.name.replace("`", "``") + "`"
        return f"{name}{separator}{self.type.ddl()}{'' if self.nullable else ' NOT NULL'}"

    def to_arrow(self) -> Any:
        import pyarrow as pa  # noqa: PLC0415 start-up time

        return pa.field(self.name, self.type.to_arrow(), self.nullable)


def refuse_duplicates(fields: Iterable[Field], where: str) -> None:
    """Raise if two names are equal to Spark, which ignores case by default."""
    seen: dict[str, str] = {}
    for field in fields:
        first = seen.get(field.name.lower())
        if first is not None:
            both = f"{first!r} twice" if first == field.name else f"both {first!r} and {field.name!r}"
            raise SchemaError(f"The {where} has {both}; Spark ignores the case of column names. Rename one of them.")
        seen[field.name.lower()] = field.name


def _the(part: DataType | None) -> DataType:
    assert part is not None  # guaranteed by __post_init__ for this kind
    return part
