"""Split a batch by the table partition that each row belongs to. Order within a partition is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.connectors.lakehouse.rolling import Key

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Coded:
    """One partition value for each row, as an index into the distinct values."""

    codes: npt.NDArray[np.int64]
    values: list[Any]

    @staticmethod
    def of(column: pa.Array, change: Callable[[Any], Any] | None = None) -> Coded:
        """Encode the column's own values, or the result of `change` for each. Nulls are values too."""
        import numpy as np

        encoded = column.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        values = encoded.dictionary.to_pylist()
        if change is None:
            return Coded(codes, values)
        # Of distinct values only: transforms are Python.
        changed = [change(value) for value in values]
        places = {value: place for place, value in enumerate(dict.fromkeys(changed))}
        return Coded(np.array([places[value] for value in changed], np.int64)[codes], list(places))


def part(batch: pa.RecordBatch, columns: Sequence[Coded]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each partition that occurs, under its values."""
    import numpy as np
    import pyarrow as pa

    if not columns:
        yield (), batch
        return
    # One number per row, made dense after every column so that no product of cardinalities can overflow.
    combined = np.zeros(batch.num_rows, np.int64)
    for column in columns:
        _, combined = np.unique(combined * len(column.values) + column.codes, return_inverse=True)
    order = np.argsort(combined, kind="stable")
    starts = np.flatnonzero(np.diff(combined[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        # Any row of the group will do.
        key = tuple(column.values[column.codes[rows[0]]] for column in columns)
        yield key, batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
