"""map, filter and flat_map as they run in one task. Independent of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any

from tidegate.core.hooks import hook
from tidegate.core.times import NO_TIME, EpochTime
from tidegate.graph.model import Transform
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.function_hooks import FunctionHooks
from tidegate.runtime.task.operators.operator import Emit
from tidegate.schema.columns import rows_of, struct_class
from tidegate.schema.output_columns import batch_from_rows
from tidegate.schema.schema import Schema
from tidegate.state.accessors.operator_states import OperatorStates

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.runtime.exchange.edge_rows import EdgeRows


class RowOperator:
    """Takes rows in all forms in which they come, and runs them as rows."""

    _schema: Schema
    _row: type[tuple[Any, ...]]

    def accept(self, rows: Sequence[Any]) -> None:
        self._run(as_rows(rows, self._schema, self._row))

    def accept_batch(self, batch: pa.RecordBatch) -> None:
        self._run(rows_of(batch.columns, self._schema, self._row))

    def accept_edge(self, rows: EdgeRows) -> None:
        self._run(rows_of(rows.columns, self._schema, self._row))

    def _run(self, rows: list[Any]) -> None:
        raise NotImplementedError


class TransformOperator(RowOperator):
    """map, filter, flat_map: a function of one row, without keyed state."""

    def __init__(
        self,
        node: Transform,
        context: FunctionContext,
        emit: Emit,
        time: EpochTime = NO_TIME,
        operator_states: OperatorStates | None = None,
    ) -> None:
        self.name = node.name if node.uid is None else str(node.uid)
        if operator_states is not None:
            operator_states.bind(node.function)
        self._hooks = FunctionHooks(
            name=self.name, function=node.function, states=operator_states, epoch=context.epoch, clock_ms=time.clock_ms
        )
        self.rows_in = self.rows_out = 0
        self._kind = node.kind
        self._function = node.function
        method = hook(node.function, node.kind)
        self._is_plain = method is None
        """Whether the function is a plain callable, which is neither opened nor notified."""
        self._call = node.function if method is None else method
        self._schema = node.input.schema
        self._row = struct_class(self._schema.fields)
        self._context = context
        self.spans = context.spans
        self._emit = emit
        self._left: Iterator[Any] = iter(())
        """The rows of the current batch that were not taken so far."""

    def position(self) -> object:
        return self.rows_in, self.rows_out, length_hint(self._left)

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        self._hooks.initialize()
        if self._is_plain:
            return
        try:
            if method := hook(self._function, "open"):
                method(self._context)
        except Exception as error:
            raise FunctionFailed(self.name, error) from error
        self._hooks.notify(notices)

    def snapshot(self) -> None:
        self._hooks.snapshot()

    def close(self) -> None:
        if self._is_plain:
            return
        try:
            if method := hook(self._function, "close"):
                method()
        except Exception as error:
            raise FunctionFailed(self.name, error) from error

    def _run(self, rows: list[Any]) -> None:
        call = self._call
        out: list[Any]
        left = self._left = iter(rows)
        try:
            if self._kind == "map":
                # Not list(map(…)): a StopIteration raised by the function would end it early and silently.
                out = [call(row) for row in left]
            elif self._kind == "filter":
                out = [row for row in left if call(row)]
            else:
                out = []
                for row in left:
                    result = call(row)
                    if result is not None:
                        out.extend(result)
        except Exception as error:
            # The iterator has moved past the failed row, and knows how many are left.
            raise FunctionFailed(self.name, error, rows[len(rows) - length_hint(left) - 1]) from error
        self.rows_in += len(rows)
        self.rows_out += len(out)
        if out:
            self._emit(out)


def as_rows(rows: Sequence[Any], schema: Schema, row: type[tuple[Any, ...]]) -> list[Any]:
    """Convert what another function emitted (tuples, dicts or rows) to rows as functions read them."""
    classes = set(map(type, rows))
    if classes == {row}:
        return list(rows)
    if not all(issubclass(found, tuple) for found in classes):
        return rows_of(batch_from_rows(rows, schema).columns, schema, row)
    width = len(schema)
    if any(len(values) != width for values in rows):
        # It raises the error that names the row and the columns.
        batch_from_rows(rows, schema)
    return list(map(partial(tuple.__new__, row), rows))
