"""A function that is handed its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.graph.states import StateKind, StateSpec
from tidegate.operators.port import AttachedOperator, RowCall, StatefulOperator

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates

STATE = "state"


class MapWithState(StatefulOperator):
    """One row out for each row in, computed from it and from the state that the key's last row left."""

    def __init__(self, function: Callable[[Any, Any], tuple[object, object]], state: object, name: str) -> None:
        """`name` is shown by `explain`, like the class name of a function."""
        self.function = function
        self._type = state
        self.__name__ = name

    def states(self) -> tuple[StateSpec, ...]:
        return (StateSpec(name=STATE, kind=StateKind.VALUE, value=self._type),)

    def attach(self, states: KeyedStates) -> AttachedMap:
        return AttachedMap(self.function, states)


class AttachedMap(AttachedOperator):
    """The function with the state of a task."""

    def __init__(self, function: Callable[[Any, Any], tuple[object, object]], states: KeyedStates) -> None:
        self._function = function
        self._state = states.value_state(STATE)

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        return (self._process,)

    def _process(self, row: Any, ctx: Any) -> Iterable[Any]:
        out, left = self._function(row, self._state.value())
        self._state.update(left)  # None clears it
        return (out if isinstance(out, tuple | dict) else (out,),)
