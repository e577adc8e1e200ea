"""Converts Arrow columns to Python values and rows, and back, between a Spark task and the user's function.

Both directions are per-record code. Nanoseconds per value, batches of 10,000 rows, garbage collection off, two busy
cores:

| type | to Python (`to_pylist`) | to Arrow |
|---|---|---|
| boolean, integers, floats | 15–30 (the same) | 40–60 |
| string / binary | 60 / 20 (the same) | 90 / 55 |
| date | 70 (1,700) | 60 |
| timestamp | 100–180 (4,100) | 100 |
| timestamp_ntz | 95 (1,600) | 150 |
| decimal(18,3) | 500 (1,100) | 190 |
| decimal(38,3) | 1,700 (the same) | 510 |

A named tuple of three columns takes 250–340 more (its own `_make`: 400). A batch of rows of three columns takes 480 per
row for tuples and 770 for dicts, all included.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Context, Decimal
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.errors import SchemaError
from tidegate.core.nearest import no_column
from tidegate.schema.key_values import EPOCH, EPOCH_DAY, EPOCH_NTZ, normalizer
from tidegate.schema.output_columns import batch_from_rows, from_python
from tidegate.schema.schema import DataType, Field, Schema

__all__ = ["batch_from_rows", "from_python", "normalized_keys", "rows", "rows_of", "struct_class", "to_python"]

_LOSSLESS = Context(prec=40)
"""More digits than any decimal column has, whatever context the user's code has set."""
_LONG_DIGITS = 18
"""Decimals of at most so many digits fit into 64 bits, and are read as integers."""


def to_python(column: pa.Array, type: DataType) -> list[Any]:
    """Return the values of a column as functions see them: nulls are None, timestamps aware and in UTC, structs named
    tuples, maps dicts. Raises SchemaError for any other type, and for dates and times outside Python's years 1 to
    9999."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    match type.kind:
        case "struct" | "array" | "map":
            return _nested(column, type)
        case "string" | "binary" if column.type in (pa.large_string(), pa.large_binary()):
            return column.to_pylist()  # type: ignore[no-any-return]
    if column.type != type.to_arrow():
        try:
            column = column.cast(type.to_arrow())
        except pa.ArrowException as error:
            raise SchemaError(
                f"A column of Arrow type {column.type} cannot be read as {type.ddl()}: {error}."
            ) from None
    match type.kind:
        case "date":
            return _dates(column)
        case "timestamp":
            return _moments(column, EPOCH)
        case "timestamp_ntz":
            return _moments(column, EPOCH_NTZ)
        case "decimal" if type.precision is not None and type.precision <= _LONG_DIGITS:
            return _decimals(column, type)
    return column.to_pylist()  # type: ignore[no-any-return]


def rows(columns: Sequence[Sequence[Any]], row_class: type[tuple[Any, ...]]) -> list[Any]:
    """Build rows of a named-tuple class from its columns, in order. Bypasses the class's `__new__`, which is twice as fast."""
    return list(map(partial(tuple.__new__, row_class), zip(*columns)))


def rows_of(columns: Sequence[pa.Array], schema: Schema, row_class: type[tuple[Any, ...]]) -> list[Any]:
    """Build rows from the columns of `schema`, in order."""
    return rows(
        [to_python(column, field.type) for column, field in zip(columns, schema.fields, strict=True)], row_class
    )


def normalized_keys(values: Sequence[list[Any]], types: Sequence[DataType]) -> list[Any]:
    """Return the normalized key of each row: the value of one key column, or a tuple of several. Only floats have
    several forms of one key; Arrow returns a single form of every other type."""
    columns = [
        list(map(normalizer(type), column)) if type.kind in ("float", "double") else column
        for column, type in zip(values, types)
    ]
    return columns[0] if len(columns) == 1 else list(zip(*columns))


@lru_cache(maxsize=512)
def struct_class(fields: tuple[Field, ...]) -> type[tuple[Any, ...]]:
    """Return the named-tuple class for the values of a struct. A name that Python does not allow becomes `_0`, `_1`, …
    by position."""
    row_class = namedtuple("Struct", [field.name for field in fields], rename=True)  # type: ignore[misc]
    row_class.__getattr__ = _no_column  # type: ignore[attr-defined]
    return row_class


