"""Copies of state values, so that a stored value changes only through the state API.

A function that mutates a list after `value()`, or after `update(list)`, mutates its own copy. Without copies, whether
such a change is kept would depend on caches, backends and restarts.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import uuid
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from typing import Any

from tidegate.core.types import TypeSchema, codec_of, schema_of

_SHALLOW: dict[str, Any] = {"list": list, "dict": dict, "set": set}
_ATOMS = frozenset(
    {
        int,
        float,
        str,
        bytes,
        bool,
        type(None),
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
        uuid.UUID,
    }
)


@cache
def copier_of(tp: Any) -> Callable[[Any], Any] | None:
    """Return the function that copies values of this type, or None if they are immutable and need no copy.

    A list, dict, set or object that holds only immutable values is copied shallowly. Everything else is serialized and
    deserialized, as in a checkpoint. The copy raises WrongValue for a value that does not fit the type.
    """
    schema = schema_of(tp)
    inner = schema["of"] if schema["type"] == "optional" else schema
    if _is_fixed(inner) or _is_fixed_class(tp, inner):
        return None

    # Everything else goes through its bytes, like a value that is read back from a checkpoint.
    codec = codec_of(tp)
    encode = codec.encode
    decode = codec.decode
    plain, shallow = _shallow(tp, inner)

    def copied(value: Any) -> Any:
        # Exactly this class: a subclass may hold mutable attributes, so it is serialized like everything else.
        if value.__class__ is plain:
            return shallow(value)
        return None if value is None else decode(encode(value))

    return copied


@cache
def is_nested(tp: Any) -> bool:
    """Return whether values of this type can hold mutable values, such as a list of lists."""
    schema = schema_of(tp)
    return (
        copier_of(tp) is not None and _shallow(tp, schema["of"] if schema["type"] == "optional" else schema)[0] is None
    )


def detached(value: Any) -> Any:
    """Return a value of any type such that later changes to `value` do not reach it. Rows of plain columns are not copied."""
    if value.__class__ in _ATOMS or (isinstance(value, tuple) and _ATOMS.issuperset(map(type, value))):
        return value
    return copy.deepcopy(value)


def _shallow(tp: Any, schema: TypeSchema) -> tuple[type | None, Callable[[Any], Any]]:
    """Return the class whose objects can be copied shallowly, since their contents are immutable, and the copy function."""
    plain = _SHALLOW.get(schema["type"])
    if plain is not None and all(_is_fixed(schema[part]) for part in ("element", "key", "value") if part in schema):
        return plain, plain.copy
    if schema["type"] == "struct" and isinstance(tp, type) and all(_is_fixed(f["type"]) for f in schema["fields"]):
        # A msgspec.Struct copies itself in C.
        if hasattr(tp, "__struct_config__"):
            return tp, copy.copy
        # Without slots, `__dict__` holds all attributes. Dataclasses with slots are serialized.
        if is_dataclass(tp) and not hasattr(tp, "__slots__"):
            return tp, _copied_attributes
    return None, copy.copy


def _copied_attributes(value: Any) -> Any:
    # Not through `__init__`, which may have side effects or required arguments that are no fields.
    duplicate = value.__class__.__new__(value.__class__)
    duplicate.__dict__.update(value.__dict__)
    return duplicate


def _is_fixed(schema: TypeSchema) -> bool:
    """Return whether a value of this type is deeply immutable. The schema of a class does not say, so it counts as mutable."""
    match schema:
        case {"type": "optional", "of": inner}:
            return _is_fixed(inner)
        case {"type": "frozenset", "element": inner} | {"type": "tuple", "variadic": inner}:
            return _is_fixed(inner)
        case {"type": "tuple", "elements": elements}:
            return all(map(_is_fixed, elements))
        case {"type": "list" | "set" | "dict" | "struct"}:
            return False
    return True


def _is_fixed_class(tp: Any, schema: TypeSchema) -> bool:
    if schema["type"] != "struct" or not isinstance(tp, type):
        return False
    frozen = (
        issubclass(tp, tuple)
        or (is_dataclass(tp) and tp.__dataclass_params__.frozen)  # type: ignore[attr-defined]
        or bool(getattr(getattr(tp, "__struct_config__", None), "frozen", False))
    )
    return frozen and all(_is_fixed(field["type"]) for field in schema["fields"])
