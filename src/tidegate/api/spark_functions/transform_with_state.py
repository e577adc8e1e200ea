"""Runs a Spark `StatefulProcessor` unchanged, on tidegate's state.

The arguments are those of Spark's `transformWithState`, with a uid and a keyed stream in place of grouped data. A job knows its
state before it starts, so the declaration calls `init` once, on a copy of the processor, with a handle that takes notes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.mistakes import check_instance
from tidegate.api.spark_functions.arguments import check_has_event_time, check_keyed, check_output_mode, struct_type
from tidegate.api.streams import KeyedStream, Stream, check_connected
from tidegate.core.errors import GraphError
from tidegate.graph.stateful_processing import RESERVED, ProcessorState, StatefulProcessing, TimeMode
from tidegate.graph.states import StateKind
from tidegate.graph.validate import check_event_time, check_name
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    from tidegate.api.spark_types import SparkSchema

_METHODS = ("init", "handleInputRows", "handleExpiredTimer", "handleInitialState", "close")
_MODES = {mode.lower(): mode for mode in TimeMode}


def transform_with_state(
    keyed: KeyedStream,
    statefulProcessor: object,
    *,
    uid: str,
    outputStructType: str | Schema | SparkSchema,
    outputMode: str,
    timeMode: str,
    initialState: KeyedStream | None = None,
    eventTimeColumnName: str = "",
) -> Stream:
    """Run a `pyspark.sql.streaming.StatefulProcessor` that takes and returns rows, as `GroupedData.transformWithState` does.

    Its state permanently belongs to `uid`, each state under its name. `handleInputRows` is called once for each key and epoch.

    Args:
        keyed: The rows, in place of Spark's grouped data: `stream.key_by("user")`.
        statefulProcessor: An instance of the class written for Spark. Its `init` runs once more when the job is declared, on a
            copy, because a job knows its states before it starts.
        uid: The permanent identity of the operator's state.
        outputStructType: The columns of what `handleInputRows` returns.
        outputMode: `"Append"` or `"Update"`, which mean the same here: everything that the processor returns is emitted.
        timeMode: The clock of timers: `"ProcessingTime"`, `"EventTime"` or `"None"`. A time to live of state needs
            `"ProcessingTime"`.
        initialState: A stream keyed by columns of the same types. Its rows go to `handleInitialState` before the other rows of
            their epoch. By default, state begins empty.
        eventTimeColumnName: The event time of the rows that the processor returns. By default, they have none.

    Examples:
        >>> from pyspark.sql import Row
        >>> from pyspark.sql.streaming import StatefulProcessor
        >>> class Count(StatefulProcessor):
        ...     def init(self, handle):
        ...         self.n = handle.getValueState("n", "n bigint")
        ...     def handleInputRows(self, key, rows, timerValues):
        ...         n = (self.n.get()[0] if self.n.exists() else 0) + sum(1 for _ in rows)
        ...         self.n.update((n,))
        ...         yield Row(user=key[0], n=n)
        ...     def close(self):
        ...         pass
        >>> counts = tg.transform_with_state(
        ...     orders.key_by("user"), Count(), uid="counts", outputStructType="user string, n bigint",
        ...     outputMode="Update", timeMode="None",
        ... )
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.output()
        [Struct(user='ann', n=2)]
    """
    return _declared(
        keyed,
        statefulProcessor,
        uid=uid,
        output=outputStructType,
        modes=(outputMode, timeMode),
        initial=initialState,
        event_time=eventTimeColumnName,
        pandas=False,
    )


def transform_with_state_in_pandas(
    keyed: KeyedStream,
    statefulProcessor: object,
    *,
    uid: str,
    outputStructType: str | Schema | SparkSchema,
    outputMode: str,
    timeMode: str,
    initialState: KeyedStream | None = None,
    eventTimeColumnName: str = "",
) -> Stream:
    """Run a processor that takes and returns pandas frames, as `GroupedData.transformWithStateInPandas` does.

    Otherwise the same as `transform_with_state`.

    Args:
        keyed: The rows, in place of Spark's grouped data: `stream.key_by("user")`.
        statefulProcessor: An instance of the class written for Spark. Its `init` runs once more when the job is declared, on a
            copy, because a job knows its states before it starts.
        uid: The permanent identity of the operator's state.
        outputStructType: The columns of what `handleInputRows` returns.
        outputMode: `"Append"` or `"Update"`, which mean the same here: everything that the processor returns is emitted.
        timeMode: The clock of timers: `"ProcessingTime"`, `"EventTime"` or `"None"`. A time to live of state needs
            `"ProcessingTime"`.
        initialState: A stream keyed by columns of the same types. Its rows go to `handleInitialState` before the other rows of
            their epoch. By default, state begins empty.
        eventTimeColumnName: The event time of the rows that the processor returns. By default, they have none.

    Examples:
        >>> import pandas as pd
        >>> from pyspark.sql.streaming import StatefulProcessor
        >>> class Count(StatefulProcessor):
        ...     def init(self, handle):
        ...         self.n = handle.getValueState("n", "n bigint")
        ...     def handleInputRows(self, key, frames, timerValues):
        ...         n = (self.n.get()[0] if self.n.exists() else 0) + sum(len(frame) for frame in frames)
        ...         self.n.update((n,))
        ...         yield pd.DataFrame({"user": [key[0]], "n": [n]})
        ...     def close(self):
        ...         pass
        >>> counts = tg.transform_with_state_in_pandas(
        ...     orders.key_by("user"), Count(), uid="counts", outputStructType="user string, n bigint",
        ...     outputMode="Update", timeMode="None",
        ... )
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.output()
        [Struct(user='ann', n=2)]
    """
    return _declared(
        keyed,
        statefulProcessor,
        uid=uid,
        output=outputStructType,
        modes=(outputMode, timeMode),
        initial=initialState,
        event_time=eventTimeColumnName,
        pandas=True,
    )


def _declared(
    keyed: KeyedStream,
    processor: Any,
    *,
    uid: str,
    output: str | Schema | SparkSchema,
    modes: tuple[str, str],
    initial: KeyedStream | None,
    event_time: str,
    pandas: bool,
) -> Stream:
    what = f"transform_with_state {uid!r}"
    _check_processor(what, keyed, processor)
    output_mode, time_mode = modes
    check_output_mode(what, output_mode)
    mode = _time_mode(what, time_mode)
    if mode is TimeMode.EVENT_TIME:
        check_has_event_time(what, "timeMode is 'EventTime'", keyed)
    if initial is not None:
        check_connected(keyed, initial)
    schema = struct_type(output, f"{what}: outputStructType")
    if event_time:
        check_event_time(event_time, schema)
    # Spark learns the states of a processor in its tasks. A job must know them before it starts, so `init` runs here, too.
    notes = _NotingHandle(what, mode)
    # A copy: what init assigns must not travel with the processor.
    tried = copy(processor)
    tried.init(notes)
    tried.close()
    made = StatefulProcessing(
        processor=processor,
        time_mode=mode,
        pandas=pandas,
        states=dict(notes.states),
        purged=tuple(notes.purged),
        row=_row_class(),
    )
    stream = keyed._operate(
        uid,
        KeyedOperator(
            function=made,
            states=made.specs(),
            schema=schema,
            second=None if initial is None else initial.input,
            batches=pandas,
        ),
    )
    if not event_time:
        return stream
    return stream.assign_timestamps(event_time)


def _check_processor(what: str, keyed: object, processor: object) -> None:
    check_keyed(what, "transform_with_state", keyed)
    check_instance(what, processor)
    missing = [name for name in _METHODS if not callable(getattr(processor, name, None))]
    if missing:
        raise GraphError(
            f"{what}: {type(processor).__name__} has no {', '.join(missing)}. Derive it from "
            "pyspark.sql.streaming.StatefulProcessor."
        )


def _time_mode(what: str, mode: str) -> TimeMode:
    found = _MODES.get(str(mode).lower())
    if found is None:
        raise GraphError(f"{what}: timeMode is 'None', 'ProcessingTime' or 'EventTime'; got {mode!r}.")
    return found


def _row_class() -> Any:
    """Return PySpark's class of rows. A user who has a `StatefulProcessor` has imported PySpark; this package must not."""
    return getattr(sys.modules.get("pyspark.sql"), "Row", None)


