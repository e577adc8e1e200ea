"""A function of Spark's `applyInPandasWithState` in a task: its `GroupState`, and the processor that calls it.

The state of a key is a value state; its timeout is a timer of the processor. Spark's timeout has passed when a clock is later
than it, and a timer fires when the clock reaches it, so the timer is a millisecond later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import numpy as np

from tidegate.core.durations import duration_ms
from tidegate.core.errors import SchemaError
from tidegate.core.times import MAX_WATERMARK
from tidegate.graph.model import Process
from tidegate.graph.stateful_processing import GROUP_STATE, StatefulProcessing, TimeMode
from tidegate.runtime.task.spark_processor.processor_handle import (
    ProcessorHandle,
    ProcessorTimerInfo,
    ProcessorTimers,
    ProcessorTimerValues,
)
from tidegate.schema.datatype import DataType

_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "tinyint": np.int8,
    "smallint": np.int16,
    "int": np.int32,
    "bigint": np.int64,
    "float": np.float32,
    "double": np.float64,
}


class GroupState:
    """Spark's `GroupState`: the state and the timeout of one key, while the function is called for it.

    Its errors are of the built-in classes that Spark's derive from: a function that expects them finds them.
    """

    NO_TIMESTAMP = -1

    def __init__(self, made: _Settings, clocks: ProcessorTimerValues, timed_out: bool) -> None:
        self._made = made
        self._clocks = clocks
        self._timed_out = timed_out
        self._changed = False
        self._timeout_ms: int | None = None

    @property
    def exists(self) -> bool:
        return bool(self._made.value.exists())

    @property
    def get(self) -> tuple[Any, ...]:
        found = self.getOption
        if found is None:
            raise ValueError("The key has no state. Ask state.exists first, or use state.getOption.")
        return found

    @property
    def getOption(self) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._made.value.get()
        return found

    @property
    def hasTimedOut(self) -> bool:
        return self._timed_out

    def update(self, newValue: Iterable[Any]) -> None:
        if newValue is None:
            raise TypeError("state.update takes a tuple, not None. To remove the state, call state.remove().")
        self._made.value.update(tuple(newValue))
        self._changed = True

    def remove(self) -> None:
        """Remove the state. A timeout that is set in the same call stays."""
        self._made.value.clear()
        self._changed = True

    def setTimeoutDuration(self, durationMs: int | str) -> None:
        self._need(TimeMode.PROCESSING_TIME, "setTimeoutDuration", "ProcessingTimeTimeout")
        duration = duration_ms(durationMs) if isinstance(durationMs, str) else int(durationMs)
        if duration <= 0:
            raise ValueError(f"The duration of a timeout must be positive; got {durationMs!r}.")
        self._timeout_ms = self._clocks.getCurrentProcessingTimeInMs() + duration

    def setTimeoutTimestamp(self, timestampMs: int | datetime) -> None:
        self._need(TimeMode.EVENT_TIME, "setTimeoutTimestamp", "EventTimeTimeout")
        if isinstance(timestampMs, datetime):
            timestampMs = int(timestampMs.timestamp() * 1000)
        time, watermark = int(timestampMs), self._clocks.getCurrentWatermarkInMs()
        if time <= 0:
            raise ValueError(f"The time of a timeout must be positive; got {timestampMs!r}.")
        # At the end of event time, any timeout has passed.
        if time < watermark != MAX_WATERMARK:
            raise ValueError(f"The time of a timeout, {time}, cannot be earlier than the watermark, {watermark}.")
        self._timeout_ms = time

    def getCurrentProcessingTimeMs(self) -> int:
        return self._clocks.getCurrentProcessingTimeInMs()

    def getCurrentWatermarkMs(self) -> int:
        if not self._made.has_watermark:
            raise RuntimeError(
                "There is no watermark: the source declares no event time. Add event_time= to job.source(…)."
            )
        return self._clocks.getCurrentWatermarkInMs()

    def _need(self, mode: TimeMode, method: str, conf: str) -> None:
        if self._made.mode is not mode:
            raise RuntimeError(f"state.{method} needs timeoutConf={conf!r}.")

    def __str__(self) -> str:
        found = self.getOption
        return "GroupState(<undefined>)" if found is None else f"GroupState({found})"


class _Settings:
    """What the states of all keys have in common."""

    def __init__(self, value: Any, mode: TimeMode, has_watermark: bool) -> None:
        self.value = value
        self.mode = mode
        self.has_watermark = has_watermark


class GroupStateProcessor:
    """Calls the function as a `StatefulProcessor` that takes pandas frames."""

    def __init__(self, made: StatefulProcessing, node: Process) -> None:
        pd = import_module("pandas")  # Late, for a quick start: only these functions need it.

        self._function = made.processor
        self._mode = made.time_mode
        self._has_watermark = node.input.event_time is not None
        self._names = list(node.input.schema.names)
        self._width = len(node.schema)
        schema = node.input.schema
        self._to_spark = [_key_part(schema.fields[schema.index(column)].type, pd) for column in node.input.key]
        self._frame_class: Any = pd.DataFrame
        self._settings: _Settings
        self._timers: ProcessorTimers | None = None

    def init(self, handle: ProcessorHandle) -> None:
        value = handle.getValueState(GROUP_STATE, None)
        self._settings = _Settings(value, self._mode, self._has_watermark)
        self._timers = handle.timers

    def close(self) -> None: ...

    def handleInitialState(self, key: Any, initialState: Any, timerValues: ProcessorTimerValues) -> None:
        """There is no second input."""

    def handleInputRows(
        self, key: Sequence[Any], rows: Iterator[Any], timerValues: ProcessorTimerValues
    ) -> Iterator[Any]:
        state = GroupState(self._settings, timerValues, False)
        yield from self._called(key, rows, state)
        self._store_timeout(state)

    def handleExpiredTimer(
        self, key: Sequence[Any], timerValues: ProcessorTimerValues, expiredTimerInfo: ProcessorTimerInfo
    ) -> Iterator[Any]:
        state = GroupState(self._settings, timerValues, True)
        yield from self._called(key, iter((self._frame_class(columns=self._names),)), state)
        if not self._store_timeout(state) and timerValues.getCurrentWatermarkInMs() != MAX_WATERMARK:
            # Spark calls the function again with the next trigger as long as it neither sets a timeout nor changes the state.
            assert self._timers is not None
            self._timers.keep()

    def _called(self, key: Sequence[Any], frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
        result = self._function(tuple(one(part) for one, part in zip(self._to_spark, key)), frames, state)
        if isinstance(result, self._frame_class) or not isinstance(result, Iterable):
            raise SchemaError(
                f"The function returned {result!r:.200}, a {type(result).__name__}. It must yield pandas frames."
            )
        for frame in result:
            if isinstance(frame, self._frame_class) and len(frame.columns) != self._width and len(frame):
                raise SchemaError(
                    f"The function emitted a frame with the columns {', '.join(map(str, frame.columns))}, but outputStructType "
                    f"has {self._width} columns."
                )
            yield frame

    def _store_timeout(self, state: GroupState) -> bool:
        """Replace the timeout of the key. As in Spark, a call that neither sets one nor changes the state keeps what there was:
        then the answer is False."""
        if state._timeout_ms is None and not state._changed:
            return False
        if self._timers is not None:
            for time in self._timers.listed():
                self._timers.delete(time)
            if state._timeout_ms is not None and state._timeout_ms < MAX_WATERMARK:
                self._timers.register(state._timeout_ms + 1)
        return True


def _key_part(type: DataType, pd: Any) -> Callable[[Any], Any]:
    """Return what converts a column of the key to what pandas has, as Spark does: a NumPy scalar, or a time in UTC without a
    zone."""
    number = _NUMBERS.get(type.kind)
    if number is not None:
        return lambda value: np.float64("nan") if value is None else number(value)
    match type.kind:
        case "boolean":
            return lambda value: None if value is None else np.bool_(value)
        case "timestamp":
            return lambda value: pd.NaT if value is None else pd.Timestamp(value.astimezone(UTC).replace(tzinfo=None))
        case "timestamp_ntz":
            return lambda value: pd.NaT if value is None else pd.Timestamp(value)
    return lambda value: value
