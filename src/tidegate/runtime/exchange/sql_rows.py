"""The rows that plain SQL sends to level 1. It sends no barriers: Spark itself repeats what is lost.

part     int     decides the Spark partition (a salt, see `key_groups.salts`)
kg       int     key group of a row, -1 for rows without a key; null in the anchor's row

One edge, the common case, is flat: its columns follow as c0, c1 … Spark hands flat columns to Python in two thirds of the time
that it takes for a struct. Of several edges, each row belongs to one:

edge     int     which edge
e0, e1…  struct  one column per edge; a row has its own set and the others null
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.graph.levels import Edge
from tidegate.runtime.exchange.edge_rows import EdgeRows


def is_flat(edges: Sequence[Edge]) -> bool:
    return len(edges) == 1


def flat_name(place: int) -> str:
    """The name of a column of a flat layout. Not the user's: that could be `part`."""
    return f"c{place}"


def struct_name(edge: Edge) -> str:
    return f"e{edge.id}"


def read_sql(batches: Iterable[pa.RecordBatch], edges: Sequence[Edge]) -> Iterator[EdgeRows]:
    """Yield rows in arrival order within each edge; the anchor's row is dropped."""
    if is_flat(edges):
        return _read_flat(batches, edges[0])
    return _read_tagged(batches, {edge.id: edge for edge in edges})


def _read_flat(batches: Iterable[pa.RecordBatch], edge: Edge) -> Iterator[EdgeRows]:
    for batch in batches:
        rows = batch
        if batch.column(1).null_count:
            # The anchor's row has no key group. It exists only to bring the task to its host.
            rows = batch.filter(batch.column(1).is_valid())
        if rows.num_rows:
            yield EdgeRows(edge, rows.columns[2:], rows.column(1), rows.num_rows)


def _read_tagged(batches: Iterable[pa.RecordBatch], edges: dict[int, Edge]) -> Iterator[EdgeRows]:
    for batch in batches:
        ids = batch.column(2)
        for id in ids.unique().to_pylist():
            if id is None:
                continue
            mask, edge = pc.equal(ids, id), edges[id]
            struct = batch.column(struct_name(edge)).filter(mask)
            yield EdgeRows(edge, struct.flatten(), batch.column(1).filter(mask), len(struct))
