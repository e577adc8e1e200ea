"""What a Spark `StatefulProcessor` emits, as the next operator takes it. As in Spark, columns are found by their names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tidegate.core.errors import SchemaError
from tidegate.schema.output_columns import batch_from_rows
from tidegate.schema.schema import Field, Schema

_NESTED = ("struct", "array", "map")


class RowOutput:
    """Rows become plain tuples in the order of the schema."""

    def __init__(self, schema: Schema) -> None:
        self._names = list(schema.names)
        self._times = [place for place, field in enumerate(schema) if field.type.kind == "timestamp"]
        self._nested = any(field.type.kind in _NESTED for field in schema)
        self._places: dict[tuple[str, ...], list[int] | None] = {}

    def of(self, rows: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Return the rows, and how many there are. Raises SchemaError for anything that is not a row."""
        arranged = self._arranged
        found = [arranged(row) for row in rows]
        if self._times:
            found = [self._with_instants(row) for row in found]
        return found, len(found)

    def _arranged(self, row: Any) -> tuple[Any, ...]:
        # `Row` of PySpark, whose attribute names its columns. This module must not import pyspark, and plain tuples are allowed.
        fields = getattr(row, "__fields__", None)
        if fields is None:
            if not isinstance(row, tuple):
                raise SchemaError(
                    f"The processor emitted {row!r:.200}, a {type(row).__name__}. Emit pyspark.sql.Row objects."
                )
            return tuple(row)
        # Structs in rows are rows themselves, which become dictionaries on the way to Arrow.
        if self._nested:
            values = row.asDict(True)
            return tuple(values.get(name) for name in self._names)
        if fields == self._names:
            return tuple(row)
        places = self._places.get(tuple(fields))
        if places is None:
            places = self._places[tuple(fields)] = [fields.index(n) if n in fields else -1 for n in self._names]
        return tuple(None if place < 0 else row[place] for place in places)

    def _with_instants(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Spark takes a time without a time zone as UTC."""
        values = list(row)
        for place in self._times:
            if isinstance(values[place], datetime) and values[place].tzinfo is None:
                values[place] = values[place].replace(tzinfo=UTC)
        return tuple(values)


class FrameOutput:
    """Frames become one batch."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def of(self, frames: Sequence[Any]) -> tuple[pa.RecordBatch, int]:
        """Return the frames as one batch, and its number of rows. Raises SchemaError for anything that is not a frame, and for
        values that do not fit."""
        parts: list[dict[str, Any]] = [self._columns(frame) for frame in frames if not _is_empty(frame)]
        if not parts:
            return batch_from_rows([], self._schema), 0
        arrays = [_column([part[field.name] for part in parts], field) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema.to_arrow())
        return batch, batch.num_rows

    def _columns(self, frame: Any) -> dict[str, Any]:
        """By name; by position, if the frame has no names."""
        labels, names = list(frame.columns), self._schema.names
        if not any(isinstance(label, str) for label in labels) and len(labels) == len(names):
            return {name: frame.iloc[:, place] for place, name in enumerate(names)}
        missing = [name for name in names if name not in labels]
        if missing:
            raise SchemaError(
                f"The processor emitted a frame with the columns {', '.join(map(str, labels))}, but outputStructType also has "
                f"{', '.join(missing)}."
            )
        return {name: frame[name] for name in names}


def _is_empty(frame: Any) -> bool:
    # Looks at the object and not at its class: pandas is imported by the user's function, if at all.
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns"):
        raise SchemaError(f"The processor emitted {frame!r:.200}, a {type(frame).__name__}. Emit pandas frames.")
    return len(frame) == 0


def _column(series: Sequence[Any], field: Field) -> pa.Array:
    """Convert as Spark does: to the declared type, with a checked cast where values are of another one."""
    wanted = field.type.to_arrow()
    if field.type.kind == "timestamp":
        series = [each.dt.tz_localize("UTC") if _is_naive(each) else each for each in series]
    try:
        return pa.concat_arrays([_array(each, wanted) for each in series])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"Column {field.name!r} of a frame does not fit {field.type.ddl()}: {error}.") from None


def _is_naive(series: Any) -> bool:
    # `dt` exists only for times and durations, and only times have a `tz`.
    return hasattr(series, "dt") and getattr(series.dt, "tz", True) is None


def _array(series: Any, wanted: pa.DataType) -> pa.Array:
    try:
        found = pa.Array.from_pandas(series, type=wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        found = pa.Array.from_pandas(series).cast(wanted)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
