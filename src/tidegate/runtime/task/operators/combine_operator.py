"""The part of a function over batches that runs before the shuffle. Independent of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.graph.model import Transform
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.operator import Emit
from tidegate.runtime.task.operators.waiting_rows import WaitingRows
from tidegate.schema.output_batches import output_batch
from tidegate.schema.output_columns import batch_from_rows
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.key_scope import KeyScope

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.runtime.exchange.edge_rows import EdgeRows


class CombineOperator:
    """Collects the rows that leave a task for one keyed operator, and sends what the function makes of them instead."""

    def __init__(self, node: Transform, context: FunctionContext, emit: Emit) -> None:
        self.name = node.name
        self.rows_in = self.rows_out = 0
        self.spans = context.spans
        self._combiner = node.function
        self._context = context
        self._emit = emit
        self._read = node.input.schema
        self._schema = node.schema
        self._places = [self._read.index(column) for column in node.function.key]
        self._fields = [self._read.fields[place] for place in self._places]
        self._waiting = WaitingRows(self._read)

    def position(self) -> object:
        return self.rows_in, self.rows_out

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        """Notices are for the copy of the function behind the shuffle, which has the state."""
        try:
            self._combiner.function.open(self._context)
        except Exception as error:
            raise FunctionFailed(self.name, error) from error

    def accept(self, rows: Sequence[Any]) -> None:
        self._take(batch_from_rows(rows, self._read).columns)

    def accept_batch(self, batch: pa.RecordBatch) -> None:
        self._take(batch.columns)

    def accept_edge(self, rows: EdgeRows) -> None:
        self._take(rows.columns)

    def _take(self, columns: Sequence[pa.Array]) -> None:
        # Key groups are computed where the result is sent; here rows only need something in their place.
        self._waiting.add(columns, np.zeros(len(columns[0]), np.int32))
        if self._waiting.are_enough:
            self.finish()

    def finish(self) -> None:
        """Combine the rows that were taken so far."""
        for batch, groups in self._waiting.take():
            keys = KeyIndex.of_columns(
                self._fields, [batch.column(place) for place in self._places], groups, KeyScope()
            )
            try:
                made = output_batch(self._combiner.function.combine(batch, keys), self._schema)
            except Exception as error:
                raise FunctionFailed(self.name, error) from error
            self.rows_in += batch.num_rows
            self.rows_out += made.num_rows
            if made.num_rows:
                self._emit(made)

    def snapshot(self) -> None: ...

    def close(self) -> None:
        try:
            self._combiner.function.close()
        except Exception as error:
            raise FunctionFailed(self.name, error) from error
