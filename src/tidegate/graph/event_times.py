"""Event times out of Arrow columns of timestamps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


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


def _micros(column: pa.Array) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.view(pa.int64())


__all__ = ["greatest_ms", "millis"]
