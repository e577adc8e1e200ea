"""Functions of Spark's stateful operators that number the rows of each key, for the job of `chaos.counted`.

A row waits in state until its time, and a timer emits it: a timer or an entry of state that is lost, or comes twice, is a row
that is. The states of a key repeat each other; if they differ, the function raises and the job gives up.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import tidegate as tg

BUCKETS = 7
OUT = "b bigint, i bigint, v bigint, k int, n bigint, mark string"
TIME = "timestamp_seconds(1000000 + i) as t"
"""The event time of a row: its number in seconds."""
OUT_OF_ORDERNESS = "200 s"


def due_ms(i: int) -> int:
    """When a row is emitted. Rows of a key may be emitted in another order than they came in."""
    return (1_000_000 + i + 10 + i % 7 * 10) * 1000


class Delayed(StatefulProcessor):
    """The rows that wait as a list and as a map, and a timer for each of them."""

    def __init__(self, unique: bool) -> None:
        self.unique = unique

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n bigint")
        self.waiting = handle.getListState("waiting", "i bigint, v bigint")
        self.by_number = handle.getMapState("by_number", "i bigint", "v bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.k >= 0:
                self.waiting.appendValue((row.i, row.v))
                self.by_number.updateValue((row.i,), (row.v,))
                self.handle.registerTimer(due_ms(row.i))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        waiting = list(self.waiting.get())
        if sorted(waiting) != sorted((i, v) for (i,), (v,) in self.by_number.iterator()):
            raise LookupError(f"The states of key {key[0]} differ.")
        now = expiredTimerInfo.getExpiryTimeInMs()
        (n,) = self.count.get() or (0,)
        for i, v in waiting:
            if due_ms(i) <= now:
                n += 1
                self.by_number.removeKey((i,))
                yield Row(b=i % BUCKETS, i=i, v=v, k=key[0], n=n, mark=mark(self.unique))
        self.count.update((n,))
        self.waiting.put([(i, v) for i, v in waiting if due_ms(i) > now])

    def close(self) -> None: ...


def delayed(unique: bool) -> Any:
    """The same as a function of `applyInPandasWithState`: all rows in one state, and one timeout, for the first of them."""

    def function(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
        n, waiting = state.getOption or (0, [])
        waiting = [tuple(one) for one in waiting]
        for frame in frames:
            waiting += [(i, v) for k, i, v in zip(frame.k, frame.i, frame.v) if k >= 0]
        now = state.getCurrentWatermarkMs()
        if state.hasTimedOut:
            passed = [one for one in waiting if due_ms(one[0]) < now]
            if not passed:
                raise LookupError(f"The timeout of key {key[0]} has passed for none of its rows.")
            waiting = [one for one in waiting if due_ms(one[0]) >= now]
            out = [(i % BUCKETS, i, v, key[0], n + place, mark(unique)) for place, (i, v) in enumerate(passed, 1)]
            yield pd.DataFrame(out, columns=["b", "i", "v", "k", "n", "mark"])
            n += len(passed)
        state.update((n, waiting))
        if waiting:
            state.setTimeoutTimestamp(max(now, min(due_ms(i) for i, _ in waiting)))

    return function


def mark(unique: bool) -> str:
    return uuid.uuid4().hex if unique else ""


def numbered(kind: str, keyed: Any, unique: bool) -> Any:
    """The rows of a keyed stream with event time, numbered by a function of the kind."""
    if kind == "stateful-processor":
        return tg.transform_with_state(
            keyed, Delayed(unique), uid="number", outputStructType=OUT, outputMode="Append", timeMode="EventTime"
        )
    state = "n bigint, waiting array<struct<i:bigint,v:bigint>>"
    return tg.apply_in_pandas_with_state(
        keyed, delayed(unique), uid="number", outputStructType=OUT, stateStructType=state, outputMode="Append",
        timeoutConf="EventTimeTimeout",
    )  # fmt: skip
