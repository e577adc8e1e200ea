"""One key has half of all rows: it is named, and built-in aggregates give the same in two stages as in one."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.control.rest.client import Client

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
BATCHES = [
    [
        ("hot" if n % 2 else f"user-{n % 40}", n % 7 or None, START + timedelta(seconds=60 * batch + n % 60))
        for n in range(600)
    ]
    for batch in range(3)
]


class Each(tg.KeyedProcessFunction):
    """Passes every row on, so that the next operator is behind a shuffle that Python sends."""

    seen = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.seen.update(self.seen.value() + 1)
        yield row


@pytest.mark.parametrize("strategy", ["AUTO", "ONE_PHASE"])
def test_a_hot_key_behind_a_keyed_operator_is_named_and_its_totals_are_right(spark, tmp_path, strategy):
    schema = "user string, n int, ts timestamp"
    totals, minutes = tg.CollectSink(), tg.CollectSink()
    job = tg.Job("skew", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", schema, BATCHES), event_time="ts", out_of_orderness="0 s")
    # Keyed by another column: the rows of the hot key come from both tasks.
    each = rows.key_by("n").process("each", Each(), schema=schema)
    keyed = each.assign_timestamps("ts").key_by("user")
    keyed.aggregate("totals", rows=tg.count(), n=tg.sum("n")).sink("totals-out", totals)
    windows = keyed.window(tg.TumblingEventTimeWindows.of("1 min"))
    windows.aggregate("minutes", rows=tg.count(), n=tg.sum("n")).sink("minutes-out", minutes)
    assert job.explain().count("combined by the sending task first") == 2
    run = job.start(spark, trigger="available-now", options={"table.optimizer.agg-phase-strategy": strategy})
    with tg.serve(run, port=0, show_values=True) as server:
        run.await_termination()
        told = Client(server.url, server.token).ask("GET", "/jobs/skew/report")

    so_far, expected, of_minutes = defaultdict(lambda: (0, 0)), [], {}
    for number, batch in enumerate(BATCHES):
        touched = defaultdict(lambda: (0, 0))
        for user, n, _ in batch:
            touched[user] = touched[user][0] + 1, touched[user][1] + (n or 0)
        for user, (count, total) in touched.items():
            so_far[user] = so_far[user][0] + count, so_far[user][1] + total
            expected.append((user, *so_far[user]))
            of_minutes[user, START + timedelta(minutes=number)] = count, total
    assert sorted(map(tuple, totals.rows)) == sorted(expected)
    assert {(row.user, row.window_start): (row.rows, row.n) for row in minutes.rows} == of_minutes
    hottest, share = run.report().hot_keys["totals"][0]
    assert (hottest, share) == ("hot", pytest.approx(0.5, abs=0.1))
    assert told["hot_keys"]["totals"][0][0] == "hot"
    names = ("each", "totals", "minutes")
    rows_in = [sum(report.operators.get(name, (0, 0))[0] for report in run.reports) for name in names]
    assert rows_in == [1800, 1800, 1800]
