"""A running job gets another parallelism, in the same driver: every row once, every state complete."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.waiting import eventually
from tidegate.core import faults
from tidegate.runtime.driver.job_run import JobRun
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import StoredSnapshot

SCHEMA = "k int, i bigint, at timestamp"
ROWS = 10
LIMITS = 2
"""Rows that are broadcast."""


class Kept(tg.KeyedBroadcastProcessFunction):
    """Has every kind of keyed state, timers, and broadcast state, and tells all of it with every row."""

    total = tg.ValueState(int, default=0)
    last = tg.ListState(int)
    parities = tg.MapState(int, int)
    limits = tg.BroadcastState(str, int)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.i)
        self.last.update([*self.last.get(), row.i][-3:])
        self.parities.put(row.i % 2, (self.parities.get(row.i % 2) or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 25_000)
        over = sorted(name for name, limit in self.limits.items() if row.i > limit)
        yield row.k, row.i, json.dumps([self.total.value(), list(self.last.get()), sorted(self.parities.items()), over])

    def process_broadcast_element(self, row, ctx):
        self.limits.put(row.name, row.lim)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), -1, str(timestamp)


class Seen(tg.MapFunction, tg.CheckpointedFunction):
    """What its task has seen, in operator state that is split, and in operator state that all tasks get."""

    split = tg.ListState(int, operator=True)
    union = tg.ListState(int, union=True)

    def initialize_state(self, ctx):
        self.seen = list(self.split.get())
        self.most = max(self.union.get(), default=0)

    def snapshot_state(self, ctx):
        self.split.update(self.seen)
        self.union.update([self.most])

    def map(self, row):
        self.seen.append(row.i)
        self.most = max(self.most, row.i)
        return row.k, row.i, row.told


class Stream:
    """One job and its folders, fed file by file; each file is an epoch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder, self.files = spark, folder, 0
        write_batches(folder / "limits", "name string, lim int", [[("low", 10), ("high", 60)]])

    def feed(self, files: int) -> None:
        for _ in range(files):
            first = self.files * ROWS
            rows = [(i % 7, i, datetime.fromtimestamp(i, UTC)) for i in range(first, first + ROWS)]
            write_batches(self.folder / "in", SCHEMA, [rows], self.files)
            self.files += 1

    def job(self, out: str, parallelism: int) -> tg.Job:
        def read(folder: str, schema: str) -> Any:
            return (
                self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / folder))
            )

        job = tg.Job("rescaled", parallelism=parallelism, max_parallelism=16)
        limits = job.source("limits", read("limits", "name string, lim int"))
        rows = job.source("rows", read("in", SCHEMA), event_time="at")
        kept = (
            rows.key_by("k").connect(limits.broadcast()).process("kept", Kept(), schema="k int, i bigint, told string")
        )
        seen = kept.map(Seen(), uid="seen", schema="k int, i bigint, told string")
        seen.sink("out", tg.FileSink(str(self.folder / out)))
        return job

    def choices(self, backend: str, **more: Any) -> dict[str, Any]:
        where = tg.Checkpointing(dir=str(self.folder / "checkpoints"), interval="1 h", incremental=True, **more)
        return {"checkpoint": where, "state_backend": backend, "options": {"local_dir": str(self.folder / "local")}}

    def start(self, backend: str = "rocksdb", parallelism: int = 2, **more: Any) -> JobRun:
        return self.job("out", parallelism).start(self.spark, **self.choices(backend, **more))

    def out(self, folder: str = "out") -> list[tuple[int, int, str]]:
        lines = [line for path in (self.folder / folder).glob("*.json") for line in path.read_text().splitlines()]
        return sorted((row["k"], row["i"], row["told"]) for row in map(json.loads, lines))

    def uninterrupted(self) -> list[tuple[int, int, str]]:
        """What the same rows give in one run."""
        self.job("straight", 2).run(self.spark, trigger="available-now")
        return self.out("straight")


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(spark, tmp_path)
    stream.feed(3)
    yield stream
    faults.arm(None)
    for query in spark.streams.active:
        query.stop()


def rows_read(run: JobRun) -> int:
    return sum(report.rows_in for report in list(run.reports)) - LIMITS


@pytest.mark.feature("A14", "H13", "H14", "I36")
@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("hashmap", marks=pytest.mark.slow)])
def test_a_job_is_rescaled_under_load_and_computes_what_it_would_have_computed(stream: Stream, backend: str) -> None:
    run, fed = stream.start(backend), threading.Event()

    def feed() -> None:
        while not fed.wait(0.1):
            if rows_read(run) > (stream.files - 2) * ROWS:
                stream.feed(1)

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        eventually(lambda: rows_read(run) >= 2 * ROWS, timeout_s=180)
        for parallelism in (4, 1):
            before = rows_read(run)
            rescale = run.rescale(parallelism).result(180)
            assert (run.parallelism, rescale.new_parallelism, len(run.tasks)) == (parallelism, parallelism, parallelism)
            eventually(lambda seen=before: rows_read(run) > seen + ROWS, timeout_s=180)
    finally:
        fed.set()
        feeding.join()
    eventually(lambda: rows_read(run) >= stream.files * ROWS, timeout_s=180)
    saved = run.stop_with_savepoint(str(stream.folder / "savepoints"), drain=True, format="NATIVE")
    assert stream.out() == stream.uninterrupted()
    with SnapshotReader(StoredSnapshot.open(saved)) as reader:
        split = [entry.value for entry in reader.entries("seen", "split")]
        union = [entry.value for entry in reader.entries("seen", "union")]
    assert sorted(i for i in split if i >= 0) == list(range(stream.files * ROWS))
    assert max(union) == stream.files * ROWS - 1
    assert [rescale.new_parallelism for rescale in run.rescales] == [1, 4]
    assert run.restarts == 0
