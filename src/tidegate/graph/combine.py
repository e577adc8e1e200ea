"""Pre-aggregation before the shuffle: commutative aggregates are computed over the rows of one key and pane.

Spark SQL does it for rows that leave a source, the sending task for rows that a Python function emitted (see `levels`).

A pane is the longest interval of event time that no window boundary divides. The source stage then emits one row for
each key, pane and epoch: the key, the start of the pane, the number of rows combined, the greatest event time for the
watermark, and a partial aggregate for each part. The operator merges it as it would have added the rows.

Sessions have no boundaries that are known in advance. But rows of one key in an interval no longer than the gap always
share a session, so they are combined in intervals of that length. The row that comes of them has the first and the last of
their times; the operator merges it with the sessions it touches, as it would have merged the rows.

Rows that may be late for one of their windows, by the watermark in force while the rows of the epoch are processed, are
not combined: each is sent as a group of one, with all its columns if the operator has a side output for late rows.
Lateness is thus still decided row by row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd

from tidegate.core.times import MIN_WATERMARK
from tidegate.schema.datatype import DataType, Field
from tidegate.schema.schema import Schema

PANE, SPAN, ROWS, TIME, LATE = "_pane", "_span", "_rows", "_time", "_late"
_ALONE, _PART = "_alone", "_part"
_OWN = re.compile(r"_(pane|span|rows|time|late|alone|part|[kp]\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """One partial aggregate: a Spark SQL expression, and for tasks the aggregate and its column."""

    sql: str
    type: DataType
    name: str
    column: str | None = None
    """None: of rows, whatever they hold."""


@dataclass(frozen=True, slots=True)
class Panes:
    """The intervals of event time whose rows are combined, for windows of one size."""

    size_ms: int
    slide_ms: int
    offset_ms: int

    @property
    def length_ms(self) -> int:
        # Windows begin at multiples of the slide and end a size later: their boundaries are multiples of this apart.
        return gcd(self.size_ms, self.slide_ms)

    def start_sql(self, ms: str) -> str:
        """Return where the interval starts that a time belongs to."""
        return f"{ms} - pmod({ms} - {self.offset_ms}L, {self.length_ms}L)"

    def first_end_sql(self, ms: str) -> str:
        """Return the end of the first window that a row belongs to."""
        return f"{_PART} - pmod({_PART} - {self.offset_ms + self.size_ms}L, {self.slide_ms}L) + {self.slide_ms}L"

    def place_sql(self, time: str) -> list[str]:
        """Return where the rows of a group are in time, as columns."""
        return [f"{_PART} as {PANE}"]


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The intervals of event time whose rows are combined, for sessions: no two rows in one are further apart than the gap."""

    gap_ms: int

    def start_sql(self, ms: str) -> str:
        return f"{ms} - pmod({ms}, {self.gap_ms}L)"

    def first_end_sql(self, ms: str) -> str:
        """Return the end of the session that a row alone would be."""
        return f"{ms} + {self.gap_ms}L"

    def place_sql(self, time: str) -> list[str]:
        first, last = f"unix_millis(min({time}))", f"unix_millis(max({time}))"
        return [f"{first} as {PANE}", f"{last} - {first} as {SPAN}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """How the rows of an aggregate are combined."""

    key: tuple[Field, ...]
    parts: tuple[PartialAggregate, ...]
    event_time: str | None = None
    """None: all rows of a key are combined, regardless of time."""
    intervals: Panes | SessionParts | None = None
    rows: Schema | None = None
    """The columns of late rows, if the operator needs them."""

    @property
    def schema(self) -> Schema:
        """The columns of combined rows: first those of the key, last the parts."""
        timestamp = DataType("timestamp")
        span = (Field(SPAN, DataType("bigint")),) if isinstance(self.intervals, SessionParts) else ()
        late = () if self.rows is None else (Field(LATE, DataType("struct", fields=self.rows.fields)),)
        return Schema(
            (
                *(Field(f"_k{i}", field.type) for i, field in enumerate(self.key)),
                Field(PANE, DataType("bigint")),
                *span,
                Field(ROWS, DataType("bigint")),
                Field(TIME, timestamp),
                *late,
                *(Field(f"_p{i}", part.type) for i, part in enumerate(self.parts)),
            )
        )

    def steps_sql(self, watermark_ms: int) -> list[str]:
        """Return the columns to add to each row before grouping, one after the other."""
        if self.intervals is None or self.event_time is None:
            return []
        ms = f"unix_millis({quoted(self.event_time)})"
        # A row that may be late gets a number of its own to be grouped by, so that its group has no other row.
        alone = f"if({self.intervals.first_end_sql(ms)} - 1 <= {watermark_ms}L, monotonically_increasing_id(), null)"
        if watermark_ms == MIN_WATERMARK:
            alone = "cast(null as bigint)"  # Nothing is late before the first watermark.
        steps = [f"{self.intervals.start_sql(ms)} as {_PART}", f"{alone} as {_ALONE}"]
        if self.rows is not None:
            # Only late rows need all of their columns. For the others this is null, so that it does not split their groups.
            whole = ", ".join(f"'{_escaped(name)}', {quoted(name)}" for name in self.rows.names)
            steps.append(f"if({_ALONE} is null, null, named_struct({whole})) as {LATE}")
        return steps

    def grouping(self) -> list[str]:
        """Grouping columns in addition to those of the key."""
        return [] if self.intervals is None else [_PART, _ALONE, *(() if self.rows is None else (LATE,))]

    def aggregates_sql(self, source_time: str | None) -> list[str]:
        """Return the columns of a group. `source_time` is the column that the watermark is derived from."""
        newest = "cast(null as timestamp)" if source_time is None else f"max({quoted(source_time)})"
        parts = [f"{part.sql} as _p{i}" for i, part in enumerate(self.parts)]
        place = [f"cast(null as bigint) as {PANE}"]
        if self.intervals is not None and self.event_time is not None:
            place = self.intervals.place_sql(quoted(self.event_time))
        return [*place, f"count(*) as {ROWS}", f"{newest} as {TIME}", *parts]


def in_the_way(names: Iterable[str]) -> bool:
    """Whether a column name clashes with one that combined rows need. Such rows are not combined."""
    return any(_OWN.fullmatch(name) for name in names)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
