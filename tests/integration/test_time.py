"""Time on local Spark: watermarks out of epochs, windows with late rows, timers without rows, and all of it through a restart."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

import tidegate as tg
from tests.integration.inputs import stream, write_batches
from tests.waiting import eventually

SCHEMA = "k string, v int, ts timestamp"
RESULT = [("a", 0, 10, 6), ("a", 10, 20, 9), ("a", 90, 100, 7), ("b", 0, 10, 3), ("b", 90, 100, 1)]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + seconds, UTC)


def rows(*events):
    return [(k, v, at(s)) for k, v, s in events]


BATCHES = [
    rows(("a", 1, 1), ("b", 3, 2)),
    rows(("a", 9, 12), ("a", 5, 4)),
    rows(("a", 3, 90), ("b", 1, 95)),
    rows(("a", 4, 91)),
    rows(("a", 100, 3), ("b", 100, 15)),
]
"""The last two rows come when the watermark has long passed their windows."""


def windows(source, sink, late, parallelism=2, split=None):
    job = tg.Job("per-ten-seconds", parallelism=parallelism, max_parallelism=128)
    clicks = job.source("clicks", source, event_time="ts", out_of_orderness="10 s", split=split)
    sums = (
        clicks.key_by("k")
        .window(tg.TumblingEventTimeWindows.of("10 s"))
        .side_output_late_data("late")
        .aggregate("sums", total=tg.sum("v"))
    )
    sums.sink("out", sink)
    sums.side_output("late").sink("late", late)
    return job


def seconds(row):
    return (
        row.k,
        round((row.window_start - at(0)).total_seconds()),
        round((row.window_end - at(0)).total_seconds()),
        row.total,
    )


@pytest.mark.feature("A4", "B12")
def test_windows_of_a_stream_are_exact_and_late_rows_go_to_the_side_output(spark, tmp_path):
    out, late = tg.CollectSink(), tg.CollectSink()
    windows(stream(spark, tmp_path / "in", SCHEMA, BATCHES), out, late).run(spark, trigger="available-now")
    assert sorted(map(seconds, out.rows)) == RESULT
    assert sorted((row.k, row.v) for row in late.rows) == [("a", 100), ("b", 100)]


@pytest.mark.feature("I14")
def test_a_stop_with_drain_closes_every_window_before_its_savepoint(spark, tmp_path):
    out, late = tg.FileSink(str(tmp_path / "out")), tg.FileSink(str(tmp_path / "late"))
    run = windows(stream(spark, tmp_path / "in", SCHEMA, BATCHES[:4]), out, late).start(
        spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "ckpt"), interval="1 h")
    )
    try:
        eventually(lambda: sum(report.rows_in for report in run.reports) >= 7, "the rows are read")
        path = run.stop_with_savepoint(str(tmp_path / "savepoints"), drain=True)
    finally:
        if not run.has_ended:
            run.cancel()
    assert spark.read.json(str(tmp_path / "out")).count() == len(RESULT)
    timers = tg.Savepoint.open(path).state("sums", "on_timer").to_arrow()
    assert timers.num_rows == 0


@pytest.mark.feature("B2")
def test_windows_timers_and_the_watermark_survive_a_restart(spark, tmp_path):
    """The first run stops with windows open. The second, in another parallelism, knows how far event time was: a row from
    before is late at once. Every key is a split of the source, so the slower of them holds the watermark, then as before."""
    out, late = tg.FileSink(str(tmp_path / "out")), tg.FileSink(str(tmp_path / "late"))
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "ckpt"), interval="1 h")
    for number, batches in enumerate([BATCHES[:4], [*BATCHES[4:], rows(("a", 0, 200), ("b", 0, 200))]]):
        write_batches(tmp_path / "in", SCHEMA, batches, first=4 * number)
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        job = windows(source, out, late, parallelism=2 + number, split="k")
        job.run(spark, trigger="available-now", checkpoint=checkpoint, state_backend="rocksdb")
        found = spark.read.json(str(tmp_path / "out")).count()
        assert found == (3 if number == 0 else 5)
    written = spark.read.schema("k string, window_start timestamp, window_end timestamp, total bigint").json(
        str(tmp_path / "out")
    )
    as_python = [row.asDict() for row in written.collect()]
    totals = sorted((row["k"], row["total"]) for row in as_python)
    assert totals == [("a", 6), ("a", 7), ("a", 9), ("b", 1), ("b", 3)]
    assert spark.read.json(str(tmp_path / "late")).count() == 2


class Alarm(tg.KeyedProcessFunction):
    """Rings a little after the first row of a key, by the clock."""

    rung = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 300)

    def on_timer(self, timestamp, ctx):
        self.rung.update(self.rung.value() + 1)
        yield ctx.get_current_key(), self.rung.value()


@pytest.mark.feature("B1")
def test_an_idle_job_fires_its_timers_in_epochs_of_their_own(spark, tmp_path):
    out = tg.CollectSink()
    job = tg.Job("alarm", parallelism=2)
    source = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, [rows(("a", 1, 1), ("b", 1, 1))]))
    source.key_by("k").process("alarm", Alarm(), schema="k string, n bigint").sink("out", out)
    run = job.start(spark)
    try:
        latest = time.monotonic() + 60
        while len(out.rows) < 2 and time.monotonic() < latest:
            assert not run.await_termination(0.1)
    finally:
        run.stop()
    assert sorted(out.rows) == [("a", 1), ("b", 1)]


class PlaceOfTimers(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield (type(ctx.timer_service()._timers).__name__,)

    def on_timer(self, timestamp, ctx): ...


@pytest.mark.feature("B3", "B4")
@pytest.mark.parametrize(
    ("options", "place"), [({}, "TimerState"), ({"state.backend.rocksdb.timer-service.factory": "heap"}, "HeapTimers")]
)
def test_timers_are_in_rocksdb_unless_the_job_puts_them_on_the_heap(spark, tmp_path, options, place):
    out = tg.CollectSink()
    job = tg.Job("place", parallelism=2)
    source = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, [rows(("a", 1, 1))]))
    source.key_by("k").process("place", PlaceOfTimers(), schema="place string").sink("out", out)
    job.run(spark, trigger="available-now", state_backend="rocksdb", options=options)
    assert out.rows == [(place,)]


def test_two_sources_meet_in_a_join_and_the_slower_one_holds_the_watermark(spark, tmp_path):
    job = tg.Job("join", parallelism=2)
    left = job.source("left", stream(spark, tmp_path / "l", SCHEMA, BATCHES[:3]), event_time="ts")
    right = job.source("right", stream(spark, tmp_path / "r", SCHEMA, [BATCHES[0]]), event_time="ts")
    out = tg.CollectSink()
    # A map before the key: the source stage runs Python, and reports the event times itself.
    kept = left.filter(lambda row: row.v != 5)
    kept.key_by("k").interval_join(
        "join", right.key_by("k"), lower="-2 s", upper="2 s", schema="k string, l int, r int",
        function=lambda a, b: (a.k, a.v, b.v),
    ).sink("out", out)  # fmt: skip
    job.run(spark, trigger="available-now")
    assert sorted(out.rows) == [("a", 1, 1), ("b", 3, 3)]
