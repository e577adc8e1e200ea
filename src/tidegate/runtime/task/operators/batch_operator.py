"""A keyed function over whole batches as it runs in one task. Independent of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import SchemaError, WrongValue
from tidegate.core.times import EpochTime, TimeDomain
from tidegate.graph.event_times import millis
from tidegate.graph.model import Process
from tidegate.operators.port import AttachedOperator, RowCall
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.batch_context import KeyedBatchContext, KeysTimerService
from tidegate.runtime.task.operators.gathered_rows import GatheredRows
from tidegate.runtime.task.operators.process_operator import ProcessOperator
from tidegate.runtime.task.operators.waiting_rows import WaitingRows
from tidegate.schema.columns import rows_of, struct_class
from tidegate.schema.output_batches import is_batch, output_batch
from tidegate.schema.output_columns import batch_from_rows
from tidegate.schema.schema import Schema
from tidegate.state.accessors.timers import Timer, TimerState
from tidegate.state.keys.key_index import KeyIndex

if TYPE_CHECKING:
    from tidegate.runtime.exchange.edge_rows import EdgeRows


class BatchOperator(ProcessOperator):
    """A `KeyedBatchFunction`. Its output goes downstream as Arrow batches.

    Rows wait for a batch worth processing, at the latest until the end of the epoch.
    """

    def __init__(self, node: Process, **others: Any) -> None:
        super().__init__(node, **others)
        self._schema = node.schema
        self._side_schemas = dict(node.side_outputs)
        read = node.input.schema
        self._read = read
        self._key_places = [read.index(column) for column in node.input.key]
        self._key_fields = [read.fields[place] for place in self._key_places]
        self._time_column = None if node.input.event_time is None else read.index(node.input.event_time)
        self._batch_context = KeyedBatchContext(
            KeysTimerService(self._service, self._states.timers), self._sides, self._side_schemas, self._context.span
        )
        self._waiting = self._rows_waiting(read)

    def _calls(self, attached: AttachedOperator, node: Process) -> Sequence[RowCall]:
        """Its rows are called in batches."""
        return ()

    def _rows_waiting(self, schema: Schema) -> WaitingRows | GatheredRows:
        return WaitingRows(schema)

    # -- rows --------------------------------------------------------------------------------------------------------

    def accept_edge(self, rows: EdgeRows) -> None:
        self.accept_columns(rows.columns, rows.groups)

    def accept_columns(self, columns: Iterable[pa.Array], groups: npt.NDArray[Any]) -> None:
        """Take rows, given as columns of the input's schema, with their key groups."""
        self._waiting.add(columns, groups)
        if self._waiting.are_enough:
            self.process_waiting()

    def process_waiting(self) -> None:
        """Process the rows that were taken so far."""
        for batch, of_batch in self._waiting.take():
            self._process_batch(batch, of_batch)
            self._states.bound_memory()

    def _process_batch(self, batch: pa.RecordBatch, groups: npt.NDArray[Any]) -> None:
        keys = self._keys_of(batch, groups)
        if self.sketch is not None:
            self.sketch.add_indexed(keys.keys, keys.index)
        self._run(batch, groups, keys)
        self._check_bound()
        self.rows_in += batch.num_rows

    def _run(self, batch: pa.RecordBatch, groups: npt.NDArray[Any], keys: KeyIndex) -> None:
        """Call the function. With `on_error`, halve a failing batch until the failing rows are found."""
        context = self._batch_context
        context.times = partial(self._times_of, batch)
        call = partial(self._attached.batch_call(), batch, keys, context)
        if self._guard is None:
            self._emit_all(call)
            return
        error = self._attempted(call)
        if error is None:
            return
        if batch.num_rows == 1:
            (row,) = rows_of(batch.columns, self._read, struct_class(self._read.fields))
            self._states.scope.key = keys.keys[0]
            self._guard.note(row, error)
            self._deliver([])
            return
        # What the failed call did is rolled back. One bad row among n costs about 2 log n calls.
        half = batch.num_rows // 2
        for some, of_some in ((batch.slice(0, half), groups[:half]), (batch.slice(half), groups[half:])):
            self._run(some, of_some, self._keys_of(some, of_some))

    def _keys_of(self, batch: pa.RecordBatch, groups: npt.NDArray[Any]) -> KeyIndex:
        columns = [batch.column(place) for place in self._key_places]
        return KeyIndex.of_columns(self._key_fields, columns, groups, self._states.scope)

    def _times_of(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        if self._time_column is None:
            return None
        column = batch.column(self._time_column)
        if column.null_count:
            name = batch.schema.names[self._time_column]
            raise WrongValue(
                f"The event time {name!r} is null in {column.null_count} rows, so ctx.timestamps() cannot return it as "
                f"integers. Read the column instead: batch[{name!r}]."
            )
        return np.asarray(millis(column), np.int64)

    # -- timers ------------------------------------------------------------------------------------------------------

    def advance(self, time: EpochTime) -> int:
        self.process_waiting()
        return super().advance(time)

    def _fire(self, timers: TimerState, domain: TimeDomain, until_ms: int) -> int:
        """Fire all timers that are due, and then those that the function registered for times already reached."""
        context, fired = self._batch_context, 0
        context.domain, context.times = domain, lambda: None
        while True:
            due, before = timers.due(domain, until_ms), fired
            while some := list(islice(due, self.FIRED_AT_ONCE)):
                if self._guard is None:
                    self._emit_all(self._fired(some))
                elif self._attempted(self._fired(some)) is not None:
                    self._fire_each(some)
                fired += len(some)
                self._states.bound_memory()
            if fired == before:
                return fired

    def _fired(self, some: Sequence[Timer]) -> Callable[[], Any]:
        times, of_timers, groups, _ = zip(*some)
        keys = KeyIndex.of_keys(self._key_fields, of_timers, groups, self._states.scope)
        return partial(self._attached.timers_call(), keys, np.array(times, np.int64), self._batch_context)

    def _fire_each(self, some: Sequence[Timer]) -> None:
        """Fire timers again, one by one, because one of them failed."""
        assert self._guard is not None
        for timer in some:
            error = self._attempted(self._fired([timer]))
            if error is not None:
                self._states.scope.key = timer.key
                self._guard.note(None, error)
                self._deliver([])

    # -- output ------------------------------------------------------------------------------------------------------

    def _attempted(self, call: Callable[[], Any]) -> Exception | None:
        """Call the function, and pass on all its results, or undo what it did and return the error."""
        assert self._guard is not None
        try:
            out, error = self._guard.attempt(lambda: [output_batch(each, self._schema) for each in _results(call())])
        except Exception as fatal:
            raise FunctionFailed(self.name, fatal) from fatal
        if out is not None:
            self._deliver(out)
        return error

    def _emit_all(self, call: Callable[[], Any]) -> None:
        """Call the function, and pass on each result as it comes."""
        results = self._stepped(call)
        for result in results:
            self._deliver([self._checked(result)])
        self._deliver([])

    def _stepped(self, call: Callable[[], Any]) -> Iterator[Any]:
        try:
            yield from _results(call())
        except FunctionFailed:
            raise
        except Exception as error:
            raise FunctionFailed(self.name, error) from error

    def _checked(self, result: Any) -> pa.RecordBatch:
        try:
            return output_batch(result, self._schema)
        except SchemaError as error:
            raise FunctionFailed(self.name, error) from error

    def _deliver(self, out: list[Any]) -> None:
        for batch in out:
            if batch.num_rows:
                self.rows_out += batch.num_rows
                self._emit(batch)
        for tag, given in self._sides.items():
            some, given[:] = list(given), []
            for each in some:
                self._deliver_side(tag, each)

    def _deliver_side(self, tag: str, given: Any) -> None:
        """A batch of the function, or a dead letter, which is a row."""
        batch = given if isinstance(given, pa.RecordBatch) else batch_from_rows([given], self._side_schemas[tag])
        if batch.num_rows:
            self.rows_out += batch.num_rows
            self._side_emits[tag](batch)


def _results(result: Any) -> Iterable[Any]:
    """What a call returned: nothing, one batch, or several."""
    if result is None:
        return ()
    return (result,) if is_batch(result) else _several(result)


def _several(result: Any) -> Iterable[Any]:
    if not isinstance(result, Iterator | list | tuple):
        raise SchemaError(
            f"The function returned {result!r:.200}. Return one dict of columns, Arrow batch or table, or pandas or polars "
            "frame, or yield several."
        )
    return result
