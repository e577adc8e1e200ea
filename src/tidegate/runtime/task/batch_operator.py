"""A keyed function over whole batches as it runs in one task. Independent of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import GraphError, SchemaError, WrongValue
from tidegate.core.times import EpochTime, TimeDomain, time_ms
from tidegate.graph.columns import rows_of, struct_class
from tidegate.graph.event_times import millis
from tidegate.graph.model import Process
from tidegate.graph.output_batches import is_batch, output_batch
from tidegate.graph.output_columns import batch_from_rows
from tidegate.graph.schema import Schema
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.gathered_rows import GatheredRows
from tidegate.runtime.task.operators import ProcessOperator
from tidegate.runtime.task.spans import Span
from tidegate.runtime.task.timer_service import KeyTimerService
from tidegate.runtime.task.waiting_rows import WaitingRows
from tidegate.state.key_index import KeyIndex
from tidegate.state.timers import Timer, TimerState

if TYPE_CHECKING:
    from tidegate.runtime.exchange.edge_rows import EdgeRows


class KeysTimerService:
    """The clocks of the epoch, and timers of many keys at once."""

    def __init__(self, one_by_one: KeyTimerService, timers: TimerState | None) -> None:
        self._service, self._timers = one_by_one, timers

    def current_processing_time(self) -> int:
        return self._service.clock_ms

    def current_watermark(self) -> int:
        return self._service.watermark_ms

    def register_event_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._register(TimeDomain.EVENT_TIME, keys, timestamps)

    def register_processing_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._register(TimeDomain.PROCESSING_TIME, keys, timestamps)

    def delete_event_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._delete(TimeDomain.EVENT_TIME, keys, timestamps)

    def delete_processing_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._delete(TimeDomain.PROCESSING_TIME, keys, timestamps)

    def _register(self, domain: TimeDomain, keys: KeyIndex, timestamps: Any) -> None:
        register = self._known().register
        for time, key, group in zip(_times(timestamps, len(keys)), keys.keys, keys.groups):
            register(domain, time, key, group)

    def _delete(self, domain: TimeDomain, keys: KeyIndex, timestamps: Any) -> None:
        delete = self._known().delete
        for time, key, group in zip(_times(timestamps, len(keys)), keys.keys, keys.groups):
            delete(domain, time, key, group)

    def _known(self) -> TimerState:
        if self._timers is None:
            raise GraphError(
                "The function sets timers but has no method on_timers, so nothing would happen when they fire. Add def "
                "on_timers(self, keys, timestamps, ctx) to its class."
            )
        return self._timers


def _times(given: Any, count: int) -> list[int]:
    """Milliseconds for each key: from one time for all, or from an array of milliseconds or of moments."""
    if isinstance(given, int | np.integer | datetime):
        return [time_ms(given if isinstance(given, datetime) else int(given))] * count
    if isinstance(given, pa.Array | pa.ChunkedArray):
        given = given.to_numpy(zero_copy_only=False) if isinstance(given, pa.Array) else given.to_numpy()
    array = np.asarray(given)
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise WrongValue("One of the timer times is null. Select the keys that have a time with keys.take(mask).")
        array = array.astype("M8[ms]").astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1 or len(array) != count:
        raise WrongValue(
            f"Timers need a single time, or an array with one time for each of the {count} distinct keys: integers "
            f"(milliseconds), numpy datetime64 or Arrow timestamps. Got an array of {array.dtype} with shape {array.shape}."
        )
    return array.tolist()  # type: ignore[no-any-return]


class KeyedBatchContext:
    """The context of a function while it processes a batch of rows or of timers."""

    def __init__(
        self, timers: KeysTimerService, sides: dict[str, list[Any]], schemas: Mapping[str, Schema],
        span: Callable[[str], Span],
    ) -> None:  # fmt: skip
        self._timers, self._sides, self._schemas, self.span = timers, sides, schemas, span
        self.times: Callable[[], npt.NDArray[np.int64] | None] = lambda: None
        self.domain = TimeDomain.EVENT_TIME

    def timestamps(self) -> npt.NDArray[np.int64] | None:
        """Event time of each row in milliseconds, if the source declares one."""
        return self.times()

    def timer_service(self) -> KeysTimerService:
        return self._timers

    def time_domain(self) -> TimeDomain:
        return self.domain

    def output(self, tag: str, columns: Any) -> None:
        """Send columns to a side output."""
        if tag not in self._sides:
            declared = ", ".join(sorted(self._sides)) or "none"
            raise GraphError(
                f"There is no side output {tag!r}. Declared side outputs: {declared}. "
                f"Declare it: process(…, side_outputs={{{tag!r}: 'column type, …'}})."
            )
        self._sides[tag].append(output_batch(columns, self._schemas[tag]))


class BatchOperator(ProcessOperator):
    """A `KeyedBatchFunction`. Its output goes downstream as Arrow batches.

    Rows wait for a batch worth processing, at the latest until the end of the epoch.
    """

    def __init__(self, node: Process, **others: Any) -> None:
        super().__init__(node, **others)
        self._schema, self._side_schemas = node.schema, dict(node.side_outputs)
        read = node.input.schema
        self._read = read
        self._key_places = [read.index(column) for column in node.input.key]
        self._key_fields = [read.fields[place] for place in self._key_places]
        self._time_column = None if node.input.event_time is None else read.index(node.input.event_time)
        self._batch_context = KeyedBatchContext(
            KeysTimerService(self._service, self._states.timers), self._sides, self._side_schemas, self._context.span
        )
        self._waiting = self._rows_waiting(read)

    def _calls(self, node: Process) -> list[Any]:
        return []

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
        call = partial(self._function.process_batch, batch, keys, context)
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
        return partial(self._function.on_timers, keys, np.array(times, np.int64), self._batch_context)

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
