"""A keyed job as Structured Streaming epochs on local Spark, state in the workers."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tests.waiting import files_below

BACKENDS = pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
WORDS = [["a", "b", "a"], ["b", "c"], [], ["a", "a", "d", "c"]]


class Count(tg.KeyedProcessFunction):
    """How often each key was seen."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield ctx.get_current_key(), self.n.value()


class Histogram(tg.KeyedProcessFunction):
    """Everything seen per key, in three kinds of state."""

    seen = tg.ListState(int)
    times = tg.MapState(int, int)
    last = tg.ValueState(int)

    def process_element(self, row, ctx):
        self.seen.add(row.v)
        self.times.put(row.v, (self.times.get(row.v) or 0) + 1)
        before, now = self.last.value(), row.v
        self.last.update(now)
        yield row.k, list(self.seen.get()), dict(self.times.items()), before


def counts(spark, tmp_path, backend, function=None):
    sink = tg.CollectSink()
    job = tg.Job("counts", parallelism=3)
    words = job.source("words", stream(spark, tmp_path / "in", "w string", [[(w,) for w in batch] for batch in WORDS]))
    words.key_by("w").process("count", function or Count(), schema="w string, n bigint").sink("out", sink)
    job.run(spark, trigger="available-now", state_backend=backend)
    return sink.rows


@BACKENDS
@pytest.mark.feature("A1", "A8", "A10", "A16", "A23")
def test_state_is_kept_from_epoch_to_epoch(spark, tmp_path, backend):
    rows = counts(spark, tmp_path, backend)
    total = Counter(w for batch in WORDS for w in batch)
    assert sorted(rows) == sorted((w, n + 1) for w, times in total.items() for n in range(times))


@BACKENDS
@pytest.mark.feature("A17", "A18")
def test_lists_and_maps_are_kept_from_epoch_to_epoch(spark, tmp_path, backend):
    batches = [[("x", 1), ("y", 9), ("x", 2)], [("x", 1)], [("y", 8), ("x", 3)]]
    sink = tg.CollectSink()
    job = tg.Job("histogram", parallelism=2)
    source = job.source("rows", stream(spark, tmp_path / "in", "k string, v int", batches))
    schema = "k string, seen array<bigint>, times map<int,bigint>, last int"
    source.key_by("k").process("h", Histogram(), schema=schema).sink("out", sink)
    job.run(spark, trigger="available-now", state_backend=backend)
    final = {row.k: row for row in sink.rows}
    assert final["x"] == ("x", [1, 2, 1, 3], {1: 2, 2: 1, 3: 1}, 1)
    assert final["y"] == ("y", [9, 8], {9: 1, 8: 1}, 9)


@pytest.mark.feature("C12")
@BACKENDS
def test_two_levels_two_sources_branches_and_a_side_output(spark, tmp_path, backend):
    class Split(tg.KeyedProcessFunction):
        n = tg.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.n.update(self.n.value() + 1)
            if row.v < 0:
                ctx.output("negative", (row.k, row.v))
            else:
                yield row.k, row.v, self.n.value()

    class Sum(tg.KeyedProcessFunction):
        total = tg.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.total.update(self.total.value() + row.v)
            yield row.parity, self.total.value()

    one = [[("a", 1), ("b", -2)], [("a", 3)], [("c", 4), ("b", 5)]]
    two = [[("b", 10)], [("a", -11), ("c", 12)], [("d", 13)]]
    sums, negative, big, raw = (tg.CollectSink() for _ in range(4))
    job = tg.Job("two-levels", parallelism=2)
    left = job.source("one", stream(spark, tmp_path / "one", "k string, v int", one))
    right = job.source("two", stream(spark, tmp_path / "two", "k string, v int", two))
    split = (
        left.union(right)
        .key_by("k")
        .process("split", Split(), schema="k string, v int, n int", side_outputs={"negative": "k string, v int"})
    )
    parity = split.map(lambda r: (r.v % 2, r.v), schema="parity int, v int", name="parity")
    parity.key_by("parity").process("sum", Sum(), schema="parity int, total bigint").sink("sums", sums)
    split.filter(lambda r: r.v >= 10, name="big").sink("big", big)
    split.side_output("negative").sink("negative", negative)
    right.sink("raw", raw)
    job.run(spark, trigger="available-now", state_backend=backend)

    rows = [r for batch in one + two for r in batch]
    by_parity = defaultdict(int)
    for _, v in rows:
        if v >= 0:
            by_parity[v % 2] += v
    final = {}
    for parity_, total in sums.rows:
        final[parity_] = max(total, final.get(parity_, 0))
    assert final == dict(by_parity)
    assert sorted(negative.rows) == sorted(r for r in rows if r[1] < 0)
    assert sorted((k, v) for k, v, _ in big.rows) == sorted(r for r in rows if r[1] >= 10)
    assert sorted(raw.rows) == sorted(r for batch in two for r in batch)


