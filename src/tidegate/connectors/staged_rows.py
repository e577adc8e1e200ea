"""Rows that wait in the job's storage as Arrow streams, for targets that cannot hide rows themselves.

1. In the task: batches are put into storage whenever `chunk_bytes` have accumulated. A crash leaves objects that no
   committable references; the job's own clean-up removes them.
2. The payload lists the chunks, in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from tidegate.connectors.sink import Committable, CommitterContext, WriterContext, decoded, untrusted

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 16 << 20
"""The driver holds one chunk at a time."""


class StagedRows(msgspec.Struct, frozen=True):
    """The payload."""

    tokens: tuple[str, ...]
    rows: int


_decode = msgspec.json.Decoder(StagedRows).decode


class RowStager:
    """A `SinkWriter` that only stages."""

    def __init__(self, context: WriterContext, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._staging = context.staging
        self._chunk_bytes = chunk_bytes
        self._batches: list[pa.RecordBatch] = []
        self._size_bytes = 0
        self._tokens: list[str] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._size_bytes += batch.nbytes
        if self._size_bytes >= self._chunk_bytes:
            self._put()

    def prepare_commit(self) -> bytes | None:
        self._put()
        return msgspec.json.encode(StagedRows(tuple(self._tokens), self._rows)) if self._tokens else None

    def abort(self) -> None:
        self._batches.clear()

    def _put(self) -> None:
        import pyarrow as pa

        if not self._batches:
            return
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self._batches[0].schema) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        self._tokens.append(self._staging.put(out.getvalue().to_pybytes()))
        self._batches = []
        self._size_bytes = 0


def read_batches(request: Committable, context: CommitterContext) -> Iterator[pa.RecordBatch]:
    """The rows of a committable, chunk by chunk, in the order in which they were written."""
    import pyarrow as pa

    staged = decoded(request, _decode)
    if not staged.tokens:
        raise untrusted(request, "names no rows")
    # Before the first read: a token from a forged snapshot could name any object.
    context.check_staged(request, staged.tokens)
    for token in staged.tokens:
        yield from pa.ipc.open_stream(context.read(token))
