"""A sink as it runs in one task. Independent of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint.output.staging import JobStaging
from tidegate.connectors.sink import RowWriter, SinkWriter, WriterContext, prepared_payload, takes_rows
from tidegate.core.errors import SchemaError
from tidegate.graph.model import SinkNode
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.messages import TaskCommittable
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.schema.output_columns import batch_from_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.runtime.exchange.edge_rows import EdgeRows


class SinkOperator:
    """A sink's writer, chained behind the operator that produces its rows."""

    def __init__(self, node: SinkNode, context: WriterContext, staging: JobStaging) -> None:
        self._staging = staging
        self.name = str(node.uid)
        self.uid = node.uid
        self.rows_in = self.rows_out = 0
        self._target = node.target
        self._context = context
        self._writer: SinkWriter | None = None
        self._row_writer: RowWriter | None = None
        """The same, if it takes rows as they are."""
        self._written_bytes = 0

    def position(self) -> object:
        return self.rows_in, self._staging.size_bytes

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None: ...
    def snapshot(self) -> None: ...
    def close(self) -> None: ...

    def accept(self, rows: Sequence[Any]) -> None:
        try:
            self._opened()
            if self._row_writer is not None:
                self.rows_in += len(rows)
                self._row_writer.write_rows(rows)
                return
        except SchemaError:
            raise
        except Exception as error:
            raise self._blamed(error) from error
        self._write(batch_from_rows(rows, self._context.schema))

    def accept_batch(self, batch: pa.RecordBatch) -> None:
        self._write(batch)

    def accept_edge(self, rows: EdgeRows) -> None:
        import pyarrow as pa  # noqa: PLC0415 start-up time

        self._write(pa.RecordBatch.from_arrays(rows.columns, schema=self._context.schema.to_arrow()))

    def _opened(self) -> SinkWriter:
        if self._writer is None:
            # With the first row: a task whose sink gets nothing opens no connection and stages no file.
            writer: SinkWriter = self._target.create_writer(self._context)
            self._row_writer = writer if takes_rows(writer) else None
            self._writer = writer
        return self._writer

    def _blamed(self, error: Exception) -> FunctionFailed:
        """An error of the target is the sink's, and not that of the function whose rows it writes. Only rows that do not fit the
        sink (`SchemaError`) are the function's."""
        return FunctionFailed(self.name, error, target=self._target.describe())

    def _write(self, batch: pa.RecordBatch) -> None:
        try:
            self._opened().write(batch)
        except SchemaError:
            raise
        except Exception as error:
            raise self._blamed(error) from error
        self.rows_in += batch.num_rows
        self._written_bytes += batch.nbytes

    def prepare_commit(self) -> TaskCommittable | None:
        try:
            payload = None if self._writer is None else prepared_payload(self._writer, str(self.uid))
        except SchemaError:
            raise
        except Exception as error:
            raise self._blamed(error) from error
        if payload is None:
            return None
        # For a writer that takes rows unchanged, measure what it stages.
        size = self._written_bytes or max(self._staging.size_bytes, len(payload))
        return TaskCommittable(str(self.uid), payload, tuple(self._staging.paths), size)

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
