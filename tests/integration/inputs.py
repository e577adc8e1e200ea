"""Input for jobs under test: rows as files that a stream reads one by one, so that one file is one epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.schema.schema import Schema


def write_batches(folder: Path, schema: str, batches: Sequence[Sequence[tuple[Any, ...]]], first: int = 0) -> str:
    """One Parquet file per batch, oldest first."""
    folder.mkdir(parents=True, exist_ok=True)
    arrow = Schema.parse(schema).to_arrow()
    for number, rows in enumerate(batches, first):
        columns = list(zip(*rows)) if rows else [[] for _ in arrow]
        table = pa.table([pa.array(list(c), f.type) for c, f in zip(columns, arrow)], schema=arrow)
        path = folder / f"{number:06d}.parquet"
        # Whole and with its time before a stream may see it: Spark takes files in the order of their times, and after one
        # of today for ever leaves out those that are a week older.
        hidden = folder / f".{path.name}"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(path)
    return str(folder)


def stream(spark, folder: Path, schema: str, batches: Sequence[Sequence[tuple[Any, ...]]]) -> Any:
    path = write_batches(folder, schema, batches)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
