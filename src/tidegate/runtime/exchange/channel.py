"""The rows that Python tasks send to the next level, packed: one Spark row holds many rows of one edge for one slot.

part     int     decides the Spark partition (a salt, see `key_groups.salts`)
edge     int     which edge the rows belong to; null in control rows and in the anchor's row
payload  binary  an Arrow record batch: key groups, then the columns of the edge's schema; null in control rows
ctl      binary  a barrier; null in rows with a payload

Both ends are Python, so Spark need not turn columns into rows and back. A payload holds at most `CHUNK_BYTES` and `CHUNK_ROWS`;
a single row that is larger is sent alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.core.ids import Slot
from tidegate.graph.levels import Edge
from tidegate.runtime.exchange.edge_rows import EdgeRows
from tidegate.schema.output_columns import batch_from_rows
from tidegate.state.keys.key_groups import key_groups, slots_of
from tidegate.state.keys.murmur3 import hash_columns

PACKED = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("edge", pa.int32()),
        pa.field("payload", pa.binary()),
        pa.field("ctl", pa.binary()),
    ]
)
PACKED_TYPES = {"part": "int", "edge": "int", "payload": "binary", "ctl": "binary"}
"""The same in Spark's words."""
ROWS_PER_BATCH = 10_000
CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 20_000
WAITING_BYTES = 4 << 20
"""Rows of an edge wait until there are so many bytes of them, so that each slot gets few large payloads instead of many small."""


def payload_schema(edge: Edge) -> pa.Schema:
    """Without NOT NULL: the rows are checked where they are made, and Spark forgets it inside of structs that may be null."""
    columns = [pa.field(field.name, field.type.without_nullability().to_arrow()) for field in edge.schema.fields]
    return pa.schema([pa.field("kg", pa.int32()), *columns])


class ChannelWriter:
    """Collects the rows that one task sends to the next level, counts them per channel, and ends each channel with a barrier."""

    def __init__(self, edges: Sequence[Edge], salts: Sequence[int], parallelism: int, max_parallelism: int) -> None:
        self._waiting = {edge.id: _Unpacked(edge, parallelism) for edge in edges}
        self._salts = np.asarray(salts, dtype=np.int32)
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self.rows_per_slot = np.zeros(parallelism, dtype=np.int64)
        self._ready: list[_Sent] = []

    @property
    def rows(self) -> int:
        return int(self.rows_per_slot.sum())

    def take(self) -> Iterator[pa.RecordBatch]:
        """Return the batches to pass to Spark now. Each is made when it is asked for: copies of a broadcast share a payload."""
        ready = self._ready
        self._ready = []
        return _batches(ready)

    def send_rows(self, edge: Edge, rows: Sequence[Any], own_slot: Slot | None) -> None:
        """Send rows of a function, checked against the edge's schema in one step."""
        for first in range(0, len(rows), ROWS_PER_BATCH):
            self.send_columns(
                edge, batch_from_rows(rows[first : first + ROWS_PER_BATCH], edge.schema).columns, own_slot
            )

    def send_columns(self, edge: Edge, columns: Sequence[pa.Array], own_slot: Slot | None) -> None:
        """Send columns of a stream: to the slots of their keys, to all slots, or, on a forward edge, to the sender's own slot."""
        n = len(columns[0])
        if edge.broadcast:
            self._send(edge, columns, np.full(n, -1, dtype=np.int32), None)
        elif edge.key:
            # Combined rows have their keys first, under other names.
            places = [edge.schema.index(name) if edge.combine is None else i for i, name in enumerate(edge.key)]
            hashes = hash_columns([columns[i] for i in places], [edge.schema.fields[i].type for i in places])
            groups = key_groups(hashes, self._max_parallelism)
            self._send(edge, columns, groups, slots_of(groups, self._parallelism, self._max_parallelism))
        else:
            assert own_slot is not None
            self._send(edge, columns, np.full(n, -1, dtype=np.int32), np.full(n, own_slot, dtype=np.int64))

    def pass_on(self, rows: EdgeRows, own_slot: Slot) -> None:
        """Forward rows that belong to a later level: they are already in their slot and stay there."""
        self._send(rows.edge, rows.columns, rows.groups, np.full(len(rows), own_slot, dtype=np.int64))

    def _send(self, edge: Edge, columns: Sequence[pa.Array], groups: Any, slots: Any | None) -> None:
        """`slots`: None sends every row to every slot."""
        n = len(groups)
        if n == 0:
            return
        self.rows_per_slot += n if slots is None else np.bincount(slots, minlength=self._parallelism)
        waiting = self._waiting[edge.id]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(groups.astype(np.int32, copy=False)), *columns], schema=waiting.schema
        )
        # What waits goes first, so that a payload exceeds the limit only by a single large batch.
        if waiting.size_bytes and waiting.size_bytes + batch.nbytes > WAITING_BYTES:
            self._pack(waiting)
        waiting.add(batch, slots)
        if waiting.size_bytes >= WAITING_BYTES:
            self._pack(waiting)

    def _pack(self, waiting: _Unpacked) -> None:
        for slot, payload in waiting.payloads():
            slots = range(self._parallelism) if slot is None else (slot,)
            self._ready += [(int(self._salts[each]), waiting.edge.id, payload, None) for each in slots]

    def send_barriers(self, barrier: Callable[[int, int], bytes]) -> None:
        """Send what still waits, then one control row to every slot; `barrier(slot, rows sent there)` creates it."""
        # A barrier is the last row of its channel: everything that it counts goes in front of it.
        for waiting in self._waiting.values():
            self._pack(waiting)
        self._ready += [
            (int(self._salts[slot]), None, None, barrier(slot, int(count)))
            for slot, count in enumerate(self.rows_per_slot)
        ]


