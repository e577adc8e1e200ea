"""The same `StatefulProcessor` on Spark and on tidegate: equal output, and state that survives a restart."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import tidegate as tg
from tests.integration.both_engines import BothEngines
from tests.integration.inputs import stream, write_batches
from tests.waiting import eventually
from tidegate.savepoint.restore_compatibility import StateChanged

STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
DAY_MS = 86_400_000


@pytest.fixture
def store(spark):
    """Spark with the state store that transformWithState needs. It runs no batches without rows: in processing time they would
    never end."""
    assert spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "false"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORE)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    spark.conf.set("spark.sql.shuffle.partitions", "4")


class Both(BothEngines):
    """Runs a processor on both engines."""

    def on_spark(self, processor, out, mode, pandas=False, **others):
        def made(grouped):
            call = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
            return call(processor, out, "Update", mode, **others)

        return self.spark_rows(made)

    def on_tidegate(self, processor, out, mode, pandas=False, backend="rocksdb", **others):
        def made(job, keyed):
            call = tg.transform_with_state_in_pandas if pandas else tg.transform_with_state
            given = {name: make(job) for name, make in others.items()}
            return call(keyed, processor, uid="op", outputStructType=out, outputMode="Update", timeMode=mode, **given)

        return self.tidegate_rows(made, backend)


class Visits(StatefulProcessor):
    """Counts the visits of a user. A timer that is due at once reports and forgets a user with three visits."""

    def init(self, handle):
        self.handle = handle
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key, rows, timerValues):
        (count,) = self.count.get() if self.count.exists() else (0,)
        for row in rows:
            count += row.v
        self.count.update((count,))
        now = timerValues.getCurrentProcessingTimeInMs()
        self.handle.registerTimer(now - 1)
        self.handle.registerTimer(now + DAY_MS)
        if count < 3:
            self.handle.deleteTimer(now - 1)
        yield Row(k=key[0], n=count, what=f"{len([t for t in self.handle.listTimers() if t < now])} due")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        early = expiredTimerInfo.getExpiryTimeInMs() < timerValues.getCurrentProcessingTimeInMs()
        yield Row(what=f"done {early}", k=key[0], n=self.count.get()[0])
        self.count.clear()

    def close(self):
        pass


class Sensors(StatefulProcessor):
    """The last readings of a sensor as a list, their number by unit as a map, and states that live a day or an instant."""

    def init(self, handle):
        self.last = handle.getListState("last", "v int")
        self.units = handle.getMapState("units", "unit string", "n int, last int")
        self.day = handle.getValueState("day", "v int", DAY_MS)
        self.instant = handle.getValueState("instant", "v int", 1)
        self.instants = handle.getListState("instants", "v int", 1)
        self.entries = handle.getMapState("entries", "v int", "v int", 1)

    def handleInputRows(self, key, rows, timerValues):
        found = [self.day.get(), self.instant.exists(), list(self.instants.get()), list(self.entries.keys())]
        for row in rows:
            self.last.appendValue((row.v,))
            n, _ = self.units.getValue((row.u,)) or (0, 0)
            self.units.updateValue((row.u,), (n + 1, row.v))
            for state in (self.day, self.instant):
                state.update((row.v,))
            self.instants.appendList([(row.v,)])
            self.entries.updateValue((row.v,), (row.v,))
        if self.units.containsKey(("F",)):
            self.units.removeKey(("F",))
        self.last.put(list(self.last.get())[-3:])
        yield Row(k=key[0], what=f"{found} {list(self.last.get())} {sorted(self.units.iterator())}")
        if len(list(self.units.values())) > 1:
            self.units.clear()
            self.last.clear()
        yield Row(k=key[0], what=f"{self.units.exists()} {self.last.exists()} {sorted(self.units.keys())}")

    def close(self):
        pass


class Windows(StatefulProcessor):
    """Counts per window of ten seconds, emitted by a timer at the end of the window."""

    def init(self, handle):
        self.handle = handle
        self.windows = handle.getMapState("windows", "till bigint", "n int")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            at = int(row.t.timestamp() * 1000)
            till = at - at % 10_000 + 10_000
            (n,) = self.windows.getValue((till,)) or (0,)
            self.windows.updateValue((till,), (n + 1,))
            self.handle.registerTimer(till)
        yield Row(k=key[0], what="rows at", n=timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        till = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(k=key[0], what=f"window until {till - START_MS}", n=self.windows.getValue((till,))[0])
        self.windows.removeKey((till,))

    def close(self):
        pass


class Frames(StatefulProcessor):
    """Sums with pandas: what was there, and what is there now."""

    def init(self, handle):
        self.sum = handle.getValueState("sum", "s double")

    def handleInputRows(self, key, rows, timerValues):
        (before,) = self.sum.get() or (0.0,)
        after = before + sum(part["v"].sum() for part in rows)
        self.sum.update((after,))
        yield pd.DataFrame({"n": [after], "k": [key[0]]})

    def close(self):
        pass


class Resumed(Frames):
    """Starts from sums that are known."""

    def handleInitialState(self, key, initialState, timerValues):
        self.sum.update((initialState.known,))

    def handleInputRows(self, key, rows, timerValues):
        (before,) = self.sum.get() or (0.0,)
        self.sum.update((before + sum(row.v for row in rows),))
        yield Row(k=key[0], n=self.sum.get()[0])


class Violations(StatefulProcessor):
    """After the example in PySpark's reference: how many readings of a sensor were above a limit, in pandas."""

    def init(self, handle):
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key, rows, timerValues):
        before = self.count.get()[0] if self.count.exists() else 0
        new = sum(int((part["v"] > 2).sum()) for part in rows)
        if new:
            self.count.update((before + new,))
        yield pd.DataFrame({"k": [key[0]], "n": [before + new]})

    def close(self):
        pass


