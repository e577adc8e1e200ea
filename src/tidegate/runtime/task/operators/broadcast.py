"""The broadcast side of an operator: rows that every task sees, and the state that they make identical in every task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import GraphError
from tidegate.graph.event_times import millis
from tidegate.graph.model import Input
from tidegate.operators.port import RowCall
from tidegate.runtime.task.operators.timer_service import KeyTimerService
from tidegate.schema.columns import struct_class, to_python
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates

if TYPE_CHECKING:
    from tidegate.runtime.exchange.edge_rows import EdgeRows


class BroadcastElementContext:
    """The context of a function that processes a broadcast row. There is no current key."""

    def __init__(self, states: KeyedStates, service: KeyTimerService, keyed: Any) -> None:
        """`keyed` is the context for rows with a key: side outputs and spans are the same."""
        self._states = states
        self._service = service
        self.output = keyed.output
        self.span = keyed.span
        self.row_time: int | None = None

    def timestamp(self) -> int | None:
        return self.row_time

    def current_processing_time(self) -> int:
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        return self._service.current_watermark()

    def apply_to_keyed_state(self, state: str, function: Callable[[Any, Any], None]) -> None:
        """Call `function(key, state)` for every key of this task that has a value in the state of that name."""
        states, scope = self._states, self._states.scope
        if state not in states.accessors:
            known = ", ".join(map(repr, states.accessors)) or "none"
            raise GraphError(f"The function declares no keyed state {state!r} to apply a function to; it has: {known}.")
        accessor = states.accessors[state]
        try:
            for scope.key, scope.key_group in states.keys_of(state):
                function(scope.key, accessor)
        finally:
            # No key is left behind: an access to keyed state that follows must fail instead of finding the last one's.
            scope.key, scope.key_group = None, -1


class BroadcastSide:
    """Reads rows of the broadcast input and calls the function with them, with broadcast state writable."""

    def __init__(
        self,
        input: Input,
        call: RowCall,
        keyed: KeyedStates,
        operator: OperatorStates,
        service: KeyTimerService,
        context: Any,
    ) -> None:
        self.schema = input.schema
        self.call = call
        self._row = partial(tuple.__new__, struct_class(input.schema.fields))
        self._time_column = None if input.event_time is None else input.schema.index(input.event_time)
        self._keyed = keyed
        self._operator = operator
        self._context = BroadcastElementContext(keyed, service, context)

    def rows(self, rows: EdgeRows) -> list[Any]:
        columns = [to_python(c, f.type) for c, f in zip(rows.columns, self.schema.fields)]
        return list(map(self._row, zip(*columns)))

    def times(self, rows: EdgeRows) -> list[int | None] | None:
        if self._time_column is None:
            return None
        return millis(rows.columns[self._time_column])

    def process(self, rows: Sequence[Any], times: Sequence[int | None] | None, out: list[Any]) -> None:
        scope, context = self._keyed.scope, self._context
        scope.key, scope.key_group = None, -1
        # Only here: rows that every task sees change broadcast state alike, and rows with a key would not.
        self._operator.set_writable(True)
        try:
            for place, row in enumerate(rows):
                context.row_time = None if times is None else times[place]
                result = self.call(row, context)
                if result is not None:
                    out.extend(result)
        finally:
            self._operator.set_writable(False)
