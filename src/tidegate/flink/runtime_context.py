"""The runtime context of PyFlink, through which a function asks for its state.

A job knows its state before it starts. So `open` is called once when the job is declared, on a copy of the function, with a
context that takes notes; and in each task and epoch, with one that returns the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NoReturn

from tidegate.core.errors import GraphError
from tidegate.flink.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.graph.states import TIMERS


class FlinkRuntimeContext(ABC):
    """What `open` receives."""

    def __init__(self, function: str) -> None:
        self._function = function

    @abstractmethod
    def _state(self, descriptor: StateDescriptor) -> Any: ...

    def get_state(self, state_descriptor: ValueStateDescriptor) -> Any:
        """Return the value state that `state_descriptor` describes."""
        return self._checked(state_descriptor, ValueStateDescriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        """Return the list state that `state_descriptor` describes."""
        return self._checked(state_descriptor, ListStateDescriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> Any:
        """Return the map state that `state_descriptor` describes."""
        return self._checked(state_descriptor, MapStateDescriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> Any:
        """Return the reducing state that `state_descriptor` describes."""
        return self._checked(state_descriptor, ReducingStateDescriptor)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> Any:
        """Return the aggregating state that `state_descriptor` describes."""
        return self._checked(state_descriptor, AggregatingStateDescriptor)

    def _checked(self, descriptor: object, wanted: type[StateDescriptor]) -> Any:
        if not isinstance(descriptor, wanted):
            raise GraphError(
                f"{self._function} asks for a state with {descriptor!r:.200}; it takes a {wanted.__name__}."
            )
        return self._state(descriptor)

    @abstractmethod
    def get_task_name(self) -> str: ...

    @abstractmethod
    def get_index_of_this_subtask(self) -> int: ...

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int: ...

    def get_task_name_with_subtasks(self) -> str:
        number = self.get_index_of_this_subtask() + 1
        return f"{self.get_task_name()} ({number}/{self.get_number_of_parallel_subtasks()})"

    def get_metrics_group(self) -> NoReturn:
        raise GraphError(
            f"{self._function} asks for a metric group, which tidegate does not have. Measure blocks with ctx.span('name') in "
            "process_element, or emit counts to a side output."
        )

    def get_job_parameter(self, key: str, default_value: str | None = None) -> NoReturn:
        """Always raises: tidegate has no job parameters, so there is no `key` to read, nor a `default_value`."""
        raise GraphError(
            f"{self._function} asks for the job parameter {key!r}, but jobs have none. Pass it to the function's constructor."
        )


class DeclaringContext(FlinkRuntimeContext):
    """Notes which states a function asks for."""

    def __init__(self, function: str) -> None:
        super().__init__(function)
        self.asked: dict[str, StateDescriptor] = {}

    def note(self, descriptor: object) -> None:
        """Note a state that the class lists."""
        if not isinstance(descriptor, StateDescriptor):
            raise GraphError(f"state_descriptors of {self._function} are state descriptors; got {descriptor!r:.200}.")
        self._state(descriptor)

    def _state(self, descriptor: StateDescriptor) -> StateOfNoKey:
        if descriptor.name == TIMERS.name:
            raise GraphError(f"{self._function}: the name {TIMERS.name!r} belongs to the timers. Rename the state.")
        earlier = self.asked.setdefault(descriptor.name, descriptor)
        if earlier.spec() != descriptor.spec():
            raise GraphError(
                f"{self._function} asks for the state {descriptor.name!r} as {earlier.spec()} and as {descriptor.spec()}. "
                "Rename one of them."
            )
        return StateOfNoKey(self._function, descriptor.name)

    def get_task_name(self) -> str:
        return self._function

    def get_index_of_this_subtask(self) -> int:
        return 0

    def get_number_of_parallel_subtasks(self) -> int:
        return 1


class StateOfNoKey:
    """The state that `open` receives when the job is declared."""

    def __init__(self, function: str, name: str) -> None:
        self._function = function
        self._name = name

    def __getattr__(self, method: str) -> NoReturn:
        # `deepcopy` and `pickle` look for methods of this kind.
        if method.startswith("__"):
            raise AttributeError(method)
        raise GraphError(
            f"{self._function}.open uses the state {self._name!r}, but every key has its own state, and open has no key. Use it "
            "in process_element or on_timer."
        )


class TaskContext(FlinkRuntimeContext):
    """Returns the states that the function asked for when the job was declared."""

    def __init__(
        self, function: str, context: Any, descriptors: Mapping[str, StateDescriptor], accessors: Mapping[str, Any]
    ) -> None:
        super().__init__(function)
        self._context = context
        self._descriptors = descriptors
        self._accessors = accessors

    def _state(self, descriptor: StateDescriptor) -> Any:
        # The states of a job are those of the first `open`, in the driver. One that asks for others, say by its environment,
        # would read under ids that nobody assigned.
        declared = self._descriptors.get(descriptor.name)
        if declared is None or declared.spec() != descriptor.spec():
            known = ", ".join(f"{each.name}: {each.spec()}" for each in self._descriptors.values()) or "none"
            raise GraphError(
                f"{self._function} asks for the state {descriptor.name!r}, {descriptor.spec()}. When the job was declared, it "
                f"asked for: {known}. A keyed function must ask for the same states in open every time; a function "
                "without a key has none: use key_by(…).process(uid, …)."
            )
        return declared.view(self._accessors[descriptor.name])

    def get_task_name(self) -> str:
        name: str = self._context.get_task_name()
        return name

    def get_index_of_this_subtask(self) -> int:
        index: int = self._context.get_index_of_this_subtask()
        return index

    def get_number_of_parallel_subtasks(self) -> int:
        number: int = self._context.get_number_of_parallel_subtasks()
        return number
