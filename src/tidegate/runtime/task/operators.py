"""Operators of a level as they run in one task: chained calls on lists of rows. Independent of Spark.

Everything here is created for each attempt of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.checkpoint.staging import JobStaging
from tidegate.connectors.sink import SinkWriter, WriterContext, prepared_payload
from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.ids import EpochId, KeyGroup
from tidegate.core.times import NO_TIME, EpochTime, TimeDomain
from tidegate.graph.columns import normalized_keys, rows_of, struct_class, to_python
from tidegate.graph.combine import LATE, PANE, ROWS, SPAN, Combine
from tidegate.graph.event_times import millis
from tidegate.graph.model import Input, Process, SinkNode, Transform
from tidegate.graph.on_error import ErrorAction
from tidegate.graph.output_columns import batch_from_rows
from tidegate.graph.schema import Schema
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.messages import TaskCommittable
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.broadcast import BroadcastSide
from tidegate.runtime.task.function_hooks import FunctionHooks
from tidegate.runtime.task.hot_keys import KeySketch
from tidegate.runtime.task.row_errors import Call, Guard, RowErrors
from tidegate.runtime.task.spans import Span, SpanTimes
from tidegate.runtime.task.timer_service import KeyTimerService
from tidegate.state.keyed_states import KeyedStates
from tidegate.state.keys import KeyCodec, Namespace
from tidegate.state.operator_states import OperatorStates
from tidegate.state.timers import TimerState

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.runtime.exchange.edge_rows import EdgeRows

TakeCombined = Callable[..., tuple[list[Any], Sequence[int]]]
Emit = Callable[[Any], None]
"""Takes rows, or one batch of columns, as the producer emits them."""


class Operator(Protocol):
    """A running node. `accept` takes rows as their producer emitted them, `accept_batch` those of a producer that emits
    batches; `accept_edge` takes rows as they arrived over a shuffle.
    """

    name: str
    rows_in: int
    rows_out: int

    def position(self) -> object:
        """Return how far the operator is, within a batch, too: a value that differs when a row has moved. Called by another
        thread."""
        ...

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None: ...
    def accept(self, rows: Sequence[Any]) -> None: ...
    def accept_batch(self, batch: pa.RecordBatch) -> None: ...
    def accept_edge(self, rows: EdgeRows) -> None: ...
    def snapshot(self) -> None: ...
    def close(self) -> None: ...


def emit_to(consumers: Sequence[Emit]) -> Emit:
    """Return one call that reaches all consumers of a stream."""
    if len(consumers) == 1:
        return consumers[0]

    def emit(rows: Any) -> None:
        for consumer in consumers:
            consumer(rows)

    return emit


class FunctionContext:
    """The context of a function in `open`."""

    def __init__(
        self, name: str, subtask: int, parallelism: int, epoch: EpochId | None = None, spans: SpanTimes | None = None
    ) -> None:
        self.epoch = epoch
        self.spans = SpanTimes() if spans is None else spans
        self.span = self.spans.span
        """Measures the time of a block: `with ctx.span("parse"):`."""
        self._name = name
        self._subtask = subtask
        self._parallelism = parallelism

    def get_task_name(self) -> str:
        return self._name

    def get_index_of_this_subtask(self) -> int:
        return self._subtask

    def get_number_of_parallel_subtasks(self) -> int:
        return self._parallelism


class KeyedElementContext:
    """The context of a keyed function while it processes a row or a timer."""

    __slots__ = ("_scope", "_service", "_sides", "domain", "namespace", "row_time", "span")

    def __init__(
        self, scope: Any, sides: dict[str, list[Any]], service: KeyTimerService, span: Callable[[str], Span]
    ) -> None:
        self._scope = scope
        self.span = span
        """Measures the time of a block: `with ctx.span("parse"):`."""
        self._sides = sides
        self._service = service
        self.row_time: int | None = None
        self.domain = TimeDomain.EVENT_TIME
        self.namespace: Namespace = None
        """The namespace of the timer that fires."""

    def timestamp(self) -> int | None:
        """Event time of the row, or the time of the timer, in milliseconds."""
        return self.row_time

    def timer_service(self) -> KeyTimerService:
        return self._service

    def time_domain(self) -> TimeDomain:
        return self.domain

    def get_current_key(self) -> Any:
        return self._scope.key

    def output(self, tag: str, row: Any) -> None:
        """Send a row to a side output."""
        try:
            self._sides[tag].append(row)
        except KeyError:
            declared = ", ".join(sorted(self._sides)) or "none"
            raise GraphError(
                f"There is no side output {tag!r}; declared are: {declared}. "
                f"Declare it: process(…, side_outputs={{{tag!r}: 'column type, …'}})."
            ) from None


def _opened(function: Any, context: FunctionContext, name: str) -> None:
    open_ = getattr(function, "open", None)
    if callable(open_):
        try:
            open_(context)
        except Exception as error:
            raise FunctionFailed(name, error) from error


def _closed(function: Any, name: str) -> None:
    close = getattr(function, "close", None)
    if callable(close):
        try:
            close()
        except Exception as error:
            raise FunctionFailed(name, error) from error


def _not_rows(result: Any, function: Callable[..., Any]) -> SchemaError | None:
    """Return the error for a function that returned neither rows nor None."""
    if result is None or hasattr(result, "__iter__"):
        return None
    return SchemaError(
        f"{getattr(function, '__qualname__', function)} returned {result!r:.200}, which is not a list of rows. "
        "Yield rows, or return a list of them."
    )


def _no_timer(timestamp: int, context: Any) -> None:
    return None


class _Side:
    """One input of a keyed function: how its rows are read, and which function processes them."""

    def __init__(self, input: Input, call: Callable[[Any, Any], Iterable[Any] | None]) -> None:
        self.schema = input.schema
        self.row = partial(tuple.__new__, struct_class(input.schema.fields))
        self.key_columns = [input.schema.index(column) for column in input.key]
        self.key_types = [input.schema.fields[i].type for i in self.key_columns]
        self.time_column = None if input.event_time is None else input.schema.index(input.event_time)
        self.call = call


class _CombinedSide:
    """Rows that were combined before the shuffle (see `graph.combine`). Each is (number of rows combined, late row or None,
    parts, milliseconds from the first of them to the last if the operator needs to know)."""

    def __init__(self, combine: Combine, call: Call) -> None:
        self.schema = schema = combine.schema
        self._key_types = [field.type for field in combine.key]
        self._pane, self._rows = schema.index(PANE), schema.index(ROWS)
        self._late = None if combine.rows is None else schema.index(LATE)
        self._span = schema.index(SPAN) if SPAN in schema.names else None
        self._parts = len(schema) - len(combine.parts)
        self.call = call

    def read(self, columns: Sequence[pa.Array]) -> tuple[Iterable[Any], list[Any], list[int | None], list[int]]:
        """Return the rows, their keys, their times, and the number of source rows that each combines."""
        fields = self.schema.fields
        values = [to_python(c, f.type) for c, f in zip(columns, fields)]
        late: Iterable[Any] = repeat(None) if self._late is None else values[self._late]
        span: Iterable[Any] = repeat(None) if self._span is None else values[self._span]
        rows = zip(values[self._rows], late, zip(*values[self._parts :]), span)
        keys = normalized_keys(values[: len(self._key_types)], self._key_types)
        return rows, keys, values[self._pane], values[self._rows]


class ProcessOperator:
    """A keyed function, called row by row, with its state bound to the row's key."""

    FIRED_AT_ONCE = 10_000
    """Timers whose output is collected before it is sent downstream."""

    def __init__(
        self, node: Process, states: KeyedStates, context: FunctionContext, emit: Emit, side_emits: dict[str, Emit],
        time: EpochTime = NO_TIME, operator_states: OperatorStates | None = None, sketch: KeySketch | None = None,
    ) -> None:  # fmt: skip
        self.name = node.name
        self.rows_in = self.rows_out = 0
        self.sketch = sketch
        """Finds the keys with the most rows; None: nobody wants to know."""
        self._left: Iterator[Any] = iter(())
        """The rows of the current batch that were not taken so far. The iterator knows their number."""
        self._function = function = node.function
        self._context, self.spans = context, context.spans
        if hasattr(function, "attach_states"):
            states.bind(function)
        calls = self._calls(node)
        if calls and sketch is not None:
            scope = states.scope
            self.spans.key_of = lambda: scope.key
        self._states = states
        self._emit = emit
        self._sides: dict[str, list[Any]] = {tag: [] for tag, _ in node.side_outputs}
        self._side_emits = side_emits
        self._service = KeyTimerService(states.scope, states.timers, time)
        self._process_context = KeyedElementContext(states.scope, self._sides, self._service, context.span)
        self._hooks = FunctionHooks(
            name=self.name, function=function, states=operator_states, epoch=context.epoch, clock_ms=time.clock_ms
        )
        self.on_timer: Call = getattr(function, "on_timer", _no_timer)
        self._fire_many: Callable[[Sequence[Any]], list[Any]] | None = (
            getattr(function, "on_timers", None) if node.on_error.action is ErrorAction.FAIL else None
        )
        self.broadcast: BroadcastSide | None = None
        if node.broadcast is not None:
            lists = operator_states or OperatorStates(None, (), lambda _: 0)
            call = function.process_broadcast_element
            self.broadcast = BroadcastSide(
                input=node.broadcast,
                call=call,
                keyed=states,
                operator=lists,
                service=self._service,
                context=self._process_context,
            )
        self._guard: Guard | None = None
        if node.on_error.action is not ErrorAction.FAIL:
            errors = RowErrors(self.name, node.on_error, self._sides, context.epoch)
            guard = self._guard = Guard(states, operator_states, self._sides, errors)
            calls = [guard.around(call) for call in calls]
            afterwards = getattr(function, "on_timer_failed", None)
            self.on_timer = guard.around(self.on_timer, timer=True, afterwards=afterwards)
            if self.broadcast is not None:
                self.broadcast.call = guard.around(self.broadcast.call)
        self._inputs = [_Side(input, call) for input, call in zip(node.keyed_inputs, calls)]
        self._combined = None if node.combine is None else _CombinedSide(node.combine, function.process_combined)
        self._take_combined: TakeCombined | None = (
            getattr(function, "take_combined", None) if self._guard is None else None
        )
        self._take_partial = getattr(function, "take_partial", self._take_combined)
        self._finish_combined: Callable[[], list[Any] | None] | None = getattr(function, "finish_combined", None)

    def _calls(self, node: Process) -> list[Call]:
        """The methods that process the rows of each keyed input."""
        function = self._function
        if node.second is None:
            return [function.process_element]
        return [function.process_element1, function.process_element2]

    def position(self) -> object:
        # The key and the time: while timers fire, nothing else changes.
        firing = self._states.scope.key, self._process_context.row_time
        return self.rows_in, self.rows_out, length_hint(self._left), firing

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        self._hooks.initialize()
        _opened(self._function, self._context, self.name)
        self._hooks.tell(notices)
        # Not earlier: up to here there is no key, and a declared state reports that until it is bound.
        if hasattr(self._function, "bind_function"):
            self._function.bind_function()
        elif not hasattr(self._function, "attach_states"):
            self._states.bind(self._function)

    def snapshot(self) -> None:
        self._hooks.snapshot()

    def close(self) -> None:
        _closed(self._function, self.name)

    def _check_bound(self) -> None:
        try:
            self._states.check_bound(self._function)
        except GraphError as error:
            raise FunctionFailed(self.name, error) from error

    def accept(self, rows: Sequence[Any]) -> None:
        raise AssertionError("a keyed operator is always reached through a shuffle")

    accept_batch = accept

    def accept_edge(self, rows: EdgeRows) -> None:
        if self.broadcast is not None and rows.edge.broadcast:
            self.process_broadcast(self.broadcast.rows(rows), self.broadcast.times(rows))
            return
        if rows.edge.combine is not None:
            self.accept_combined(rows.columns, rows.groups.tolist(), partial=rows.edge.combined_from is not None)
            return
        side = self._inputs[rows.edge.input]
        columns = [to_python(c, f.type) for c, f in zip(rows.columns, side.schema.fields)]
        keys = normalized_keys([columns[i] for i in side.key_columns], side.key_types)
        times = None if side.time_column is None else millis(rows.columns[side.time_column])
        self.process(map(side.row, zip(*columns)), keys, rows.groups.tolist(), times, rows.edge.input)

    def accept_combined(self, columns: Sequence[pa.Array], groups: Sequence[int], *, partial: bool = False) -> None:
        """Process combined rows, given as columns of their schema. `partial`: more may follow for the same keys and intervals."""
        assert self._combined is not None
        rows, keys, times, made_of = self._combined.read(columns)
        if self.sketch is not None:
            self.sketch.add(keys, made_of)
        take = self._take_partial if partial else self._take_combined
        if take is not None:
            rows, keys, groups, times = self._take_many(take, list(rows), keys, groups, times)
        self._process(rows, keys, groups, times, self._combined.call)
        self.rows_in += sum(made_of) - len(keys)

    def _take_many(
        self, take: TakeCombined, rows: list[Any], keys: list[Any], groups: Sequence[int], panes: list[int | None]
    ) -> tuple[list[Any], list[Any], list[int], list[int | None]]:
        """Let the function take many combined rows at once, and return those that it left."""
        try:
            out, left = take(keys, groups, panes, rows, self._service.watermark_ms)
        except Exception as error:
            raise FunctionFailed(self.name, error) from error
        self._deliver(out)
        return [rows[i] for i in left], [keys[i] for i in left], [groups[i] for i in left], [panes[i] for i in left]

    def process(
        self, rows: Iterable[Any], keys: Sequence[Any], groups: Sequence[KeyGroup | int],
        times: Sequence[int | None] | None = None, input: int = 0,
    ) -> None:  # fmt: skip
        """Process rows of an input, with their keys, key groups and event times."""
        if self.sketch is not None:
            self.sketch.add(keys)
        self._process(rows, keys, groups, times, self._inputs[input].call)

    def _process(
        self, rows: Iterable[Any], keys: Sequence[Any], groups: Sequence[KeyGroup | int],
        times: Sequence[int | None] | None, function: Call,
    ) -> None:  # fmt: skip
        """The inner loop. Everything in it costs time for every row."""
        out: list[Any] = []
        extend = out.extend
        scope, context = self._states.scope, self._process_context
        row: Any = None
        result: Any = None
        left = self._left = iter(keys)
        try:
            if times is None:
                context.row_time = None
                for row, scope.key, scope.key_group in zip(rows, left, groups):
                    result = function(row, context)
                    if result is not None:
                        extend(result)
            else:
                for row, scope.key, scope.key_group, context.row_time in zip(rows, left, groups, times):
                    result = function(row, context)
                    if result is not None:
                        extend(result)
        except Exception as error:
            cause = _not_rows(result, function) or error
            raise FunctionFailed(self.name, cause, row, scope.key) from cause
        self._check_bound()
        self.rows_in += len(keys)
        self._deliver(out)
        self._states.bound_memory()

    def process_broadcast(self, rows: Sequence[Any], times: Sequence[int | None] | None = None) -> None:
        """Process rows of the broadcast side, which every task of the operator sees."""
        assert self.broadcast is not None
        out: list[Any] = []
        try:
            self.broadcast.process(rows, times, out)
        except Exception as error:
            raise FunctionFailed(self.name, error) from error
        self.rows_in += len(rows)
        self._deliver(out)
        self._states.bound_memory()

    def advance(self, time: EpochTime) -> int:
        """Finish the rows of the epoch: apply its clocks and fire the timers that are due. Return the number of timers fired."""
        if self._finish_combined is not None:
            try:
                out = self._finish_combined()
            except Exception as error:
                raise FunctionFailed(self.name, error) from error
            self._deliver(out or [])
            self._states.bound_memory()
        self._service.advance(time)
        self._states.set_time(self._service.clock_ms, self._service.watermark_ms)
        if self._states.timers is None:
            return 0
        fired = self._fire(self._states.timers, TimeDomain.PROCESSING_TIME, time.clock_ms)
        return fired + self._fire(self._states.timers, TimeDomain.EVENT_TIME, time.watermark_ms)

    @property
    def failed_rows(self) -> int:
        """Rows and timers on which the function raised, and that were passed over."""
        return 0 if self._guard is None else self._guard.failed

    @property
    def late_dropped(self) -> int:
        """Return the number of rows that a window operator dropped because they were late."""
        return int(getattr(self._function, "late_rows_dropped", 0))

    def pending(self) -> tuple[int | None, int | None]:
        """Return the earliest timers: in event time, in processing time."""
        timers = self._states.timers
        if timers is None:
            return None, None
        return timers.earliest(TimeDomain.EVENT_TIME), timers.earliest(TimeDomain.PROCESSING_TIME)

    def count_timers(self, most: int) -> int | None:
        """Return the number of pending timers, at most `most`. None: the operator has no timers."""
        return None if self._states.timers is None else self._states.timers.count(most)

    def _fire(self, timers: TimerState, domain: TimeDomain, until_ms: int) -> int:
        out: list[Any] = []
        scope, context, function = self._states.scope, self._process_context, self.on_timer
        context.domain = domain
        fired = 0
        if self._fire_many is not None and domain is TimeDomain.EVENT_TIME:
            return self._fire_together(timers.due(domain, until_ms), self._fire_many)
        try:
            for context.row_time, scope.key, scope.key_group, context.namespace in timers.due(domain, until_ms):
                result = function(context.row_time, context)
                if result is not None:
                    out.extend(result)
                fired += 1
                if fired % self.FIRED_AT_ONCE == 0:
                    self._deliver(out)
                    out = []
                    self._states.bound_memory()
        except FunctionFailed:
            raise
        except Exception as error:
            raise FunctionFailed(self.name, error, key=scope.key) from error
        self._deliver(out)
        return fired

    def _fire_together(self, due: Iterator[Any], fire: Callable[[Sequence[Any]], list[Any]]) -> int:
        """Fire timers that depend neither on each other nor on a context."""
        fired = 0
        try:
            while some := list(islice(due, self.FIRED_AT_ONCE)):
                self._deliver(fire(some))
                fired += len(some)
                self._states.bound_memory()
        except FunctionFailed:
            raise
        except Exception as error:
            raise FunctionFailed(self.name, error) from error
        return fired

    def _deliver(self, out: list[Any]) -> None:
        if out:
            self.rows_out += len(out)
            self._emit(out)
        for tag, rows in self._sides.items():
            if rows:
                self.rows_out += len(rows)
                self._side_emits[tag](rows.copy())
                rows.clear()


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
        self, node: Transform, context: FunctionContext, emit: Emit, time: EpochTime = NO_TIME,
        operator_states: OperatorStates | None = None,
    ) -> None:  # fmt: skip
        self.name = node.name if node.uid is None else str(node.uid)
        self._hooks = FunctionHooks(
            name=self.name, function=node.function, states=operator_states, epoch=context.epoch, clock_ms=time.clock_ms
        )
        self.rows_in = self.rows_out = 0
        self._kind = node.kind
        self._function = node.function
        self._call = getattr(node.function, node.kind, node.function)
        self._schema = node.input.schema
        self._row = struct_class(self._schema.fields)
        self._context, self.spans = context, context.spans
        self._emit = emit
        self._left: Iterator[Any] = iter(())
        """The rows of the current batch that were not taken so far."""

    def position(self) -> object:
        return self.rows_in, self.rows_out, length_hint(self._left)

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        self._hooks.initialize()
        if self._call is not self._function:
            _opened(self._function, self._context, self.name)
            self._hooks.tell(notices)

    def snapshot(self) -> None:
        self._hooks.snapshot()

    def close(self) -> None:
        if self._call is not self._function:
            _closed(self._function, self.name)

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
        self._written_bytes = 0

    def position(self) -> object:
        return self.rows_in, self._staging.size_bytes

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None: ...
    def snapshot(self) -> None: ...
    def close(self) -> None: ...

    def accept(self, rows: Sequence[Any]) -> None:
        take_rows = getattr(self._opened(), "write_rows", None)
        if take_rows is not None:
            self.rows_in += len(rows)
            take_rows(rows)
            return
        self._write(batch_from_rows(rows, self._context.schema))

    def accept_batch(self, batch: pa.RecordBatch) -> None:
        self._write(batch)

    def accept_edge(self, rows: EdgeRows) -> None:
        import pyarrow as pa  # noqa: PLC0415 start-up time

        self._write(pa.RecordBatch.from_arrays(rows.columns, schema=self._context.schema.to_arrow()))

    def _opened(self) -> SinkWriter:
        if self._writer is None:
            self._writer = self._target.create_writer(self._context)
        return self._writer

    def _write(self, batch: pa.RecordBatch) -> None:
        self._opened().write(batch)
        self.rows_in += batch.num_rows
        self._written_bytes += batch.nbytes

    def prepare_commit(self) -> TaskCommittable | None:
        payload = None if self._writer is None else prepared_payload(self._writer, str(self.uid))
        if payload is None:
            return None
        # For a writer that takes rows unchanged, measure what it stages.
        size = self._written_bytes or max(self._staging.size_bytes, len(payload))
        return TaskCommittable(str(self.uid), payload, tuple(self._staging.paths), size)

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def key_codec(schema: Schema, key: Sequence[str]) -> KeyCodec:
    return KeyCodec([schema.fields[schema.index(column)].type for column in key])


def as_rows(rows: Sequence[Any], schema: Schema, row: type[tuple[Any, ...]]) -> list[Any]:
    """Convert what another function emitted (tuples, dicts or rows) to rows as functions read them."""
    classes = set(map(type, rows))
    if classes == {row}:
        return list(rows)
    if not all(issubclass(found, tuple) for found in classes):
        return rows_of(batch_from_rows(rows, schema).columns, schema, row)
    width = len(schema)
    if any(len(values) != width for values in rows):
        batch_from_rows(rows, schema)
    return list(map(partial(tuple.__new__, row), rows))
