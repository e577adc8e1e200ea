"""A Spark `StatefulProcessor` as it runs in one task. Independent of Spark.

1. The rows of the epoch are gathered; in event time, late ones are dropped first.
2. After the last row, `handleInitialState` is called for rows of the second input, then `handleInputRows` once for each key.
3. Timers that are due fire. Those that the processor registers meanwhile wait for the next epoch.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK, NO_TIME, EpochTime, TimeDomain
from tidegate.graph.model import Process
from tidegate.graph.stateful_processing import StatefulProcessing, TimeMode
from tidegate.graph.states import StateKind
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.batch_operator import BatchOperator
from tidegate.runtime.task.operators.gathered_rows import GatheredRows
from tidegate.runtime.task.spark_processor.group_state import GroupStateProcessor
from tidegate.runtime.task.spark_processor.processor_handle import (
    ProcessorHandle,
    ProcessorTimerInfo,
    ProcessorTimers,
    ProcessorTimerValues,
    spark_watermark,
)
from tidegate.runtime.task.spark_processor.processor_output import FrameOutput, RowOutput
from tidegate.schema.columns import to_python
from tidegate.schema.schema import Schema
from tidegate.state.accessors.timers import TimerState
from tidegate.state.keys.key_index import KeyIndex

if TYPE_CHECKING:
    from tidegate.runtime.exchange.edge_rows import EdgeRows

_ROWS_AT_ONCE = 10_000
"""Rows that exist as Python objects, or in a pandas frame, at the same time."""
_MAX_US = (1 << 63) - 1
_LAST_ROUNDS = 1_000
"""How often timers may register timers at the end of event time. A processor that always does would never end."""

Call = Callable[[Any, Iterator[Any], ProcessorTimerValues], Iterable[Any] | None]
"""Processes the rows, or frames, of a key."""


class StatefulProcessorOperator(BatchOperator):
    """Calls `handleInputRows` once for each key and epoch, with all rows of the key in the order in which they came."""

    def __init__(
        self, node: Process, *, time: EpochTime = NO_TIME, directory: Path | None = None, **others: Any
    ) -> None:
        made: StatefulProcessing = node.function
        self._directory = directory
        super().__init__(node, time=time, **others)
        self._made = made
        self._time = time
        self._processor = GroupStateProcessor(made, node) if made.grouped else made.processor
        self._late = 0
        self._one_key = len(self._key_places) == 1
        self._key_row = _row_maker(tuple(node.input.key), made.row)
        """The key of a timer is a row, as in Spark; that of rows is a tuple."""
        self._forms = [_input_form(input.schema, made) for input in node.keyed_inputs]
        self._initial: GatheredRows | None = None
        if node.second is not None:
            second = node.second.schema
            self._initial_places = [second.index(column) for column in node.second.key]
            self._initial_fields = [second.fields[place] for place in self._initial_places]
            self._initial = GatheredRows(second, partial(self._numbered, initial=True), directory)
        self._timers: ProcessorTimers | None = None
        if self._states.timers is not None:
            self._timers = ProcessorTimers(self._states, self._states.timers, made.time_mode.domain)
        self._values = [
            self._states.value_state(state.name) for state in made.states.values() if state.kind is StateKind.VALUE
        ]
        self._output = (FrameOutput if made.pandas else RowOutput)(node.schema)

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        for name in self._made.purged:
            # Before `init`, in which the processor may read its states.
            self._states.purge(name)
        with self._errors():
            self._processor.init(ProcessorHandle(self.name, self._made, self._states, self._timers))

    def close(self) -> None:
        with self._errors():
            self._processor.close()

    def _errors(self) -> _Errors:
        return _Errors(self)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows_waiting(self, schema: Schema) -> GatheredRows:
        return GatheredRows(schema, self._numbered, self._directory)

    def accept_edge(self, rows: EdgeRows) -> None:
        if rows.edge.input == 1:
            self.accept_initial(rows.columns, rows.groups)
        else:
            self.accept_columns(rows.columns, rows.groups)

    def accept_initial(self, columns: Iterable[pa.Array], groups: npt.NDArray[Any]) -> None:
        """Take rows of the initial state."""
        assert self._initial is not None
        self._initial.add(columns, groups)

    def accept_columns(self, columns: Iterable[pa.Array], groups: npt.NDArray[Any]) -> None:
        watermark = self._service.watermark_ms
        if self._made.time_mode is TimeMode.EVENT_TIME and watermark != MIN_WATERMARK:
            columns = list(columns)
            assert self._time_column is not None
            times = columns[self._time_column]
            reached_us = min(spark_watermark(watermark) * 1000, _MAX_US)
            reached = pa.scalar(reached_us, pa.int64()).cast(times.type)
            # A row without a time is never late, as in Spark.
            kept = pc.fill_null(pc.greater(times, reached), True)
            dropped = len(times) - kept.true_count
            if dropped:
                self._late += dropped
                columns, groups = (
                    [column.filter(kept) for column in columns],
                    groups[kept.to_numpy(zero_copy_only=False)],
                )
        super().accept_columns(columns, groups)

    @property
    def late_dropped(self) -> int:
        return self._late

    def process_waiting(self) -> None:
        if self._initial is not None:
            for batch, groups in self._initial.take():
                self._each_key(batch, self._keys_of_initial(batch, groups), 1, self._handle_initial)
                self.rows_in += batch.num_rows
        super().process_waiting()

    def _run(self, batch: pa.RecordBatch, groups: npt.NDArray[Any], keys: KeyIndex) -> None:
        self._each_key(batch, keys, 0, self._processor.handleInputRows)

    def _check_bound(self) -> None:
        """The processor holds its own state objects."""

    def _handle_initial(self, key: Any, rows: Iterator[Any], values: ProcessorTimerValues) -> None:
        for row in rows:
            self._processor.handleInitialState(key, row, values)

    def _keys_of_initial(self, batch: pa.RecordBatch, groups: npt.NDArray[Any]) -> KeyIndex:
        columns = [batch.column(place) for place in self._initial_places]
        return KeyIndex.of_columns(self._initial_fields, columns, groups, self._states.scope)

    def _numbered(self, batch: pa.RecordBatch, groups: npt.NDArray[Any], initial: bool = False) -> npt.NDArray[Any]:
        keys = (self._keys_of_initial if initial else self._keys_of)(batch, groups)
        return np.array([hash(key) for key in keys.keys], np.int64)[keys.index]

    def _each_key(self, batch: pa.RecordBatch, keys: KeyIndex, input: int, call: Call) -> None:
        """Call for each key of a batch, a few thousand rows after the other."""
        # Stable: rows of a key stay in the order in which they came.
        order = np.argsort(keys.index, kind="stable")
        rows = batch if bool((order[1:] > order[:-1]).all()) else batch.take(pa.array(order))
        ends = np.cumsum(keys.counts())

        values, first, start = self._timer_values(), 0, 0

        while first < len(keys):
            # At least one key, however many rows it has; `_in_pieces` bounds those.
            last = max(first + 1, int(np.searchsorted(ends, start + _ROWS_AT_ONCE, side="right")))
            end = int(ends[last - 1])
            some, groups = keys.keys[first:last], keys.groups[first:last]

            for state in self._values:
                # One batch of reads for thousands of keys instead of one read for each.
                state.read_many(some, groups)
            if last == first + 1:
                shares: Iterable[Iterator[Any]] = [self._in_pieces(rows, start, end, input)]
            else:
                shares = self._forms[input].shares(rows.slice(start, end - start), ends[first:last] - start)
            self._call_each(some, groups, shares, call, values)

            first, start = last, end

    def _in_pieces(self, rows: pa.RecordBatch, start: int, end: int, input: int) -> Iterator[Any]:
        """The rows of one key, of which there may be many."""
        pieces = [(at, min(_ROWS_AT_ONCE, end - at)) for at in range(start, end, _ROWS_AT_ONCE)]
        form = self._forms[input]
        return chain.from_iterable(next(iter(form.shares(rows.slice(*piece), [piece[1]]))) for piece in pieces)

    def _call_each(
        self,
        keys: Sequence[Any],
        groups: Sequence[int],
        shares: Iterable[Iterator[Any]],
        call: Call,
        values: ProcessorTimerValues,
    ) -> None:
        scope, one_key = self._states.scope, self._one_key
        out: list[Any] = []
        with self._errors():
            for scope.key, scope.key_group, share in zip(keys, groups, shares):
                result = call((scope.key,) if one_key else scope.key, share, values)
                if result is not None:
                    out.extend(result)
        self._send(out)
        self._states.bound_memory()

    # -- timers ------------------------------------------------------------------------------------------------------

    def advance(self, time: EpochTime) -> int:
        self.process_waiting()
        self._time = time
        return super().advance(time)

    def _fire(self, timers: TimerState, domain: TimeDomain, until_ms: int) -> int:
        due = self._timers
        if due is None or domain is not due.domain:
            return 0
        scope, one_key, handle = self._states.scope, self._one_key, self._processor.handleExpiredTimer
        until = min(until_ms, MAX_WATERMARK - 1) + 1 if domain is TimeDomain.EVENT_TIME else until_ms
        values, fired = self._timer_values(), 0

        # At the end of event time, timers that others register fire in the same epoch: in the next, all that they emit is late.
        for _ in range(_LAST_ROUNDS if until == MAX_WATERMARK else 1):
            before, times, more = fired, due.due(until), True
            while more:
                out: list[Any] = []
                count = 0
                with self._errors():
                    for time in islice(times, self.FIRED_AT_ONCE):
                        key = self._key_row((scope.key,) if one_key else scope.key)
                        result = handle(key=key, timerValues=values, expiredTimerInfo=ProcessorTimerInfo(time))
                        if result is not None:
                            out.extend(result)
                        count += 1

                fired, more = fired + count, count == self.FIRED_AT_ONCE
                # An error from here on is that of the next operator, or of the sink.
                self._send(out)
                self._states.bound_memory()
            if fired == before:
                break
        return fired

    def pending(self) -> tuple[int | None, int | None]:
        """A timer fires when Spark's watermark reaches it, a millisecond before the job's does."""
        event, processing = super().pending()
        return None if event is None else event - 1, processing

    def _timer_values(self) -> ProcessorTimerValues:
        """The clocks of the epoch. As in Spark, the watermark that fires timers after the rows is visible to them."""
        if self._made.time_mode is TimeMode.NONE and not self._made.grouped:
            return ProcessorTimerValues(-1, -1)
        watermark = max(self._service.watermark_ms, self._time.watermark_ms)
        return ProcessorTimerValues(self._service.clock_ms, spark_watermark(watermark))

    # -- output ------------------------------------------------------------------------------------------------------

    def _send(self, out: list[Any]) -> None:
        if not out:
            return
        with self._errors():
            made, count = self._output.of(out)
        if count:
            self.rows_out += count
            self._emit(made)


class _Errors:
    """Turns errors of the processor into those of its operator, with the key."""

    def __init__(self, operator: StatefulProcessorOperator) -> None:
        self._operator = operator

    def __enter__(self) -> None: ...

    def __exit__(self, type: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, FunctionFailed):
            operator = self._operator
            raise FunctionFailed(operator.name, error, key=operator._states.scope.key) from error


def _row_maker(names: tuple[str, ...], row: type[tuple[Any, ...]] | None) -> Callable[[Iterable[Any]], Any]:
    """Return what creates rows, of a subclass of `pyspark.sql.Row` that knows the names: creating a row and reading a column of
    it are several times as fast."""
    if row is None:
        return partial(tuple.__new__, namedtuple("Row", names, rename=True))
    # A column with the name of a method, such as count, is read as row["count"], as in Spark.
    columns = {name: property(itemgetter(place)) for place, name in enumerate(names) if not hasattr(row, name)}
    return partial(tuple.__new__, type("Row", (row,), {**columns, "__fields__": list(names)}))


class _Rows:
    """Input as rows."""

    def __init__(self, schema: Schema, row: type[tuple[Any, ...]] | None) -> None:
        self._schema = schema
        self._make = _row_maker(schema.names, row)

    def shares(self, rows: pa.RecordBatch, ends: Iterable[int]) -> Iterator[Iterator[Any]]:
        """Yield the rows up to each end."""
        columns = [to_python(column, field.type) for column, field in zip(rows.columns, self._schema)]
        made, start = list(map(self._make, zip(*columns))), 0
        for end in ends:
            yield iter(made[start:end])
            start = end


class _Frames:
    """Input as pandas frames, with times as Spark converts them: in UTC, without a time zone."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def shares(self, rows: pa.RecordBatch, ends: Iterable[int]) -> Iterator[Iterator[Any]]:
        """Yield one frame with the rows up to each end."""
        columns = [
            column.cast(pa.timestamp("ns")) if pa.types.is_timestamp(column.type) else column for column in rows.columns
        ]
        table, start = pa.Table.from_arrays(columns, self._schema.names), 0
        # Pandas turns integers with nulls into floats: those of other keys must stay integers.
        one_by_one = any(column.null_count and not pa.types.is_floating(column.type) for column in columns)
        frame = None if one_by_one else _pandas(table)
        for end in ends:
            if frame is None:
                yield iter((_pandas(table.slice(start, end - start)),))
            else:
                yield iter((frame.iloc[start:end].reset_index(drop=True),))
            start = end


def _pandas(table: pa.Table) -> Any:
    return table.to_pandas(maps_as_pydicts="strict")


def _input_form(schema: Schema, made: StatefulProcessing) -> _Rows | _Frames:
    return _Frames(schema) if made.pandas else _Rows(schema, made.row)
