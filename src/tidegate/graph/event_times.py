"""Reads event times from Arrow timestamp columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BETWEEN = "\x1f"
"""Separates a source from its split. No uid contains it."""


def millis(column: pa.Array) -> list[int | None]:
    """Convert each value to milliseconds since 1970, None for null."""
    return millis_column(column).to_pylist()  # type: ignore[no-any-return]


def millis_column(column: pa.Array) -> pa.Array:
    """The same as a column."""
    # Floor, not truncate: a time before 1970 must not move to a later millisecond.
    micros = _micros(column)
    values = micros.fill_null(0).to_numpy(zero_copy_only=False) // 1000
    return pa.array(values, mask=micros.is_null().to_numpy(zero_copy_only=False) if micros.null_count else None)


def greatest_ms(column: pa.Array) -> int | None:
    """Return the greatest value in milliseconds, or None if the column is empty or all null."""
    found: int | None = pc.max(_micros(column)).as_py()
    return None if found is None else found // 1000


def greatest_by_split(column: pa.Array, splits: pa.Array) -> dict[str, int | None]:
    """Return the greatest value in milliseconds for each split, named by the text of its value; null is a split, too."""
    table = pa.table({"split": splits, "time": _micros(column)})
    found = table.group_by("split", use_threads=False).aggregate([("time", "max")])
    names, times = found.column("split").to_pylist(), found.column("time_max").to_pylist()
    return {str(name): None if us is None else us // 1000 for name, us in zip(names, times)}


def split_name(uid: str, split: str) -> str:
    """Return the combined name of a source and its split, or of the source if the split is empty."""
    return uid if split == "" else f"{uid}{_BETWEEN}{split}"


def of_split_name(name: str) -> tuple[str, str]:
    """Inverse of `split_name`."""
    uid, _, split = name.partition(_BETWEEN)
    return uid, split


def _micros(column: pa.Array) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.view(pa.int64())


__all__ = ["greatest_by_split", "greatest_ms", "millis", "millis_column", "of_split_name", "split_name"]
