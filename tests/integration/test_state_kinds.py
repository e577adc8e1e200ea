"""Broadcast, operator state, time to live and rows that fail, on local Spark."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.integration.inputs import stream, write_batches


class Alerts(tg.KeyedBroadcastProcessFunction):
    """How many rules an event breaks. Rules come with the first epoch, events with the second."""

    rules = tg.BroadcastState(str, int)
    seen = tg.ValueState(int, default=0)

    def process_element(self, event, ctx):
        self.seen.update(self.seen.value() + 1)
        yield event.user, self.seen.value(), sorted(name for name, limit in self.rules.items() if event.n > limit)

    def process_broadcast_element(self, rule, ctx):
        self.rules.put(rule.name, rule.lim)


class Seen(tg.MapFunction, tg.CheckpointedFunction):
    """Counts what its task has seen, in a variable of its own."""

    kept = tg.ListState(int, operator=True)

    def initialize_state(self, ctx):
        self.numbers = list(self.kept.get())

    def snapshot_state(self, ctx):
        self.kept.update(self.numbers)

    def map(self, row):
        self.numbers.append(row.n)
        return (len(self.numbers),)


class Fragile(tg.KeyedProcessFunction):
    total = tg.ValueState(int, default=0, ttl="1 h")

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.n)
        if row.n < 0:
            raise ValueError(f"{row.n} is negative")
        yield row.k, self.total.value()


@pytest.mark.feature("A29")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_rules_reach_every_task(spark, tmp_path, backend):
    sink = tg.CollectSink()
    job = tg.Job("alerts", parallelism=3)
    rules = job.source(
        "rules", stream(spark, tmp_path / "rules", "name string, lim int", [[("low", 1), ("high", 9)], [], []])
    )
    events = [[], [(f"u{n % 5}", n) for n in range(15)], [("u0", 5)]]
    source = job.source("events", stream(spark, tmp_path / "events", "user string, n int", events))
    source.key_by("user").connect(rules.broadcast()).process(
        "alerts", Alerts(), schema="user string, seen int, broken array<string>"
    ).sink("out", sink)
    job.run(spark, trigger="available-now", state_backend=backend)
    found = {(user, seen): broken for user, seen, broken in sink.rows}
    assert len(found) == 16
    for n in range(15):
        assert found[f"u{n % 5}", n // 5 + 1] == [name for name, limit in (("high", 9), ("low", 1)) if n > limit]
    assert found["u0", 4] == ["low"]


def test_a_broadcast_of_computed_rows_reaches_every_task_of_a_later_level(spark, tmp_path):
    sink = tg.CollectSink()
    job = tg.Job("later", parallelism=2)
    rules = job.source("rules", stream(spark, tmp_path / "rules", "name string, lim int", [[("low", 1)], []]))
    events = [[], [(f"u{n}", n) for n in range(8)]]
    source = job.source("events", stream(spark, tmp_path / "events", "user string, n int", events))
    doubled = rules.map(lambda r: (r.name + "er", r.lim), name="renamed")
    first = source.key_by("user").process("pass", Pass(), schema="user string, n int")
    first.key_by("user").connect(doubled.broadcast()).process(
        "alerts", Alerts(), schema="user string, seen int, broken array<string>"
    ).sink("out", sink)
    job.run(spark, trigger="available-now")
    assert sorted(sink.rows) == [(f"u{n}", 1, ["lower"] if n > 1 else []) for n in range(8)]


class Pass(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row


@pytest.mark.feature("A13", "A24", "A26", "A30")
def test_operator_state_survives_a_restart_with_another_parallelism(spark, tmp_path):
    def run(parallelism: int, batches: range) -> list[int]:
        write_batches(tmp_path / "in", "n int", [[(b * 10 + n,) for n in range(10)] for b in batches], batches[0])
        sink = tg.CollectSink()
        job = tg.Job("seen", parallelism=parallelism, max_parallelism=16)
        rows = spark.readStream.schema("n int").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        job.source("rows", rows).map(Seen(), schema="seen int", uid="seen").sink("out", sink)
        checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="100 ms")
        job.run(spark, trigger="available-now", checkpoint=checkpoint)
        return sorted(seen for (seen,) in sink.rows)

    assert len(run(3, range(3))) == 30
    # One task has all of it now: the thirty elements of before are its own.
    assert run(1, range(3, 4)) == list(range(31, 41))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_rows_that_fail_become_dead_letters_and_change_nothing(spark, tmp_path, backend):
    good, bad = tg.CollectSink(), tg.CollectSink()
    job = tg.Job("fragile", parallelism=2)
    batches = [[("a", 1), ("a", -5), ("b", 2)], [("a", 3), ("b", -1)]]
    source = job.source("rows", stream(spark, tmp_path / "in", "k string, n int", batches))
    totals = source.key_by("k").process(
        "totals", Fragile(), schema="k string, total int", on_error=tg.dead_letter("bad")
    )
    totals.sink("good", good)
    job.side_output("bad").sink("bad", bad)
    job.run(spark, trigger="available-now", state_backend=backend)
    assert sorted(good.rows) == [("a", 1), ("a", 4), ("b", 2)]
    letters = sorted((row.operator, row.key, row.error) for row in bad.rows)
    assert letters == [
        ("totals", '"a"', "ValueError: -5 is negative"),
        ("totals", '"b"', "ValueError: -1 is negative"),
    ]
    assert all("process_element" in row.traceback and row.epoch for row in bad.rows)