def _no_column(row: Any, name: str) -> NoReturn:
    """Called only for attributes that a row does not have."""
    # Python and libraries look for protocols such as `__array__`: not a mistake, and often, so without a search for near names.
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(no_column(name, row._fields))


def plain_values(column: pa.Array, width: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the raw values of a fixed-width column. Values under a null are arbitrary."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), width)
    dtype = np.dtype(width)
    start = column.offset * dtype.itemsize
    return (
        np.frombuffer(data, np.uint8)[start : start + len(column) * dtype.itemsize]
        .view(dtype.base)
        .reshape((len(column), *dtype.shape))
    )


def null_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    """True where the column is null."""
    mask: npt.NDArray[np.bool_] = pc.is_null(column).to_numpy(zero_copy_only=False)
    return mask


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if column.null_count:
        for row in np.flatnonzero(null_mask(column)).tolist():
            values[row] = None
    return values


def _dates(column: pa.Array) -> list[Any]:
    # Values under nulls are arbitrary, and may be outside the years that are checked.
    days = plain_values(column, np.int32).astype(np.int64)
    days[null_mask(column)] = 0
    _check_years(days, date.min.toordinal() - EPOCH_DAY, date.max.toordinal() - EPOCH_DAY, "days")
    return _with_nulls(days.view("M8[D]").tolist(), column)


def _moments(column: pa.Array, epoch: datetime) -> list[Any]:
    us = plain_values(column, np.int64)
    if column.null_count:
        us = np.where(null_mask(column), 0, us)
    # numpy creates the timedeltas in C; adding each to the epoch is the fastest way to get an aware datetime.
    try:
        values = [epoch + since for since in us.view("m8[us]").tolist()]
    except OverflowError:
        _check_years(us, _us(datetime.min), _us(datetime.max), "microseconds")
        raise
    return _with_nulls(values, column)


def _us(moment: datetime) -> int:
    since = moment - EPOCH_NTZ
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _check_years(values: npt.NDArray[Any], first: int, last: int, unit: str) -> None:
    outside = np.flatnonzero((values < first) | (values > last))
    if outside.size:
        row = int(outside[0])
        raise SchemaError(
            f"Row {row} of a batch holds a date or time {values[row]} {unit} from 1970, outside the years 1 to 9999 "
            "that Python can show. Filter such rows out before they enter the job, or carry them as bigint."
        )


def _decimals(column: pa.Array, type: DataType) -> list[Any]:
    assert type.scale is not None
    exponent = -type.scale
    # Arrow has 128 bits for each decimal. Short ones are in the lower half.
    digits = plain_values(column, np.dtype((np.int64, 2)))[:, 0].tolist()
    return _with_nulls([Decimal(number).scaleb(exponent, _LOSSLESS) for number in digits], column)


def _nested(column: pa.Array, type: DataType) -> list[Any]:
    is_kind = {"struct": pa.types.is_struct, "array": pa.types.is_list, "map": pa.types.is_map}[type.kind]
    fits = is_kind(column.type) and (type.fields is None or column.type.num_fields == len(type.fields))
    if not fits:
        raise SchemaError(f"A column of Arrow type {column.type} cannot be read as {type.ddl()}.")
    if not len(column):
        return []
    if type.fields is not None:
        parts = [to_python(part, field.type) for part, field in zip(column.flatten(), type.fields)]
        return _with_nulls(rows(parts, struct_class(type.fields)) if parts else [()] * len(column), column)
    # All elements of the column are converted at once, and cut into values afterwards.
    bounds = column.offsets.to_numpy()
    first, last = int(bounds[0]), int(bounds[-1])
    cuts = (bounds - first).tolist()
    if type.element is not None:
        elements = to_python(column.values[first:last], type.element)
        return _with_nulls([elements[start:end] for start, end in pairwise(cuts)], column)
    assert type.key is not None
    assert type.value is not None
    pairs = list(zip(to_python(column.keys[first:last], type.key), to_python(column.items[first:last], type.value)))
    return _with_nulls([dict(pairs[start:end]) for start, end in pairwise(cuts)], column)
