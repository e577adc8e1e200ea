"""Whether the column of a sink fits the schema that its user gave, and how its values become what serializers accept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tidegate.core.errors import GraphError
from tidegate.schema.datatype import DataType

_WIDER = {
    "tinyint": {"smallint", "int", "bigint", "float", "double"},
    "smallint": {"int", "bigint", "float", "double"},
    "int": {"bigint", "float", "double"},
    "bigint": {"float", "double"},
    "float": {"double"},
}
"""The promotions of Avro."""


def check_fits(column: DataType, schema: DataType, what: str, at: str = "value") -> None:
    """Raise unless every part of the column has a place in the schema: a serializer would drop others silently."""
    if column.kind == schema.kind == "struct":
        places = {field.name: field.type for field in schema.fields or ()}
        for field in column.fields or ():
            if field.name not in places:
                raise GraphError(
                    f"The {what} schema has no field {at}.{field.name}, so the sink would drop it. It has "
                    f"{', '.join(places)}. Remove the field before the sink, or add it to the schema."
                )
            check_fits(field.type, places[field.name], what, f"{at}.{field.name}")
    elif column.kind == schema.kind == "array":
        assert column.element is not None
        assert schema.element is not None
        check_fits(column.element, schema.element, what, f"{at}[]")
    elif column.kind == schema.kind == "map":
        assert column.value is not None
        assert schema.value is not None
        check_fits(column.value, schema.value, what, f"{at}{{}}")
    elif column.kind == schema.kind == "decimal" and not _decimal_fits(column, schema):
        raise GraphError(
            f"The column {at} is {column.ddl()}, and the {what} schema has {schema.ddl()} there, which has fewer digits before "
            "or after the point. Round and cast the column before the sink, or change the schema."
        )
    elif column.kind != schema.kind and schema.kind not in _WIDER.get(column.kind, ()):
        raise GraphError(
            f"The column {at} is {column.ddl()}, and the {what} schema has {schema.ddl()} there. Cast the column before "
            "the sink, or change the schema."
        )


def _decimal_fits(column: DataType, schema: DataType) -> bool:
    (digits, scale), (most, places) = ((type.precision or 0, type.scale or 0) for type in (column, schema))
    return scale <= places and digits - scale <= most - places


def null_check(column: DataType, nullable: Collection[str], at: str = "value") -> Callable[[Any], None] | None:
    """Return a function that raises if a value is null where the schema has no null: a serializer may write something else. Takes
    maps as dictionaries. None if every part may be null."""
    inner: Callable[[Any], None] | None = None
    match column.kind:
        case "struct":
            found = {
                field.name: null_check(field.type, nullable, f"{at}.{field.name}") for field in column.fields or ()
            }
            checks = {name: check for name, check in found.items() if check is not None}
            inner = (lambda row: _check_fields(checks, row)) if checks else None
        case "array":
            assert column.element is not None
            each = null_check(column.element, nullable, f"{at}[]")
            inner = each and (lambda values: _check_all(each, values))
        case "map":
            assert column.value is not None
            of_value = null_check(column.value, nullable, f"{at}{{}}")
            inner = of_value and (lambda found: _check_all(of_value, found.values()))
    if at in nullable:
        return inner and (lambda value: None if value is None else inner(value))

    def check(value: Any) -> None:
        if value is None:
            raise ValueError(f"{at} is null, and the schema has no null there")
        if inner is not None:
            inner(value)

    return check


def _check_fields(checks: Mapping[str, Callable[[Any], None]], row: Any) -> None:
    for name, check in checks.items():
        check(row[name])


def _check_all(check: Callable[[Any], None], values: Iterable[Any]) -> None:
    for value in values:
        check(value)


def maps_as_dicts(type: DataType) -> Callable[[Any], Any] | None:
    """Return a function that converts values as Arrow returns them, with pairs for maps, to values with dictionaries. None if
    there is nothing to convert."""
    match type.kind:
        case "map":
            assert type.value is not None
            inner = maps_as_dicts(type.value) or (lambda value: value)
            return lambda pairs: None if pairs is None else {key: inner(value) for key, value in pairs}
        case "array":
            assert type.element is not None
            each = maps_as_dicts(type.element)
            return each and (lambda values: None if values is None else [each(value) for value in values])
        case "struct":
            fixes = {field.name: fix for field in type.fields or () if (fix := maps_as_dicts(field.type)) is not None}
            if fixes:
                return lambda row: None if row is None else row | {name: fix(row[name]) for name, fix in fixes.items()}
    return None
