"""How the rows of a keyed stream are windowed, and the resulting operators. `WindowedStream` is its public interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidegate.api.aggregates import AggregateFunction, ReduceFunction
from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.ported_function import PortedFunction
from tidegate.api.rows import Row
from tidegate.api.states import declared_states
from tidegate.api.triggers import EventTimeTrigger
from tidegate.api.window_function import ProcessWindowFunction, WindowFunction
from tidegate.api.windows import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError, UnsupportedType
from tidegate.core.types import schema_of
from tidegate.graph.combine import Combine, in_the_way
from tidegate.graph.model import Input
from tidegate.graph.on_error import FAIL, OnError
from tidegate.operators.column_aggregates import Aggregate, ColumnAggregates
from tidegate.operators.evictor import Evictor
from tidegate.operators.folds import AggregateFold, Fold, ReduceFold
from tidegate.operators.trigger import Trigger
from tidegate.operators.window_assigner import WindowAssigner
from tidegate.operators.window_contents import ContentsKind, Folded, Listed
from tidegate.operators.window_function import Emitter, emit_columns, emit_result
from tidegate.operators.window_operator import WindowOperator
from tidegate.schema.row_types import row_type
from tidegate.schema.schema import DataType, Field, Schema, as_schema

_COMBINED = (TumblingEventTimeWindows, SlidingEventTimeWindows, EventTimeSessionWindows)
"""A class derived from one of them may assign windows differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """Which windows rows belong to, when the windows fire, and what happens to late and failing rows."""

    rows: Input
    assigner: WindowAssigner
    trigger: Trigger
    evictor: Evictor | None = None
    lateness_ms: int = 0
    late_tag: str | None = None
    on_error: OnError = FAIL

    @staticmethod
    def of(rows: Input, assigner: WindowAssigner) -> Windowing:
        """Return the windows of an assigner, with its default trigger."""
        if not isinstance(assigner, WindowAssigner):
            raise GraphError(
                f"window takes an assigner, such as TumblingEventTimeWindows.of('1 min'); got {assigner!r}."
            )
        return Windowing(rows=rows, assigner=assigner, trigger=assigner.get_default_trigger())

    def with_trigger(self, trigger: Trigger) -> Windowing:
        if not isinstance(trigger, Trigger):
            raise GraphError(f"{trigger!r} is no trigger. Use, for example, CountTrigger.of(100).")
        if self.assigner.is_merging and not trigger.can_merge():
            raise GraphError(f"{trigger!r} cannot be used with {self.assigner!r}: these windows merge, and it cannot.")
        return replace(self, trigger=trigger)

    def with_lateness(self, lateness: Duration) -> Windowing:
        ms = argument_ms("lateness", lateness, of="allowed_lateness")
        if ms < 0:
            raise GraphError("The allowed lateness is negative. Use '0 s' or more.")
        if not self.assigner.is_event_time:
            raise GraphError(f"No row is late for {self.assigner!r}: they are windows of processing time.")
        return replace(self, lateness_ms=ms)

    def reduce(
        self,
        function: ReduceFunction | Callable[[Row, Row], Row],
        window_function: WindowFunction | None,
        schema: str | Schema | None,
        side_outputs: Mapping[str, str | Schema] | None,
    ) -> KeyedOperator:
        """Check the arguments of `WindowedStream.reduce` and create its operator."""
        call = getattr(function, "reduce", function)
        if not callable(call):
            raise GraphError(f"reduce takes a ReduceFunction or a callable of two rows; got {function!r}.")
        rows = self.rows.schema
        fold = ReduceFold(call, row_type(rows), rows)
        if (window_function is None) != (schema is None):
            raise GraphError(
                "Give reduce both window_function and schema, or neither: without, rows keep their columns."
            )
        out = rows if schema is None else as_schema(schema)
        return self._operator(fold, window_function, out, side_outputs)

    def aggregate_columns(
        self, columns: Mapping[str, Aggregate], side_outputs: Mapping[str, str | Schema] | None
    ) -> KeyedOperator:
        """Create the operator of `WindowedStream.aggregate` with built-in aggregates."""
        rows = self.rows.schema
        made = ColumnAggregates(columns, rows)
        fold = AggregateFold(made, made.accumulator_type, rows)
        schema = self._result_schema(made)
        return self._operator(fold, None, schema, side_outputs, emit=emit_columns, combine=self._combine(made))

    def aggregate(
        self,
        function: AggregateFunction,
        window_function: WindowFunction | None,
        accumulator: object,
        schema: str | Schema | None,
        side_outputs: Mapping[str, str | Schema] | None,
    ) -> KeyedOperator:
        """Check the arguments of `WindowedStream.aggregate` with a function and create its operator."""
        if accumulator is None or schema is None:
            raise GraphError(
                "aggregate needs the type of the accumulator and the schema of the result: "
                "aggregate(uid, function, accumulator=tuple[float, int], schema='mean double')."
            )
        try:
            schema_of(accumulator)
        except UnsupportedType as error:
            raise UnsupportedType(f"accumulator={accumulator!r} cannot be stored. {error}") from None
        fold = AggregateFold(function, accumulator, self.rows.schema)
        return self._operator(fold, window_function, as_schema(schema), side_outputs)

    def process(
        self, function: WindowFunction, schema: str | Schema, side_outputs: Mapping[str, str | Schema] | None
    ) -> KeyedOperator:
        """Check the arguments of `WindowedStream.process` and create its operator."""
        if not isinstance(function, ProcessWindowFunction):
            raise GraphError(f"process of windows takes a ProcessWindowFunction; got {function!r}.")
        return self._operator(None, function, as_schema(schema), side_outputs)

    def _operator(
        self,
        fold: Fold | None,
        function: WindowFunction | None,
        schema: Schema,
        side_outputs: Mapping[str, str | Schema] | None,
        *,
        emit: Emitter = emit_result,
        combine: Combine | None = None,
    ) -> KeyedOperator:
        """Create the operator. What a function emits counts, if there is one; otherwise `emit` makes the rows."""
        rows = self.rows
        function = _called(function)
        self._check_event_time()
        # An evictor chooses among rows, so the window must keep all of them even if only an aggregate is wanted.
        contents: ContentsKind = Listed(rows.schema, self.evictor, fold)
        if fold is not None and self.evictor is None:
            contents = Folded(fold)
        states = () if function is None else declared_states(function)
        operator = WindowOperator(
            assigner=self.assigner,
            trigger=self.trigger,
            contents=contents,
            emit=emit if function is None else function.process,
            function=function,
            function_states=states,
            trigger_states=declared_states(self.trigger.with_state()),
            lateness_ms=self.lateness_ms,
            late_tag=self.late_tag,
            fires_at_end=fires_at_end(self.trigger),
            session_gap_ms=self._session_gap_ms(),
        )
        sides = dict(side_outputs or {})
        if self.late_tag is not None:
            sides[self.late_tag] = rows.schema

        # Flink refuses it, too: two windows that become one would each have such a state, and only the function could join them.
        if self.assigner.is_merging and any(spec.windowed for spec in states):
            raise GraphError(
                f"{type(function).__name__} declares state per window, but {self.assigner!r} merge. Declare it per key."
            )
        return KeyedOperator(
            function=operator,
            states=operator.states(),
            schema=schema,
            side_outputs=sides,
            combine=combine,
            on_error=self.on_error,
        )

    def _combine(self, made: ColumnAggregates) -> Combine | None:
        """Return how Spark SQL can combine rows for these windows before the shuffle; None if it cannot.

        Triggers and evictors may depend on every row, and maps cannot be grouped by.
        """
        if type(self.assigner) not in _COMBINED:
            return None
        rows = self.rows
        intervals = self.assigner.intervals()
        if intervals is None or not fires_at_end(self.trigger) or self.evictor is not None:
            return None
        if self.on_error is not FAIL:
            return None  # A row that fails must be one row.
        # Combined rows carry times as Spark's timestamps; a time without a zone would depend on that of the session.
        time = rows.event_time
        if time is None or rows.schema.fields[rows.schema.index(time)].type.kind != "timestamp":
            return None
        if in_the_way(rows.schema.names):
            return None
        late = rows.schema if self.late_tag is not None else None
        if late is not None and any(_has_map(field.type) for field in late):
            return None
        return Combine(
            key=rows.schema.select(rows.key).fields,
            event_time=time,
            intervals=intervals,
            parts=made.parts,
            rows=late,
        )

    def _session_gap_ms(self) -> int | None:
        if type(self.assigner) is not EventTimeSessionWindows:
            return None
        return self.assigner.intervals().gap_ms

    def _check_event_time(self) -> None:
        if self.assigner.is_event_time and not isinstance(self.assigner, GlobalWindows):
            check_has_event_time(self.rows, repr(self.assigner))

    def _result_schema(self, made: ColumnAggregates) -> Schema:
        rows = self.rows
        key = rows.schema.select(rows.key).fields
        bounds = (Field("window_start", DataType("timestamp")), Field("window_end", DataType("timestamp")))
        return Schema((*key, *bounds, *made.fields))


def fires_at_end(trigger: Trigger) -> bool:
    """Whether it is the trigger of event time, and none derived from it, which may do anything."""
    return type(trigger) is EventTimeTrigger


def check_has_event_time(rows: Input, what: str) -> None:
    if rows.event_time is None:
        raise GraphError(
            f"{what} needs rows with an event time. Name the column where the source is declared, "
            "job.source(…, event_time='ts'), or here: stream.assign_timestamps('ts').key_by(…)."
        )


def _called(function: object) -> WindowFunction | None:
    """What the operator calls for a function of windows."""
    called = function.window_function() if isinstance(function, PortedFunction) else function
    return called if isinstance(called, ProcessWindowFunction) else None


def _has_map(type: DataType) -> bool:
    inside = (type.element, type.key, type.value, *(field.type for field in type.fields or ()))
    return type.kind == "map" or any(_has_map(part) for part in inside if part is not None)
