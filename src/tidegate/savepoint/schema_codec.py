"""State values without the user's classes: converts MessagePack to plain Python and back, using only the stored schema.

A schema is the tree that `schema_of` wrote into the snapshot (see `core.type_schema`). A struct is read as a dict by
field name, an enum as its value; everything else as its original type. No user code is imported, and nothing in a
schema names code: reading an untrusted snapshot runs none of its code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NotRequired, TypedDict
from uuid import UUID

import msgspec

from tidegate.checkpoint.metadata import UntrustedSnapshot
from tidegate.core.errors import StateError, WrongValue

Schema = Mapping[str, Any]
_Convert = Callable[[Any], Any]


class UnknownSchema(StateError):
    """The stored description of a type has a form that this version of tidegate does not know."""

    code = "UNKNOWN_SCHEMA"

    def __init__(self, schema: object) -> None:
        super().__init__(
            f"The snapshot describes a type as {json.dumps(schema, default=str)[:300]}, which this tidegate does not "
            "know. Read it with the tidegate that wrote it, or a later one."
        )


@dataclass(frozen=True, slots=True)
class PlainCodec:
    """Reads and writes the values of one stored type.

    `decode` raises StateError for bytes of another type. `encode` returns the bytes that the user's type would have; it
    raises WrongValue for values that do not fit, so nothing unreadable is ever written.
    """

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    decode_many: Callable[[Sequence[bytes]], list[Any]]
    encode_many: Callable[[Sequence[Any]], list[bytes]]
    """The same for many values at once, which is several times faster."""


SCALARS: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "datetime": datetime,
    "date": date,
    "time": time,
    "timedelta": timedelta,
    "decimal": Decimal,
    "uuid": UUID,
}


def schema_codec(schema: Schema) -> PlainCodec:
    """Return the codec of a stored schema. Raises UnknownSchema."""
    # Schemas are dictionaries, which cannot be keys of a cache. Building a decoder takes far longer than this text.
    return _codec(json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=512)
def _codec(text: str) -> PlainCodec:
    schema = json.loads(text)
    try:
        wire_type = _wire_type(schema)
        wire = msgspec.msgpack.Decoder(wire_type).decode
        wire_list = msgspec.msgpack.Decoder(list[wire_type]).decode  # type: ignore[valid-type]
    except RecursionError:
        raise UnknownSchema("a type nested too deeply") from None
    after, before = _after_decoding(schema), _before_encoding(schema)
    pack = msgspec.msgpack.Encoder().encode

    def decode(data: bytes) -> Any:
        try:
            value = wire(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StateError(
                f"A stored value does not have the type that the snapshot says, {show_schema(schema)}: {error}. "
                "The snapshot was changed or damaged; use another one."
            ) from error
        return value if after is None else after(value)

    def encode(value: Any) -> bytes:
        try:
            data = pack(value if before is None else before(value))
            # Read back: a value that a strict decoder refuses would be unreadable in the job.
            wire(data)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, msgspec.MsgspecError) as error:
            raise WrongValue(f"Cannot store {value!r:.200} as {show_schema(schema)}: {error}.") from error
        return data

    def decode_many(data: Sequence[bytes]) -> list[Any]:
        try:
            values = wire_list(_array_of(data))
        except (msgspec.MsgspecError, ValueError):
            return [decode(one) for one in data]  # raises for the invalid one
        return values if after is None else [after(value) for value in values]

    def encode_many(values: Sequence[Any]) -> list[bytes]:
        try:
            packed = [pack(value if before is None else before(value)) for value in values]
            wire_list(_array_of(packed))
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, msgspec.MsgspecError):
            return [encode(value) for value in values]  # raises for the invalid one
        return packed

    return PlainCodec(decode, encode, decode_many, encode_many)


def _array_of(values: Sequence[bytes]) -> bytes:
    """Return the MessagePack array of values already encoded as MessagePack."""
    # 0xdd: an array with its length in 32 bits. Many values are then decoded in one call.
    return b"\xdd" + len(values).to_bytes(4, "big") + b"".join(values)


def python_type(schema: Schema) -> Any:
    """Return the Python type of a map key, as `KeyCodec.of_python` accepts it. For an enum it is that of its values."""
    match schema:
        case {"type": "optional", "of": inner}:
            return python_type(inner) | None
        case {"type": "tuple", "elements": elements}:
            return tuple[tuple(python_type(element) for element in elements)] if elements else tuple[()]  # type: ignore[misc]
        case {"type": "tuple", "variadic": element}:
            return tuple[python_type(element), ...]  # type: ignore[misc]
        case {"type": "enum", "members": members}:
            return _enum_type(members)
        case {"type": kind} if kind in SCALARS:
            return SCALARS[kind]
    raise UnknownSchema(schema)


def show_schema(schema: Schema | None) -> str:
    """Format a stored type as a user would write it: `float`, `dict[str, int]`, `Rule(name: str, limit: int = 3)`.

    Raises UntrustedSnapshot if it is not a type.
    """
    try:
        return _show(schema)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise UntrustedSnapshot("The description of a type is not a type") from None


def _show(schema: Schema | None) -> str:  # noqa: C901 one case for each kind of type
    match schema:
        case None:
            return "-"
        case {"columns": columns}:
            return ", ".join(columns)
        case {"type": "optional", "of": inner}:
            return f"{show_schema(inner)} | None"
        case {"type": "list" | "set" | "frozenset" as kind, "element": element}:
            return f"{kind}[{show_schema(element)}]"
        case {"type": "dict", "key": key, "value": value}:
            return f"dict[{show_schema(key)}, {show_schema(value)}]"
        case {"type": "tuple", "elements": elements}:
            return f"tuple[{', '.join(map(show_schema, elements)) or '()'}]"
        case {"type": "tuple", "variadic": element}:
            return f"tuple[{show_schema(element)}, ...]"
        case {"type": "enum", "name": name, "members": members}:
            return f"{name}({' | '.join(str(member['name']) for member in members)})"
        case {"type": "struct", "name": name, "fields": fields}:
            return f"{name}({', '.join(map(_show_field, fields))})"
        case {"type": "decimal"}:
            return "Decimal"
        case {"type": "uuid"}:
            return "UUID"
        case {"type": kind}:
            return str(kind)
    return json.dumps(schema)


def _show_field(field: Schema) -> str:
    default = f" = {json.dumps(field['default'])}" if "default" in field else ""
    return f"{field['name']}: {show_schema(field['type'])}{default}"


def _enum_type(members: list[Schema]) -> Any:
    return str if all(isinstance(member["value"], str) for member in members) else int


def _wire_type(schema: Schema) -> Any:
    """Return a type that reads the bytes strictly. Structs by name are TypedDicts, those by position get a generated class."""
    match schema:
        case {"type": "optional", "of": inner}:
            return _wire_type(inner) | None
        case {"type": "list", "element": element}:
            return list[_wire_type(element)]  # type: ignore[misc]
        case {"type": "set", "element": element}:
            return set[_wire_type(element)]  # type: ignore[misc]
        case {"type": "frozenset", "element": element}:
            return frozenset[_wire_type(element)]  # type: ignore[misc]
        case {"type": "dict", "key": key, "value": value}:
            return dict[_wire_type(key), _wire_type(value)]  # type: ignore[misc]
        case {"type": "tuple", "elements": elements}:
            return tuple[tuple(map(_wire_type, elements))] if elements else tuple[()]  # type: ignore[misc]
        case {"type": "tuple", "variadic": element}:
            return tuple[_wire_type(element), ...]  # type: ignore[misc]
        case {"type": "enum", "members": members}:
            return _enum_type(members)
        case {"type": "struct", "layout": "map", "fields": fields}:
            # `NotRequired`, because a writer leaves out fields that have their default.
            named = {
                f["name"]: NotRequired[_wire_type(f["type"])] if "default" in f else _wire_type(f["type"])
                for f in fields
            }
            return TypedDict("Stored", named)  # type: ignore[operator]
        case {"type": "struct", "layout": "array", "fields": fields}:
            return msgspec.defstruct(
                "Stored",
                [
                    (
                        f"f{n}",
                        _wire_type(f["type"]),
                        *([msgspec.field(default_factory=_default(f))] if "default" in f else []),
                    )
                    for n, f in enumerate(fields)
                ],
                array_like=True,
            )
        case {"type": kind} if kind in SCALARS:
            return SCALARS[kind]
    raise UnknownSchema(schema)


def _default(field: Schema) -> Callable[[], Any]:
    """Return a function that creates the stored default of a field, new each time. Defaults are stored as JSON, in
    JSON's representation of types."""
    data, tp = msgspec.json.encode(field["default"]), _wire_type(field["type"])
    return lambda: msgspec.json.decode(data, type=tp)