class Versions(StatefulProcessor):
    """After the examples of slowly changing dimensions: the newest unit of a sensor, and all that it had, with their ends."""

    def init(self, handle):
        self.newest = handle.getValueState("newest", "unit string, since int")
        self.history = handle.getListState("history", "unit string, since int, till int")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            unit, since = self.newest.get() or (None, 0)
            if unit != row.u:
                if unit is not None:
                    self.history.appendValue((unit, since, row.v))
                self.newest.update((row.u, row.v))
        shown = [*self.history.get(), (*self.newest.get(), None)]
        yield Row(k=key[0], what=str([tuple(version) for version in shown]))

    def close(self):
        pass


class Downtime(StatefulProcessor):
    """After the example in Spark's programming guide: reports a device that has been silent, again and again until it speaks."""

    def init(self, handle):
        self.handle = handle
        self.seen = handle.getValueState("seen", "at bigint")

    def handleInputRows(self, key, rows, timerValues):
        newest = max(int(row.t.timestamp() * 1000) for row in rows)
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        if self.seen.exists():
            newest = max(newest, self.seen.get()[0])
        self.seen.update((newest,))
        self.handle.registerTimer(newest + 8_000)
        yield Row(k=key[0], what="speaks", n=newest - START_MS)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        silent = timerValues.getCurrentWatermarkInMs() - self.seen.get()[0]
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 8_000)
        yield Row(k=key[0], what="silent", n=silent)

    def close(self):
        pass


READINGS = [
    [("a", 1, "C"), ("b", 2, "C"), ("a", 3, "C")],
    [("a", 5, "C"), ("b", 1, "F")],
    [("b", 4, "C"), ("a", 9, "K")],
]


@pytest.mark.parametrize(
    ("processor", "mode", "out", "pandas"),
    [
        (Visits(), "ProcessingTime", "k string, n bigint, what string", False),
        (Sensors(), "ProcessingTime", "k string, what string", False),
        (Frames(), "None", "k string, n double", True),
        (Violations(), "None", "k string, n bigint", True),
        (Versions(), "None", "k string, what string", False),
    ],
    ids=["visits", "sensors", "frames", "violations", "versions"],
)
def test_a_processor_gives_the_same_output_on_both_engines(store, tmp_path, processor, mode, out, pandas):
    both = Both(store, tmp_path, "k string, v int, u string", READINGS)

    expected = both.on_spark(processor, out, mode, pandas)

    assert both.on_tidegate(processor, out, mode, pandas) == expected
    assert expected


def test_event_time_timers_and_late_rows_are_those_of_spark(store, tmp_path):
    def at(key, *seconds):
        return [(key, START + timedelta(seconds=s)) for s in seconds]

    # Empty epochs may come between those with rows, so each row is on the same side of the last two watermarks.
    batches = [
        at("a", 1, 2, 11) + at("b", 5),  # The watermark becomes 1.
        at("a", 20, 3),  # 10
        at("a", 25, 10.001, 1, 0.5) + at("b", 31, 10.001),  # 21; rows up to 1 are late.
        at("b", 9, 10, 21.001, 40) + at("c", 70),  # 60; rows up to 10 are late.
        at("a", 21, 60.001) + at("c", 75),  # Rows up to 21 are late. Timers up to 60 have fired.
    ]
    both = Both(store, tmp_path, "k string, t timestamp", batches, time="t")
    out = "k string, what string, n bigint"

    expected = both.on_spark(Windows(), out, "EventTime")

    assert both.on_tidegate(Windows(), out, "EventTime") == expected
    assert [row[1:] for row in expected if row[:1] == ("a",) and "window" in row[1]] == [
        ("window until 10000", 3), ("window until 20000", 2), ("window until 30000", 2),
    ]  # fmt: skip


