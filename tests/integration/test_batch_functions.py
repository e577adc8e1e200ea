"""Functions over whole batches on local Spark: between levels, behind Python sources, and in turn with functions over rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tidegate as tg
from tests.integration.inputs import stream, write_batches

BACKENDS = pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
SCHEMA = "k string, v int"


class CountBatches(tg.KeyedBatchFunction):
    """How often each key was seen, for every row."""

    n = tg.ValueState(int, default=0)

    def process_batch(self, batch, keys, ctx):
        before, counts = self.n.values(keys), keys.counts()
        order = np.argsort(keys.index, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.n.update_all(keys, before + counts)
        yield {"k": batch["k"], "v": batch["v"], "n": before[keys.index] + place + 1}


class CountRows(tg.KeyedProcessFunction):
    """The same, row by row."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, row.v, self.n.value()


class Sums(tg.KeyedBatchFunction):
    """Sum by parity, and what was odd in a side output."""

    total = tg.ValueState(int, default=0)

    def process_batch(self, batch, keys, ctx):
        values = batch["v"].to_numpy()
        totals = self.total.values(keys) + np.bincount(keys.index, values, len(keys)).astype(int)
        self.total.update_all(keys, totals)
        ctx.output("odd", batch.filter(batch["parity"].to_numpy() == 1).select(["v"]))
        return {"parity": keys.distinct, "total": totals}


@BACKENDS
def test_batches_between_levels_branches_and_side_outputs(spark, tmp_path, backend):
    rows = [[("a", 1), ("b", 2), ("a", 3)], [], [("c", 4), ("a", 5), ("b", 7)]]
    counted, doubled, sums, odd = (tg.CollectSink() for _ in range(4))
    job = tg.Job("batches", parallelism=3)
    source = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, rows)).map(lambda r: (r.k, r.v))
    count = source.key_by("k").process("count", CountBatches(), schema="k string, v int, n bigint")
    count.sink("counted", counted)
    count.map(lambda r: (2 * r.n,), schema="n bigint").sink("doubled", doubled)
    parity = count.map(lambda r: (r.v % 2, r.v), schema="parity int, v int").key_by("parity")
    total = parity.process("sum", Sums(), schema="parity int, total bigint", side_outputs={"odd": "v int"})
    total.sink("sums", sums)
    total.side_output("odd").sink("odd", odd)
    job.run(spark, trigger="available-now", state_backend=backend)

    assert sorted(counted.rows) == [
        ("a", 1, 1), ("a", 3, 2), ("a", 5, 3), ("b", 2, 1), ("b", 7, 2), ("c", 4, 1),
    ]  # fmt: skip
    assert sorted(doubled.rows) == [(2,), (2,), (2,), (4,), (4,), (6,)]
    assert {parity: max(t for p, t in sums.rows if p == parity) for parity in (0, 1)} == {0: 6, 1: 16}
    assert sorted(odd.rows) == [(1,), (3,), (5,), (7,)]


def test_a_batch_straight_to_the_next_key_and_with_keys_of_several_columns(spark, tmp_path):
    rows = [[("a", 1), ("a", 1), ("b", 2)], [("a", 2), ("b", 2)]]
    out = tg.CollectSink()
    job = tg.Job("straight", parallelism=2)
    count = (
        job.source("rows", stream(spark, tmp_path / "in", SCHEMA, rows))
        .key_by("k", "v")
        .process("count", CountBatches(), schema="k string, v int, n bigint")
    )
    count.key_by("n").process("again", CountBatches(), schema="k string, v int, n bigint").sink("out", out)
    job.run(spark, trigger="available-now")
    # Three rows were the first of their key, two the second.
    assert Counter(n for _, _, n in out.rows) == {1: 2, 2: 2, 3: 1}


@pytest.mark.parametrize("first", [CountRows, CountBatches])
def test_one_kind_of_function_continues_with_the_state_of_the_other(spark, tmp_path, first):
    second = CountBatches if first is CountRows else CountRows
    seen: list[tuple] = []
    for epoch, (function, parallelism) in enumerate([(first, 2), (second, 3), (first, 1)]):
        write_batches(tmp_path / "in", SCHEMA, [[("a", epoch), ("b", epoch), ("a", epoch)]], epoch)
        out = tg.CollectSink()
        job = tg.Job("either", parallelism=parallelism)
        rows = job.source("rows", spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in")))
        rows.key_by("k").process("count", function(), schema="k string, v int, n bigint").sink("out", out)
        checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
        job.run(spark, trigger="available-now", checkpoint=checkpoint)
        seen += out.rows
    assert sorted((k, n) for k, _, n in seen) == [("a", n) for n in range(1, 7)] + [("b", n) for n in range(1, 4)]


class Combined(tg.KeyedBatchFunction):
    """How many rows a key has, counted before the shuffle."""

    n = tg.ValueState(int, default=0)
    combined = "k string, rows bigint"

    def combine(self, batch, keys):
        return {"k": keys.distinct, "rows": keys.counts()}

    def process_batch(self, batch, keys, ctx):
        n = self.n.values(keys)
        np.add.at(n, keys.index, batch["rows"].to_numpy())
        self.n.update_all(keys, n)
        yield {"k": keys.distinct, "n": n}


def test_rows_are_combined_before_each_shuffle(spark, tmp_path):
    rows = [[("a", 1), ("b", 2), ("a", 3), ("a", 4)], [("b", 1), ("a", 1)]]
    first, second = tg.CollectSink(), tg.CollectSink()
    job = tg.Job("combined", parallelism=2)
    source = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, rows))
    count = source.key_by("k").process("count", Combined(), schema="k string, n bigint")
    count.sink("first", first)
    again = count.map(lambda r: ("all", 1), schema=SCHEMA).key_by("k")
    again.process("again", Combined(), schema="k string, n bigint").sink("second", second)
    run = job.start(spark, trigger="available-now")
    run.await_termination()
    assert sorted(first.rows) == [("a", 3), ("a", 4), ("b", 1), ("b", 2)]
    assert max(n for _, n in second.rows) == 4
    assert sum(report.rows_in for report in run.reports) == 6


class Fails(tg.KeyedBatchFunction):
    n = tg.ValueState(int, default=0)

    def process_batch(self, batch, keys, ctx):
        100 // batch["v"].to_numpy().min().item()


def test_an_error_in_a_batch_names_the_operator_and_the_line(spark, tmp_path):
    job = tg.Job("fails", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, [[("a", 1), ("b", 0)]]))
    rows.key_by("k").process("divide", Fails(), schema=SCHEMA).sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.UserCodeError, match=r"(?s)divide.*ZeroDivisionError.*100 // batch"):
        job.run(spark, trigger="available-now")
