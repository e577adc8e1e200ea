"""The types of state, with PyFlink's names: `Types.INT()`, `Types.ROW([...])`. Each says which Python type is stored.

Most values are stored as they are. A `Row` is stored as a tuple, and a value of `PICKLED_BYTE_ARRAY` as bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from tidegate.core.errors import GraphError
from tidegate.flink.row import Row

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class TypeInformation:
    """How values of one type are stored. Created by `Types`."""

    stored: Any
    """The Python type of the state."""
    to_stored: Convert | None = None
    """Converts a value to what is stored; None: it is stored as it is."""
    from_stored: Convert | None = None


class Types:
    """PyFlink's types."""

    @staticmethod
    def STRING() -> TypeInformation:
        return TypeInformation(str)

    @staticmethod
    def CHAR() -> TypeInformation:
        return TypeInformation(str)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        return TypeInformation(bool)

    @staticmethod
    def BYTE() -> TypeInformation:
        return TypeInformation(int)

    @staticmethod
    def SHORT() -> TypeInformation:
        return TypeInformation(int)

    @staticmethod
    def INT() -> TypeInformation:
        return TypeInformation(int)

    @staticmethod
    def LONG() -> TypeInformation:
        return TypeInformation(int)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        return TypeInformation(int)

    @staticmethod
    def FLOAT() -> TypeInformation:
        return TypeInformation(float)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        return TypeInformation(float)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        return TypeInformation(Decimal)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        return TypeInformation(date)

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        return TypeInformation(time)

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        return TypeInformation(datetime)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TypeInformation:
        """A tuple with fields of the types `field_types`."""
        return _fields(_checked("TUPLE", field_types), tuple, tuple)

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> TypeInformation:
        """A row with fields of the types `field_types`, in this order."""
        return _row(_checked("ROW", field_types), None)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> TypeInformation:
        """A row with fields of the types `field_types`, under the names `field_names`."""
        types = _checked("ROW_NAMED", field_types)
        if len(field_names) != len(types):
            raise GraphError(f"Types.ROW_NAMED has {len(field_names)} names and {len(types)} types.")
        return _row(types, tuple(field_names))

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """A list of elements of the type `element_type_info`."""
        (element,) = _checked("LIST", [element_type_info])
        to, back = element.to_stored, element.from_stored
        return TypeInformation(
            list[element.stored],  # type: ignore[name-defined]
            None if to is None else lambda values: [to(value) for value in values],
            None if back is None else lambda values: [back(value) for value in values],
        )

    PRIMITIVE_ARRAY = BASIC_ARRAY = OBJECT_ARRAY = LIST

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """A dict with keys of the type `key_type_info` and values of the type `value_type_info`."""
        key, value = _checked("MAP", [key_type_info, value_type_info])
        stored = dict[key.stored, value.stored]  # type: ignore[name-defined]
        if key.to_stored is None and value.to_stored is None:
            return TypeInformation(stored)
        k, v, k_back, v_back = (
            convert or _same for convert in (key.to_stored, value.to_stored, key.from_stored, value.from_stored)
        )
        return TypeInformation(
            stored,
            lambda entries: {k(name): v(each) for name, each in entries.items()},
            lambda entries: {k_back(name): v_back(each) for name, each in entries.items()},
        )

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        return TypeInformation(bytes, pickle.dumps, pickle.loads)


def _checked(kind: str, given: Sequence[TypeInformation]) -> Sequence[TypeInformation]:
    for each in given:
        check_type(f"Types.{kind}", each)
    return given


def check_type(what: str, given: object) -> None:
    """Raise GraphError unless it is a type of `Types`."""
    if not isinstance(given, TypeInformation):
        raise GraphError(f"{what} takes types such as Types.INT(); got {given!r:.200}.")


def _row(types: Sequence[TypeInformation], names: tuple[str, ...] | None) -> TypeInformation:
    return _fields(types, _in_order(names), lambda values: Row.of(values, names))


def _in_order(names: tuple[str, ...] | None) -> Convert:
    """The values of a row, a dict or a sequence, in the order of the declared names."""

    def values(row: Any) -> tuple[Any, ...]:
        fields = row.as_output() if isinstance(row, Row) else row
        if not isinstance(fields, dict):
            return tuple(fields)
        if names is None:
            return tuple(fields.values())
        return tuple(fields[name] for name in names)

    return values


def _fields(types: Sequence[TypeInformation], take: Convert, build: Convert) -> TypeInformation:
    """A fixed number of fields, each of which may be None, as in Flink."""
    stored: Any = tuple.__class_getitem__(tuple(each.stored | None for each in types))
    to = [each.to_stored or _same for each in types]
    back = [each.from_stored or _same for each in types]
    # Nothing to convert: the state then stores the user's own tuples, without a call for each value.
    if build is tuple and all(each.to_stored is None for each in types):
        return TypeInformation(stored)
    return TypeInformation(
        stored,
        lambda value: tuple(None if v is None else convert(v) for convert, v in zip(to, take(value), strict=True)),
        lambda value: build([None if v is None else convert(v) for convert, v in zip(back, value, strict=True)]),
    )


def _same(value: Any) -> Any:
    return value
