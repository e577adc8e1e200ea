"""PyFlink functions as operators: each calls the user's function, and turns what it yields into rows and side outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.api.states import declared_states
from tidegate.api.window_function import ProcessWindowFunction
from tidegate.core.errors import GraphError
from tidegate.flink.descriptors import MapStateDescriptor, StateDescriptor
from tidegate.flink.output_tag import OutputTag
from tidegate.flink.row import Row
from tidegate.flink.runtime_context import TaskContext
from tidegate.graph.listening import NotifiesFunction
from tidegate.graph.states import TIMERS, StateSpec
from tidegate.operators.port import AttachedOperator, RowCall, StatefulOperator
from tidegate.operators.window_function import TakesStates

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates
    from tidegate.state.accessors.operator_states import OperatorStates

_ROWS = (tuple, list, dict)


def as_row(value: Any) -> Any:
    """A row as operators emit it: a bare value is a row of one column."""
    if isinstance(value, Row):
        return value.as_output()
    return value if isinstance(value, _ROWS) or hasattr(value, "__dataclass_fields__") else (value,)


def emitted(result: Iterable[Any] | None, ctx: Any) -> list[Any]:
    """The rows of what a function yields. `yield tag, value` goes to the side output of the tag."""
    if result is None:
        return []
    rows = []
    # Exactly a tuple, which needs no conversion, and no call for each row. Everything else goes through `as_row`.
    for item in result:
        if item.__class__ is tuple:
            if len(item) == 2 and item[0].__class__ is OutputTag:
                ctx.output(item[0], as_row(item[1]))
            else:
                rows.append(item)
        else:
            rows.append(as_row(item))
    return rows


class PortedFunctionState(NotifiesFunction):
    """A user's function, and the states it asked for."""

    def __init__(self, function: Any, descriptors: Mapping[str, StateDescriptor]) -> None:
        self.user_function = function
        """What the user wrote; shown by `explain`."""
        self.descriptors = descriptors
        self.own = declared_states(function)
        """States declared on the class, with tidegate's names."""
        both = [spec.name for spec in self.own if spec.name in descriptors]
        if both:
            raise GraphError(f"{type(function).__name__} has two states of the name {both[0]!r}. Rename one of them.")

    @property
    def notified(self) -> object:
        return self.user_function

    def asked_states(self) -> tuple[StateSpec, ...]:
        return (*self.own, *(descriptor.spec() for descriptor in self.descriptors.values()))

    def open_with(self, ctx: Any, accessors: Mapping[str, Any]) -> None:
        """Open the function, which asks for its states there."""
        # A function asks for state in `open`. States that its class declares are set afterwards: in `open` there is no key yet.
        function = self.user_function
        function.open(TaskContext(type(function).__name__, ctx, self.descriptors, accessors))
        for spec in self.own:
            if spec.keyed:
                setattr(function, spec.name, accessors[spec.name])


class PortedOperator(PortedFunctionState, StatefulOperator):
    """A function over keyed rows, as it is declared."""

    def __init__(self, function: Any, descriptors: Mapping[str, StateDescriptor], has_timers: bool) -> None:
        super().__init__(function, descriptors)
        self._has_timers = has_timers

    def states(self) -> tuple[StateSpec, ...]:
        return (*self.asked_states(), *((TIMERS,) if self._has_timers else ()))


class AttachedPorted(AttachedOperator):
    """A function over keyed rows, with its states."""

    def __init__(self, operator: PortedOperator, states: KeyedStates) -> None:
        self._operator = operator
        self._accessors = states.accessors
        self._function = operator.user_function

    def open(self, ctx: Any) -> None:
        self._operator.open_with(ctx, self._accessors)

    def close(self) -> None:
        self._function.close()

    def timer_call(self) -> RowCall:
        return self._on_timer

    @abstractmethod
    def row_calls(self, inputs: int) -> Sequence[RowCall]: ...

    def _on_timer(self, timestamp: int, ctx: Any) -> list[Any]:
        return emitted(self._function.on_timer(timestamp, ctx), ctx)


class PortedProcess(PortedOperator):
    """A function of one keyed stream. `call` returns what the function emits for a row."""

    def __init__(
        self,
        function: Any,
        descriptors: Mapping[str, StateDescriptor],
        has_timers: bool,
        call: Callable[[Any, Any, Any], Iterable[Any] | None],
    ) -> None:
        super().__init__(function, descriptors, has_timers)
        self.call = call

    def attach(self, states: KeyedStates) -> AttachedOperator:
        return _AttachedProcess(self, states)


class _AttachedProcess(AttachedPorted):
    def __init__(self, operator: PortedProcess, states: KeyedStates) -> None:
        super().__init__(operator, states)
        self._call = operator.call

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        return (self._process,)

    def _process(self, row: Any, ctx: Any) -> list[Any]:
        return emitted(self._call(self._function, row, ctx), ctx)


