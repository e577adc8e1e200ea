"""The same job on batch DataFrames runs once to the end, with the results of the streaming run."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

import pytest

import tidegate as tg
from tests.integration.inputs import stream, write_batches

SCHEMA = "user string, amount bigint"


class Totals(tg.KeyedProcessFunction):
    """Sum per user, emitted when it passes another hundred."""

    total = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        before = self.total.value()
        self.total.update(before + row.amount)
        if before // 100 != self.total.value() // 100:
            yield row.user, self.total.value() // 100


class Hundreds(tg.KeyedProcessFunction):
    """How many users passed each hundred."""

    users = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.users.update(self.users.value() + 1)
        yield row.hundred, self.users.value()


def build(df, sink) -> tg.Job:
    job = tg.Job("totals", parallelism=3)
    totals = job.source("orders", df).key_by("user").process("totals", Totals(), schema="user string, hundred bigint")
    totals.key_by("hundred").process("hundreds", Hundreds(), schema="hundred bigint, users bigint").sink("out", sink)
    return job


def orders(seed: int) -> list[list[tuple[str, int]]]:
    dice = random.Random(seed)
    return [[(f"u{dice.randrange(9)}", dice.randrange(60)) for _ in range(40)] for _ in range(3)]


@pytest.mark.feature("L1")
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_bounded_and_streaming_runs_agree(spark, tmp_path, backend):
    batches = orders(7)
    streamed, bounded = tg.CollectSink(), tg.CollectSink()
    build(stream(spark, tmp_path / "s", SCHEMA, batches), streamed).run(
        spark, trigger="available-now", state_backend=backend
    )
    path = write_batches(tmp_path / "b", SCHEMA, batches)
    report = build(spark.read.schema(SCHEMA).parquet(path), bounded).run(spark, state_backend=backend)
    assert sorted(bounded.rows) == sorted(streamed.rows)
    assert len(bounded.rows) > 20
    assert report.rows_in == 120


@pytest.mark.feature("L1")
def test_the_end_of_bounded_input_is_the_end_of_event_time(spark):
    """No later row closes the last window of each key."""
    at = [datetime(2024, 1, 1, 12, minute, tzinfo=UTC) for minute in (0, 1, 12)]
    rows = spark.createDataFrame([("a", at[0]), ("a", at[1]), ("b", at[2])], "k string, ts timestamp")
    sink = tg.CollectSink()
    job = tg.Job("windows", parallelism=2)
    windows = job.source("in", rows, event_time="ts").key_by("k").window(tg.TumblingEventTimeWindows.of("10 min"))
    windows.aggregate("count", n=tg.count()).sink("out", sink)
    job.run(spark)
    assert sorted((row.k, row.n) for row in sink.rows) == [("a", 2), ("b", 1)]


@pytest.mark.feature("L2")
@pytest.mark.parametrize("dies", [True, False], ids=["its process dies", "its function raises"])
def test_a_task_that_fails_is_run_again_from_the_start(spark, tmp_path, dies):
    """Spark replays a task that died; a function that raised gets one more try of its epoch."""
    flag = tmp_path / "failed"

    class FailsOnce(tg.KeyedProcessFunction):
        n = tg.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.n.update(self.n.value() + 1)
            if self.n.value() == 3 and not flag.exists():
                flag.touch()
                if dies:
                    os._exit(1)
                raise OSError("a disk that comes and goes")
            yield row.user, self.n.value()

    sink = tg.CollectSink()
    job = tg.Job("replayed", parallelism=2)
    df = spark.read.schema(SCHEMA).parquet(write_batches(tmp_path / "b", SCHEMA, [[("a", 1)] * 5 + [("b", 1)] * 5]))
    job.source("orders", df).key_by("user").process("n", FailsOnce(), schema="user string, n bigint").sink("out", sink)
    job.run(spark)
    assert flag.exists()
    assert sorted(sink.rows) == [(user, n) for user in "ab" for n in range(1, 6)]
