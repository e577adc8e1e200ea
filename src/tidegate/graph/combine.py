"""Pre-aggregation before the shuffle: Spark SQL computes commutative aggregates over the rows of one key and pane.

A pane is the longest interval of event time that no window boundary divides. The source stage then emits one row for
each key, pane and epoch: the key, the start of the pane, the number of rows combined, the greatest event time for the
watermark, and a partial aggregate for each part. The operator merges it as it would have added the rows.

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
from tidegate.graph.datatype import DataType, Field
from tidegate.graph.schema import Schema

PANE, ROWS, TIME, LATE = "_pane", "_rows", "_time", "_late"
_ALONE = "_alone"
_OWN = re.compile(r"_(pane|rows|time|late|alone|[kp]\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """One partial aggregate, as a Spark SQL expression."""

    sql: str
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """How the rows of a window operator are combined."""

    key: tuple[Field, ...]
    event_time: str | None
    """None: all rows of a key are combined, regardless of time."""
    size_ms: int
    slide_ms: int
    offset_ms: int
    parts: tuple[PartialAggregate, ...]
    rows: Schema | None = None
    """The columns of late rows, if the operator needs them."""

    @property
    def pane_ms(self) -> int:
        return gcd(self.size_ms, self.slide_ms)

    @property
    def schema(self) -> Schema:
        """The columns of combined rows: first those of the key, last the parts."""
        timestamp = DataType("timestamp")
        late = () if self.rows is None else (Field(LATE, DataType("struct", fields=self.rows.fields)),)
        return Schema(
            (
                *(Field(f"_k{i}", field.type) for i, field in enumerate(self.key)),
                Field(PANE, DataType("bigint")),
                Field(ROWS, DataType("bigint")),
                Field(TIME, timestamp),
                *late,
                *(Field(f"_p{i}", part.type) for i, part in enumerate(self.parts)),
            )
        )

    def steps_sql(self, watermark_ms: int) -> list[str]:
        """Return the columns to add to each row before grouping, one after the other."""
        if self.event_time is None:
            return []
        ms = f"unix_millis({quoted(self.event_time)})"
        pane = f"{ms} - pmod({ms} - {self.offset_ms}L, {self.pane_ms}L)"
        first_end = f"{PANE} - pmod({PANE} - {self.offset_ms + self.size_ms}L, {self.slide_ms}L) + {self.slide_ms}L"
        alone = f"if({first_end} - 1 <= {watermark_ms}L, monotonically_increasing_id(), null)"
        if watermark_ms == MIN_WATERMARK:
            alone = "cast(null as bigint)"
        steps = [f"{pane} as {PANE}", f"{alone} as {_ALONE}"]
        if self.rows is not None:
            whole = ", ".join(f"'{_escaped(name)}', {quoted(name)}" for name in self.rows.names)
            steps.append(f"if({_ALONE} is null, null, named_struct({whole})) as {LATE}")
        return steps

    def grouping(self) -> list[str]:
        """Grouping columns in addition to those of the key."""
        return [] if self.event_time is None else [PANE, _ALONE, *(() if self.rows is None else (LATE,))]

    def aggregates_sql(self, source_time: str | None) -> list[str]:
        """Return the aggregates of a group, in the order of `schema`. `source_time` is the column that the watermark is
        derived from."""
        newest = "cast(null as timestamp)" if source_time is None else f"max({quoted(source_time)})"
        parts = [f"{part.sql} as _p{i}" for i, part in enumerate(self.parts)]
        no_pane = [f"cast(null as bigint) as {PANE}"] if self.event_time is None else []
        return [*no_pane, f"count(*) as {ROWS}", f"{newest} as {TIME}", *parts]


def in_the_way(names: Iterable[str]) -> bool:
    """Whether a column name clashes with one that combined rows need. Such rows are not combined."""
    return any(_OWN.fullmatch(name) for name in names)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
