"""Operators simpler than a class, as a job declares them: running aggregates of a key, and a function that receives its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.rows import Row, Stored
from tidegate.core.errors import GraphError, UnsupportedType
from tidegate.core.types import schema_of
from tidegate.graph.combine import Combine, in_the_way
from tidegate.graph.model import Input
from tidegate.graph.on_error import OnError
from tidegate.operators.column_aggregates import Aggregate, ColumnAggregates
from tidegate.operators.map_with_state import MapWithState
from tidegate.operators.running_aggregate import RunningAggregate
from tidegate.schema.schema import Schema, as_schema


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
    name = getattr(function, "__name__", "map_with_state")
    operator = MapWithState(function, state, name)
    return KeyedOperator(
        function=operator, states=operator.states(), schema=as_schema(schema), on_error=OnError.of(on_error)
    )
