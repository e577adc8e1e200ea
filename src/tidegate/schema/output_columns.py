"""Converts Python values and rows to Arrow strictly: a function must emit exactly what its schema declares.

No conversion may lose information or guess: no float for an int, no bytes for a string, no naive datetime for a
timestamp (treating it as UTC would be silent and usually wrong). An int is accepted for a float, double or decimal if
it fits. The set of classes is checked once per batch; only a batch with an unexpected class is checked row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import date, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.core.errors import SchemaError
from tidegate.schema.key_values import EPOCH, EPOCH_NTZ, converter
from tidegate.schema.schema import DataType, Field, Schema

_EXACT: dict[str, frozenset[type]] = {
    "boolean": frozenset({bool}),
    "tinyint": frozenset({int}),
    "smallint": frozenset({int}),
    "int": frozenset({int}),
    "bigint": frozenset({int}),
    "float": frozenset({float, int}),
    "double": frozenset({float, int}),
    "string": frozenset({str}),
    "binary": frozenset({bytes}),
    "date": frozenset({date}),
    "timestamp": frozenset({datetime}),
    "timestamp_ntz": frozenset({datetime}),
    "decimal": frozenset({Decimal, int}),
}
"""Classes that need no further check. Subclasses and numpy scalars do."""

_NULL = frozenset({type(None)})
_NO_ROW = (str, bytes, bytearray, int, float, bool, type(None))
_MISFIT = (pa.ArrowException, TypeError, ValueError, ArithmeticError)


def from_python(values: Sequence[Any], type: DataType, name: str = "value") -> pa.Array:
    """Build a column from Python values, None for null. Raises SchemaError naming the column, the first invalid value
    and its row."""
    # One pass in C over the classes of all values is cheap. Only if one is unusual, each value is looked at in Python.
    classes = set(map(_class_of, values)) - _NULL
    if not classes <= _EXACT.get(type.kind, _NULL):
        values = [_fitted(value, type, name, row) for row, value in enumerate(values)]
    try:
        return _build(values, type)
    except _MISFIT as error:
        # Arrow's error does not say which value it was. Build one by one to find it.
        for row, value in enumerate(values):
            try:
                _build([_fitted(value, type, name, row)], type)
            except _MISFIT as reason:
                raise _misfit(name, row, value, type, str(reason)) from None
        raise SchemaError(f"Column {name!r} cannot be made {type.ddl()}: {error}.") from error


def batch_from_rows(rows: Sequence[Any], schema: Schema) -> pa.RecordBatch:
    """Build a batch from rows: tuples and lists by position, dicts by name, other objects by attribute. Raises
    SchemaError if the columns of a row differ from the schema, a value does not fit its column, or a NOT NULL column
    has a null."""
    columns = _columns(rows, schema) if len(rows) else [()] * len(schema)
    arrays = [_not_null(from_python(column, field.type, field.name), field) for column, field in zip(columns, schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())


# Values


_class_of: Callable[[Any], type] = type


def _build(values: Sequence[Any], type: DataType) -> pa.Array:
    match type.kind:
        case "timestamp" | "timestamp_ntz":
            # Subtraction rejects a mix of naive and aware, and Arrow reads timedeltas four times as fast as datetimes.
            epoch = EPOCH if type.kind == "timestamp" else EPOCH_NTZ
            since = [None if value is None else value - epoch for value in values]
            return pa.array(since, pa.duration("us")).view(type.to_arrow())
        case "float":
            # In two steps, to compare: Arrow turns what is too large for a float into infinity without an error.
            wide = pa.array(values, pa.float64())
            narrow = wide.cast(pa.float32(), safe=False)
            refuse_overflow(wide, narrow)
            return narrow
    return pa.array(values, type.to_arrow())


def refuse_overflow(wide: pa.Array, narrow: pa.Array) -> None:
    """Raise ValueError if a finite number has become infinite."""
    infinite = np.isinf(narrow.to_numpy(zero_copy_only=False)) & np.isfinite(wide.to_numpy(zero_copy_only=False))
    if infinite.any():
        raise ValueError("It is too large for a float; declare the column double.")


def _fitted(value: Any, type: DataType, name: str, row: int) -> Any:
    try:
        return _fit(value, type)
    except _MISFIT as reason:
        raise _misfit(name, row, value, type, str(reason)) from None


def _fit(value: Any, type: DataType) -> Any:
    """Convert the value to a form that Arrow accepts for this type without guessing. Raises TypeError or ValueError."""
    if value is None:
        return None
    match type.kind:
        case "array" if type.element is not None:
            if not isinstance(value, list | tuple):
                raise TypeError("Use a list.")
            return [_fit(element, type.element) for element in value]
        case "map" if type.key is not None and type.value is not None:
            if not isinstance(value, Mapping):
                raise TypeError("Use a dict.")
            if any(key is None for key in value):
                raise ValueError("A map has no null keys.")
            return [(_fit(key, type.key), _fit(item, type.value)) for key, item in value.items()]
        case "struct" if type.fields is not None:
            parts = _struct_parts(value, type.fields)
            return {field.name: _fit(part, field.type) for field, part in zip(type.fields, parts)}
        case "boolean" | "string" | "binary" | "date" | "timestamp" | "timestamp_ntz":
            return converter(type)(value)
    # To Python a bool is an int. In a column of numbers it is a mistake.
    if isinstance(value, bool):
        raise TypeError("It is a bool; convert it with int() if that is meant.")
    if type.kind in ("float", "double"):
        return _fit_float(value, type.kind)
    return converter(type)(value)


def _fit_float(value: Any, kind: str) -> float:
    if isinstance(value, str | Decimal):
        raise TypeError("Convert it with float().")
    number = float(value)  # not converter(): values keep the sign of a zero
    if isinstance(value, int) and int(number) != value:
        raise ValueError("It has more digits than a floating point number can hold.")
    if kind == "float" and math.isfinite(number):
        refuse_overflow(pa.array([number]), pa.array([number]).cast(pa.float32(), safe=False))
    return number


def _struct_parts(value: Any, fields: tuple[Field, ...]) -> Sequence[Any]:
    if isinstance(value, Mapping):
        if value.keys() != {field.name for field in fields}:
            raise ValueError(f"Its keys must be {', '.join(field.name for field in fields)}.")
        parts: Sequence[Any] = [value[field.name] for field in fields]
    elif isinstance(value, tuple | list):
        if len(value) != len(fields):
            raise ValueError(f"It must have {len(fields)} parts: {', '.join(field.name for field in fields)}.")
        parts = value
    elif isinstance(value, _NO_ROW):
        raise TypeError("Use a tuple, a dict or an object with these attributes.")
    else:
        try:
            parts = [getattr(value, field.name) for field in fields]
        except AttributeError as error:
            raise TypeError(str(error)) from None
    for field, part in zip(fields, parts):
        if part is None and not field.nullable:
            raise ValueError(f"Its part {field.name} is NOT NULL.")
    return parts


def _misfit(name: str, row: int, value: Any, type: DataType, reason: str) -> SchemaError:
    text = repr(value)
    return SchemaError(
        f"Column {name!r} is declared {type.ddl()}, but row {row} of the batch has "
        f"{text if len(text) <= 200 else text[:200] + '…'} (a {_class_of(value).__name__}). {reason}"
    )


def _not_null(array: pa.Array, field: Field) -> pa.Array:
    if not field.nullable and array.null_count:
        row = array.is_null().index(True).as_py()
        raise SchemaError(
            f"Column {field.name!r} is declared {field.type.ddl()} NOT NULL, but row {row} of the batch has None. "
            "Emit a value, or take NOT NULL from the schema."
        )
    return array


# Rows


def _columns(rows: Sequence[Any], schema: Schema) -> Sequence[Sequence[Any]]:
    classes = set(map(type, rows))
    if len(classes) > 1:
        return list(zip(*[_one_row(row, number, schema) for number, row in enumerate(rows)]))
    (row_class,) = classes
    names = schema.names
    if issubclass(row_class, tuple | list):
        if set(map(len, rows)) == {len(names)}:
            return list(zip(*rows))
    elif issubclass(row_class, Mapping):
        if set(map(len, rows)) == {len(names)}:
            try:
                return [[row[name] for row in rows] for name in names]
            except KeyError:
                pass
    elif not issubclass(row_class, _NO_ROW) and len(_declared(row_class, names)) == len(names):
        try:
            return [list(map(_attribute(name), rows)) for name in names]
        except AttributeError:
            pass
    # A row is invalid: find the first one.
    return list(zip(*[_one_row(row, number, schema) for number, row in enumerate(rows)]))


def _one_row(row: Any, number: int, schema: Schema) -> Sequence[Any]:
    names = schema.names
    if isinstance(row, tuple | list):
        if len(row) == len(names):
            return row
        found = f"{len(row)} values"
    elif isinstance(row, Mapping):
        if row.keys() == set(names):
            return [row[name] for name in names]
        found = f"the keys {', '.join(map(str, row)) or '(none)'}"
    elif isinstance(row, _NO_ROW):
        found = (
            f"a {type(row).__name__} in place of a row (if the function returns one row, let it yield the row instead; a row of "
            "one column is written (value,))"
        )
    else:
        declared = _declared(type(row), names)
        if len(declared) == len(names) and all(hasattr(row, name) for name in names):
            return [getattr(row, name) for name in names]
        found = f"a {type(row).__name__} without just these attributes"
    text = repr(row)
    raise SchemaError(
        f"Row {number} of the batch has {found}, but the schema has {len(names)} columns: {', '.join(names)}. "
        f"The row is {text if len(text) <= 200 else text[:200] + '…'}."
    )


def _declared(row_class: type, names: tuple[str, ...]) -> Sequence[str]:
    """Return the columns that a class declares, or the requested names if it declares none."""
    if is_dataclass(row_class):
        return [field.name for field in dataclass_fields(row_class)]
    declared: Sequence[str] = getattr(row_class, "__struct_fields__", names)
    return declared


def _attribute(name: str) -> Callable[[Any], Any]:
    # attrgetter would treat a dot in a name as a path.
    return attrgetter(name) if "." not in name else lambda row: getattr(row, name)
