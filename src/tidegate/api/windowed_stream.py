"""Rows of keys in windows, on their way to a function of windows. Methods answer a new stream; they run nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Self

from tidegate.api.aggregates import (
    Aggregate,
    AggregateFold,
    AggregateFunction,
    ColumnAggregates,
    Fold,
    ReduceFold,
    ReduceFunction,
)
from tidegate.api.evictors import Evictor
from tidegate.api.states import declared_states
from tidegate.api.streams import KeyedStream, Stream, as_schema
from tidegate.api.triggers import EventTimeTrigger, Trigger
from tidegate.api.window_contents import FoldedContents, ListedContents, WindowContents
from tidegate.api.window_function import Emitter, ProcessWindowFunction, emit_columns, emit_result
from tidegate.api.window_operator import WindowOperator
from tidegate.api.windows import SlidingEventTimeWindows, TumblingEventTimeWindows, WindowAssigner
from tidegate.core.durations import Duration, duration_ms
from tidegate.core.errors import GraphError, UnsupportedType
from tidegate.core.types import schema_of
from tidegate.graph.combine import Combine, in_the_way
from tidegate.graph.on_error import FAIL, OnError
from tidegate.graph.row_types import row_type
from tidegate.graph.schema import DataType, Field, Schema
from tidegate.graph.states import StateSpec

_PANED = (TumblingEventTimeWindows, SlidingEventTimeWindows)
"""A class derived from one of them may assign windows in its own way."""


class WindowedStream:
    """Made by `key_by(…).window(assigner)`."""

    def __init__(self, keyed: KeyedStream, assigner: WindowAssigner) -> None:
        if not isinstance(assigner, WindowAssigner):
            raise GraphError(
                f"window takes an assigner, such as TumblingEventTimeWindows.of('1 min'); got {assigner!r}."
            )
        self._keyed, self._assigner = keyed, assigner
        self._trigger = assigner.get_default_trigger()
        self._evictor: Evictor | None = None
        self._lateness_ms = 0
        self._late_tag: str | None = None
        self._on_error = FAIL

    def on_error(self, choice: OnError | str) -> Self:
        """What becomes of a row, or of a window that fires, on which a function raises: as for `KeyedStream.process`. A window
        whose function raised is gone with what it held."""
        return self._with(_on_error=OnError.of(choice))

    def trigger(self, trigger: Trigger) -> Self:
        """When windows fire, in place of the assigner's own rule."""
        if not isinstance(trigger, Trigger):
            raise GraphError(f"{trigger!r} is no trigger. Use, for example, CountTrigger.of(100).")
        if self._assigner.is_merging and not trigger.can_merge():
            raise GraphError(f"{trigger!r} cannot be used with {self._assigner!r}: these windows merge, and it cannot.")
        return self._with(_trigger=trigger)

    def evictor(self, evictor: Evictor) -> Self:
        """Which rows take part when a window fires. The window then keeps all its rows."""
        return self._with(_evictor=evictor)

    def allowed_lateness(self, lateness: Duration) -> Self:
        """How long a window is kept after the watermark has passed its end. A row that comes meanwhile fires it again."""
        ms = duration_ms(lateness)
        if ms < 0:
            raise GraphError("The allowed lateness is negative. Use '0 s' or more.")
        if not self._assigner.is_event_time:
            raise GraphError(f"No row is late for {self._assigner!r}: they are windows of processing time.")
        return self._with(_lateness_ms=ms)

    def side_output_late_data(self, tag: str) -> Self:
        """Send rows that are too late for all their windows to a side output, `stream.side_output(tag)`. They are dropped
        otherwise."""
        return self._with(_late_tag=tag)

    def reduce(
        self, uid: str, function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: ProcessWindowFunction | None = None, *, schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None,
    ) -> Stream:  # fmt: skip
        """Combine the rows of a window two by two into one of the same columns, as they come."""
        call = getattr(function, "reduce", function)
        if not callable(call):
            raise GraphError(f"reduce takes a ReduceFunction or a callable of two rows; got {function!r}.")
        rows = self._keyed.input.schema
        fold = ReduceFold(call, row_type(rows), rows)
        if (window_function is None) != (schema is None):
            raise GraphError(
                "Give reduce both window_function and schema, or neither: without, rows keep their columns."
            )
        out = rows if schema is None else as_schema(schema)
        return self._operate(uid, fold, _emitter(window_function), window_function, out, side_outputs)

    def aggregate(
        self, uid: str, function: AggregateFunction | None = None, window_function: ProcessWindowFunction | None = None,
        *, accumulator: Any = None, schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None, **columns: Aggregate,
    ) -> Stream:  # fmt: skip
        """Combine the rows of a window into one value, as they come.

        With built-in aggregates, `aggregate("per-minute", n=count(), spent=sum("ms"))`, rows have the key, `window_start`,
        `window_end` and a column for each. With a function, say the type of its accumulator and the schema of its result:
        `aggregate("mean", Mean(), accumulator=tuple[float, int], schema="mean double")`.
        """
        if (function is None) == (not columns):
            raise GraphError(
                "aggregate takes a function, or built-in aggregates such as n=tidegate.count(). Give one kind."
            )
        rows = self._keyed.input.schema
        if function is None:
            if window_function is not None or schema is not None or accumulator is not None:
                raise GraphError("Built-in aggregates have a schema of their own. Leave out all but their columns.")
            made = ColumnAggregates(columns, rows)
            fold: Fold = AggregateFold(made, made.accumulator_type, rows)
            result = self._result_schema(made)
            return self._operate(uid, fold, emit_columns, None, result, side_outputs, self._combine(made))
        if accumulator is None or schema is None:
            raise GraphError(
                "aggregate needs the type of the accumulator and the schema of the result: "
                "aggregate(uid, function, accumulator=tuple[float, int], schema='mean double')."
            )
        try:
            schema_of(accumulator)
        except UnsupportedType as error:
            raise UnsupportedType(f"accumulator={accumulator!r} cannot be stored. {error}") from None
        fold = AggregateFold(function, accumulator, rows)
        return self._operate(uid, fold, _emitter(window_function), window_function, as_schema(schema), side_outputs)

    def process(
        self, uid: str, function: ProcessWindowFunction, *, schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None,
    ) -> Stream:  # fmt: skip
        """Hand all rows of a window to a function when it fires. They are kept until then, one by one."""
        if not isinstance(function, ProcessWindowFunction):
            raise GraphError(f"process of windows takes a ProcessWindowFunction; got {function!r}.")
        return self._operate(uid, None, function.process, function, as_schema(schema), side_outputs)

    def _operate(
        self, uid: str, fold: Fold | None, emit: Emitter, function: ProcessWindowFunction | None, schema: Schema,
        side_outputs: Mapping[str, str | Schema] | None, combine: Combine | None = None,
    ) -> Stream:  # fmt: skip
        rows = self._keyed.input
        self._check_event_time()
        contents: WindowContents = (
            FoldedContents(fold)
            if fold is not None and self._evictor is None
            else ListedContents(rows.schema, self._evictor, fold)
        )
        operator = WindowOperator(
            assigner=self._assigner,
            trigger=self._trigger,
            contents=contents,
            emit=emit,
            function=function,
            lateness_ms=self._lateness_ms,
            late_tag=self._late_tag,
        )
        sides = dict(side_outputs or {})
        if self._late_tag is not None:
            sides[self._late_tag] = rows.schema
        if self._assigner.is_merging and any(spec.windowed for spec in _states_of(function)):
            raise GraphError(
                f"{type(function).__name__} declares state per window, but {self._assigner!r} merge. Declare it per key."
            )
        return self._keyed.operate(
            uid, operator, operator.states(), schema, sides, combine=combine, on_error=self._on_error
        )

    def _combine(self, made: ColumnAggregates) -> Combine | None:
        """How Spark SQL can combine rows for these windows before they are shuffled; None where it cannot.

        Windows that merge depend on every row's time, triggers and evictors may on every row, and maps cannot be grouped by.
        """
        rows, panes = self._keyed.input, self._assigner.panes() if type(self._assigner) in _PANED else None
        if panes is None or type(self._trigger) is not EventTimeTrigger or self._evictor is not None:
            return None
        if self._on_error is not FAIL:
            return None  # A row that fails must be one row.
        time = rows.event_time
        if time is None or rows.schema.fields[rows.schema.index(time)].type.kind != "timestamp":
            return None
        if in_the_way(rows.schema.names):
            return None
        late = rows.schema if self._late_tag is not None else None
        if late is not None and any(_has_map(field.type) for field in late):
            return None
        size_ms, slide_ms, offset_ms = panes
        return Combine(
            key=rows.schema.select(rows.key).fields,
            event_time=time,
            size_ms=size_ms,
            slide_ms=slide_ms,
            offset_ms=offset_ms,
            parts=made.parts,
            rows=late,
        )

    def _check_event_time(self) -> None:
        from tidegate.api.windows import GlobalWindows

        if self._assigner.is_event_time and not isinstance(self._assigner, GlobalWindows):
            check_has_event_time(self._keyed, repr(self._assigner))

    def _result_schema(self, made: ColumnAggregates) -> Schema:
        rows = self._keyed.input
        key = rows.schema.select(rows.key).fields
        bounds = (Field("window_start", DataType("timestamp")), Field("window_end", DataType("timestamp")))
        return Schema((*key, *bounds, *made.fields))

    def _with(self, **changed: Any) -> Self:
        other = copy(self)
        for name, value in changed.items():
            setattr(other, name, value)
        return other


def check_has_event_time(keyed: KeyedStream, what: str) -> None:
    if keyed.input.event_time is None:
        raise GraphError(
            f"{what} needs rows with an event time. Name the column where the source is declared, "
            "job.source(…, event_time='ts'), or here: stream.assign_timestamps('ts').key_by(…)."
        )


def _states_of(function: ProcessWindowFunction | None) -> tuple[StateSpec, ...]:
    return () if function is None else declared_states(function)


def _has_map(type: DataType) -> bool:
    inside = (type.element, type.key, type.value, *(field.type for field in type.fields or ()))
    return type.kind == "map" or any(_has_map(part) for part in inside if part is not None)


def _emitter(function: ProcessWindowFunction | None) -> Emitter:
    return emit_result if function is None else function.process