def _after_decoding(schema: Schema) -> _Convert | None:
    """Return the conversion of a wire value to plain Python, or None if they are the same."""
    match schema:
        case {"type": "optional", "of": inner}:
            return _unless_none(_after_decoding(inner))
        case {"type": "struct", "fields": fields, "layout": layout}:
            return _struct_after(fields, layout)
        case _:
            return _inside(schema, _after_decoding)


def _before_encoding(schema: Schema) -> _Convert | None:
    """Inverse of `_after_decoding`."""
    match schema:
        case {"type": "optional", "of": inner}:
            return _unless_none(_before_encoding(inner))
        case {"type": "struct", "fields": fields, "layout": layout}:
            return _struct_before(fields, layout)
        case _:
            return _inside(schema, _before_encoding)


def _unless_none(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _inside(schema: Schema, of: Callable[[Schema], _Convert | None]) -> _Convert | None:
    """Convert the contents of a collection. Keys and set elements hold no structs, so they stay unchanged."""
    match schema:
        case {"type": "list", "element": element}:
            one = of(element)
            return None if one is None else lambda value: [one(item) for item in value]
        case {"type": "tuple", "variadic": element}:
            part = of(element)
            return None if part is None else lambda value: tuple(part(item) for item in value)
        case {"type": "dict", "value": element}:
            held = of(element)
            return None if held is None else lambda value: {key: held(item) for key, item in value.items()}
        case {"type": "tuple", "elements": elements}:
            each = [of(element) for element in elements]
            if any(each):
                return lambda value: tuple(
                    item if one is None else one(item) for one, item in zip(each, value, strict=True)
                )
    return None


def _struct_after(fields: list[Schema], layout: str) -> _Convert | None:
    inner = [(field["name"], _after_decoding(field["type"])) for field in fields]
    if layout == "array":

        def from_array(value: Any) -> dict[str, Any]:
            parts = msgspec.structs.astuple(value)
            return {name: part if one is None else one(part) for (name, one), part in zip(inner, parts)}

        return from_array
    missing: dict[str, Callable[[], Any]] = {field["name"]: _default(field) for field in fields if "default" in field}
    changing = [(name, one) for name, one in inner if one is not None]
    if not missing and not changing:
        return None

    def from_map(value: dict[str, Any]) -> dict[str, Any]:
        for name, make in missing.items():
            if name not in value:
                value[name] = make()
        for name, one in changing:
            value[name] = one(value[name])
        return value

    return from_map


def _struct_before(fields: list[Schema], layout: str) -> _Convert:
    inner = [(field["name"], _before_encoding(field["type"])) for field in fields]
    names = {name for name, _ in inner}

    def known(value: Mapping[str, Any]) -> None:
        if not isinstance(value, Mapping):
            raise TypeError(f"a dict of the fields {sorted(names)} is wanted")
        if strange := set(value) - names:
            raise ValueError(f"there is no field {sorted(strange)[0]!r}")

    def to_array(value: Mapping[str, Any]) -> list[Any]:
        known(value)
        return [value[name] if one is None else one(value[name]) for name, one in inner]

    def to_map(value: Mapping[str, Any]) -> dict[str, Any]:
        known(value)
        return {name: value[name] if one is None else one(value[name]) for name, one in inner if name in value}

    return to_array if layout == "array" else to_map
