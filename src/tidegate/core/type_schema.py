"""Python types of state: which types can be stored, and how snapshots describe them.

A description (`schema_of`) is a tree of plain dicts, lists and strings. It is stored with every snapshot, compared on
restore, and sufficient to read the bytes without the user's classes. Existing forms never change; new ones may be
added:

    {"type": "int"}                                   also bool, float, str, bytes, datetime, date, time, timedelta,
                                                      decimal, uuid
    {"type": "optional", "of": T}
    {"type": "list" | "set" | "frozenset", "element": T}
    {"type": "dict", "key": T, "value": T}
    {"type": "tuple", "elements": [T, …]}             a fixed number of elements
    {"type": "tuple", "variadic": T}                  tuple[T, ...]
    {"type": "enum", "name": …, "members": [{"name": …, "value": …}, …]}
    {"type": "struct", "name": …, "layout": "map" | "array", "fields": [{"name": …, "type": T, "default"?: …}, …]}
"""

from __future__ import annotations

import enum
from typing import Any

from tidegate.core.errors import UnsupportedType

TypeSchema = dict[str, Any]
"""The description of a type, as returned by `schema_of`. Serializable as JSON."""

ADVICE = (
    "Use bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, an Enum, list[T], dict[K, V], "
    "set[T], tuple[…], T | None, or a dataclass, NamedTuple or msgspec.Struct of these."
)


_SCALAR_INFO = {
    "BoolType": "bool",
    "IntType": "int",
    "FloatType": "float",
    "StrType": "str",
    "BytesType": "bytes",
    "DateTimeType": "datetime",
    "DateType": "date",
    "TimeType": "time",
    "TimeDeltaType": "timedelta",
    "DecimalType": "decimal",
    "UUIDType": "uuid",
}
"""Class names in `msgspec.inspect`. msgspec is imported on first use, to keep `import tidegate` fast."""


def show_type(tp: Any) -> str:
    """Return a type as the user wrote it: `float`, `dict[str, int]`, `Rule`, `int | None`."""
    if isinstance(tp, type) and not getattr(tp, "__args__", None):
        return tp.__name__
    return str(tp).replace("typing.", "").replace("collections.abc.", "").replace("__main__.", "")


def schema_of(tp: Any) -> TypeSchema:
    """Describe a type. Raises UnsupportedType, naming the unsupported part of the type and an alternative."""
    return _describe(_inspect(tp), show_type(tp), ())


def _inspect(tp: Any) -> Any:
    from msgspec import inspect  # noqa: PLC0415 start-up time

    if isinstance(tp, str):
        raise _refusal(tp, "", f"is a string. Write the type itself, not its name. {ADVICE}")
    try:
        return inspect.type_info(tp)
    except (TypeError, NameError) as error:
        if isinstance(tp, enum.EnumMeta):
            raise UnsupportedType(
                f"The enum {tp.__name__} cannot be stored: its values must be all str or all int."
            ) from error
        raise UnsupportedType(f"{show_type(tp)} cannot be a type of state: {error}. {ADVICE}") from error


