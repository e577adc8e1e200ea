"""The first row of each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.core.times import TimeDomain
from tidegate.graph.states import TIMERS, StateKind, StateSpec
from tidegate.operators.port import AttachedOperator, RowCall, StatefulOperator

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates

_SEEN = "seen"


class Deduplicate(StatefulOperator):
    """Keeps the first row of each key."""

    def __init__(self, ttl_ms: int | None = None) -> None:
        self.ttl_ms = ttl_ms

    def states(self) -> tuple[StateSpec, ...]:
        return StateSpec(name=_SEEN, kind=StateKind.VALUE, value=bool, default=False), TIMERS

    def attach(self, states: KeyedStates) -> AttachedDeduplicate:
        return AttachedDeduplicate(self.ttl_ms, states)


class AttachedDeduplicate(AttachedOperator):
    """The keys of a task that were seen."""

    def __init__(self, ttl_ms: int | None, states: KeyedStates) -> None:
        self._ttl_ms = ttl_ms
        self._seen = states.value_state(_SEEN)
        self._scope = states.scope
        self._timers = states.required_timers()

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        return (self._process,)

    def timer_call(self) -> RowCall:
        return self._on_timer

    def _process(self, row: Any, ctx: Any) -> Iterable[Any] | None:
        if self._seen.value():
            return None
        self._seen.update(True)
        # The time counts from the first row: later ones do not get here, so none renews it.
        if self._ttl_ms is not None:
            scope = self._scope
            end_ms = ctx.timer_service().clock_ms + self._ttl_ms
            self._timers.register(TimeDomain.PROCESSING_TIME, end_ms, scope.key, scope.key_group)
        return (row,)

    def _on_timer(self, timestamp: int, ctx: Any) -> None:
        self._seen.clear()
