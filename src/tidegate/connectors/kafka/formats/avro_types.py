"""Avro schemas and column types, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, time
from decimal import MAX_PREC, Context, Decimal
from typing import Any

from tidegate.core.errors import SchemaError
from tidegate.schema.datatype import DataType, Field

Fix = Callable[[Any], Any]
_PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_AVRO: dict[str, Any] = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "string": "string",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


class AvroTypes:
    """One schema, read as column types. `fix` converts what the Avro library returns and Arrow does not accept. `nullable` has
    the paths that may be null."""

    def __init__(self, text: str) -> None:
        self.nullable: set[str] = set()
        self._named: dict[str, Any] = {}
        # Records that are being read, to find one that contains itself.
        self._open: list[str] = []
        try:
            schema = json.loads(text)
        except json.JSONDecodeError as error:
            raise SchemaError(f"This is not an Avro schema: {error}.") from None
        type, fix = self._read(schema, "", "value")
        self.type = type
        self.fix = fix

    def _read(self, schema: Any, namespace: str, at: str) -> tuple[DataType, Fix | None]:
        if isinstance(schema, list):
            return self._union(schema, namespace, at)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return DataType(_PLAIN[schema]), None
            return self._reference(schema, namespace, at)
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        if isinstance(kind, Mapping | list):
            return self._read(kind, namespace, at)
        match kind:
            case "record" | "error":
                return self._record(schema, namespace, at)
            case "enum":
                self._name(schema, namespace)
                return DataType("string"), None
            case "fixed":
                self._name(schema, namespace)
            case "array":
                element, fix = self._read(schema["items"], namespace, f"{at}[]")
                return DataType("array", element=element), fix and _each(fix)
            case "map":
                value, fix = self._read(schema["values"], namespace, f"{at}{{}}")
                return DataType("map", key=DataType("string"), value=value), fix and _each_value(fix)
        return self._logical(schema, namespace, at)

    def _logical(self, schema: Any, namespace: str, at: str) -> tuple[DataType, Fix | None]:
        kind, logical = schema.get("type"), schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            scale = schema.get("scale", 0)
            return DataType("decimal", precision=schema["precision"], scale=scale), _unscaled(scale)
        if (kind, logical) in _LOGICAL:
            # Arrow takes numbers as microseconds.
            return DataType(_LOGICAL[kind, logical]), _milliseconds if logical.endswith("-millis") else None
        if logical in ("time-millis", "time-micros"):
            return DataType(_PLAIN[kind]), _since_midnight(1000 if logical == "time-millis" else 1)
        if logical == "uuid":
            return DataType("string"), str
        return (DataType("binary"), None) if kind == "fixed" else self._read(kind, namespace, at)

    def _union(self, members: Sequence[Any], namespace: str, at: str) -> tuple[DataType, Fix | None]:
        real = [member for member in members if member != "null"]
        if len(real) != 1:
            raise SchemaError(
                f"{at} is a union of {len(real)} types, and a column has one. Read with a schema in which it is one type, "
                "or null and one type."
            )
        if len(real) < len(members):
            self.nullable.add(at)
        type, fix = self._read(real[0], namespace, at)
        return type, fix and _if_present(fix)

    def _record(self, schema: Any, namespace: str, at: str) -> tuple[DataType, Fix | None]:
        name, namespace = self._name(schema, namespace)
        self._open.append(name)
        fields, fixes = [], {}
        for each in schema["fields"]:
            type, fix = self._read(each["type"], namespace, f"{at}.{each['name']}")
            fields.append(Field(each["name"], type))
            if fix is not None:
                fixes[each["name"]] = fix
        self._open.pop()
        return DataType("struct", fields=tuple(fields)), _each_field(fixes) if fixes else None

    def _name(self, schema: Any, namespace: str) -> tuple[str, str]:
        name = schema["name"]
        within = name.rpartition(".")[0] or schema.get("namespace", namespace)
        full = f"{within}.{name.rpartition('.')[2]}" if within else name
        # With the namespace around it: names inside are resolved there, wherever the type is used.
        self._named[full] = (schema, namespace)
        return full, within

    def _reference(self, name: str, namespace: str, at: str) -> tuple[DataType, Fix | None]:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full in self._open:
            raise SchemaError(f"{at} contains itself ({full}), and a column cannot. Read with a schema without it.")
        if full not in self._named:
            raise SchemaError(
                f"{at} is of type {name!r}, which the schema does not define. Schemas with references to others cannot be "
                "read as columns: give one that contains all it needs, as schema=…"
            )
        schema, outer = self._named[full]
        return self._read(schema, outer, at)


def avro_schema(type: DataType, name: str) -> Any:
    """Return the Avro schema of a column, as JSON. Fields that may be null have null as their default."""
    match type.kind:
        case "struct":
            fields = [_avro_field(field, name) for field in type.fields or ()]
            return {"type": "record", "name": name, "fields": fields}
        case "array":
            assert type.element is not None
            return {"type": "array", "items": ["null", avro_schema(type.element, f"{name}_element")]}
        case "map":
            assert type.key is not None
            assert type.value is not None
            if type.key.kind != "string":
                raise SchemaError(
                    f"Keys of a map in Avro and JSON are strings; {name} has {type.key.ddl()}. Cast them."
                )
            return {"type": "map", "values": ["null", avro_schema(type.value, f"{name}_value")]}
        case "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": type.precision, "scale": type.scale}
    return _AVRO[type.kind]


def _avro_field(field: Field, name: str) -> dict[str, Any]:
    schema = avro_schema(field.type, f"{name}_{field.name}")
    nullable = {"type": ["null", schema], "default": None}
    return {"name": field.name, **(nullable if field.nullable else {"type": schema})}


def _each(fix: Fix) -> Fix:
    return lambda values: [fix(value) for value in values]


def _each_value(fix: Fix) -> Fix:
    return lambda values: {key: fix(value) for key, value in values.items()}


def _each_field(fixes: Mapping[str, Fix]) -> Fix:
    return lambda row: row | {name: fix(row[name]) for name, fix in fixes.items()}


def _if_present(fix: Fix) -> Fix:
    return lambda value: None if value is None else fix(value)


def _milliseconds(value: datetime | int) -> datetime | int:
    """A number comes from a writer without the logical type, or is a default."""
    return value * 1000 if isinstance(value, int) else value


def _unscaled(scale: int) -> Fix:
    def fix(value: Decimal | bytes | str) -> Decimal:
        if isinstance(value, Decimal):
            return value
        # Avro's JSON writes bytes of defaults as characters up to U+00FF.
        data = value.encode("iso-8859-1") if isinstance(value, str) else value
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, Context(prec=MAX_PREC))

    return fix


def _since_midnight(unit_us: int) -> Fix:
    def fix(value: time | int) -> int:
        if isinstance(value, int):
            return value
        return (((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond) // unit_us

    return fix