class PortedCoProcess(PortedOperator):
    """A function of two keyed streams."""

    def attach(self, states: KeyedStates) -> AttachedOperator:
        return _AttachedCoProcess(self, states)


class _AttachedCoProcess(AttachedPorted):
    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        return self._process_first, self._process_second

    def _process_first(self, row: Any, ctx: Any) -> list[Any]:
        return emitted(self._function.process_element1(row, ctx), ctx)

    def _process_second(self, row: Any, ctx: Any) -> list[Any]:
        return emitted(self._function.process_element2(row, ctx), ctx)


class BroadcastStates:
    """A context with `get_broadcast_state`."""

    def __init__(self, ctx: Any, states: Mapping[str, Any]) -> None:
        self._ctx = ctx
        self._states = states

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        found = self._states.get(state_descriptor.get_name())
        if found is None:
            known = ", ".join(map(repr, self._states)) or "none"
            raise GraphError(
                f"There is no broadcast state {state_descriptor.get_name()!r}; there are: {known}. Pass its descriptor to "
                "broadcast: keyed.connect(rules.broadcast(descriptor))."
            )
        return found

    def __getattr__(self, name: str) -> Any:
        # Everything else is that of the task's own context, whichever of its kinds it is.
        return getattr(self._ctx, name)


class PortedBroadcast(PortedOperator):
    """A function of a keyed and a broadcast stream."""

    def __init__(
        self,
        function: Any,
        descriptors: Mapping[str, StateDescriptor],
        has_timers: bool,
        broadcast: Mapping[str, MapStateDescriptor],
    ) -> None:
        super().__init__(function, descriptors, has_timers)
        self.broadcast = broadcast

    def states(self) -> tuple[StateSpec, ...]:
        shared = (descriptor.broadcast_spec() for descriptor in self.broadcast.values())
        return (*self.asked_states(), *shared, *((TIMERS,) if self._has_timers else ()))

    def attach(self, states: KeyedStates) -> AttachedOperator:
        return _AttachedBroadcast(self, states)


class _AttachedBroadcast(AttachedPorted):
    def __init__(self, operator: PortedBroadcast, states: KeyedStates) -> None:
        super().__init__(operator, states)
        self._broadcast = operator.broadcast
        self._own = operator.own
        self._shared: dict[str, Any] = {}

    def attach_operator_states(self, states: OperatorStates) -> None:
        known = states.all
        self._shared = {
            name: self._broadcast[name].view(state) for name, state in known.items() if name in self._broadcast
        }
        for spec in self._own:
            if not spec.keyed:
                setattr(self._function, spec.name, known[spec.name])

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        return (self._process,)

    def broadcast_call(self) -> RowCall:
        return self._process_broadcast

    def _process(self, row: Any, ctx: Any) -> list[Any]:
        return emitted(self._function.process_element(row, BroadcastStates(ctx, self._shared)), ctx)

    def _process_broadcast(self, row: Any, ctx: Any) -> list[Any]:
        return emitted(self._function.process_broadcast_element(row, BroadcastStates(ctx, self._shared)), ctx)

    def _on_timer(self, timestamp: int, ctx: Any) -> list[Any]:
        return emitted(self._function.on_timer(timestamp, BroadcastStates(ctx, self._shared)), ctx)


class PortedWindow(PortedFunctionState, ProcessWindowFunction[Any, Any, Any], TakesStates):
    """A function of windows. `call` returns what it emits for one."""

    def __init__(
        self,
        function: Any,
        descriptors: Mapping[str, StateDescriptor],
        call: Callable[[Any, Any, Any, Any], Iterable[Any] | None],
    ) -> None:
        super().__init__(function, descriptors)
        self._call = call
        self._accessors: Mapping[str, Any] = {}

    def attach_states(self, states: KeyedStates) -> None:
        self._accessors = states.accessors

    def open(self, ctx: Any) -> None:
        self.open_with(ctx, self._accessors)

    def close(self) -> None:
        self.user_function.close()

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> list[Any]:
        return emitted(self._call(self.user_function, key, context, elements), context)

    def clear(self, context: Any) -> None:
        clear = getattr(self.user_function, "clear", None)
        if clear is not None:
            clear(context)


class PortedTransform(PortedFunctionState):
    """A function without a key: map, filter or flat_map."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, {})

    def open(self, ctx: Any) -> None:
        self.open_with(ctx, {})

    def close(self) -> None:
        self.user_function.close()

    def map(self, row: Any) -> Any:
        return as_row(self.user_function.map(row))

    def filter(self, row: Any) -> bool:
        kept: bool = self.user_function.filter(row)
        return kept

    def flat_map(self, row: Any) -> list[Any]:
        return [as_row(item) for item in self.user_function.flat_map(row) or ()]
