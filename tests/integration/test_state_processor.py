"""State from outside into a job, and from a job to outside, through Spark DataFrames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import write_batches

ROWS = "user string, n int, ts timestamp"
NOON = 1_767_268_800_000


class Totals(tg.KeyedBroadcastProcessFunction):
    """A total per user; when its timer fires, it says good-bye."""

    total = tg.ValueState(int, default=0)
    limits = tg.BroadcastState(str, int)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.n)
        yield row.user, self.total.value(), "over" if self.total.value() > self.limits.get("all") else "under"

    def process_broadcast_element(self, row, ctx):
        self.limits.put(row.name, row.lim)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.total.value(), "timer"
        self.total.clear()


class Seen(tg.MapFunction, tg.CheckpointedFunction):
    kept = tg.ListState(int, operator=True)

    def initialize_state(self, ctx):
        self.numbers = list(self.kept.get())

    def snapshot_state(self, ctx):
        self.kept.update(self.numbers)

    def map(self, row):
        self.numbers.append(row.n)
        return row


def build(spark, folder: Path) -> tg.Job:
    job = tg.Job("orders", parallelism=2)
    rows = spark.readStream.schema(ROWS).parquet(str(folder / "in"))
    limits = spark.readStream.schema("name string, lim int").parquet(str(folder / "limits"))
    counted = job.source("rows", rows, event_time="ts").map(Seen(), schema=ROWS, uid="seen")
    rules = job.source("limits", limits).broadcast()
    counted.key_by("user").connect(rules).process(
        "totals", Totals(), schema="user string, total int, what string"
    ).sink("out", tg.FileSink(str(folder / "out")))
    return job


@pytest.mark.feature("I28", "I29")
def test_a_job_begins_with_state_from_dataframes_and_its_own_comes_out_as_dataframes(spark, tmp_path):
    """History of another system goes in, the job runs on it, and what it left is looked at and changed with Spark."""
    past = spark.createDataFrame([("ann", 100), ("bob", 5)], "user string, total int")
    start = (
        tg.SavepointWriter.new("orders", max_parallelism=128, parallelism=2)
        .with_state("totals", "total", past, key="user string", value=int)
        .with_timers("totals", event_time={"bob": NOON})
        .with_operator_state("totals", "limits", {"all": 50}, value=int, map_key=str)
        .with_operator_state("seen", "kept", spark.range(3), value=int)
        .write(tmp_path / "start")
    )
    (tmp_path / "limits").mkdir()
    write_batches(tmp_path / "in", ROWS, [[("ann", 1, _moment(60)), ("eve", 2, _moment(61))]])
    build(spark, tmp_path).run(
        spark,
        trigger="available-now",
        checkpoint=tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 s"),
        options={"execution.state-recovery.path": start.path},
    )
    out = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    found = sorted((row["user"], row["total"], row["what"]) for row in out)
    assert found == [("ann", 101, "over"), ("bob", 5, "timer"), ("eve", 2, "under")]

    left = tg.Savepoint.open(max((tmp_path / "checkpoints" / "orders").glob("chk-*")))
    totals = left.state("totals", "total").to_df(spark)
    assert {(row.key, row.value) for row in totals.collect()} == {("ann", 101), ("eve", 2)}
    assert left.timers("totals").to_df(spark).count() == 0
    kept = left.state("seen", "kept").to_df(spark)
    assert sorted(row.value for row in kept.collect()) == [0, 1, 1, 2, 2]
    doubled = totals.selectExpr("key", "value * 2 as value")
    changed = tg.SavepointWriter.from_existing(left).with_entries("totals", "total", doubled)
    changed = changed.with_entries("seen", "kept", kept.where("value > 0")).write(tmp_path / "changed")
    assert changed.state("totals", "total").get("ann") == 202  # type: ignore[attr-defined]
    assert sorted(entry.value for entry in changed.state("seen", "kept").entries()) == [1, 1, 2, 2]  # type: ignore[attr-defined]


def _moment(seconds: int):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(NOON / 1000 + seconds, UTC)
