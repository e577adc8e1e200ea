"""The same function of `applyInPandasWithState` on Spark and on tidegate: equal output, and state that survives a restart."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

import tidegate as tg
from tests.integration.both_engines import BothEngines
from tests.integration.inputs import write_batches
from tests.waiting import eventually

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
OUT = "k string, what string"


@pytest.fixture
def spark2(spark):
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", "4")


class Both(BothEngines):
    """Runs a function on both engines."""

    def on_spark(self, func, state, conf):
        return self.spark_rows(lambda grouped: grouped.applyInPandasWithState(func, OUT, state, "Update", conf))

    def on_tidegate(self, func, state, conf, backend="rocksdb"):
        def made(job, keyed):
            return tg.apply_in_pandas_with_state(
                keyed,
                func,
                uid="op",
                outputStructType=OUT,
                stateStructType=state,
                outputMode="Update",
                timeoutConf=conf,
            )

        return self.tidegate_rows(made, backend)


def said(key, *texts):
    return pd.DataFrame({"what": [str(text) for text in texts], "k": str(key[0])})


def types(key, frames, state):
    """What the function is given."""
    for part in frames:
        dtypes = {name: str(dtype) for name, dtype in part.dtypes.items()}
        yield said(key, f"{[type(one).__name__ for one in key]} {dtypes} {part.drop(columns='k').to_dict('list')}")
    yield pd.DataFrame()


def statistics(key, frames, state):
    """State of several fields and types. With a reading of 9, everything is forgotten."""
    n, total, last, noon, whole = state.getOption or (0, 0.0, None, datetime(2026, 1, 1, 12), True)
    seen = []
    for part in frames:
        n, total, last, seen = n + len(part), total + float(part.v.sum()), part.u.iloc[-1], [*seen, *part.v]
    yield said(key, f"{state.exists} {state.hasTimedOut} {state}", f"{n} {total} {last} {noon} {whole}")
    if 9 in seen:
        state.remove()
        yield said(key, f"{state.exists} {state.getOption}")
    else:
        state.update((n, total, last, noon + timedelta(seconds=1), not whole))


STATISTICS = "n bigint, total double, last string, noon timestamp, whole boolean"
READINGS = [
    [("a", 1, "C"), ("b", 2, "C"), ("a", 3, "C"), ("c", None, "K")],
    [("a", 5, "C"), ("b", 1, "F")],
    [("b", 4, "C"), ("a", 9, "K"), (None, 1, "C")],
    [("a", 1, "F"), (None, 2, None)],
]


@pytest.mark.parametrize(("func", "state"), [(types, "n int"), (statistics, STATISTICS)], ids=["types", "statistics"])
def test_a_function_gives_the_same_output_on_both_engines(spark2, tmp_path, func, state):
    both = Both(spark2, tmp_path, "k string, v int, u string", READINGS)

    expected = both.on_spark(func, state, "NoTimeout")

    assert both.on_tidegate(func, state, "NoTimeout") == expected
    assert expected


def test_keys_of_numbers_and_times_have_the_types_of_spark(spark2, tmp_path):
    batches = [[(1, START, 1.5), (2, START, 2.5)], [(1, START, None), (None, None, 1.0)]]
    both = Both(spark2, tmp_path, "k bigint, t timestamp, v double", batches, key=("k", "t"))

    expected = both.on_spark(types_of_key, "n int", "NoTimeout")

    assert both.on_tidegate(types_of_key, "n int", "NoTimeout") == expected
    assert expected


def types_of_key(key, frames, state):
    yield said(key, f"{[type(one).__name__ for one in key]} {key[1]}")


def timeouts_in_processing_time(key, frames, state):
    """A reading of 1 asks for a timeout at once, of 2 for one far away. With 3, nothing changes on the timeout."""
    if state.hasTimedOut:
        yield said(key, f"timeout {state.getOption}")
        if state.get[0] == 4:
            state.update((5,))
            state.setTimeoutDuration(1)
        else:
            state.remove()
        return
    (v,) = next(iter(frames)).v
    yield said(key, f"{v} {state.getOption}")
    state.update((int(v),))
    state.setTimeoutDuration(86_400_000 if v == 2 else 1)


def test_timeouts_in_processing_time_are_those_of_spark(spark2, tmp_path):
    batches = [
        [("a", 1), ("b", 2), ("c", 4)],
        [("d", 2)],  # a and c time out.
        [("e", 2)],  # c times out again.
        [("a", 2), ("b", 2), ("c", 2)],
    ]
    both = Both(spark2, tmp_path, "k string, v int", batches)

    expected = both.on_spark(timeouts_in_processing_time, "n int", "ProcessingTimeTimeout")

    assert both.on_tidegate(timeouts_in_processing_time, "n int", "ProcessingTimeTimeout") == expected
    assert [row for row in expected if "timeout" in row[1]] == [
        ("a", "timeout (1,)"), ("c", "timeout (4,)"), ("c", "timeout (5,)"),
    ]  # fmt: skip


def sessions(key, frames, state):
    """Visits of a key, until there are none for ten seconds: that is when a session is emitted."""
    if state.hasTimedOut:
        n, first, last = state.get
        yield said(key, f"session of {n}, {first - START_MS} to {last - START_MS}")
        state.remove()
        return
    n, first, last = state.getOption or (0, 1 << 60, 0)
    for part in frames:
        times = (part.t.astype("int64") // 1_000_000).tolist()
        n, first, last = n + len(times), min(first, *times), max(last, *times)
    state.update((n, first, last))
    state.setTimeoutTimestamp(max(last + 10_000, state.getCurrentWatermarkMs()))


TIMEOUTS = {"a": 15, "b": 15, "c": 45, "d": 45, "e": 900}


def keeps_timeouts(key, frames, state):
    """A call with rows that changes nothing keeps the timeout; one that updates the state clears it."""
    if state.hasTimedOut:
        yield said(key, f"timeout {state.getOption} {[list(part.columns) for part in frames]}")
        state.remove()
    elif not state.exists:
        state.update((0,))
        state.setTimeoutTimestamp(START + timedelta(seconds=TIMEOUTS[key[0]]))
    elif key[0] == "a":
        state.update((1,))


def removes_with_a_timeout(key, frames, state):
    """A timeout stays although the state is removed."""
    if state.hasTimedOut:
        yield said(key, f"timeout {state.exists} {state}")
        if state.exists:
            state.remove()
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 1)
        else:
            state.remove()
    else:
        state.update((1,))
        state.setTimeoutTimestamp(START_MS + 1000 * TIMEOUTS[key[0]])


@pytest.mark.parametrize(
    ("func", "state"),
    [(sessions, "n int, first bigint, last bigint"), (keeps_timeouts, "n int"), (removes_with_a_timeout, "n int")],
)
def test_timeouts_in_event_time_and_late_rows_are_those_of_spark(spark2, tmp_path, func, state):
    def at(key, *seconds):
        return [(key, START + timedelta(seconds=s)) for s in seconds]

    # Empty epochs may come between those with rows, so each row is on the same side of the last two watermarks.
    batches = [
        at("a", 1, 2, 11) + at("b", 5),  # The watermark becomes 1.
        at("a", 12, 13) + at("b", 2),  # 3
        at("b", 14) + at("a", 0.5, 1),  # 4; rows up to 1 are late.
        at("c", 40, 20),  # 30
        at("d", 42, 3),  # 32; rows up to 4 are late. Timeouts before 30 have passed.
        at("d", 90) + at("c", 29, 33),  # 80; rows up to 30 are late.
        at("e", 91),
        at("e", 92),
    ]
    both = Both(spark2, tmp_path, "k string, t timestamp", batches, time="t")

    expected = both.on_spark(func, state, "EventTimeTimeout")

    assert both.on_tidegate(func, state, "EventTimeTimeout") == expected
    assert len({key for key, _ in expected}) > 1


def totals(key, frames, state):
    """A total, and a timeout far away, for every key."""
    before = state.getOption or (0, 0)
    state.update((before[0] + sum(int(part.v.sum()) for part in frames), before[1] + 1))
    state.setTimeoutDuration("1 day")
    yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]], "calls": [state.get[1]]})


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_state_and_timeouts_move_to_another_parallelism_with_a_savepoint(spark, tmp_path, backend):
    read = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", 1)

    def job(name, parallelism):
        made = tg.Job(name, parallelism=parallelism)
        rows = made.source("in", read.parquet(str(tmp_path / "in"))).key_by("k")
        counted = tg.apply_in_pandas_with_state(
            rows, totals, uid="totals", outputStructType="k int, n bigint, calls int", stateStructType="total bigint, calls int",
            outputMode="Update", timeoutConf="ProcessingTimeTimeout",
        )  # fmt: skip
        counted.sink("out", tg.FileSink(str(tmp_path / name)))
        return made

    def choices(**more):
        where = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
        options = {"local_dir": str(tmp_path / "local"), **more}
        return {"checkpoint": where, "state_backend": backend, "options": options}

    def emitted(name):
        files = (tmp_path / name).glob("*.json")
        return sorted(tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines())

    keys = range(20)
    write_batches(tmp_path / "in", "k int, v int", [[(k, 1) for k in keys] * 2, [(k, k) for k in keys]])
    run = job("first", 2).start(spark, **choices())
    eventually(lambda: len(run.reports) >= 2)
    path = run.stop_with_savepoint(str(tmp_path / "savepoints"))
    write_batches(tmp_path / "in", "k int, v int", [[(k, 100) for k in keys]], first=2)
    job("second", 3).run(spark, trigger="available-now", **choices(**{"execution.state-recovery.path": path}))
    kept = tg.Savepoint.open(path).state("totals", "groupState").to_df(spark)

    assert emitted("first") == sorted([(k, 2, 1) for k in keys] + [(k, 2 + k, 2) for k in keys])
    assert emitted("second") == [(k, 102 + k, 3) for k in keys]
    assert {(row.key, row.value.total, row.value.calls) for row in kept.collect()} == {(k, 2 + k, 2) for k in keys}