def test_a_device_that_is_silent_is_reported_as_by_spark(store, tmp_path):
    def at(key, second):
        return key, START + timedelta(seconds=second)

    # The watermark moves with every batch that has rows, and stays without: no timer is due in an empty epoch.
    batches = [
        [at("a", 1), at("b", 2)],
        [at("a", 25)],
        [at("a", 26)],
        [at("b", 45), at("a", 46)],
        [at("a", 70)],
        [at("a", 71)],
    ]
    both = Both(store, tmp_path, "k string, t timestamp", batches, time="t")
    out = "k string, what string, n bigint"

    expected = both.on_spark(Downtime(), out, "EventTime")

    assert both.on_tidegate(Downtime(), out, "EventTime") == expected
    assert [row[2] for row in expected if row[1] == "silent"] == [13_000, 15_000]


def test_initial_state_comes_before_the_first_rows(store, tmp_path):
    both = Both(store, tmp_path, "k string, v int", [[("a", 1), ("b", 2)], [("a", 3), ("c", 1)]])
    known = [("a", 10.0), ("c", 5.0)]

    expected = both.on_spark(
        Resumed(), "k string, n double", "None",
        initialState=store.createDataFrame(known, "k string, known double").groupBy("k"),
    )  # fmt: skip
    initial = stream(store, tmp_path / "known", "k string, known double", [known])
    found = both.on_tidegate(
        Resumed(), "k string, n double", "None", initialState=lambda job: job.source("known", initial).key_by("k")
    )

    assert found == expected == [("a", 11.0), ("a", 14.0), ("b", 2.0), ("c", 6.0)]


class Totals(StatefulProcessor):
    """A value, and a timer far away, for every key."""

    def __init__(self, schema="n bigint"):
        self.schema = schema

    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", self.schema)

    def handleInputRows(self, key, rows, timerValues):
        (total,) = self.total.get() or (0,)
        total += sum(row.v for row in rows)
        self.total.update((total,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + DAY_MS)
        yield Row(k=key[0], n=total, timers=len(list(self.handle.listTimers())))

    def close(self):
        pass


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_state_and_timers_move_to_another_parallelism_with_a_savepoint(spark, tmp_path, backend):
    read = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", 1)

    def job(name, parallelism, processor):
        made = tg.Job(name, parallelism=parallelism)
        rows = made.source("in", read.parquet(str(tmp_path / "in"))).key_by("k")
        totals = tg.transform_with_state(
            rows, processor, uid="totals", outputStructType="k int, n bigint, timers int", outputMode="Update",
            timeMode="ProcessingTime",
        )  # fmt: skip
        totals.sink("out", tg.FileSink(str(tmp_path / name)))
        return made

    def choices(**more):
        where = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
        return {
            "checkpoint": where,
            "state_backend": backend,
            "options": {"local_dir": str(tmp_path / "local"), **more},
        }

    def emitted(name):
        files = (tmp_path / name).glob("*.json")
        return sorted(tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines())

    keys = range(20)
    write_batches(tmp_path / "in", "k int, v int", [[(k, 1) for k in keys] * 2, [(k, k) for k in keys]])
    run = job("first", 2, Totals()).start(spark, **choices())
    eventually(lambda: len(run.reports) >= 2)
    savepoint = run.stop_with_savepoint(str(tmp_path / "savepoints"))
    write_batches(tmp_path / "in", "k int, v int", [[(k, 100) for k in keys]], first=2)
    recovery = {"execution.state-recovery.path": savepoint}

    with pytest.raises(StateChanged, match="total"):
        job("other", 3, Totals("n string")).run(spark, trigger="available-now", **choices(**recovery))
    job("second", 3, Totals()).run(spark, trigger="available-now", **choices(**recovery))

    assert emitted("first") == sorted([(k, 2, 1) for k in keys] + [(k, 2 + k, 2) for k in keys])
    assert emitted("second") == [(k, 102 + k, 3) for k in keys]
