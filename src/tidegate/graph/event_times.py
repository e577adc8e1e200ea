"""Event times out of Arrow columns of timestamps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BETWEEN = "\x1f"
"""Between a source and its split. No uid has it."""


def millis(column: pa.Array) -> list[int | None]:
    """Milliseconds since 1970 of each value, None for null."""
    values = (_micros(column).fill_null(0).to_numpy(zero_copy_only=False) // 1000).tolist()
    if column.null_count:
        return [ms if valid else None for ms, valid in zip(values, column.is_valid().to_pylist())]
    return values  # type: ignore[no-any-return]


def greatest_ms(column: pa.Array) -> int | None:
    """The greatest value in milliseconds; None for a column of nulls, or without rows."""
    found: int | None = pc.max(_micros(column)).as_py()
    return None if found is None else found // 1000


def greatest_by_split(column: pa.Array, splits: pa.Array) -> dict[str, int | None]:
    """The greatest value in milliseconds of the rows of each split, whose name is the text of its value; null is one too."""
    table = pa.table({"split": splits, "time": _micros(column)})
    found = table.group_by("split", use_threads=False).aggregate([("time", "max")])
    names, times = found.column("split").to_pylist(), found.column("time_max").to_pylist()
    return {str(name): None if us is None else us // 1000 for name, us in zip(names, times)}


def split_name(uid: str, split: str) -> str:
    """One name for a split of a source, or, without a split, for the source."""
    return uid if split == "" else f"{uid}{_BETWEEN}{split}"


def of_split_name(name: str) -> tuple[str, str]:
    """The other way round."""
    uid, _, split = name.partition(_BETWEEN)
    return uid, split


def _micros(column: pa.Array) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.view(pa.int64())


__all__ = ["greatest_by_split", "greatest_ms", "millis", "of_split_name", "split_name"]