_Sent = tuple[int, int | None, bytes | None, bytes | None]
"""A row in the layout `PACKED`."""


def _batches(rows: list[_Sent]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `CHUNK_BYTES`."""
    first = size = 0
    for place, (_, _, payload, control) in enumerate(rows):
        size += len(payload or b"") + len(control or b"")
        if size >= CHUNK_BYTES or place == len(rows) - 1:
            columns = zip(*rows[first : place + 1])
            arrays = [pa.array(values, field.type) for values, field in zip(columns, PACKED)]
            yield pa.RecordBatch.from_arrays(arrays, schema=PACKED)
            first, size = place + 1, 0


class _Unpacked:
    """Rows of one edge that wait to be packed, with their slots."""

    def __init__(self, edge: Edge, parallelism: int) -> None:
        self.edge = edge
        self.schema = payload_schema(edge)
        self.size_bytes = 0
        self._parallelism = parallelism
        self._batches: list[pa.RecordBatch] = []
        self._slots: list[Any] = []

    def add(self, batch: pa.RecordBatch, slots: Any | None) -> None:
        self._batches.append(batch)
        self._slots.append(slots)
        self.size_bytes += max(1, batch.nbytes)

    def payloads(self) -> Iterator[tuple[int | None, bytes]]:
        """Yield the slot of each payload, and the payload; None is every slot. The order of rows for a slot is kept."""
        if not self._batches:
            return
        (batch,) = pa.Table.from_batches(self._batches, self.schema).combine_chunks().to_batches()
        # A broadcast is replicated where it begins; a level that passes it on keeps it in its slot.
        slots = None if self._slots[0] is None else np.concatenate(self._slots)
        self._batches = []
        self._slots = []
        self.size_bytes = 0

        if slots is None:
            yield from ((None, payload) for payload in _chunks(batch))
            return

        counts = np.bincount(slots, minlength=self._parallelism)
        if np.count_nonzero(counts) > 1:
            # Stable, so that the rows of a key arrive in the order in which they were emitted.
            batch = batch.take(pa.array(np.argsort(slots, kind="stable")))

        first = 0
        for slot in np.flatnonzero(counts):
            count = int(counts[slot])
            yield from ((int(slot), payload) for payload in _chunks(batch.slice(first, count)))
            first += count


def _chunks(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Halve a batch until its parts are small enough, or single rows."""
    if batch.num_rows > 1 and (batch.nbytes > CHUNK_BYTES or batch.num_rows > CHUNK_ROWS):
        half = batch.num_rows // 2
        yield from _chunks(batch.slice(0, half))
        yield from _chunks(batch.slice(half))
    else:
        yield batch.serialize().to_pybytes()


def read_packed(
    batches: Iterable[pa.RecordBatch], edges: Sequence[Edge], control: Callable[[bytes], None]
) -> Iterator[EdgeRows]:
    """Yield rows in the order in which each sender sent them; control rows go to `control`; the anchor's row is dropped."""
    known = {edge.id: (edge, payload_schema(edge)) for edge in edges}
    for batch in batches:
        for raw in batch.column(3).drop_null().to_pylist():
            control(raw)
        payloads = batch.column(2)
        for place, id in enumerate(batch.column(1).to_pylist()):
            if id is None:
                continue
            edge, schema = known[id]
            # A copy: inside the column it need not be aligned.
            rows = pa.ipc.read_record_batch(pa.py_buffer(payloads[place].as_py()), schema)
            yield EdgeRows(edge, rows.columns[1:], rows.column(0), rows.num_rows)
