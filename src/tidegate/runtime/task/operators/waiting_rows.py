"""Rows that wait until there are enough of them for a function over batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.schema.schema import Schema

BATCH_ROWS = 100_000
BATCH_BYTES = 32 << 20
"""The more rows a key has in a batch, the less each of them costs."""


class WaitingRows:
    """Columns of one schema, and the key group of each row."""

    def __init__(self, schema: Schema) -> None:
        fields = [pa.field(field.name, field.type.without_nullability().to_arrow()) for field in schema.fields]
        self._schema = pa.schema(fields)
        self._batches: list[pa.RecordBatch] = []
        self._groups: list[npt.NDArray[Any]] = []
        self._rows = self.size_bytes = 0

    def add(self, columns: Iterable[pa.Array], groups: npt.NDArray[Any]) -> None:
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self._schema)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._batches.append(batch)
        self._groups.append(groups)
        self._rows += batch.num_rows
        self.size_bytes += batch.nbytes

    @property
    def are_enough(self) -> bool:
        return self._rows >= BATCH_ROWS or self.size_bytes >= BATCH_BYTES

    def take(self) -> list[tuple[pa.RecordBatch, npt.NDArray[Any]]]:
        """Return all rows, in order: usually one batch, several if Arrow cannot hold a column in one."""
        if not self._rows:
            return []
        table = pa.Table.from_batches(self._batches, self._schema).combine_chunks()
        groups = np.concatenate(self._groups)
        self._batches = []
        self._groups = []
        self._rows = 0
        self.size_bytes = 0
        found, first = [], 0
        for batch in table.to_batches():
            found.append((batch, groups[first : first + batch.num_rows]))
            first += batch.num_rows
        return found
