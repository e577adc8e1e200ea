"""What a Spark `StatefulProcessor` gets in a task: the handle with its states and timers, and the clocks of the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from tidegate.core.errors import GraphError
from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK, TimeDomain, time_ms
from tidegate.graph.stateful_processing import TIMERS_OF_KEY, ProcessorState, StatefulProcessing, TimeMode
from tidegate.graph.states import StateKind
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.processor_states import ProcessorObject, state_object
from tidegate.state.accessors.timers import TimerState

_GETTERS = {StateKind.VALUE: "getValueState", StateKind.LIST: "getListState", StateKind.MAP: "getMapState"}


def spark_watermark(watermark_ms: int) -> int:
    """Spark's watermark: all rows up to and including it are late. It is a millisecond after Flink's, and 0 at first."""
    return 0 if watermark_ms == MIN_WATERMARK else min(watermark_ms, MAX_WATERMARK - 1) + 1


class ProcessorTimerValues:
    """Spark's `TimerValues`."""

    __slots__ = ("_clock_ms", "_watermark_ms")

    def __init__(self, clock_ms: int, watermark_ms: int) -> None:
        self._clock_ms = clock_ms
        self._watermark_ms = watermark_ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self._clock_ms

    def getCurrentWatermarkInMs(self) -> int:
        return self._watermark_ms


class ProcessorTimerInfo:
    """Spark's `ExpiredTimerInfo`."""

    __slots__ = ("_expiry_ms",)

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms

    def getExpiryTimeInMs(self) -> int:
        return self._expiry_ms


_KEPT_MS = {TimeDomain.EVENT_TIME: 1, TimeDomain.PROCESSING_TIME: 1000}
"""How long after it has fired a timer that is kept fires again, at the earliest."""


class ProcessorTimers:
    """The timers of one processor. Each is registered twice: by time, to fire, and under its key, to be listed."""

    def __init__(self, states: KeyedStates, timers: TimerState, domain: TimeDomain) -> None:
        self._scope = states.scope
        self._timers = timers
        self.domain = domain
        self._of_key: Any = states.accessors[TIMERS_OF_KEY.name]
        self._firing_until_ms: int | None = None
        self._is_kept = False
        self._deferred: dict[tuple[int, Any], int] = {}
        """Timers, with their key groups, that were registered while timers fire, for times that have been reached. As in Spark,
        they fire in the next epoch."""

    def register(self, expiry_ms: int) -> None:
        scope, time = self._scope, time_ms(expiry_ms)
        # Also if it is deferred: the processor can list it at once.
        self._of_key.put(time, True)
        # Otherwise `due` would yield it in the same round, and a processor that always registers one would never end.
        if self._firing_until_ms is not None and time <= self._firing_until_ms:
            self._deferred[time, scope.key] = scope.key_group
        else:
            self._timers.register(self.domain, time, scope.key, scope.key_group)

    def delete(self, expiry_ms: int) -> None:
        """As in Spark, a timer that is due fires even if another one deletes it."""
        scope, time = self._scope, time_ms(expiry_ms)
        self._of_key.remove(time)
        self._deferred.pop((time, scope.key), None)
        if self._firing_until_ms is None or time > self._firing_until_ms:
            self._timers.delete(self.domain, time, scope.key, scope.key_group)

    def keep(self) -> None:
        """Let the timer that fires now fire again once its clock has moved on. If it stayed due, the driver would run epochs for
        it without end."""
        self._is_kept = True

    def listed(self) -> Iterator[int]:
        return iter(list(self._of_key.keys()))

    def due(self, until_ms: int) -> Iterator[int]:
        """Yield the time of each timer up to this time, with its key in scope. A timer is deleted after it has fired, even if it
        was registered again meanwhile, unless it is kept."""
        scope = self._scope
        self._firing_until_ms = until_ms
        for time, key, group, _ in self._timers.due(self.domain, until_ms):
            scope.key, scope.key_group = key, group
            yield time
            if self._is_kept:
                self._is_kept = False
                later = until_ms + _KEPT_MS[self.domain]
                self._of_key.remove(time)
                self._of_key.put(later, True)
                self._deferred[later, key] = group
                continue
            self._of_key.remove(time)
            self._deferred.pop((time, key), None)
        # Only now, so that timers that the last one registered are deferred, too.
        self._firing_until_ms = None
        for (time, key), group in self._deferred.items():
            self._timers.register(self.domain, time, key, group)
        self._deferred.clear()


class ProcessorHandle:
    """Spark's `StatefulProcessorHandle` in a task."""

    def __init__(
        self, name: str, made: StatefulProcessing, states: KeyedStates, timers: ProcessorTimers | None
    ) -> None:
        self._name = name
        self._made = made
        self.timers = timers
        self._objects = {
            state.name: state_object(states.accessors[state.name], state) for state in made.states.values()
        }

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ProcessorObject:
        return self._declared(stateName, StateKind.VALUE)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ProcessorObject:
        return self._declared(stateName, StateKind.LIST)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> ProcessorObject:
        return self._declared(stateName, StateKind.MAP)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._known("registerTimer").register(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._known("deleteTimer").delete(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        return self._known("listTimers").listed()

    def deleteIfExists(self, stateName: str) -> None:
        """The states that `init` deletes were found when the job was declared."""
        if stateName not in self._made.purged:
            self._refuse(f"deleteIfExists({stateName!r}) was not called in init when the job was declared")

    def _declared(self, name: str, kind: StateKind) -> ProcessorObject:
        state: ProcessorState | None = self._made.states.get(name)
        if state is None or state.kind is not kind:
            self._refuse(f"{_GETTERS[kind]}({name!r}, …) was not called in init when the job was declared")
        return self._objects[name]

    def _refuse(self, what: str) -> NoReturn:
        raise GraphError(
            f"transform_with_state {self._name!r}: {what}. A job knows its state before it starts: init calls the same methods "
            "of the handle every time, and no other method does."
        )

    def _known(self, method: str) -> ProcessorTimers:
        if self.timers is None:
            raise GraphError(
                f"transform_with_state {self._name!r}: {method} needs a clock, and timeMode is 'None'. Use "
                f"timeMode='{TimeMode.PROCESSING_TIME}' or '{TimeMode.EVENT_TIME}'."
            )
        return self.timers
