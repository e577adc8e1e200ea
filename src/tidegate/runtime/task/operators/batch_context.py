"""What a function over batches sees with each batch and with timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import GraphError, WrongValue
from tidegate.core.times import TimeDomain, time_ms
from tidegate.runtime.task.operators.spans import Span
from tidegate.runtime.task.operators.timer_service import KeyTimerService
from tidegate.schema.output_batches import output_batch
from tidegate.schema.schema import Schema
from tidegate.state.accessors.timers import TimerState
from tidegate.state.keys.key_index import KeyIndex


class KeysTimerService:
    """The clocks of the epoch, and timers of many keys at once."""

    def __init__(self, one_by_one: KeyTimerService, timers: TimerState | None) -> None:
        self._service = one_by_one
        self._timers = timers

    def current_processing_time(self) -> int:
        return self._service.clock_ms

    def current_watermark(self) -> int:
        return self._service.watermark_ms

    def register_event_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._register(TimeDomain.EVENT_TIME, keys, timestamps)

    def register_processing_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._register(TimeDomain.PROCESSING_TIME, keys, timestamps)

    def delete_event_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._delete(TimeDomain.EVENT_TIME, keys, timestamps)

    def delete_processing_time_timers(self, keys: KeyIndex, timestamps: Any) -> None:
        self._delete(TimeDomain.PROCESSING_TIME, keys, timestamps)

    def _register(self, domain: TimeDomain, keys: KeyIndex, timestamps: Any) -> None:
        register = self._known().register
        for time, key, group in zip(_times(timestamps, len(keys)), keys.keys, keys.groups):
            register(domain, time, key, group)

    def _delete(self, domain: TimeDomain, keys: KeyIndex, timestamps: Any) -> None:
        delete = self._known().delete
        for time, key, group in zip(_times(timestamps, len(keys)), keys.keys, keys.groups):
            delete(domain, time, key, group)

    def _known(self) -> TimerState:
        if self._timers is None:
            raise GraphError(
                "The function sets timers but has no method on_timers, so nothing would happen when they fire. Add def "
                "on_timers(self, keys, timestamps, ctx) to its class."
            )
        return self._timers


def _times(given: Any, count: int) -> list[int]:
    """Milliseconds for each key: from one time for all, or from an array of milliseconds or of moments."""
    if isinstance(given, int | np.integer | datetime):
        return [time_ms(given if isinstance(given, datetime) else int(given))] * count
    if isinstance(given, pa.Array | pa.ChunkedArray):
        given = given.to_numpy(zero_copy_only=False) if isinstance(given, pa.Array) else given.to_numpy()
    array = np.asarray(given)
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise WrongValue("One of the timer times is null. Select the keys that have a time with keys.take(mask).")
        array = array.astype("M8[ms]").astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1 or len(array) != count:
        raise WrongValue(
            f"Timers need a single time, or an array with one time for each of the {count} distinct keys: integers "
            f"(milliseconds), numpy datetime64 or Arrow timestamps. Got an array of {array.dtype} with shape {array.shape}."
        )
    return array.tolist()  # type: ignore[no-any-return]


class KeyedBatchContext:
    """The context of a function while it processes a batch of rows or of timers."""

    def __init__(
        self,
        timers: KeysTimerService,
        sides: dict[str, list[Any]],
        schemas: Mapping[str, Schema],
        span: Callable[[str], Span],
    ) -> None:
        self._timers = timers
        self._sides = sides
        self._schemas = schemas
        self.span = span
        self.times: Callable[[], npt.NDArray[np.int64] | None] = lambda: None
        self.domain = TimeDomain.EVENT_TIME

    def timestamps(self) -> npt.NDArray[np.int64] | None:
        """Event time of each row in milliseconds, if the source declares one."""
        return self.times()

    def timer_service(self) -> KeysTimerService:
        return self._timers

    def time_domain(self) -> TimeDomain:
        return self.domain

    def output(self, tag: str, columns: Any) -> None:
        """Send columns to a side output."""
        if tag not in self._sides:
            declared = ", ".join(sorted(self._sides)) or "none"
            raise GraphError(
                f"There is no side output {tag!r}. Declared side outputs: {declared}. "
                f"Declare it: process(…, side_outputs={{{tag!r}: 'column type, …'}})."
            )
        self._sides[tag].append(output_batch(columns, self._schemas[tag]))
