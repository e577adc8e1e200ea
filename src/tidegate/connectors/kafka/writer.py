"""The writer in the task: collects rows into parts of bounded size and stages them in the job's storage."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.connectors.kafka import records
from tidegate.connectors.kafka.marker import MAX_PARTS
from tidegate.connectors.kafka.payload import KafkaCommittable, StagedPart, encode
from tidegate.connectors.sink import Staging
from tidegate.core.errors import StateError

if TYPE_CHECKING:
    import pyarrow as pa

    Encode = Callable[[pa.RecordBatch], pa.RecordBatch]


class KafkaWriter:
    """Splits the rows of one slot and epoch into parts, each an object in storage. A crash leaves unreferenced objects."""

    def __init__(self, topic: str, part_bytes: int, staging: Staging, encode: Encode | None = None) -> None:
        self._encode = encode
        self._topic = topic
        self._part_bytes = part_bytes
        self._staging = staging
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._parts: list[StagedPart] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._encode is not None:
            batch = self._encode(batch)
        # A batch is the smallest unit of storage; a large one is split so that no part is much larger than requested.
        # -(-a // b) rounds up.
        pieces = min(batch.num_rows, -(-batch.nbytes // self._part_bytes)) or 1
        rows = -(-batch.num_rows // pieces)
        for at in range(0, batch.num_rows, rows):
            piece = batch.slice(at, rows)
            self._waiting.append(piece)
            self._waiting_bytes += piece.nbytes
            if self._waiting_bytes >= self._part_bytes:
                self._put()

    def prepare_commit(self) -> bytes | None:
        self._put()
        if not self._parts:
            return None
        if len(self._parts) > MAX_PARTS:
            raise StateError(
                f"One epoch has {len(self._parts)} parts for one slot of the Kafka sink for {self._topic!r}; at most "
                f"{MAX_PARTS} can be distinguished. Raise part_size, or make epochs smaller."
            )
        return encode(KafkaCommittable(self._topic, round(time.time() * 1000), self._parts))

    def abort(self) -> None:
        self._waiting.clear()

    def _put(self) -> None:
        if self._waiting:
            packed, rows = records.pack(self._waiting), sum(batch.num_rows for batch in self._waiting)
            self._parts.append(StagedPart(self._staging.put(packed), rows, self._waiting_bytes))
            self._waiting = []
            self._waiting_bytes = 0
