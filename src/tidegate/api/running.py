"""Operators simpler than a class: running aggregates of a key, and a function that receives its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegate.api.aggregates import Aggregate, ColumnAggregates
from tidegate.api.combined_columns import KeyColumns, adding_to_keys
from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.rows import Row, Stored
from tidegate.core.errors import GraphError, UnsupportedType
from tidegate.core.times import TimeDomain
from tidegate.core.types import schema_of
from tidegate.graph.combine import Combine, in_the_way
from tidegate.graph.model import Input
from tidegate.graph.on_error import OnError
from tidegate.graph.schema import Schema, as_schema
from tidegate.graph.states import TIMERS, StateKind, StateSpec

TOTALS = "totals"
STATE = "state"


class RunningAggregate:
    """Built-in aggregates of all rows of a key so far: one row for each key that an epoch touched, at its end."""

    def __init__(self, aggregates: ColumnAggregates) -> None:
        """Aggregates of all rows of a key so far."""
        self.aggregates = aggregates

    def states(self) -> tuple[StateSpec, ...]:
        return StateSpec(name=TOTALS, kind=StateKind.VALUE, value=self.aggregates.accumulator_type), TIMERS

    def attach_states(self, states: Any) -> None:
        self._totals, self._scope, self._timers = states.accessors[TOTALS], states.scope, states.timers
        made = self.aggregates
        self.take_combined = adding_to_keys(self._totals, made.merge, made.of_parts, made.get_result)
        columns = KeyColumns(states, self._totals, made)
        self.take_partial, self.finish_combined = columns.take, columns.finish

    def process_element(self, row: Any, ctx: Any) -> None:
        so_far = self._totals.value()
        made = self.aggregates
        self._totals.update(made.add(row, made.create_accumulator() if so_far is None else so_far))
        # A timer for this very moment fires at the end of the epoch, once for each key.
        scope = self._scope
        self._timers.register(TimeDomain.PROCESSING_TIME, ctx.timer_service().clock_ms, scope.key, scope.key_group)

    def process_combined(self, combined: Any, ctx: Any) -> Iterable[Any]:
        """Add what Spark SQL computed from all rows that the key has in this epoch."""
        so_far, more = self._totals.value(), self.aggregates.of_parts(combined[2])
        self._totals.update(more if so_far is None else self.aggregates.merge(so_far, more))
        return self._row()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        return self._row()

    def _row(self) -> Iterable[Any]:
        key = self._scope.key
        return ((*(key if isinstance(key, tuple) else (key,)), *self.aggregates.get_result(self._totals.value())),)


class MapWithState:
    """One row out for each row in, computed from it and from the state that the key's last row left."""

    def __init__(self, function: Callable[[Row, Stored], tuple[object, object]], state: object) -> None:
        self._function, self._type = function, state
        self.__name__ = getattr(function, "__name__", "map_with_state")

    def states(self) -> tuple[StateSpec, ...]:
        return (StateSpec(name=STATE, kind=StateKind.VALUE, value=self._type),)

    def attach_states(self, states: Any) -> None:
        self._state = states.accessors[STATE]

    def process_element(self, row: Any, ctx: Any) -> Iterable[Any]:
        out, left = self._function(row, self._state.value())
        self._state.update(left)
        return (out if isinstance(out, tuple | dict) else (out,),)


def running_aggregate(rows: Input, columns: Mapping[str, Aggregate]) -> KeyedOperator:
    """Check the arguments of `KeyedStream.aggregate` and create its operator."""
    if not columns:
        raise GraphError("aggregate of a key takes built-in aggregates, such as n=tidegate.count(). Give one or more.")
    made = ColumnAggregates(columns, rows.schema)
    operator = RunningAggregate(made)
    key = rows.schema.select(rows.key).fields
    combine = None if in_the_way(rows.schema.names) else Combine(key=key, parts=made.parts)
    return KeyedOperator(
        function=operator, states=operator.states(), schema=Schema((*key, *made.fields)), combine=combine
    )


def map_with_state(
    function: Callable[[Row, Stored], tuple[object, object]],
    state: object,
    schema: str | Schema,
    on_error: OnError | str,
) -> KeyedOperator:
    """Check the arguments of `KeyedStream.map_with_state` and create its operator."""
    if not callable(function):
        raise GraphError(f"map_with_state takes a function of a row and a state; got {function!r}.")
    try:
        schema_of(state)
    except UnsupportedType as error:
        raise UnsupportedType(f"state={state!r} cannot be stored. {error}") from None
    operator = MapWithState(function, state)
    return KeyedOperator(
        function=operator, states=operator.states(), schema=as_schema(schema), on_error=OnError.of(on_error)
    )
