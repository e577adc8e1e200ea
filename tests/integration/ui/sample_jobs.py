"""Jobs that the pages are shown with: one that runs, one that fails, one that gets no rows, one that gets no more, and one that
is long in starting.

As a program, this runs the first one in a driver of its own, until it is killed: `python -m … FOLDER`.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tidegate as tg
from tests.integration.inputs import stream
from tests.waiting import eventually

if TYPE_CHECKING:
    from tidegate.connectors.write_ahead import CommitToken
    from tidegate.runtime.driver.job_run import JobRun

CHECKPOINTS = "checkpoints"
KEY = "user-4"


class Totals(tg.KeyedProcessFunction):
    """Running total per user."""

    total = tg.ValueState(float, default=0.0)
    per_hour = tg.MapState(str, int, ttl="1 day")

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.amount)
        hour = f"{row.ts:%H}:00"
        with ctx.span("count the hour"):
            self.per_hour.put(hour, (self.per_hour.get(hour) or 0) + 1)
        yield row.user, self.total.value(), f"band-{int(self.total.value()) % 5}"


class Bands(tg.KeyedProcessFunction):
    """How many users are in each band."""

    users = tg.MapState(str, float)

    def process_element(self, row, ctx):
        self.users.put(row.user, row.total)
        yield row.band, len(list(self.users.keys()))


class Picky(tg.KeyedProcessFunction):
    """Takes no zero."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 100 // row.v)
        yield row.k, self.n.value()


def orders(spark, folder: Path, name: str = "orders") -> JobRun:
    """Two levels, two sinks, event time, a few users with most of the orders."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 400).option("numPartitions", 2).load()
    job = tg.Job(name, parallelism=2)
    source = job.source(
        "orders",
        rows.selectExpr(
            "timestamp as ts", "concat('user-', value * value % 23) as user", "value % 500 / 10D as amount"
        ),
        event_time="ts",
        out_of_orderness="1 s",
    )
    totals = source.key_by("user").process("totals", Totals(), schema="user string, total double, band string")
    totals.sink("totals-out", tg.FileSink(str(folder / "totals"), format="json"))
    bands = totals.key_by("band").process("bands", Bands(), schema="band string, users bigint")
    bands.sink("bands-out", tg.DiscardSink())
    return job.start(
        spark,
        checkpoint=tg.Checkpointing(dir=str(folder / CHECKPOINTS), interval="1 s"),
        trigger="500 ms",
        options={"execution.checkpointing.savepoint-dir": str(folder / "savepoints")},
    )


def failing(spark, folder: Path) -> JobRun:
    """Divides by zero in its third epoch, with checkpoints before that."""
    batches = [[("a", 5), ("b", 4)], [("a", 2), ("c", 8)], [("a", 0)]]
    job = tg.Job("failing", parallelism=2)
    rows = job.source("rows", stream(spark, folder / "in", "k string, v int", batches))
    rows.key_by("k").process("picky", Picky(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    return job.start(spark, checkpoint=tg.Checkpointing(dir=str(folder / CHECKPOINTS), interval="100 ms"))


def waiting(spark, folder: Path) -> JobRun:
    """Has neither rows nor checkpoints."""
    job = tg.Job("waiting", parallelism=2)
    rows = job.source("rows", stream(spark, folder / "in", "k string, v int", []))
    rows.key_by("k").process("picky", Picky(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    return job.start(spark)


class Patient(Picky):
    """Opens when the file is there."""

    def __init__(self, signal: str) -> None:
        self._signal = signal

    def open(self, ctx):
        eventually(Path(self._signal).exists)


def starting(spark, folder: Path) -> JobRun:
    """Starts when a file `go` is put into the folder."""
    job = tg.Job("starting", parallelism=2)
    rows = job.source("rows", stream(spark, folder / "in", "k string, v int", [[("a", 5)]]))
    patient = rows.key_by("k").process("picky", Patient(str(folder / "go")), schema="k string, n bigint")
    patient.sink("out", tg.DiscardSink())
    return job.start(spark, checkpoint=tg.Checkpointing(dir=str(folder / CHECKPOINTS), interval="1 s"))


def deliver(folder: Path, rows: list[tuple[str, int]], token: CommitToken) -> None:
    """Write a file whose name is the token, so that a second delivery replaces the first."""
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / str(token).replace("/", "-")).write_text("".join(f"{k} {n}\n" for k, n in rows))


def counting(spark, folder: Path, name: str) -> JobRun:
    """Gets rows whenever a file is put into `in`, and writes files to `out`."""
    rows = stream(spark, folder / "in", "k string, v int", [[("a", 5), ("b", 4)], [("a", 2), ("c", 8)]])
    job = tg.Job(name, parallelism=2)
    counted = job.source("rows", rows).key_by("k").process("picky", Picky(), schema="k string, n bigint")
    counted.sink("out", tg.WriteAheadSink(partial(deliver, folder), idempotent=True))
    return job.start(
        spark,
        checkpoint=tg.Checkpointing(dir=str(folder / CHECKPOINTS), interval="200 ms"),
        options={"execution.output.max-waiting-epochs": "2"},
    )


def completed(run: JobRun) -> int:
    return 0 if run.checkpoints is None else run.checkpoints.counts.completed


if __name__ == "__main__":
    from tests import sparks

    run = orders(sparks.session(), Path(sys.argv[1]))
    eventually(lambda: completed(run) >= 3 and len(run.reports) >= 5)
    run.savepoint().result()
    print("ready", flush=True)
    time.sleep(600)
