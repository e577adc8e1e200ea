"""Built-in aggregates of windows, combined by Spark SQL before the shuffle."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.core.times import MIN_WATERMARK, moment
from tidegate.schema.datatype import DataType
from tidegate.state.keys import distinct

SCHEMA = "k string, n int, big bigint, x double, price decimal(12,2), word string, ts timestamp"
START = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)


def events(seed: int, epochs: int, rows: int):
    """Epochs of rows out of order by up to 40 s, with nulls and a NaN; an epoch covers a minute. In the last one every fourth row
    is up to six minutes behind: late for some of its windows, or for all, whichever watermark holds by then."""
    rng = random.Random(seed)
    made = []
    for epoch in range(epochs):
        batch = []
        for _ in range(rows):
            ts = START + timedelta(milliseconds=60_000 * epoch + rng.randrange(60_000) - rng.randrange(40_000))
            if epoch == epochs - 1 and rng.random() < 0.25:
                ts -= timedelta(milliseconds=rng.randrange(360_000))
            n = rng.choice([None, *range(50)])
            x = math.nan if rng.random() < 0.01 else rng.randrange(1000) / 8
            price = Decimal(rng.randrange(10_000)).scaleb(-2)
            batch.append((rng.choice("abcdef"), n, rng.randrange(1 << 50), x, price, f"w{rng.randrange(30)}", ts))
        made.append(batch)
    return made


def aggregated(windows):
    """Every built-in aggregate; `check` knows what each gives."""
    return windows.aggregate(
        "sums", rows=tg.count(), some=tg.count("n"), total=tg.sum("n"), big=tg.sum("big"), mean=tg.mean("x"),
        cost=tg.sum("price"), least=tg.min("x"), most=tg.max("word"), words=tg.approx_distinct("word"),
    )  # fmt: skip


@pytest.mark.feature("A5", "B12")
def test_windows_of_combined_rows_are_those_of_the_rows(spark, tmp_path):
    """Every row is judged by the watermark that held in its epoch. Which one that is depends on the empty epochs between those
    with rows, so it is asked for."""
    epochs = events(seed=3, epochs=4, rows=400)
    out, late = tg.CollectSink(), tg.CollectSink()
    job = tg.Job("combined", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, epochs), event_time="ts", out_of_orderness="5 s")
    windows = rows.key_by("k").window(tg.SlidingEventTimeWindows.of("40 s", "20 s")).side_output_late_data("late")
    sums = aggregated(windows)
    assert "combined in Spark SQL first" in job.explain()
    sums.sink("out", out)
    sums.side_output("late").sink("late", late)
    run = job.start(spark, trigger="available-now")
    run.await_termination()

    marks = [MIN_WATERMARK, *(report.watermark_ms for report in run.reports)]
    applied = [mark for mark, report in zip(marks, run.reports) if report.rows_in]
    assert [report.rows_in for report in run.reports if report.rows_in] == [len(batch) for batch in epochs]
    expected, dropped = closed_form(epochs, applied)
    found = {(row.k, row.window_start): row for row in out.rows}
    assert len(found) == len(out.rows)
    assert sorted(found) == sorted(expected)
    for name, members in expected.items():
        check(found[name], members)
    assert sorted(repr(tuple(row)) for row in late.rows) == sorted(map(repr, dropped))
    assert dropped


def closed_form(epochs, applied):
    """`applied` are the watermarks that held while the rows of each epoch were processed."""
    windows, dropped = defaultdict(list), []
    for batch, watermark in zip(epochs, applied, strict=True):
        for row in batch:
            ms = round(row[-1].timestamp() * 1000)
            last = ms - ms % 20_000
            kept = [start for start in (last, last - 20_000) if start + 40_000 - 1 > watermark]
            for start in kept:
                windows[row[0], moment(start)].append(row)
            if not kept:
                dropped.append(row)
    return windows, dropped


def check(row, members):
    ns = [m[1] for m in members if m[1] is not None]
    xs = [m[3] for m in members]
    real = [x for x in xs if not math.isnan(x)]
    assert (row.rows, row.some, row.total) == (len(members), len(ns), sum(ns) if ns else None)
    assert (row.big, row.cost) == (sum(m[2] for m in members), sum(m[4] for m in members))
    assert row.mean == pytest.approx(sum(xs) / len(xs), nan_ok=True)
    assert row.least == min(real) if real else math.isnan(row.least)
    # What Spark SQL has hashed is what Python would have.
    add, words = distinct.adding(DataType("string")), b""
    for member in members:
        words = add(words, member[5])
    assert (row.most, row.words) == (max(m[5] for m in members), distinct.estimate(words))


GAP_MS = 3_000


@pytest.mark.feature("A5", "B12")
def test_sessions_of_combined_rows_are_those_of_the_rows(spark, tmp_path):
    """No row is late, except for some that are an hour behind in the last epoch."""
    epochs = events(seed=5, epochs=3, rows=150)
    epochs = [[row for row in batch if row[-1] >= START - timedelta(seconds=40)] for batch in epochs]
    behind = [(*row[:-1], row[-1] - timedelta(hours=1)) for row in epochs[-1][:7]]
    out, late = tg.CollectSink(), tg.CollectSink()
    job = tg.Job("sessions", parallelism=2)
    rows = stream(spark, tmp_path / "in", SCHEMA, [*epochs[:-1], [*epochs[-1], *behind]])
    read = job.source("rows", rows, event_time="ts", out_of_orderness="10 min")
    windows = read.key_by("k").window(tg.EventTimeSessionWindows.with_gap(f"{GAP_MS} ms")).side_output_late_data("late")
    sums = aggregated(windows)
    assert "combined in Spark SQL first" in job.explain()
    sums.sink("out", out)
    sums.side_output("late").sink("late", late)
    job.start(spark, trigger="available-now").await_termination()

    expected = sessions([row for batch in epochs for row in batch])
    found = {(row.k, row.window_start, row.window_end): row for row in out.rows}
    assert len(found) == len(out.rows)
    assert sorted(found) == sorted(expected)
    for name, members in expected.items():
        check(found[name], members)
    assert sorted(repr(tuple(row)) for row in late.rows) == sorted(map(repr, behind))
    assert max(len(members) for members in expected.values()) > 3


def sessions(rows):
    """Rows of each key, parted where more than the gap lies between two."""
    made = {}
    for key in {row[0] for row in rows}:
        times = {id(row): round(row[-1].timestamp() * 1000) for row in rows if row[0] == key}
        found = []
        for row in sorted((row for row in rows if row[0] == key), key=lambda row: row[-1]):
            if not found or times[id(row)] - times[id(found[-1][-1])] > GAP_MS:
                found.append([])
            found[-1].append(row)
        for members in found:
            first, last = times[id(members[0])], times[id(members[-1])]
            made[key, moment(first), moment(last + GAP_MS)] = members
    return made
