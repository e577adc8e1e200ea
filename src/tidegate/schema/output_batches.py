"""Converts what a function over batches emits to Arrow, as strictly as rows are: columns of exactly the declared schema.

A result is a dict of columns, an Arrow batch or table, or a pandas or polars frame. Numbers are widened if no value is lost.
Integers fit float columns, but floats never fit integer columns. A `timestamp` column rejects values without a time zone,
except numpy's, which are taken as UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.core.errors import SchemaError
from tidegate.schema.output_columns import from_python, refuse_overflow
from tidegate.schema.schema import DataType, Field, Schema

_NESTED = ("struct", "array", "map")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_WHAT = "a dict of columns, an Arrow batch or table, or a pandas or polars frame"


def is_batch(result: Any) -> bool:
    """Whether this is one result, and not several."""
    return isinstance(result, Mapping | pa.RecordBatch | pa.Table) or hasattr(result, "__arrow_c_stream__")


def output_batch(result: Any, schema: Schema) -> pa.RecordBatch:
    """Build a batch of the schema. Raises SchemaError naming the column and what is wrong with it."""
    columns = _columns(result)
    if columns.keys() != set(schema.names):
        raise SchemaError(
            f"The function emitted the columns {', '.join(map(str, columns)) or '(none)'}, but the schema has "
            f"{', '.join(schema.names)}. Emit exactly these, in any order."
        )
    arrays = [_column(columns[field.name], field) for field in schema.fields]
    lengths = {field.name: len(array) for field, array in zip(schema.fields, arrays)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise SchemaError(f"The columns of a batch must have the same length; these have: {shown}.")
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())


def _columns(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    if isinstance(result, pa.RecordBatch | pa.Table):
        found = result
    elif hasattr(result, "__arrow_c_stream__"):
        found = pa.table(_unshared(result))
    else:
        raise SchemaError(f"The function emitted {result!r:.200}, a {type(result).__name__}. Emit {_WHAT}.")
    return dict(zip(found.schema.names, found.columns))


def _unshared(given: Any) -> Any:
    """A copy of what the function may still change: rows wait in memory after they were emitted, and Arrow shares buffers with
    numpy and pandas. Arrow and polars objects never change.
    """
    return given.copy() if isinstance(given, np.ndarray) or type(given).__module__.startswith("pandas.") else given


def _column(given: Any, field: Field) -> pa.Array:
    if isinstance(given, list | tuple):
        array = from_python(given, field.type, field.name)
    else:
        array = _fitted(_as_arrow(given, field), field)
    if not field.nullable and array.null_count:
        raise SchemaError(
            f"Column {field.name!r} is declared {field.type.ddl()} NOT NULL, but row {array.is_null().index(True).as_py()} of "
            "the batch is null. Emit a value, or remove NOT NULL from the schema."
        )
    return array


def _as_arrow(given: Any, field: Field) -> pa.Array:
    try:
        if isinstance(given, np.ndarray):
            if given.dtype.kind == "O":
                # Of any Python objects: as strict with each as with the values of rows.
                return from_python(given.tolist(), field.type, field.name)
            array = pa.array(_unshared(given))
            # numpy's datetimes have no time zone, and are UTC by convention. Others without one are refused.
            if field.type.kind == "timestamp" and pa.types.is_timestamp(array.type):
                array = array.cast(pa.timestamp(array.type.unit, "UTC"))
            return array
        if isinstance(given, pa.Array):
            return given
        if not isinstance(given, pa.ChunkedArray):
            given = _unshared(given)
            given = pa.chunked_array(given) if hasattr(given, "__arrow_c_stream__") else pa.array(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"Column {field.name!r} is {given!r:.100}, which cannot be converted to a column: {error}."
        ) from None
    return given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given


def _fitted(array: pa.Array, field: Field) -> pa.Array:
    wanted = field.type.to_arrow()
    if array.type == wanted:
        return array
    if field.type.kind in _NESTED:
        return from_python(array.to_pylist(), field.type, field.name)
    if not pa.types.is_null(array.type) and not _may_become(array.type, field.type):
        raise SchemaError(
            f"Column {field.name!r} is declared {field.type.ddl()}, but the function emitted {array.type}. Convert it in the "
            "function, or change the schema."
        )
    try:
        found = array.cast(wanted)
        if field.type.kind == "float":
            # Arrow's cast turns a double that is too large into infinity without an error.
            refuse_overflow(array, found)
    except (pa.ArrowException, ValueError) as error:
        raise SchemaError(
            f"Column {field.name!r} is declared {field.type.ddl()}, and a value of {array.type} does not fit: {error}"
        ) from None
    return found


def _may_become(found: pa.DataType, wanted: DataType) -> bool:
    """Whether a cast that Arrow checks for loss means what the user means."""
    types, kind = pa.types, wanted.kind
    if types.is_dictionary(found):
        return _may_become(found.value_type, wanted)
    if kind in _INTEGERS:
        return bool(types.is_integer(found))
    if kind in ("float", "double"):
        return bool(types.is_integer(found) or types.is_floating(found))
    if kind == "decimal":
        return bool(types.is_integer(found) or types.is_decimal(found))
    if kind == "string":
        return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))
    if kind == "binary":
        return bool(types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found))
    if kind == "date":
        return bool(types.is_date(found))
    if kind in ("timestamp", "timestamp_ntz"):
        return bool(types.is_timestamp(found)) and (found.tz is not None) == (kind == "timestamp")
    return False
