"""Stored types as columns: the Arrow type for each stored type, and the conversion in both directions.

| stored | column |
|---|---|
| bool, float, str, bytes, date | the same |
| int | int64 |
| datetime | struct of `utc` (an instant) and `local` (without a zone), one of them null |
| time, timedelta | time64 and duration, in microseconds |
| Decimal, UUID | string: a column of decimals would need one scale for all |
| enum | its value |
| list, set, tuple[T, ...] | list |
| tuple[A, B] | struct of `_1`, `_2` |
| dict | map; where keys may be None, a list of structs `key`, `value` |
| dataclass, NamedTuple, Struct | struct; one without fields is a boolean, since Parquet has no empty struct |

A value that a column cannot hold exactly (an int beyond signed 64 bits, a time with a zone) raises `Inexact`, and is
kept as stored bytes in a separate column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from tidegate.savepoint.schema_codec import Schema, UnknownSchema

# Where no value needs a conversion there is no function, so that pyarrow converts whole columns without a call for each
# value.
_Convert = Callable[[Any], Any]


class Inexact(ValueError):
    """The column cannot represent this value."""


@dataclass(frozen=True, slots=True)
class ArrowForm:
    """The column of one stored type. `to_arrow` and `from_arrow` are None if values need no conversion."""

    type: Any
    to_arrow: _Convert | None = None
    from_arrow: _Convert | None = None


def arrow_form(schema: Schema) -> ArrowForm:
    """Return the column form of a stored type. Raises UnknownSchema."""
    match schema:
        # Every column may hold null.
        case {"type": "optional", "of": inner}:
            return arrow_form(inner)
        case {"type": "list" | "set" | "frozenset" as kind, "element": element}:
            return _repeated(arrow_form(element), {"list": None, "set": set, "frozenset": frozenset}[kind])
        case {"type": "tuple", "variadic": element}:
            return _repeated(arrow_form(element), tuple)
        case {"type": "tuple", "elements": elements}:
            named = _struct({f"_{n}": arrow_form(element) for n, element in enumerate(elements, 1)})
            return _as_tuple(named, [f"_{n}" for n in range(1, len(elements) + 1)])
        case {"type": "dict", "key": key, "value": value}:
            return _mapping(arrow_form(key), arrow_form(value), nullable_keys=key["type"] == "optional")
        case {"type": "struct", "fields": fields}:
            return _struct({field["name"]: arrow_form(field["type"]) for field in fields})
        case {"type": "enum", "members": members}:
            texts = all(isinstance(member["value"], str) for member in members)
            return ArrowForm(pa.string() if texts else pa.int64())
        case {"type": str(kind)} if kind in _SCALARS:
            return _SCALARS[kind]
    raise UnknownSchema(schema)


def to_column(values: list[Any], form: ArrowForm, exact: Callable[[int], bytes]) -> tuple[Any, Any]:
    """Convert values to a column, and a second one with the bytes (`exact(row)`) of rows that the first cannot hold."""
    convert = form.to_arrow
    try:
        plain = values if convert is None else [None if v is None else convert(v) for v in values]
        return pa.array(plain, form.type), pa.nulls(len(values), pa.binary())
    except (Inexact, OverflowError, ValueError, pa.ArrowException):
        pass
    kept: list[Any] = []
    apart: list[bytes | None] = []
    for row, value in enumerate(values):
        try:
            shown = value if value is None or convert is None else convert(value)
            pa.array([shown], form.type)
            kept.append(shown)
            apart.append(None)
        except (Inexact, OverflowError, ValueError, pa.ArrowException):
            kept.append(None)
            apart.append(exact(row))
    return pa.array(kept, form.type), pa.array(apart, pa.binary())


def from_column(column: Any, exact: Any, form: ArrowForm, decode: Callable[[bytes], Any]) -> list[Any]:
    """Inverse of `to_column`."""
    convert = form.from_arrow
    values = column.to_pylist()
    if convert is not None:
        values = [None if value is None else convert(value) for value in values]
    if exact.null_count < len(exact):
        for row, data in enumerate(exact.to_pylist()):
            if data is not None:
                values[row] = decode(data)
    return values  # type: ignore[no-any-return]


def _repeated(element: ArrowForm, collect: _Convert | None) -> ArrowForm:
    into, out = element.to_arrow, element.from_arrow

    def to_arrow(value: Any) -> list[Any]:
        return list(value) if into is None else [None if item is None else into(item) for item in value]

    def from_arrow(value: Any) -> Any:
        items = value if out is None else [None if item is None else out(item) for item in value]
        return items if collect is None else collect(items)

    same_in, same_out = collect is None and into is None, collect is None and out is None
    return ArrowForm(pa.list_(element.type), None if same_in else to_arrow, None if same_out else from_arrow)


def _struct(fields: Mapping[str, ArrowForm]) -> ArrowForm:
    if not fields:
        return ArrowForm(pa.bool_(), lambda _: True, lambda _: {})
    into = {name: form.to_arrow for name, form in fields.items() if form.to_arrow is not None}
    out = {name: form.from_arrow for name, form in fields.items() if form.from_arrow is not None}
    type = pa.struct([pa.field(name, form.type) for name, form in fields.items()])
    return ArrowForm(type, _each_field(into) if into else None, _each_field(out) if out else None)


def _each_field(convert: Mapping[str, _Convert]) -> _Convert:
    def converted(value: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(value)
        for name, one in convert.items():
            # A field may be absent, if the struct has a default for it.
            if changed.get(name) is not None:
                changed[name] = one(changed[name])
        return changed

    return converted


def _as_tuple(named: ArrowForm, names: list[str]) -> ArrowForm:
    into, out = named.to_arrow, named.from_arrow
    if not names:
        return ArrowForm(named.type, into, lambda _: ())

    def to_arrow(value: Any) -> Any:
        fields = dict(zip(names, value, strict=True))
        return fields if into is None else into(fields)

    def from_arrow(value: Any) -> tuple[Any, ...]:
        fields = value if out is None else out(value)
        return tuple(fields[name] for name in names)

    return ArrowForm(named.type, to_arrow, from_arrow)


def _mapping(key: ArrowForm, value: ArrowForm, nullable_keys: bool) -> ArrowForm:
    def both(pairs: Any, one: _Convert | None, other: _Convert | None) -> list[tuple[Any, Any]]:
        return [
            (k if k is None or one is None else one(k), v if v is None or other is None else other(v)) for k, v in pairs
        ]

    if not nullable_keys:
        return ArrowForm(
            # Arrow's map takes no null as a key.
            pa.map_(key.type, value.type),
            lambda mapping: both(mapping.items(), key.to_arrow, value.to_arrow),
            lambda pairs: dict(both(pairs, key.from_arrow, value.from_arrow)),
        )
    return ArrowForm(
        pa.list_(pa.struct([pa.field("key", key.type), pa.field("value", value.type)])),
        lambda mapping: [{"key": k, "value": v} for k, v in both(mapping.items(), key.to_arrow, value.to_arrow)],
        lambda rows: dict(both(((r["key"], r["value"]) for r in rows), key.from_arrow, value.from_arrow)),
    )


def _from_datetime(value: datetime) -> dict[str, Any]:
    # The instant is kept. Stored values have no zone either.
    return {"utc": None, "local": value} if value.tzinfo is None else {"utc": value, "local": None}


def _to_datetime(value: Mapping[str, Any]) -> datetime:
    moment: datetime = value["local"] if value["utc"] is None else value["utc"].astimezone(UTC)
    return moment


def _without_zone(value: time) -> time:
    # Arrow has no time of day with a zone.
    if value.tzinfo is not None:
        raise Inexact("a time with a zone")
    return value


_SCALARS: dict[str, ArrowForm] = {
    "bool": ArrowForm(pa.bool_()),
    "int": ArrowForm(pa.int64()),
    "float": ArrowForm(pa.float64()),
    "str": ArrowForm(pa.string()),
    "bytes": ArrowForm(pa.binary()),
    "date": ArrowForm(pa.date32()),
    "time": ArrowForm(pa.time64("us"), _without_zone),
    "timedelta": ArrowForm(pa.duration("us")),
    "datetime": ArrowForm(
        pa.struct([pa.field("utc", pa.timestamp("us", tz="UTC")), pa.field("local", pa.timestamp("us"))]),
        _from_datetime,
        _to_datetime,
    ),
    "decimal": ArrowForm(pa.string(), str, Decimal),
    "uuid": ArrowForm(pa.string(), str, UUID),
}
