"""The first stage of a built-in aggregate in the task that sends its rows: what Spark SQL does for rows of a source (see
`graph.combine`), with Arrow. Independent of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.combine import Combine, Panes, PartialAggregate, SessionParts
from tidegate.graph.event_times import millis_column
from tidegate.graph.levels import Edge
from tidegate.runtime.exchange.channel import payload_schema
from tidegate.runtime.task.operators.waiting_rows import WaitingRows
from tidegate.schema.columns import null_mask
from tidegate.schema.schema import Schema
from tidegate.state.keys import distinct

_GROUPED_BY = "_by{}"
_VALUES = "_of{}"
_ALONE = "_alone"
_MS = "_ms"
_FLOATS = ("float", "double")
_DIGITS = 38


class EdgeCombiner:
    """Collects the rows that a task sends over one edge, and combines many at a time."""

    def __init__(self, edge: Edge, watermark_ms: int) -> None:
        """`watermark_ms` is the watermark while the rows are processed."""
        assert edge.combine is not None
        assert edge.combined_from is not None
        self.edge = edge
        self.folded = 0
        """Rows that were combined into others."""
        self._combine = edge.combine
        self._schema = edge.combined_from
        self._watermark_ms = watermark_ms
        self._waiting = WaitingRows(edge.combined_from)

    def add(self, columns: Sequence[pa.Array]) -> bool:
        """Add rows. Return whether there are enough to combine them."""
        self._waiting.add(columns, np.zeros(0, np.int32))
        return self._waiting.are_enough

    def take(self) -> Iterator[Sequence[pa.Array]]:
        """Yield combined rows, as columns of the edge's schema, until none wait."""
        for batch, _ in self._waiting.take():
            found = combined_rows(self._combine, self.edge.key, self._schema, batch, self._watermark_ms)
            types = [field.type for field in payload_schema(self.edge)][1:]
            columns = [column if column.type == type else column.cast(type) for column, type in zip(found, types)]
            self.folded += batch.num_rows - len(columns[0])
            yield columns


def combined_rows(
    combine: Combine, key: Sequence[str], schema: Schema, batch: pa.RecordBatch, watermark_ms: int
) -> list[pa.Array]:
    """Combine the rows of a batch: one for each key and interval of time, and one for each row that may be late."""
    grouped = {_GROUPED_BY.format(i): batch.column(schema.index(name)) for i, name in enumerate(key)}
    values: dict[str, pa.Array] = {}
    alone: pa.Array | None = None

    pane = _GROUPED_BY.format(len(key))
    if combine.intervals is not None and combine.event_time is not None:
        times = millis_column(batch.column(schema.index(combine.event_time)))
        start, first_end = _place(combine.intervals, times)
        grouped[pane] = pa.array(start, mask=null_mask(times))
        values[_MS] = times
        if watermark_ms != MIN_WATERMARK:
            # A row whose first window has ended may be late. The operator decides for each such row, and needs it whole.
            alone = _chosen((first_end - 1 <= watermark_ms) & ~null_mask(times))

    # Each row alone, so that nothing is added here: the operator behind the shuffle adds in Python, with exact numbers.
    if any(_may_overflow(part, schema, batch) for part in combine.parts):
        alone = _chosen(np.ones(batch.num_rows, np.bool_))

    if alone is not None:
        grouped[_ALONE] = alone

    # What each aggregate needs of its column, and for sessions their first and last event.
    wanted: list[tuple[str | list[str], str]] = [([], "count_all")]
    for number, part in enumerate(combine.parts):
        if part.column is not None:
            name = _VALUES.format(number)
            values[name] = _values(part, schema, batch)
            wanted += [(name, function) for function in _FUNCTIONS[part.name]]
    if isinstance(combine.intervals, SessionParts):
        wanted += [(_MS, "min"), (_MS, "max")]

    # Without threads the order of groups is that of the rows, the same in every attempt.
    table = pa.table(grouped | values).group_by(list(grouped), use_threads=False).aggregate(wanted)

    made = {name: _one(table.column(name)) for name in table.column_names}

    rows = made["count_all"]
    columns = [made[_GROUPED_BY.format(i)] for i in range(len(key))]

    if isinstance(combine.intervals, SessionParts):
        first, last = made[f"{_MS}_min"], made[f"{_MS}_max"]
        columns += [first, pc.subtract(last, first)]
    else:
        columns.append(made.get(pane, pa.nulls(len(rows), pa.int64())))
    # The greatest event time, which the driver takes from rows of sources only.
    columns += [rows, pa.nulls(len(rows), pa.timestamp("us", "UTC"))]

    if combine.rows is not None:
        whole = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        columns.append(whole.take(made.get(_ALONE, pa.nulls(len(rows), pa.int64()))))
    return [*columns, *(_result(part, _VALUES.format(i), made, schema) for i, part in enumerate(combine.parts))]


