"""The classes that PyFlink functions derive from, under PyFlink's names in `tidegate.flink`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Generic, TypeVar

from tidegate.api.context import BroadcastContext, OnTimerContext, ProcessContext
from tidegate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
)
from tidegate.api.mistakes import check_function
from tidegate.api.ported_function import PortedFunction
from tidegate.api.window_function import ProcessWindowFunction, WindowContext
from tidegate.core.errors import GraphError
from tidegate.flink.descriptors import MapStateDescriptor, StateDescriptor
from tidegate.flink.ported import (
    PortedBroadcast,
    PortedCoProcess,
    PortedProcess,
    PortedTransform,
    PortedWindow,
)
from tidegate.flink.runtime_context import DeclaringContext

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")


class FlinkFunction(PortedFunction):
    """A function that asks for its state in `open`."""

    state_descriptors: ClassVar[Sequence[StateDescriptor] | None] = None
    """The states of the function, for one whose `open` cannot be called where the job is declared."""

    def open(self, runtime_context: Any, /) -> None:
        """Ask for state: `self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))`."""

    def close(self) -> None:
        """Release what `open` acquired."""

    def _asked(self) -> dict[str, StateDescriptor]:
        """Find out which states the function asks for."""
        name = type(self).__name__
        check_function(self, ())
        notes = DeclaringContext(name)
        if self.state_descriptors is not None:
            for descriptor in self.state_descriptors:
                notes.note(descriptor)
            return notes.asked
        # On a deep copy: what `open` creates, such as a connection, must not travel to the tasks with the function.
        tried = deepcopy(self)
        try:
            tried.open(notes)
            tried.close()
        except GraphError:
            raise
        except Exception as error:
            raise GraphError(
                f"{name}.open failed when the job was declared: {type(error).__name__}: {error}. It is called here once, on a "
                "copy, to learn which states the function has. If it needs what only tasks have, list the states on the class: "
                "state_descriptors = [ValueStateDescriptor(…)]; open is then called in tasks only."
            ) from error
        return notes.asked

    def _has_timers(self, base: type) -> bool:
        return type(self).on_timer is not base.on_timer  # type: ignore[attr-defined]


class FlinkKeyedProcessFunction(FlinkFunction, KeyedProcessFunction[Any, Any]):
    """A function of one keyed stream."""

    Context = ProcessContext
    OnTimerContext = OnTimerContext

    def ported(self, broadcast: Sequence[object] = ()) -> PortedProcess:
        timers = self._has_timers(FlinkKeyedProcessFunction)
        return PortedProcess(self, self._asked(), timers, _process_element)


class FlinkKeyedCoProcessFunction(FlinkFunction, KeyedCoProcessFunction[Any, Any, Any]):
    """A function of two keyed streams."""

    Context = ProcessContext
    OnTimerContext = OnTimerContext

    def ported(self, broadcast: Sequence[object] = ()) -> PortedCoProcess:
        return PortedCoProcess(self, self._asked(), self._has_timers(FlinkKeyedCoProcessFunction))


class FlinkKeyedBroadcastProcessFunction(FlinkFunction, KeyedBroadcastProcessFunction[Any, Any, Any]):
    """A function of a keyed stream and of a broadcast one."""

    Context = BroadcastContext
    ReadOnlyContext = ProcessContext
    OnTimerContext = OnTimerContext

    def ported(self, broadcast: Sequence[object] = ()) -> PortedBroadcast:
        descriptors = [each for each in broadcast if isinstance(each, MapStateDescriptor)]
        if not descriptors or len(descriptors) < len(broadcast):
            raise GraphError(
                f"{type(self).__name__} needs the descriptors of its broadcast state, each a MapStateDescriptor. Pass them to "
                f"broadcast: keyed.connect(rules.broadcast(descriptor)). Got {list(broadcast)!r:.200}."
            )
        timers = self._has_timers(FlinkKeyedBroadcastProcessFunction)
        return PortedBroadcast(self, self._asked(), timers, {each.name: each for each in descriptors})


class FlinkMapFunction(FlinkFunction, MapFunction[Any]):
    """One element in, one out. With keyed state: `key_by(…).process(uid, MyMap(), schema=…)`."""

    def ported(self, broadcast: Sequence[object] = ()) -> PortedProcess:
        return PortedProcess(self, self._asked(), False, _map)

    def transform(self) -> PortedTransform:
        return PortedTransform(self)


class FlinkFlatMapFunction(FlinkFunction, FlatMapFunction[Any]):
    """One element in, any number out."""

    def ported(self, broadcast: Sequence[object] = ()) -> PortedProcess:
        return PortedProcess(self, self._asked(), False, _flat_map)

    def transform(self) -> PortedTransform:
        return PortedTransform(self)


class FlinkFilterFunction(FlinkFunction, FilterFunction[Any]):
    """Keeps elements or drops them."""

    def ported(self, broadcast: Sequence[object] = ()) -> PortedProcess:
        return PortedProcess(self, self._asked(), False, _filter)

    def transform(self) -> PortedTransform:
        return PortedTransform(self)


class FlinkProcessWindowFunction(FlinkFunction, ProcessWindowFunction[Any, Any, Any], Generic[IN, OUT, KEY, W]):
    """Sees all elements of a window. State that it asks for in `open` belongs to the key."""

    Context = WindowContext

    def window_function(self) -> PortedWindow:
        return PortedWindow(self, self._asked(), _process_window)


class FlinkWindowFunction(FlinkFunction, ProcessWindowFunction[Any, Any, Any], Generic[IN, OUT, KEY, W]):
    """Sees all elements of a window, and the window without a context."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN], /) -> Iterable[OUT]:
        """The elements to emit."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        return self.apply(key, context.window(), elements)

    def window_function(self) -> PortedWindow:
        return PortedWindow(self, self._asked(), _process_window)


# Functions of a module rather than bound methods, so that a copy of the operator calls its own copy of the function.


def _process_element(function: Any, row: Any, ctx: Any) -> Any:
    return function.process_element(row, ctx)


def _map(function: Any, row: Any, ctx: Any) -> Any:
    return (function.map(row),)


def _flat_map(function: Any, row: Any, ctx: Any) -> Any:
    return function.flat_map(row)


def _filter(function: Any, row: Any, ctx: Any) -> Any:
    return (row,) if function.filter(row) else ()


def _process_window(function: Any, key: Any, context: Any, elements: Any) -> Any:
    return function.process(key, context, elements)
