"""Queries of Spark, and the jobs of tidegate that take over from them. Both read the same files, one per batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import tidegate as tg

SCHEMA = "k string, v int, t timestamp"
DAY_MS = 86_400_000
OUT = "k string, what string"


class Carts(StatefulProcessor):
    """All kinds of state, and timers that close a cart ten seconds after its last row."""

    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", "n bigint, last timestamp")
        self.rows = handle.getListState("rows", "v int")
        self.seen = handle.getMapState("seen", "v int", "n int")

    def handleInputRows(self, key, rows, timerValues):
        n, last = self.total.get() if self.total.exists() else (0, None)
        for row in rows:
            n, last = n + (row.v or 0), row.t.replace(tzinfo=None)
            self.rows.appendValue((row.v,))
            (before,) = self.seen.getValue((row.v,)) or (0,)
            self.seen.updateValue((row.v,), (before + 1,))
            end = int(row.t.timestamp() * 1000) + 10_000
        self.total.update((n, last))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(end)
        seen = sorted(self.seen.iterator(), key=str)
        yield Row(k=key[0], what=f"{n} {[v for (v,) in self.rows.get()]} {seen}")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        n, last = self.total.get()
        yield Row(k=key[0], what=f"closed {n} {last:%H:%M:%S} {expiredTimerInfo.getExpiryTimeInMs()}")
        for state in (self.total, self.rows, self.seen):
            state.clear()

    def close(self):
        pass


class Lasting(StatefulProcessor):
    """State that lives for a day, and state that has expired long since."""

    def init(self, handle):
        self.day = handle.getValueState("day", "v int", DAY_MS)
        self.days = handle.getListState("days", "v int", DAY_MS)
        self.by_value = handle.getMapState("by_value", "v int", "v int", DAY_MS)
        self.instant = handle.getValueState("instant", "v int", 1)

    def handleInputRows(self, key, rows, timerValues):
        found = [self.day.get(), list(self.days.get()), sorted(self.by_value.keys(), key=str), self.instant.exists()]
        for row in rows:
            self.day.update((row.v,))
            self.days.appendValue((row.v,))
            self.by_value.updateValue((row.v,), (row.v,))
            self.instant.update((row.v,))
        yield Row(k=key[0], what=str(found))

    def close(self):
        pass


def sessions(key, frames, state):
    """A session of a key ends ten seconds after its last row."""
    if state.hasTimedOut:
        n, last = state.get
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "what": [f"ended {n} {last}"]})
        return
    n, last = state.getOption or (0, 0)
    for frame in frames:
        n, last = n + len(frame), max(last, int(frame["t"].max().value // 1_000_000))
    state.update((n, last))
    state.setTimeoutTimestamp(last + 10_000)
    yield pd.DataFrame({"k": [key[0]], "what": [f"{n} {last}"]})


@dataclass(frozen=True)
class MovedQuery:
    spark: Callable[[DataFrame], DataFrame]
    tidegate: Callable[[Any], Any]
    mode: str = "append"

    def query(self, spark: SparkSession, folder: str, at: str, output: list[Any]) -> None:
        """Run the query of Spark over all files that are there."""
        made = self.spark(_files(spark, folder))
        writer = made.writeStream.outputMode(self.mode).foreachBatch(lambda batch, _: output.extend(batch.collect()))
        writer.option("checkpointLocation", at).trigger(availableNow=True).start().awaitTermination()

    def job(self, spark: SparkSession, folder: str, sink: Any = None) -> tg.Job:
        job = tg.Job("moved", parallelism=2)
        rows = job.source("in", _files(spark, folder), event_time="t", out_of_orderness="5 s")
        self.tidegate(rows).sink("out", tg.PrintSink() if sink is None else sink)
        return job


def _files(spark: SparkSession, folder: str) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)


def _processor(processor: Callable[[], StatefulProcessor], time: str) -> MovedQuery:
    return MovedQuery(
        lambda rows: rows.withWatermark("t", "5 seconds").groupBy("k").transformWithState(processor(), OUT, "Append", time),
        lambda rows: tg.transform_with_state(
            rows.key_by("k"), processor(), uid="op", outputStructType=OUT, outputMode="Append", timeMode=time
        ),
    )  # fmt: skip


MOVED = {
    "event time": _processor(Carts, "EventTime"),
    "time to live": _processor(Lasting, "ProcessingTime"),
    "groups": MovedQuery(
        lambda rows: (
            rows.withWatermark("t", "5 seconds")
            .groupBy("k")
            .applyInPandasWithState(sessions, OUT, "n bigint, last bigint", "append", "EventTimeTimeout")
        ),
        lambda rows: tg.apply_in_pandas_with_state(
            rows.key_by("k"),
            sessions,
            uid="op",
            outputStructType=OUT,
            stateStructType="n bigint, last bigint",
            outputMode="append",
            timeoutConf="EventTimeTimeout",
        ),
    ),
    "aggregates": MovedQuery(
        lambda rows: rows.groupBy("k").agg(
            F.count("*"), F.sum("v"), F.avg("v"), F.min("v"), F.max("t"), F.sum(F.col("v").cast("decimal(10,2)"))
        ),
        lambda rows: (
            rows.map(lambda row: (row.k, row.v, row.t, row.v), schema="k string, v int, t timestamp, d decimal(10,2)")
            .key_by("k")
            .aggregate(
                "op", n=tg.count(), s=tg.sum("v"), a=tg.mean("v"), least=tg.min("v"), last=tg.max("t"), d=tg.sum("d")
            )
        ),
        mode="update",
    ),
    "windows": MovedQuery(
        lambda rows: (
            rows.withWatermark("t", "5 seconds")
            .groupBy("k", F.window("t", "10 seconds", "5 seconds"))
            .agg(F.count("*").alias("n"), F.avg("v").alias("a"))
            .select("k", "window.start", "window.end", "n", "a")
        ),
        lambda rows: (
            rows.key_by("k")
            .window(tg.SlidingEventTimeWindows.of("10 s", "5 s"))
            .aggregate("op", n=tg.count(), a=tg.mean("v"))
        ),
    ),
    "duplicates": MovedQuery(
        lambda rows: rows.dropDuplicates(["k", "v"]), lambda rows: rows.key_by("k", "v").deduplicate("op")
    ),
}
