"""Rows per second of built-in aggregates where one key has half of all rows, in two stages and in one.

*two stages*: rows are combined before the shuffle, as by default. *one stage*: `table.optimizer.agg-phase-strategy` is
ONE_PHASE, so that every row of the hot key goes to one task. Spark SQL's own streaming aggregation, which always combines
before its shuffle, is measured beside them.

Three jobs: a count and a sum per key so far; the same in tumbling windows of a minute; and the same behind a keyed
function, where the sending task combines the rows instead of Spark SQL. That function takes whole batches, keeps a count
per key and sends all its rows on, so the last job cannot gain more than the share of its second level.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams
from benchmarks.bench import opened
from benchmarks.contestants.spark_sql import drop
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.api.streams import Stream

HOT_SHARE, DISORDER_SECONDS = 0.5, 5
WANTED = 3.0
STAGES = {"two-stages": "AUTO", "one-stage": "ONE_PHASE"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. An epoch covers a minute of event time."""

    repetitions: int = 3
    keys: int = 10_000
    rows_per_epoch: int = 2_000_000
    epochs: int = 3
    warm_up: int = 1


QUICK = Size(repetitions=1, keys=1_000, rows_per_epoch=40_000, epochs=2, warm_up=1)
FILES_PER_EPOCH = 4


class CountAndPass(tg.KeyedBatchFunction):
    """Counts the rows of each key, and passes them on."""

    seen = tg.ValueState(int, default=0)

    def process_batch(self, batch, keys, ctx):
        import numpy as np

        self.seen.update_all(keys, self.seen.values(keys) + np.bincount(keys.index, minlength=len(keys)))
        yield batch


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure every contestant, or those that `only` names."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    jobs = {"running": _running, "window": _window, "behind-function": _behind}
    contestants = [
        *(_tidegate(f"{job}-{stages}", partitions, stages, jobs[job]) for job in jobs for stages in STAGES),
        Contestant("running-spark-sql", _spark_sql("update")),
        Contestant("window-spark-sql", _spark_sql("append", "window(ts, '1 minute')")),
    ]
    chosen = [c for c in contestants if only is None or c.name in only]

    def prepare(work: Path) -> Dataset:
        return streams.prepare_timed(
            work / "rows", rows_per_epoch=size.rows_per_epoch, files_per_epoch=FILES_PER_EPOCH, epochs=size.epochs,
            warm_up=size.warm_up, keys=size.keys, epoch_seconds=60, disorder_seconds=DISORDER_SECONDS,
            hot_share=HOT_SHARE,
        )  # fmt: skip

    with opened(partitions, prepare) as (bench, dataset):
        rates = harness.interleave({c.name: bench.rate(c, dataset) for c in chosen}, rounds, unit="rows/s")

    def gain(job: str, at_least: float | None = None) -> dict[str, Any] | None:
        return harness.ratio(rates, f"{job}-two-stages", f"{job}-one-stage", at_least=at_least)

    ratios = {
        "running: two stages / one": gain("running", WANTED),
        "window: two stages / one": gain("window", WANTED),
        "behind a function: two stages / one": gain("behind-function"),
        "running: two stages / Spark SQL": harness.ratio(rates, "running-two-stages", "running-spark-sql"),
        "window: two stages / Spark SQL": harness.ratio(rates, "window-two-stages", "window-spark-sql"),
    }
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions, "hot_share": HOT_SHARE},
        "notes": [
            "Spark SQL commits its state to its checkpoint directory, on the same disk, with every epoch.",
            "tidegate seals a version of its state with every epoch, and takes no checkpoints.",
            "Ratios are medians of the ratios of each round.",
        ],
        "figures": {f"rate {name}": figure.as_json() for name, figure in rates.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        "epochs": bench.as_json(),
    }


def _running(rows: Stream) -> Stream:
    return rows.key_by("key").aggregate("totals", n=tg.count(), total=tg.sum("value"))


def _window(rows: Stream) -> Stream:
    windows = rows.key_by("key").window(tg.TumblingEventTimeWindows.of("1 min"))
    return windows.aggregate("per-minute", n=tg.count(), total=tg.sum("value"))


def _behind(rows: Stream) -> Stream:
    passed = rows.key_by("value").process("seen", CountAndPass(), schema=streams.TIMED_COLUMNS)
    return _running(passed)


def _tidegate(name: str, partitions: int, stages: str, build: Callable[[Stream], Stream]) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("skew", parallelism=partitions)
        rows = job.source("rows", dataset.stream(spark), event_time="ts", out_of_orderness=f"{DISORDER_SECONDS} s")
        build(rows).sink("out", tg.DiscardSink())
        running = job.start(
            spark, trigger="available-now", state_backend="rocksdb",
            options={"local_dir": str(work / "local"), "table.optimizer.agg-phase-strategy": STAGES[stages]},
        )  # fmt: skip
        running.await_termination()
        assert running.counters == type(running.counters)(), f"epochs were repeated: {running.counters}"
        return epochs_of(running.query)

    return Contestant(name, run)


def _spark_sql(mode: str, window: str | None = None) -> Callable[[SparkSession, Dataset, Path], list[Epoch]]:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        from pyspark.sql import functions as F

        rows = dataset.stream(spark).withWatermark("ts", f"{DISORDER_SECONDS} seconds")
        grouped = rows.groupBy("key") if window is None else rows.groupBy("key", F.expr(window))
        sums = grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        return run_to_end(sums.writeStream.outputMode(mode).foreachBatch(drop), work)

    return run
