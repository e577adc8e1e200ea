"""Less than a class: aggregates of a key that run on for ever, and a function that is handed its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegate.api.aggregates import ColumnAggregates
from tidegate.core.times import TimeDomain
from tidegate.graph.states import TIMERS, StateKind, StateSpec

TOTALS = "totals"
STATE = "state"


class RunningAggregate:
    """Built-in aggregates of all rows of a key so far: one row for each key that an epoch touched, at its end."""

    def __init__(self, aggregates: ColumnAggregates) -> None:
        """Aggregates of all rows of a key so far."""
        self._aggregates = aggregates

    def states(self) -> tuple[StateSpec, ...]:
        return StateSpec(name=TOTALS, kind=StateKind.VALUE, value=self._aggregates.accumulator_type), TIMERS

    def attach_states(self, states: Any) -> None:
        self._totals, self._scope, self._timers = states.accessors[TOTALS], states.scope, states.timers

    def process_element(self, row: Any, ctx: Any) -> None:
        so_far = self._totals.value()
        made = self._aggregates
        self._totals.update(made.add(row, made.create_accumulator() if so_far is None else so_far))
        # A timer for this very moment fires at the end of the epoch, once for each key.
        scope = self._scope
        self._timers.register(TimeDomain.PROCESSING_TIME, ctx.timer_service().clock_ms, scope.key, scope.key_group)

    def process_combined(self, combined: Any, ctx: Any) -> Iterable[Any]:
        """What Spark SQL made of all rows that the key has in this epoch."""
        so_far, more = self._totals.value(), self._aggregates.of_parts(combined[2])
        self._totals.update(more if so_far is None else self._aggregates.merge(so_far, more))
        return self._row()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        return self._row()

    def _row(self) -> Iterable[Any]:
        key = self._scope.key
        return ((*(key if isinstance(key, tuple) else (key,)), *self._aggregates.get_result(self._totals.value())),)


class MapWithState:
    """One row out for each row in, made of it and of what the key's last row left."""

    def __init__(self, function: Callable[[Any, Any], tuple[Any, Any]], state: Any) -> None:
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
