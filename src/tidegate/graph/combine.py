"""Rows that become fewer before they are shuffled: aggregates that commute, made by Spark SQL of the rows of one key and pane.

A pane is the longest piece of event time that no window cuts through. What leaves the source stage is then one row for each
key, pane and epoch: the key, the pane's start, how many rows it is made of, the greatest event time for the watermark, and a
partial aggregate for each part. An operator merges it as it would have added the rows.

Rows that may be late for a window of theirs, by the watermark that holds while the rows of the epoch are processed, are not
combined: each travels alone, as one that is made of itself, and whole where the operator sends late rows aside. So they are
judged one by one, as ever.
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
    """One partial aggregate, as an expression of Spark SQL."""

    sql: str
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """What an operator of windows takes in place of rows."""

    key: tuple[Field, ...]
    event_time: str | None
    """None: all rows of a key are combined, whatever their times."""
    size_ms: int
    slide_ms: int
    offset_ms: int
    parts: tuple[PartialAggregate, ...]
    rows: Schema | None = None
    """The columns of late rows, where the operator wants to see them."""

    @property
    def pane_ms(self) -> int:
        return gcd(self.size_ms, self.slide_ms)

    @property
    def schema(self) -> Schema:
        """The columns of combined rows. The first are the key's, the last are the parts."""
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
        """Columns to add to each row before rows are grouped, one after the other."""
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
        """Columns, besides those of the key, whose values the rows of a group share."""
        return [] if self.event_time is None else [PANE, _ALONE, *(() if self.rows is None else (LATE,))]

    def aggregates_sql(self, source_time: str | None) -> list[str]:
        """What becomes of a group, in the order of `schema`. `source_time` is the column that the watermark is made of."""
        newest = "cast(null as timestamp)" if source_time is None else f"max({quoted(source_time)})"
        parts = [f"{part.sql} as _p{i}" for i, part in enumerate(self.parts)]
        no_pane = [f"cast(null as bigint) as {PANE}"] if self.event_time is None else []
        return [*no_pane, f"count(*) as {ROWS}", f"{newest} as {TIME}", *parts]


def in_the_way(names: Iterable[str]) -> bool:
    """Whether a column has a name that combined rows need. Such rows are not combined."""
    return any(_OWN.fullmatch(name) for name in names)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
