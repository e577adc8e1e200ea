"""A keyed function of a user behind the port: its methods are called as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegate.core.hooks import hook
from tidegate.operators.port import AttachedOperator, BatchCall, RowCall, StatefulOperator

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates
    from tidegate.state.accessors.operator_states import OperatorStates


def attach(function: object, states: KeyedStates) -> AttachedOperator:
    """Return what a task calls for a function, or for a built-in operator, in one attempt."""
    if isinstance(function, StatefulOperator):
        return function.attach(states)
    return AttachedFunction(function, states)


class AttachedFunction(AttachedOperator):
    """A function with its states, which replace their declarations on the task's own copy of it."""

    def __init__(self, function: Any, states: KeyedStates) -> None:
        self._function = function
        self._states = states

    def attach_operator_states(self, states: OperatorStates) -> None:
        states.bind(self._function)

    def open(self, ctx: Any) -> None:
        if method := hook(self._function, "open"):
            method(ctx)

    def bind(self) -> None:
        self._states.bind(self._function)

    def check(self) -> None:
        self._states.check_bound(self._function)

    def close(self) -> None:
        if method := hook(self._function, "close"):
            method()

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        if inputs == 1:
            return (self._function.process_element,)
        return self._function.process_element1, self._function.process_element2

    def broadcast_call(self) -> RowCall:
        call: RowCall = self._function.process_broadcast_element
        return call

    def batch_call(self) -> BatchCall:
        call: BatchCall = self._function.process_batch
        return call

    def timer_call(self) -> RowCall:
        return hook(self._function, "on_timer") or super().timer_call()

    def timers_call(self) -> BatchCall:
        call: BatchCall = self._function.on_timers
        return call