class _NotingHandle:
    """The handle of `init` when a job is declared. It takes notes; there is neither state nor a key."""

    def __init__(self, what: str, mode: TimeMode) -> None:
        self._what = what
        self._mode = mode
        self.states: dict[str, ProcessorState] = {}
        self.purged: list[str] = []

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> _NoStateYet:
        return self._note(stateName, StateKind.VALUE, schema, ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> _NoStateYet:
        return self._note(stateName, StateKind.LIST, schema, ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> _NoStateYet:
        return self._note(stateName, StateKind.MAP, valueSchema, ttlDurationMs, userKeySchema)

    def deleteIfExists(self, stateName: str) -> None:
        if stateName in self.states:
            self._refuse_both(stateName)
        self.purged.append(stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._refuse("registerTimer")

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._refuse("deleteTimer")

    def listTimers(self) -> Iterator[int]:
        self._refuse("listTimers")

    def _refuse(self, method: str) -> NoReturn:
        raise GraphError(f"{self._what}: init calls {method}, but timers belong to a key, and init has none.")

    def _refuse_both(self, name: str) -> NoReturn:
        raise GraphError(
            f"{self._what}: init both declares and deletes the state {name!r}. Remove one of the two calls."
        )

    def _note(self, name: str, kind: StateKind, schema: Any, ttl_ms: int | None, map_key: Any = None) -> _NoStateYet:
        check_name(name, "state name")
        if name in RESERVED:
            raise GraphError(
                f"{self._what}: the name {name!r} is taken by the timers of the operator. Rename the state."
            )
        if name in self.states:
            raise GraphError(f"{self._what}: init declares the state {name!r} twice. Rename one of them.")
        if name in self.purged:
            self._refuse_both(name)
        if ttl_ms is not None:
            self._check_ttl(name, ttl_ms)
        shown = f"{self._what}: the schema of state {name!r}"
        self.states[name] = ProcessorState(
            name=name,
            kind=kind,
            schema=struct_type(schema, shown),
            map_key=None if map_key is None else struct_type(map_key, shown),
            ttl_ms=ttl_ms,
        )
        return _NoStateYet(self._what, name)

    def _check_ttl(self, name: str, ttl_ms: object) -> None:
        if self._mode is not TimeMode.PROCESSING_TIME:
            raise GraphError(
                f"{self._what}: state {name!r} has a time to live, which is a processing time, but timeMode is "
                f"'{self._mode}'. Use timeMode='ProcessingTime', as Spark requires."
            )
        if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int) or ttl_ms <= 0:
            raise GraphError(f"{self._what}: ttlDurationMs of state {name!r} must be a positive int; got {ttl_ms!r}.")


class _NoStateYet:
    """What the noting handle returns as a state."""

    def __init__(self, what: str, name: str) -> None:
        self._what = what
        self._name = name

    def __getattr__(self, method: str) -> NoReturn:
        if method.startswith("__"):
            raise AttributeError(method)
        raise GraphError(
            f"{self._what}: init uses the state {self._name!r}, but every key has its own state, and init has none. Use it in "
            "handleInputRows, handleExpiredTimer or handleInitialState."
        )
