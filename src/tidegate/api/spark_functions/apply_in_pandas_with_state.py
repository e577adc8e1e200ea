"""Runs a function of Spark's `applyInPandasWithState` unchanged, on tidegate's state."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.spark_functions.arguments import check_has_event_time, check_keyed, check_output_mode, struct_type
from tidegate.api.streams import KeyedStream, Stream
from tidegate.core.errors import GraphError
from tidegate.graph.stateful_processing import GROUP_STATE, ProcessorState, StatefulProcessing, TimeMode
from tidegate.graph.states import StateKind

if TYPE_CHECKING:
    from tidegate.api.spark_types import SparkSchema
    from tidegate.schema.schema import Schema

_TIMEOUTS = {
    "NoTimeout": TimeMode.NONE,
    "ProcessingTimeTimeout": TimeMode.PROCESSING_TIME,
    "EventTimeTimeout": TimeMode.EVENT_TIME,
}


def apply_in_pandas_with_state(
    keyed: KeyedStream,
    func: Callable[..., object],
    *,
    uid: str,
    outputStructType: str | Schema | SparkSchema,
    stateStructType: str | Schema | SparkSchema,
    outputMode: str,
    timeoutConf: str,
) -> Stream:
    """Call `func(key, frames, state)` once for each key and epoch, as `GroupedData.applyInPandasWithState` does.

    The arguments are Spark's, with a uid and a keyed stream in place of grouped data. `state` has the methods of
    `pyspark.sql.streaming.state.GroupState`, and permanently belongs to `uid`. With a timeout, the function is also called, with
    an empty frame and `state.hasTimedOut`, for keys whose timeout has passed.

    Args:
        keyed: The rows, in place of Spark's grouped data: `stream.key_by("user")`.
        func: The function written for Spark. It yields pandas frames.
        uid: The permanent identity of the operator's state.
        outputStructType: The columns of the frames that `func` yields.
        stateStructType: The fields of the tuple that `state.update` takes.
        outputMode: `"Append"` or `"Update"`, which mean the same here: every row that `func` yields is emitted.
        timeoutConf: The clock of timeouts: `"ProcessingTimeTimeout"`, `"EventTimeTimeout"` or `"NoTimeout"`, as in Spark's
            `GroupStateTimeout`.

    Examples:
        >>> import pandas as pd
        >>> def count(key, frames, state):
        ...     n = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        ...     state.update((n,))
        ...     yield pd.DataFrame({"user": [key[0]], "n": [n]})
        >>> counts = tg.apply_in_pandas_with_state(
        ...     orders.key_by("user"), count, uid="counts", outputStructType="user string, n bigint",
        ...     stateStructType="n bigint", outputMode="Update", timeoutConf="NoTimeout",
        ... )
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.output()
        [Struct(user='ann', n=2)]
    """
    what = f"apply_in_pandas_with_state {uid!r}"
    check_keyed(what, "apply_in_pandas_with_state", keyed)
    if not callable(func) or inspect.isclass(func):
        raise GraphError(f"{what} takes a function of key, frames and state; got {func!r:.200}.")
    check_output_mode(what, outputMode)
    mode = _TIMEOUTS.get(timeoutConf)
    if mode is None:
        raise GraphError(f"{what}: timeoutConf is {', '.join(map(repr, _TIMEOUTS))}; got {timeoutConf!r}.")
    if mode is TimeMode.EVENT_TIME:
        check_has_event_time(what, "timeoutConf is 'EventTimeTimeout'", keyed)
    state = ProcessorState(
        name=GROUP_STATE, kind=StateKind.VALUE, schema=struct_type(stateStructType, f"{what}: stateStructType")
    )
    made = StatefulProcessing(processor=func, time_mode=mode, pandas=True, grouped=True, states={state.name: state})
    schema = struct_type(outputStructType, f"{what}: outputStructType")
    return keyed._operate(uid, KeyedOperator(function=made, states=made.specs(), schema=schema, batches=True))