def _describe(info: Any, path: str, inside: tuple[type, ...]) -> TypeSchema:  # noqa: C901 one case for each kind of type
    """`path` is the way from the declared type to this part, for messages; `inside` the structs around it."""
    from msgspec import inspect as i  # noqa: PLC0415 start-up time

    if type(info).__name__ in _SCALAR_INFO:
        return {"type": _SCALAR_INFO[type(info).__name__]}
    match info:
        case i.EnumType(cls=cls):
            members = [{"name": member.name, "value": member.value} for member in cls]
            return {"type": "enum", "name": cls.__name__, "members": members}
        case i.UnionType(types=types):
            return _describe_union(types, path, inside)
        case i.ListType(item_type=item):
            return {"type": "list", "element": _describe(item, f"{path} → element", inside)}
        case i.SetType(item_type=item):
            return {"type": "set", "element": _hashable(item, f"{path} → element", inside)}
        case i.FrozenSetType(item_type=item):
            return {"type": "frozenset", "element": _hashable(item, f"{path} → element", inside)}
        case i.TupleType(item_types=items):
            return {
                "type": "tuple",
                "elements": [_describe(t, f"{path} → element {n}", inside) for n, t in enumerate(items)],
            }
        case i.VarTupleType(item_type=item):
            return {"type": "tuple", "variadic": _describe(item, f"{path} → element", inside)}
        case i.DictType(key_type=key, value_type=value):
            return {
                "type": "dict",
                "key": _hashable(key, f"{path} → key", inside),
                "value": _describe(value, f"{path} → value", inside),
            }
        case i.DataclassType(cls=cls, fields=fields):
            return _describe_struct(cls, fields, "map", path, inside)
        case i.StructType(cls=cls, fields=fields, array_like=array_like):
            return _describe_struct(cls, fields, "array" if array_like else "map", path, inside)
        case i.NamedTupleType(cls=cls, fields=fields):
            return _describe_struct(cls, fields, "array", path, inside)
        # Everything below is refused. Each kind has its own advice, since the next step differs.
        case i.AnyType():
            raise _refusal(
                path, "", f"has no definite type. Name the types inside, as in list[int] or dict[str, float]. {ADVICE}"
            )
        case i.TypedDictType():
            raise _refusal(path, "", "is a TypedDict. Use a dataclass with the same fields.")
        case i.LiteralType():
            raise _refusal(path, "", "is a Literal. Use str or int, or an Enum of the allowed values.")
        case i.NoneType():
            raise _refusal(path, "", "holds nothing but None. Use bool to remember that something happened.")
        case i.ByteArrayType() | i.MemoryViewType():
            raise _refusal(path, "", "is a mutable buffer. Use bytes.")
        case i.CustomType(cls=cls):
            raise _refusal(path, cls.__name__, f"cannot be stored. {ADVICE}")
    raise _refusal(path, "", f"cannot be stored. {ADVICE}")


def _describe_union(types: tuple[Any, ...], path: str, inside: tuple[type, ...]) -> TypeSchema:
    from msgspec import inspect as i  # noqa: PLC0415 start-up time

    others = [t for t in types if not isinstance(t, i.NoneType)]
    if len(others) == 1 and len(types) == 2:
        return {"type": "optional", "of": _describe(others[0], path, inside)}
    if all(isinstance(t, i.IntType | i.FloatType) for t in others):
        raise _refusal(path, "", "is a union of int and float. Use float, or Decimal where every digit counts.")
    raise _refusal(
        path, "", "is a union. Only T | None is stored; use a dataclass with one optional field for each choice."
    )


def _describe_struct(cls: type, fields: Any, layout: str, path: str, inside: tuple[type, ...]) -> TypeSchema:
    # A description is a tree; a class that contains itself has no finite one.
    if cls in inside:
        raise _refusal(
            path, cls.__name__, "contains itself. Keep the parts in a list or a dict, and refer to them by number."
        )
    import msgspec  # noqa: PLC0415 start-up time

    described: list[dict[str, Any]] = []
    for field in fields:
        entry = {"name": field.encode_name, "type": _describe(field.type, f"{path}.{field.name}", (*inside, cls))}
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if default is not msgspec.NODEFAULT:
            # Descriptions are stored and compared as JSON, so the default must be what JSON makes of it.
            entry["default"] = msgspec.json.decode(msgspec.json.encode(default))
        described.append(entry)
    return {"type": "struct", "name": cls.__name__, "layout": layout, "fields": described}


_HASHABLE = frozenset({*_SCALAR_INFO.values(), "enum"})


def _hashable(info: Any, path: str, inside: tuple[type, ...]) -> TypeSchema:
    schema = _describe(info, path, inside)

    # A tuple is hashable if all its parts are, at any depth.
    parts = [schema]
    while parts:
        part = parts.pop()
        match part:
            case {"type": "tuple", "elements": elements}:
                parts.extend(elements)
            case {"type": "tuple", "variadic": element} | {"type": "optional", "of": element}:
                parts.append(element)
            case {"type": kind} if kind in _HASHABLE:
                continue
            case {"type": kind}:
                raise _refusal(
                    path,
                    "",
                    f"is a {kind}, which cannot be a key. Use str, int or another plain type, or a tuple of these.",
                )
    return schema


def _refusal(path: str, name: str, why: str) -> UnsupportedType:
    what = f"{path} ({name})" if name and name != path else path
    return UnsupportedType(f"Type of state: {what} {why}")
