"""Plain JSON: the schema is the user's, and no registry is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tidegate.connectors.kafka.formats.column_match import check_fits
from tidegate.connectors.kafka.formats.json_types import FINITE, as_json, json_schema
from tidegate.connectors.kafka.formats.record_format import Decode, Encode, RecordFormat
from tidegate.core.errors import GraphError
from tidegate.schema.datatype import DataType
from tidegate.schema.key_values import INT_BITS
from tidegate.schema.row_classes import schema_of_rows
from tidegate.schema.schema import Schema


@dataclass(frozen=True)
class JsonFormat(RecordFormat):
    """JSON objects: `JsonFormat("customer string, amount double")`, or `JsonFormat(Order)` with a class of rows.

    `schema` is what a source reads: Spark DDL, or a dataclass, NamedTuple or msgspec.Struct. A sink writes whatever columns it
    gets; a schema makes it refuse other columns. Fields of a record that the schema does not name are ignored. A field that is
    missing is null, or an error of the record where the schema says NOT NULL.
    """

    kind: ClassVar[str] = "json"

    schema: str | type | None = None

    def __post_init__(self) -> None:
        if self.schema is None:
            return
        # Tasks get the format as text, and have no need of the user's class.
        schema = Schema.parse(self.schema) if isinstance(self.schema, str) else schema_of_rows(self.schema)
        object.__setattr__(self, "schema", schema.ddl())

    @property
    def reads_any_topic(self) -> bool:
        return True

    def document(self) -> dict[str, Any]:
        return {"schema": self.schema}

    # -- reading ---------------------------------------------------------------------------------------------------------

    def pinned(self, subject: str) -> Self:
        if self.schema is None:
            raise GraphError(
                "A source reads JSON with a schema, and JsonFormat() has none. Name the fields: "
                "JsonFormat('customer string, amount double'), or JsonFormat(Order) with a dataclass Order."
            )
        return self

    def data_type(self) -> DataType:
        # A record that cannot be decoded is null as a whole, so no column promises to be NOT NULL.
        return self._declared.without_nullability()

    @property
    def _declared(self) -> DataType:
        assert isinstance(self.schema, str)
        return DataType("struct", fields=Schema.parse(self.schema).fields)

    def decoder(self, subject: str) -> Decode:
        import msgspec

        return msgspec.json.Decoder(_python_type(self._declared) | None).decode

    # -- writing ---------------------------------------------------------------------------------------------------------

    def check(self, column: DataType) -> None:
        json_schema(column)  # raises where JSON has no form for the type
        if self.schema is not None:
            check_fits(column, self.data_type(), "JSON")

    def register(self, column: DataType, subject: str) -> None:
        """There is no registry."""

    def encoder(self, column: DataType, subject: str) -> Encode:
        import msgspec

        # As numbers, decimals keep all their digits.
        encode = msgspec.json.Encoder(decimal_format="number").encode
        prepare = as_json(column, FINITE)
        if prepare is None:
            return encode
        made: Callable[[Any], Any] = prepare
        return lambda value: encode(made(value))


def _python_type(type: DataType) -> Any:
    """Return the type as which msgspec reads a column: it checks and converts while it parses."""
    from datetime import date, datetime
    from decimal import Decimal
    from typing import Annotated, NotRequired, TypedDict

    from msgspec import Meta

    match type.kind:
        case "struct":
            fields = {}
            for field in type.fields or ():
                of_field = _python_type(field.type)
                # Missing and null are the same for a column.
                fields[field.name] = NotRequired[of_field | None] if field.nullable else of_field
            return TypedDict("record", fields)  # type: ignore[operator]
        case "array" if type.element is not None:
            return list[_python_type(type.element) | None]  # type: ignore[misc]
        case "map" if type.key is not None and type.value is not None:
            return dict[_python_type(type.key), _python_type(type.value) | None]  # type: ignore[misc]
        case "tinyint" | "smallint" | "int" | "bigint":
            most = 2 ** (INT_BITS[type.kind] - 1)
            return Annotated[int, Meta(ge=-most, le=most - 1)]
        case "timestamp":
            # Without its zone, a time is no instant.
            return Annotated[datetime, Meta(tz=True)]
        case "timestamp_ntz":
            return Annotated[datetime, Meta(tz=False)]
    scalars = {"boolean": bool, "float": float, "double": float, "string": str, "binary": bytes}
    return {**scalars, "date": date, "decimal": Decimal}[type.kind]