_FUNCTIONS = {
    "count": ("count",),
    "sum": ("sum",),
    "mean": ("sum", "count"),
    "min": ("min",),
    "max": ("max",),
    "approx_distinct": ("distinct",),
}


def _place(intervals: Panes | SessionParts, times: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return where the interval of each row starts, and where the first window of the row ends."""
    ms = times.fill_null(0).to_numpy()
    if isinstance(intervals, SessionParts):
        return ms - ms % intervals.gap_ms, ms + intervals.gap_ms
    start = ms - (ms - intervals.offset_ms) % intervals.length_ms
    over = (start - (intervals.offset_ms + intervals.size_ms)) % intervals.slide_ms
    return start, start - over + intervals.slide_ms


def _chosen(rows: npt.NDArray[np.bool_]) -> pa.Array | None:
    """Return the position of each chosen row, null for the others. None if none is chosen."""
    return pa.array(np.arange(len(rows)), mask=~rows) if rows.any() else None


def _may_overflow(part: PartialAggregate, schema: Schema, batch: pa.RecordBatch) -> bool:
    """Whether Arrow might compute a sum that does not fit. Python adds such numbers one by one, and reports what does not fit."""
    if part.name not in ("sum", "mean") or part.column is None:
        return False
    place = schema.index(part.column)
    type = schema.fields[place].type
    if type.kind == "decimal":
        assert type.precision is not None
        return type.precision + len(str(batch.num_rows)) > _DIGITS
    if type.kind != "bigint":
        return False
    bounds = pc.min_max(batch.column(place))
    greatest = max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0))
    return bool(greatest * batch.num_rows >= 1 << 63)


def _values(part: PartialAggregate, schema: Schema, batch: pa.RecordBatch) -> pa.Array:
    """Return the column that is aggregated, in a type in which Arrow gives what Spark SQL and Python give."""
    assert part.column is not None
    place = schema.index(part.column)
    column, type = batch.column(place), schema.fields[place].type
    match part.name:
        case "sum" | "mean" if type.kind == "decimal":
            return column.cast(pa.decimal128(_DIGITS, type.scale))
        case "sum" | "mean":
            return column.cast(pa.float64() if type.kind in _FLOATS else pa.int64())
        case "min" | "max" if type.kind in _FLOATS:
            return _ordered(column.cast(pa.float64()))
        case "approx_distinct":
            return distinct.codes(column, type)
    return column


def _result(part: PartialAggregate, name: str, made: dict[str, pa.Array], schema: Schema) -> pa.Array:
    if part.column is None:
        return made["count_all"]
    column = made[f"{name}_{_FUNCTIONS[part.name][0]}"]
    if part.name == "mean":
        return pa.StructArray.from_arrays([column, made[f"{name}_count"]], names=["total", "n"])
    kind = schema.fields[schema.index(part.column)].type.kind
    return _unordered(column) if part.name in ("min", "max") and kind in _FLOATS else column


def _ordered(column: pa.Array) -> pa.Array:
    """Return integers in the order of doubles: NaN is greater than everything else, as in SQL. Arrow would ignore it."""
    values = column.fill_null(0.0).to_numpy().copy()
    values[np.isnan(values)] = np.nan
    return pa.array(_turned(values.view(np.int64)), mask=null_mask(column))


def _unordered(column: pa.Array) -> pa.Array:
    return pa.array(_turned(column.fill_null(0).to_numpy()).view(np.float64), mask=null_mask(column))


def _turned(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFF_FFFF_FFFF_FFFF))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
