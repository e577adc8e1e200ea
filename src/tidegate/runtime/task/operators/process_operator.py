"""A keyed operator as it runs in one task: rows and timers with their keys. Independent of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.ids import KeyGroup
from tidegate.core.times import NO_TIME, EpochTime, TimeDomain
from tidegate.graph.event_times import millis
from tidegate.graph.model import Process
from tidegate.graph.on_error import ErrorAction
from tidegate.operators.attached_function import attach
from tidegate.operators.port import AttachedOperator, Capability, CombinedRows, RowCall, Taken
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.broadcast import BroadcastSide
from tidegate.runtime.task.operators.element_context import KeyedElementContext
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.function_hooks import FunctionHooks
from tidegate.runtime.task.operators.hot_keys import KeySketch
from tidegate.runtime.task.operators.keyed_inputs import CombinedInput, KeyedInput
from tidegate.runtime.task.operators.operator import Emit
from tidegate.runtime.task.operators.row_errors import Guard, RowErrors
from tidegate.runtime.task.operators.timer_service import KeyTimerService
from tidegate.schema.columns import normalized_keys, to_python
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.accessors.timers import TimerState

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.runtime.exchange.edge_rows import EdgeRows


class ProcessOperator:
    """A keyed function, called row by row, with its state bound to the row's key."""

    FIRED_AT_ONCE = 10_000
    """Timers whose output is collected before it is sent downstream."""

    def __init__(
        self,
        node: Process,
        states: KeyedStates,
        context: FunctionContext,
        emit: Emit,
        side_emits: dict[str, Emit],
        time: EpochTime = NO_TIME,
        operator_states: OperatorStates | None = None,
        sketch: KeySketch | None = None,
    ) -> None:
        self.name = node.name
        self.rows_in = self.rows_out = 0
        self.sketch = sketch
        """Finds the keys with the most rows; None: nobody wants to know."""
        self._left: Iterator[Any] = iter(())
        """The rows of the current batch that were not taken so far. The iterator knows their number."""
        self._attached = attached = attach(node.function, states)
        self._context = context
        self.spans = context.spans
        calls = self._calls(attached, node)
        if calls and sketch is not None:
            scope = states.scope
            self.spans.key_of = lambda: scope.key
        self._states = states
        self._emit = emit
        self._sides: dict[str, list[Any]] = {tag: [] for tag, _ in node.side_outputs}
        self._side_emits = side_emits
        self._service = KeyTimerService(states.scope, states.timers, time)
        self._process_context = KeyedElementContext(states.scope, self._sides, self._service, context.span)
        if operator_states is not None:
            attached.attach_operator_states(operator_states)
        self._hooks = FunctionHooks(
            name=self.name, function=node.function, states=operator_states, epoch=context.epoch, clock_ms=time.clock_ms
        )
        self._can = attached.capabilities
        self._on_timer = attached.timer_call()
        self.broadcast: BroadcastSide | None = None
        if node.broadcast is not None:
            lists = operator_states or OperatorStates(None, (), lambda _: 0)
            self.broadcast = BroadcastSide(
                input=node.broadcast,
                call=attached.broadcast_call(),
                keyed=states,
                operator=lists,
                service=self._service,
                context=self._process_context,
            )
        self._guard: Guard | None = None
        if node.on_error.action is not ErrorAction.FAIL:
            errors = RowErrors(self.name, node.on_error, self._sides, context.epoch)
            guard = self._guard = Guard(states, operator_states, self._sides, errors)
            # A row or a timer that fails must be one, so that the others keep what they did.
            self._can &= ~(Capability.TAKES_COMBINED | Capability.FIRES_TOGETHER)
            calls = [guard.around(call) for call in calls]
            self._on_timer = guard.around(self._on_timer, timer=True, afterwards=attached.on_timer_failed)
            if self.broadcast is not None:
                self.broadcast.call = guard.around(self.broadcast.call)
        self._inputs = [KeyedInput(input, call) for input, call in zip(node.keyed_inputs, calls)]
        self._combined: CombinedInput | None = None
        if node.combine is not None:
            self._combined = CombinedInput(node.combine, attached.combined_call())

    def _calls(self, attached: AttachedOperator, node: Process) -> Sequence[RowCall]:
        """Return what processes the rows of each keyed input."""
        return attached.row_calls(len(node.keyed_inputs))

    def position(self) -> object:
        # The key and the time: while timers fire, nothing else changes.
        firing = self._states.scope.key, self._process_context.row_time
        return self.rows_in, self.rows_out, length_hint(self._left), firing

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        self._hooks.initialize()
        try:
            self._attached.open(self._context)
        except Exception as error:
            raise FunctionFailed(self.name, error) from error
        # Before the first row, as late as that: an epoch is the only time at which a function of a task exists.
        self._hooks.notify(notices)
        # Not earlier: up to here there is no key, and a declared state reports that until it is bound.
        self._attached.bind()

    def snapshot(self) -> None:
        self._hooks.snapshot()

    def close(self) -> None:
        try:
            self._attached.close()
        except Exception as error:
            raise FunctionFailed(self.name, error) from error

    def _check_bound(self) -> None:
        try:
            self._attached.check()
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
        if Capability.TAKES_COMBINED in self._can:
            take = self._attached.take_partial if partial else self._attached.take_combined
            rows, keys, groups, times = self._take_many(take, list(rows), keys, groups, times)
        self._process(rows, keys, groups, times, self._combined.call)
        # `_process` has counted one for each combined row.
        self.rows_in += sum(made_of) - len(keys)

    def _take_many(
        self,
        take: Callable[[CombinedRows], Taken],
        rows: list[Any],
        keys: list[Any],
        groups: Sequence[int],
        panes: list[int | None],
    ) -> tuple[list[Any], list[Any], list[int], list[int | None]]:
        """Let the function take many combined rows at once, and return those that it left."""
        try:
            out, left = take(
                CombinedRows(keys=keys, groups=groups, panes=panes, rows=rows, watermark_ms=self._service.watermark_ms)
            )
        except Exception as error:
            raise FunctionFailed(self.name, error) from error
        self._deliver(out)
        return [rows[i] for i in left], [keys[i] for i in left], [groups[i] for i in left], [panes[i] for i in left]

    def process(
        self,
        rows: Iterable[Any],
        keys: Sequence[Any],
        groups: Sequence[KeyGroup | int],
        times: Sequence[int | None] | None = None,
        input: int = 0,
    ) -> None:
        """Process rows of an input, with their keys, key groups and event times."""
        if self.sketch is not None:
            self.sketch.add(keys)
        self._process(rows, keys, groups, times, self._inputs[input].call)

    def _process(
        self,
        rows: Iterable[Any],
        keys: Sequence[Any],
        groups: Sequence[KeyGroup | int],
        times: Sequence[int | None] | None,
        function: RowCall,
    ) -> None:
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
                # The targets of the loop are what accessors and the context read: no call sets them for each row.
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
        if Capability.HOLDS_COMBINED in self._can:
            try:
                out = self._attached.finish_combined()
            except Exception as error:
                raise FunctionFailed(self.name, error) from error
            self._deliver(out)
            self._states.bound_memory()
        # Between rows and timers: rows see the watermark of before the epoch, timers the one at its end.
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
        return self._attached.late_rows_dropped

    def pending(self) -> tuple[int | None, int | None]:
        """Return the earliest timers: in event time, in processing time."""
        timers = self._states.timers
        if timers is None:
            return None, None
        return timers.earliest(TimeDomain.EVENT_TIME), timers.earliest(TimeDomain.PROCESSING_TIME)

    def count_timers(self, most: int) -> int | None:
        """Return the number of pending timers, at most `most`. None: the operator has no timers."""
        timers = self._states.timers
        if timers is None:
            return None
        return timers.count(most)

    def _fire(self, timers: TimerState, domain: TimeDomain, until_ms: int) -> int:
        out: list[Any] = []
        scope, context, function = self._states.scope, self._process_context, self._on_timer
        context.domain = domain
        fired = 0
        if Capability.FIRES_TOGETHER in self._can and domain is TimeDomain.EVENT_TIME:
            return self._fire_together(timers.due(domain, until_ms))

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

    def _fire_together(self, due: Iterator[Any]) -> int:
        """Fire timers that depend neither on each other nor on a context."""
        fired = 0
        try:
            while some := list(islice(due, self.FIRED_AT_ONCE)):
                self._deliver(self._attached.fire_together(some))
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


def _not_rows(result: Any, function: Callable[..., Any]) -> SchemaError | None:
    """Return the error for a function that returned neither rows nor None."""
    if result is None or isinstance(result, Iterable):
        return None
    name = function.__qualname__ if isinstance(function, FunctionType | MethodType) else function
    return SchemaError(
        f"{name} returned {result!r:.200}, which is not a list of rows. Yield rows, or return a list of them."
    )
