"""State descriptors, with PyFlink's names. The name of a descriptor is the permanent name of the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tidegate.api.states import (
    AggregatingState,
    BroadcastState,
    Declaration,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from tidegate.flink.state_views import (
    ConvertedAggregate,
    ConvertedAppend,
    ConvertedList,
    ConvertedMap,
    ConvertedReduce,
    ConvertedValue,
)
from tidegate.flink.type_information import TypeInformation, check_type
from tidegate.graph.states import StateSpec
from tidegate.graph.ttl import StateTtlConfig
from tidegate.graph.validate import check_name


class StateDescriptor(ABC):
    """The description of a state, which a function passes to its runtime context."""

    def __init__(self, name: str, *types: TypeInformation) -> None:
        self.name = check_name(name, "state name")
        for each in types:
            check_type(f"{type(self).__name__}({name!r})", each)
        self._ttl: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries of the state expire, as `ttl_config` says."""
        self._ttl = ttl_config

    def spec(self) -> StateSpec:
        return self._declaration().spec(self.name)

    @abstractmethod
    def _declaration(self) -> Declaration: ...

    @abstractmethod
    def view(self, accessor: Any) -> Any:
        """Return the state behind `accessor` as the function uses it."""


class ValueStateDescriptor(StateDescriptor):
    """Describes a `ValueState`.

    Args:
        name: The permanent name of the state.
        value_type_info: The type of the value, such as `Types.FLOAT()`.

    Examples:
        >>> from tidegate.flink import Types, ValueStateDescriptor
        >>> ValueStateDescriptor("total", Types.FLOAT()).get_name()
        'total'
    """

    def __init__(self, name: str, value_type_info: TypeInformation) -> None:
        super().__init__(name, value_type_info)
        self._type = value_type_info

    def _declaration(self) -> Declaration:
        return ValueState(self._type.stored, ttl=self._ttl)

    def view(self, accessor: Any) -> Any:
        return accessor if self._type.to_stored is None else ConvertedValue(accessor, self._type)


class ListStateDescriptor(StateDescriptor):
    """Describes a `ListState`.

    Args:
        name: The permanent name of the state.
        elem_type_info: The type of the elements, such as `Types.STRING()`.
    """

    def __init__(self, name: str, elem_type_info: TypeInformation) -> None:
        super().__init__(name, elem_type_info)
        self._element = elem_type_info

    def _declaration(self) -> Declaration:
        return ListState(self._element.stored, ttl=self._ttl)

    def view(self, accessor: Any) -> Any:
        return accessor if self._element.to_stored is None else ConvertedList(accessor, self._element)


class MapStateDescriptor(StateDescriptor):
    """Describes a `MapState`, and broadcast state, if it is passed to `stream.broadcast(descriptor)`.

    Args:
        name: The permanent name of the state.
        key_type_info: The type of the keys within the map.
        value_type_info: The type of the values.
    """

    def __init__(self, name: str, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        super().__init__(name, key_type_info, value_type_info)
        self._key = key_type_info
        self._value = value_type_info

    def _declaration(self) -> Declaration:
        return MapState(self._key.stored, self._value.stored, ttl=self._ttl)

    def broadcast_spec(self) -> StateSpec:
        return BroadcastState(self._key.stored, self._value.stored).spec(self.name)

    def view(self, accessor: Any) -> Any:
        return ConvertedMap(accessor, self._key, self._value)


class ReducingStateDescriptor(StateDescriptor):
    """Describes a `ReducingState`.

    Args:
        name: The permanent name of the state.
        reduce_function: A `ReduceFunction`, or a callable of two values.
        type_info: The type of the value.
    """

    def __init__(self, name: str, reduce_function: object, type_info: TypeInformation) -> None:
        super().__init__(name, type_info)
        self._type = type_info
        self._function: Any = getattr(reduce_function, "reduce", reduce_function)

    def _declaration(self) -> Declaration:
        call = self._function
        plain = self._type.to_stored is None or not callable(call)
        return ReducingState(
            self._type.stored, call if plain else ConvertedReduce(call, self._type).reduce, ttl=self._ttl
        )

    def view(self, accessor: Any) -> Any:
        to, back = self._type.to_stored, self._type.from_stored
        return accessor if to is None or back is None else ConvertedAppend(accessor, to, back)


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an `AggregatingState`.

    Args:
        name: The permanent name of the state.
        agg_function: An `AggregateFunction`.
        state_type_info: The type of its accumulator.
    """

    def __init__(self, name: str, agg_function: object, state_type_info: TypeInformation) -> None:
        super().__init__(name, state_type_info)
        self._accumulator = state_type_info
        self._function = agg_function

    def _declaration(self) -> Declaration:
        function: Any = self._function
        # The declaration checks the function itself.
        declared = AggregatingState(self._accumulator.stored, function, ttl=self._ttl)
        if self._accumulator.to_stored is None:
            return declared
        return AggregatingState(
            self._accumulator.stored, ConvertedAggregate(function, self._accumulator), ttl=self._ttl
        )

    def view(self, accessor: Any) -> Any:
        return accessor
