"""What an epoch costs when it is wide: 200 slots and 3 levels, that is 40,000 barriers in each of two exchanges.

Not a race: figures for planning (time to build and plan the job, its run, bytes of control rows at the driver). The same graph
with 8 slots stands beside it, so that the part that grows with the square of the slots shows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.runtime.driver.epoch_reports import EpochReport


class Count(tg.KeyedProcessFunction):
    """Counts, and hands on under another key."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield f"{row.key}'", row.value


def run(json_path: Path, quick: bool) -> dict[str, Any]:
    epochs, wide = (2, 16) if quick else (4, 200)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        work = Path(scratch)
        data = streams.prepare(
            work / "data", rows_per_epoch=20_000, files_per_epoch=2, epochs=epochs, warm_up=1, keys=5_000
        )
        spark = streams.session(8)
        try:
            reports = {p: _reports(spark, data, work / str(p), p) for p in (8, wide)}
        finally:
            spark.stop()
    figures: dict[str, Any] = {}
    for parallelism, found in reports.items():
        measured, name = found[1:], f"{parallelism} slots, {parallelism**2:,} barriers an exchange"
        for what, unit, values in (
            ("plan", "ms", [r.plan_ms for r in measured]),
            ("job", "ms", [r.job_ms for r in measured]),
            ("control rows", "bytes", [r.control_bytes for r in measured]),
        ):
            figures[f"{name}: {what}"] = harness.Figure(unit, tuple(map(float, values))).as_json()
    return {"figures": figures, "ratios": {}}


def _reports(spark: SparkSession, data: streams.Dataset, work: Path, parallelism: int) -> list[EpochReport]:
    job = tg.Job("wide", parallelism=parallelism)
    stream = job.source("rows", data.stream(spark))
    for level in ("one", "two", "three"):
        stream = stream.key_by("key").process(level, Count(), schema=streams.COLUMNS)
    stream.sink("out", tg.DiscardSink())
    running = job.start(spark, trigger="available-now", options={"local_dir": str(work)})
    running.await_termination()
    return list(running.reports)
