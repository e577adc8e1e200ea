"""Values as Delta's log writes them: partition values as text, statistics as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tidegate.schema.schema import DataType, Field

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_KINDS = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "timestamp_ntz"}
)
"""Types that a table may be partitioned by. Decimals are not included: readers of Delta misread negative ones there."""

BOUNDED_KINDS = PARTITION_KINDS | {"float", "double", "decimal"}
UNBOUNDED_KINDS = frozenset({"binary", "array", "map"})
"""Types that have no minimum and maximum in the statistics."""
# As many columns as Delta itself keeps statistics of by default.
MAX_BOUNDED_COLUMNS = 32
MAX_BOUND_CHARS = 64
LAST_CHARACTER = "\U0010ffff"


def partition_text(value: Any, type: DataType) -> str | None:
    """Format a partition value for the log. Delta has no empty string there: it reads as null."""
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
    """The statistics of one file in the log, which let readers skip it: rows, nulls, minimum and maximum values.

    A wrong bound hides rows from readers, so doubtful bounds are omitted, which only costs time. Some readers treat a
    missing bound next to others as one that nothing can satisfy, so a file has all its bounds or none.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._rows = 0
        # For a struct, the log has the nulls of its fields, which are not counted here.
        self._nulls = {field.name: 0 for field in fields if field.type.fields is None}
        self._bounded = [field.name for field in fields if field.type.kind in BOUNDED_KINDS]
        self._certain = len(self._bounded) <= MAX_BOUNDED_COLUMNS and all(
            field.type.kind in BOUNDED_KINDS | UNBOUNDED_KINDS for field in fields
        )
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        for name in self._nulls:
            self._nulls[name] += batch.column(name).null_count
        for name in self._bounded if self._certain else ():
            self._widen(name, batch.column(name))

    def _widen(self, name: str, column: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.null_count == len(column):
            return
        if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
            # Engines disagree on how NaN is ordered, and JSON has no infinity.
            self._certain = False
            return
        bounds = pc.min_max(column)
        try:
            least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
        except (ValueError, OverflowError):
            # A time beyond the years that Python supports.
            self._certain = False
            return
        self._least[name] = min(self._least.get(name, least), least)
        self._greatest[name] = max(self._greatest.get(name, greatest), greatest)

    def as_json(self) -> str:
        statistics: dict[str, Any] = {"numRecords": self._rows, "nullCount": self._nulls}
        if self._certain and len(self._least) == len(self._bounded):
            least = {name: least_bound(value) for name, value in self._least.items()}
            greatest = {name: greatest_bound(value) for name, value in self._greatest.items()}
            if None not in least.values() and None not in greatest.values():
                statistics |= {"minValues": least, "maxValues": greatest}
        return json.dumps(statistics, ensure_ascii=False)


def least_bound(value: Any) -> Any:
    """Return a value not above `value` for the log's JSON, or None if there is no safe one."""
    match value:
        case datetime():
            # Rounded down to milliseconds, so that the bound stays below.
            return _time(value - timedelta(microseconds=value.microsecond % 1000))
        case str():
            return value[:MAX_BOUND_CHARS]
    return _exact(value)


def greatest_bound(value: Any) -> Any:
    """Return a value not below `value` for the log's JSON, or None if there is no safe one. Times have milliseconds there."""
    match value:
        case datetime():
            try:
                return _time(value + timedelta(microseconds=-value.microsecond % 1000))
            except OverflowError:
                return None
        case str() if len(value) > MAX_BOUND_CHARS:
            # Nothing comes after the last character, so no shorter text is a bound.
            if value[MAX_BOUND_CHARS] == LAST_CHARACTER:
                return None
            return value[:MAX_BOUND_CHARS] + LAST_CHARACTER
    return _exact(value)


def _exact(value: Any) -> Any:
    match value:
        case date():
            return value.isoformat()
        case Decimal():
            # Readers parse it as a double; a value that does not survive the round trip would be a different bound.
            return float(value) if Decimal(repr(float(value))) == value else None
    return value


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
