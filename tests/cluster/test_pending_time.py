"""Windows, timers and operator state that are pending when an executor dies: all of it comes out, once."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

import pytest

import tidegate as tg
from tests.cluster.standalone import host_of
from tests.integration.inputs import write_batches
from tests.waiting import eventually, while_running

SCHEMA = "k int, v bigint, ts timestamp"
WINDOW_S, AFTER_S, END_S = 10, 20, 100_000
KEYS, EPOCHS, ROWS = 12, 6, 60


class Later(tg.KeyedProcessFunction, tg.CheckpointedFunction):
    """Keeps the sum of a window and tells it twenty seconds of event time later; counts the rows that its task has seen."""

    sums = tg.MapState(int, int)
    counts = tg.ListState(int, operator=True)

    def open(self, ctx):
        self.subtask = ctx.get_index_of_this_subtask()

    def initialize_state(self, ctx):
        self.count = sum(self.counts.get())

    def snapshot_state(self, ctx):
        self.counts.update([self.count])

    def process_element(self, row, ctx):
        at = ctx.timestamp() + AFTER_S * 1000
        self.sums.put(at, (self.sums.get(at) or 0) + row.total)
        ctx.timer_service().register_event_time_timer(at)
        self.count += 1
        ctx.output("counted", (self.subtask, self.count))

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp // 1000 - AFTER_S - START_S, self.sums.get(timestamp)
        self.sums.remove(timestamp)


START_S = 1_700_000_000


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_S + seconds, UTC)


def rows(epoch: int) -> list[tuple[int, int, datetime]]:
    return [(n * 7 % KEYS, epoch * ROWS + n, at(epoch * WINDOW_S + n % WINDOW_S)) for n in range(ROWS)]


def expected() -> list[tuple[int, int, int]]:
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for epoch in range(EPOCHS):
        for k, v, _ in rows(epoch):
            sums[k, (epoch + 1) * WINDOW_S] += v
    return sorted((k, end, total) for (k, end), total in sums.items())


def feed(folder, number: int, batch) -> None:
    write_batches(folder / "drafts", SCHEMA, [batch], number)
    name = f"{number:06d}.parquet"
    (folder / "drafts" / name).rename(folder / "in" / name)


@pytest.mark.feature("A5", "B2")
def test_pending_results_are_emitted_once_after_an_executor_dies(cluster, cluster_session, orders, tmp_path):
    (tmp_path / "in").mkdir()
    spark = cluster_session()
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    out, counted = tg.CollectSink(), tg.CollectSink()
    job = tg.Job("pending", parallelism=4)
    windows = (
        job.source("rows", source, event_time="ts", out_of_orderness="25 s")
        .key_by("k")
        .window(tg.TumblingEventTimeWindows.of(f"{WINDOW_S} s"))
        .aggregate("sums", total=tg.sum("v"))
    )
    later = (
        windows.assign_timestamps("window_end")
        .key_by("k")
        .process(
            "later", Later(), schema="k int, end bigint, total bigint", side_outputs={"counted": "task int, n bigint"}
        )
    )
    later.sink("out", out)
    later.side_output("counted").sink("counted", counted)
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="500 ms")
    run = job.start(spark, checkpoint=checkpoint, state_backend="rocksdb", options={"host_timeout_ms": 60_000})
    try:
        for epoch in range(EPOCHS - 2):
            feed(tmp_path, epoch, rows(epoch))
        read_all = (EPOCHS - 2) * ROWS
        eventually(while_running(run, lambda: sum(report.rows_in for report in run.reports) == read_all), timeout_s=150)
        sleeping = orders.give("task.2-first-row", "sleep", seconds=20, level=1)
        feed(tmp_path, EPOCHS - 2, rows(EPOCHS - 2))
        cluster.kill_executor(host_of(cluster, orders.wait(sleeping)))
        feed(tmp_path, EPOCHS - 1, rows(EPOCHS - 1))
        feed(tmp_path, EPOCHS, [(0, 0, at(END_S))])
        eventually(while_running(run, lambda: len(out.rows) >= len(expected())), timeout_s=150)
    finally:
        orders.clear()
        run.stop()
    assert sorted(map(tuple, out.rows)) == expected()
    newest: dict[int, int] = defaultdict(int)
    for task, n in counted.rows:
        newest[task] = max(n, newest[task])
    assert sum(newest.values()) == len(counted.rows) == len(expected())
