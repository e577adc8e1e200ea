"""The rows of an exchange: one Arrow layout for data of every edge and for control rows.

part  int     decides the Spark partition (a salt, see `key_groups.salts`)
edge  int     which edge a data row belongs to; null in control rows and in the anchor's row
kg    int     key group of a data row
ctl   binary  a barrier; null in data rows
e0…   struct  one column per edge that crosses this exchange; a data row has its own set and the others null
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.ids import Slot
from tidegate.graph.levels import Edge
from tidegate.graph.output_columns import batch_from_rows
from tidegate.state.key_groups import key_groups, slots_of
from tidegate.state.murmur3 import hash_columns

FIXED = (("part", pa.int32()), ("edge", pa.int32()), ("kg", pa.int32()), ("ctl", pa.binary()))
ROWS_PER_BATCH = 10_000


def column_name(edge: Edge) -> str:
    return f"e{edge.id}"


def arrow_schema(edges: Sequence[Edge]) -> pa.Schema:
    fields = [pa.field(name, type_) for name, type_ in FIXED]
    return pa.schema(fields + [pa.field(column_name(edge), struct_type(edge)) for edge in edges])


def struct_type(edge: Edge) -> pa.StructType:
    return pa.struct(list(edge.schema.to_arrow()))


class ChannelWriter:
    """Collects the rows that one task sends to the next level, counts them per channel, and ends each channel with a barrier."""

    def __init__(self, edges: Sequence[Edge], salts: Sequence[int], parallelism: int, max_parallelism: int) -> None:
        self._schema = arrow_schema(edges)
        self._types = {edge.id: struct_type(edge) for edge in edges}
        self._salts = np.asarray(salts, dtype=np.int32)
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self.rows_per_slot = np.zeros(parallelism, dtype=np.int64)
        self._ready: list[pa.RecordBatch] = []

    @property
    def rows(self) -> int:
        return int(self.rows_per_slot.sum())

    def take(self) -> list[pa.RecordBatch]:
        """Return the batches to pass to Spark now."""
        ready, self._ready = self._ready, []
        return ready

    def send_rows(self, edge: Edge, rows: Sequence[Any], own_slot: Slot | None) -> None:
        """Send rows of a function, checked against the edge's schema in one step."""
        for first in range(0, len(rows), ROWS_PER_BATCH):
            self.send_columns(
                edge, batch_from_rows(rows[first : first + ROWS_PER_BATCH], edge.schema).columns, own_slot
            )

    def send_columns(self, edge: Edge, columns: Sequence[pa.Array], own_slot: Slot | None) -> None:
        """Send columns of a stream: to the slots of their keys, to all slots, or, on a forward edge, to the sender's own slot."""
        struct = pa.StructArray.from_arrays(list(columns), fields=list(self._types[edge.id]))
        if edge.broadcast:
            for slot in range(self._parallelism):
                self.pass_on(edge, struct, np.full(len(struct), -1, dtype=np.int32), Slot(slot))
        elif edge.key:
            places = [edge.schema.index(name) for name in edge.key]
            hashes = hash_columns([columns[i] for i in places], [edge.schema.fields[i].type for i in places])
            groups = key_groups(hashes, self._max_parallelism)
            self._send(edge, struct, groups, slots_of(groups, self._parallelism, self._max_parallelism))
        else:
            assert own_slot is not None
            self.pass_on(edge, struct, np.full(len(struct), -1, dtype=np.int32), own_slot)

    def pass_on(self, edge: Edge, struct: pa.StructArray, groups: np.ndarray[Any, Any], own_slot: Slot) -> None:
        """Forward rows that belong to a later level: they are already in their slot and stay there."""
        self._send(edge, struct, groups, np.full(len(struct), own_slot, dtype=np.int64))

    def _send(self, edge: Edge, struct: pa.StructArray, groups: Any, slots: Any) -> None:
        n = len(struct)
        if n == 0:
            return
        self.rows_per_slot += np.bincount(slots, minlength=self._parallelism)
        columns: list[pa.Array] = [
            pa.array(self._salts[slots]),
            pa.array(np.full(n, edge.id, dtype=np.int32)),
            pa.array(groups.astype(np.int32, copy=False)),
            pa.nulls(n, pa.binary()),
        ]
        columns += [struct if id == edge.id else pa.nulls(n, type_) for id, type_ in self._types.items()]
        self._ready.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def send_barriers(self, barrier: Callable[[int, int], bytes]) -> None:
        """Send one control row to every slot; `barrier(slot, rows sent there)` creates it."""
        n = self._parallelism
        rows = [barrier(slot, int(count)) for slot, count in enumerate(self.rows_per_slot)]
        columns: list[pa.Array] = [pa.array(self._salts), pa.nulls(n, pa.int32()), pa.nulls(n, pa.int32())]
        columns += [pa.array(rows, pa.binary()), *(pa.nulls(n, type_) for type_ in self._types.values())]
        self._ready.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))


class EdgeRows:
    """Some rows of one edge, as they arrived: columns, converted to Python values on demand."""

    def __init__(self, edge: Edge, struct: pa.StructArray, groups: pa.Array) -> None:
        self.edge = edge
        self.struct = struct
        self._groups = groups

    def __len__(self) -> int:
        return len(self.struct)

    @cached_property
    def columns(self) -> list[pa.Array]:
        return list(self.struct.flatten())

    @cached_property
    def groups(self) -> np.ndarray[Any, Any]:
        groups: np.ndarray[Any, Any] = self._groups.to_numpy(zero_copy_only=False)
        return groups


def read(
    batches: Iterable[pa.RecordBatch], edges: Sequence[Edge], control: Callable[[bytes], None]
) -> Iterator[EdgeRows]:
    """Yield data rows in arrival order within each edge; control rows go to `control`; the anchor's row is dropped."""
    by_id = {edge.id: edge for edge in edges}
    for batch in batches:
        if batch.num_rows == 0:
            continue
        ids = batch.column(1)
        if ids.null_count == 0:
            numbers = ids.to_numpy()
            first = int(numbers[0])
            if (numbers == first).all():
                edge = by_id[first]
                yield EdgeRows(edge, batch.column(column_name(edge)), batch.column(2))
                continue
        else:
            for raw in batch.column(3).drop_null().to_pylist():
                control(raw)
        for id in ids.unique().to_pylist():
            if id is None:
                continue
            mask = pc.equal(ids, id)
            edge = by_id[id]
            yield EdgeRows(edge, batch.column(column_name(edge)).filter(mask), batch.column(2).filter(mask))
