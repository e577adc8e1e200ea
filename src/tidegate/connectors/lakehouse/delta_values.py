"""Values as Delta's log writes them: partition values as text, statistics as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidegate.graph.schema import DataType, Field

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_KINDS = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "timestamp_ntz", "decimal"}
)
BOUNDED_KINDS = frozenset(
    {"tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp", "timestamp_ntz"}
)
"""Kinds with a least and a greatest value in the statistics. The log's JSON has no exact form for decimals."""
MAX_BOUND_CHARS = 128
MAX_COLUMNS_WITH_STATISTICS = 32
"""Delta's own default."""


def partition_text(value: Any, type: DataType) -> str | None:
    """A partition value in the log. Delta has no empty text there: it reads as null."""
    if value is None or value == "":
        return None
    match type.kind:
        case "boolean":
            return "true" if value else "false"
        case "date":
            return str(value.isoformat())
        case "timestamp":
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # type: ignore[no-any-return]
        case "timestamp_ntz":
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")  # type: ignore[no-any-return]
    return str(value)


class Statistics:
    """What the log tells about one file, so that readers can skip it: rows, nulls, least and greatest values.

    A wrong bound hides rows from readers; whatever is in doubt is left out, which only costs them time.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = [field for field in fields if field.type.fields is None][:MAX_COLUMNS_WITH_STATISTICS]
        self._rows = 0
        self._nulls = {field.name: 0 for field in self._fields}
        self._bounded = {field.name for field in self._fields if field.type.kind in BOUNDED_KINDS}
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        self._rows += batch.num_rows
        for field in self._fields:
            column = batch.column(field.name)
            self._nulls[field.name] += column.null_count
            if field.name not in self._bounded or column.null_count == len(column):
                continue
            if field.type.kind in ("float", "double") and not pc.all(pc.is_finite(column)).as_py():
                # Engines disagree on where NaN stands, and JSON has no infinity.
                self._bounded.discard(field.name)
                continue
            bounds = pc.min_max(column)
            try:
                least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
            except (ValueError, OverflowError):
                # A time past the years that Python knows.
                self._bounded.discard(field.name)
                continue
            self._least[field.name] = min(self._least.get(field.name, least), least)
            self._greatest[field.name] = max(self._greatest.get(field.name, greatest), greatest)

    def as_json(self) -> str:
        least: dict[str, Any] = {}
        greatest: dict[str, Any] = {}
        for name in self._nulls:
            if name in self._bounded and name in self._least:
                low, high = _bound(self._least[name], up=False), _bound(self._greatest[name], up=True)
                if low is not None and high is not None:
                    least[name], greatest[name] = low, high
        told = {"numRecords": self._rows, "nullCount": self._nulls, "minValues": least, "maxValues": greatest}
        return json.dumps(told, ensure_ascii=False)


def _bound(value: Any, *, up: bool) -> Any:
    """A bound in the log's JSON, or None when it has no good form there.

    Times have milliseconds there: a greatest one is rounded up, so that it stays a bound.
    """
    match value:
        case datetime():
            micros = value.microsecond % 1000
            try:
                shown = value + timedelta(microseconds=(1000 - micros) % 1000 if up else -micros)
            except OverflowError:
                return None
            if shown.tzinfo is None:
                return shown.isoformat(timespec="milliseconds")
            return shown.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        case date():
            return value.isoformat()
        case str():
            return value if len(value) <= MAX_BOUND_CHARS else None
    return value
