"""Built-in aggregates of a key, without windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.core.times import TimeDomain
from tidegate.graph.states import TIMERS, StateKind, StateSpec
from tidegate.operators.column_aggregates import ColumnAggregates
from tidegate.operators.combined_columns import KeyColumns, adding_to_keys
from tidegate.operators.port import AttachedOperator, Capability, CombinedRows, RowCall, StatefulOperator, Taken

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates

TOTALS = "totals"


class RunningAggregate(StatefulOperator):
    """Built-in aggregates of all rows of a key so far: one row for each key that an epoch touched, at its end."""

    def __init__(self, aggregates: ColumnAggregates) -> None:
        """Aggregates of all rows of a key so far."""
        self.aggregates = aggregates

    def states(self) -> tuple[StateSpec, ...]:
        return StateSpec(name=TOTALS, kind=StateKind.VALUE, value=self.aggregates.accumulator_type), TIMERS

    def attach(self, states: KeyedStates) -> AttachedAggregate:
        return AttachedAggregate(self.aggregates, states)


class AttachedAggregate(AttachedOperator):
    """The totals of a task."""

    capabilities = Capability.TAKES_COMBINED | Capability.HOLDS_COMBINED

    def __init__(self, aggregates: ColumnAggregates, states: KeyedStates) -> None:
        self._aggregates = aggregates
        self._totals = states.value_state(TOTALS)
        self._scope = states.scope
        self._timers = states.required_timers()
        # Two ways for rows that were combined: by Spark SQL over the whole epoch, so that a key comes once; or by each sending
        # task, so that it may come several times.
        self._take = adding_to_keys(self._totals, aggregates)
        self._columns = KeyColumns(states, self._totals, aggregates)

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        return (self._process,)

    def combined_call(self) -> RowCall:
        return self._process_combined

    def timer_call(self) -> RowCall:
        return self._on_timer

    def take_combined(self, combined: CombinedRows) -> Taken:
        return self._take(combined)

    def take_partial(self, combined: CombinedRows) -> Taken:
        return self._columns.take(combined)

    def finish_combined(self) -> list[Any]:
        return self._columns.finish()

    def _process(self, row: Any, ctx: Any) -> None:
        so_far = self._totals.value()
        made = self._aggregates
        self._totals.update(made.add(row, made.create_accumulator() if so_far is None else so_far))
        # A timer for this very moment fires at the end of the epoch, once for each key.
        scope = self._scope
        self._timers.register(TimeDomain.PROCESSING_TIME, ctx.timer_service().clock_ms, scope.key, scope.key_group)

    def _process_combined(self, combined: Any, ctx: Any) -> Iterable[Any]:
        """Add what Spark SQL computed from all rows that the key has in this epoch."""
        so_far = self._totals.value()
        more = self._aggregates.of_parts(combined[2])
        self._totals.update(more if so_far is None else self._aggregates.merge(so_far, more))
        return self._row()

    def _on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        return self._row()

    def _row(self) -> Iterable[Any]:
        key = self._scope.key
        columns = key if isinstance(key, tuple) else (key,)
        return ((*columns, *self._aggregates.get_result(self._totals.value())),)
