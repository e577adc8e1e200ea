"""Writers in the task: one stages text for COPY in the job's storage, the other prepares a transaction in the server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from tidegate.connectors.postgres.client import connect
from tidegate.connectors.postgres.marker import Markers
from tidegate.connectors.postgres.payload import Copy, Prepared, encode, gid_of
from tidegate.connectors.postgres.table import read_table
from tidegate.connectors.sink import WriterContext
from tidegate.core.errors import SchemaError
from tidegate.core.faults import reach

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

CHUNK_BYTES = 8 << 20
LOCK_TIMEOUT_MS = 10_000
"""In an append-only table no insert waits for a lock. If one does anyway, the wait must be bounded."""


class CopyWriter:
    """1. Text is put into storage whenever a chunk is full. A crash leaves chunks that no committable references."""

    def __init__(self, context: WriterContext, key: Sequence[str]) -> None:
        self._context = context
        self._key = key
        self._text = bytearray()
        self._tokens: list[str] = []
        self._rows = 0
        self._size_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        from tidegate.connectors.postgres.copy_text import copy_text

        for name in self._key:
            if batch.column(batch.schema.get_field_index(name)).null_count:
                raise SchemaError(
                    f"A row has a null {name!r}, which is part of the upsert key. Filter such rows out before the sink."
                )
        self._text += copy_text(batch, self._context.schema)
        self._rows += batch.num_rows
        if len(self._text) >= CHUNK_BYTES:
            self._put()

    def prepare_commit(self) -> bytes | None:
        if self._text:
            self._put()
        if not self._tokens:
            return None
        return encode(Copy(self._context.schema.names, tuple(self._tokens), self._rows, self._size_bytes))

    def abort(self) -> None:
        self._text.clear()

    def _put(self) -> None:
        self._tokens.append(self._context.staging.put(bytes(self._text)))
        self._size_bytes += len(self._text)
        self._text.clear()


class PreparingWriter:
    """The first phase of a two-phase commit.

    1. Copy the rows into the table, in a transaction. A crash, or an abort, leaves nothing.
    2. In it, record the transaction's id: visible once committed, so that a repeat can distinguish a commit from a loss.
    3. Prepare it. From now on it survives this process and a restart of the server. A discarded
       attempt leaves it to the sweep.
    """

    def __init__(self, conninfo: str, table: str, context: WriterContext) -> None:
        self._conninfo = conninfo
        self._name = table
        self._context = context
        self._connection: psycopg.Connection[Any] | None = None
        self._copying = ExitStack()
        self._copy: Any = None
        self._gid = gid_of(context)
        self._prepared = False
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        from tidegate.connectors.postgres.copy_text import copy_text

        text = copy_text(batch, self._context.schema)
        if not text:
            return
        if self._connection is None:
            self._begin()
        self._copy.write(text)
        self._rows += batch.num_rows

    def prepare_commit(self) -> bytes | None:
        if self._connection is None:
            return None
        context = self._context
        self._copying.close()
        reach("postgres.prepare-1-copied", gid=self._gid)
        # Within the transaction: the note becomes visible with the rows, when the transaction is committed.
        self._markers.add_prepared(self._connection, self._gid, context.lineage, context.sink, context.epoch)
        reach("postgres.prepare-2-noted", gid=self._gid)
        self._connection.execute(f"PREPARE TRANSACTION '{self._gid}'")
        self._prepared = True
        reach("postgres.prepare-3-prepared", gid=self._gid)
        self._connection.close()
        return encode(Prepared(self._gid, self._rows))

    def abort(self) -> None:
        if self._connection is None:
            return
        # Whatever was copied, the transaction ends with its connection.
        with suppress(Exception):
            self._copying.close()
        with suppress(Exception):
            self._connection.close()
        # Prepared transactions outlive their connection.
        if self._prepared:
            with suppress(Exception), connect(self._conninfo) as connection:
                connection.execute(f"ROLLBACK PREPARED '{self._gid}'")

    def _begin(self) -> None:
        from psycopg import sql

        self._connection = connection = connect(self._conninfo, LOCK_TIMEOUT_MS)
        table = read_table(connection, self._name)
        self._markers = Markers(table.schema)
        connection.execute("BEGIN")
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table.schema, table.name),
            sql.SQL(", ").join(map(sql.Identifier, self._context.schema.names)),
        )
        self._copy = self._copying.enter_context(connection.cursor().copy(statement))