def test_rows_of_an_unused_source_reach_no_sink(spark, tmp_path):
    sink = tg.CollectSink()
    job = tg.Job("unread", parallelism=2)
    words = job.source("words", stream(spark, tmp_path / "one", "w string", [[("a",), ("b",)]]))
    job.source("unread", stream(spark, tmp_path / "two", "w string", [[("x",), ("y",)]]))
    words.key_by("w").process("count", Count(), schema="w string, n bigint").sink("out", sink)
    job.run(spark, trigger="available-now")
    assert sorted(sink.rows) == [("a", 1), ("b", 1)]


def test_a_source_that_several_operators_read_sends_each_row_to_each(spark, tmp_path):
    by_word, by_letter, all_rows = (tg.CollectSink() for _ in range(3))
    job = tg.Job("several", parallelism=2)
    source = job.source("words", stream(spark, tmp_path / "in", "w string, l string", [[("ab", "a"), ("ac", "a")]]))
    source.key_by("w").process("by-word", Count(), schema="w string, n bigint").sink("one", by_word)
    source.key_by("l").process("by-letter", Count(), schema="l string, n bigint").sink("two", by_letter)
    source.sink("all", all_rows)
    job.run(spark, trigger="available-now")
    assert sorted(by_word.rows) == [("ab", 1), ("ac", 1)]
    assert sorted(by_letter.rows) == [("a", 1), ("a", 2)]
    assert sorted(all_rows.rows) == [("ab", "a"), ("ac", "a")]


def test_a_callback_may_stop_the_job_it_is_called_by(spark, tmp_path):
    seen = []

    def stop_after_first(rows, epoch):
        seen.append(rows)
        running.stop()

    job = tg.Job("stops-itself", parallelism=2)
    words = job.source("words", stream(spark, tmp_path / "in", "w string", [[("a",)]] * 5))
    words.key_by("w").process("count", Count(), schema="w string, n bigint").sink(
        "out", tg.CallbackSink(stop_after_first)
    )
    running = job.start(spark)
    assert running.await_termination(60)
    assert len(seen) == 1


def test_local_versions_are_deleted_with_the_run_that_created_them(spark, tmp_path):
    job = tg.Job("tidy", parallelism=2)
    words = job.source("words", stream(spark, tmp_path / "in", "w string", [[("a",)], [("b",)]]))
    words.key_by("w").process("count", Count(), schema="w string, n bigint").sink("out", tg.CollectSink())
    job.run(spark, trigger="available-now", options={"local_dir": str(tmp_path / "local")})
    assert [path for path in files_below(tmp_path / "local") if path.name == "manifest.json"] == []


class Rated(tg.KeyedBroadcastProcessFunction):
    rates = tg.BroadcastState(str, int)

    def process_element(self, row, ctx):
        yield (row.k,)

    def process_broadcast_element(self, row, ctx):
        self.rates.put(row.k, row.v)


def test_a_row_counts_as_read_once_however_many_operators_read_it(spark, tmp_path):
    """Two keyed operators read one source, and a broadcast source goes to every task."""
    job = tg.Job("twice", parallelism=3)
    rows = job.source("rows", stream(spark, tmp_path / "in", "k string, v int", [[("a", 1), ("b", 2), ("c", 3)]]))
    rates = job.source("rates", stream(spark, tmp_path / "rates", "k string, v int", [[("a", 1), ("b", 2)]]))
    rows.key_by("k").process("by-k", Count(), schema="w string, n bigint").sink("one", tg.CollectSink())
    rows.key_by("v").process("by-v", Count(), schema="w int, n bigint").sink("two", tg.CollectSink())
    rows.key_by("k").connect(rates.broadcast()).process("rated", Rated(), schema="k string").sink(
        "three", tg.CollectSink()
    )
    run = job.start(spark, trigger="available-now")
    assert run.await_termination(120)
    assert sum(report.rows_in for report in run.reports) == 5
