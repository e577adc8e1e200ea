"""Rows per second of a count and a sum per key in windows of a minute: tidegate against Spark SQL's own windows.

Both read the same files in the same epochs, allow rows to be five seconds out of order, keep their state in RocksDB, and
give out a window once, when the watermark has passed its end. Rows are dropped where they come out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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

WINDOW, DISORDER_SECONDS = "1 minute", 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. An epoch covers a minute of event time."""

    repetitions: int = 3
    keys: int = 50_000
    rows_per_epoch: int = 1_000_000
    epochs: int = 5
    warm_up: int = 2


QUICK = Size(repetitions=1, keys=2_000, rows_per_epoch=40_000, epochs=3, warm_up=1)
FILES_PER_EPOCH = 4


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure every contestant, or those that `only` names."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    contestants = [
        _tidegate("tidegate-rocksdb", partitions, "rocksdb"),
        _tidegate("tidegate-rocksdb-checkpoints", partitions, "rocksdb", checkpoints=True),
        _tidegate("tidegate-rocksdb-row-by-row", partitions, "rocksdb", function=CountAndSum()),
        _tidegate("tidegate-hashmap", partitions, "hashmap"),
        Contestant("spark-sql", _spark_sql),
    ]
    chosen = [c for c in contestants if only is None or c.name in only]

    def prepare(work: Path) -> Dataset:
        return streams.prepare_timed(
            work / "rows", rows_per_epoch=size.rows_per_epoch, files_per_epoch=FILES_PER_EPOCH, epochs=size.epochs,
            warm_up=size.warm_up, keys=size.keys, epoch_seconds=60, disorder_seconds=DISORDER_SECONDS,
        )  # fmt: skip

    with opened(partitions, prepare) as (bench, dataset):
        rates = harness.interleave({c.name: bench.rate(c, dataset) for c in chosen}, rounds, unit="rows/s")
    ratios = {
        "rocksdb / Spark SQL": harness.ratio(rates, "tidegate-rocksdb", "spark-sql", at_least=1.5),
        "rocksdb with checkpoints / Spark SQL": harness.ratio(rates, "tidegate-rocksdb-checkpoints", "spark-sql"),
        "hashmap / Spark SQL": harness.ratio(rates, "tidegate-hashmap", "spark-sql"),
        "combined before the shuffle / row by row": harness.ratio(
            rates, "tidegate-rocksdb", "tidegate-rocksdb-row-by-row"
        ),
    }
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions},
        "notes": [
            "Spark SQL commits its state to its checkpoint directory, on the same disk, with every epoch.",
            "tidegate seals a version of its state with every epoch; with checkpoints it uploads one every second as well.",
            "Ratios are medians of the ratios of each round.",
        ],
        "figures": {f"rate {name}": figure.as_json() for name, figure in rates.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        "epochs": bench.as_json(),
    }


def _spark_sql(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
    from pyspark.sql import functions as F

    sums = (
        dataset.stream(spark)
        .withWatermark("ts", f"{DISORDER_SECONDS} seconds")
        .groupBy("key", F.window("ts", WINDOW))
        .agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    )
    return run_to_end(sums.writeStream.outputMode("append").foreachBatch(drop), work)


class CountAndSum(tg.AggregateFunction):
    """The same as a function of the user, which Spark SQL cannot know: Python sees every row."""

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value.value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


def _tidegate(
    name: str, partitions: int, backend: str, *, checkpoints: bool = False, function: CountAndSum | None = None
) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("windows", parallelism=partitions)
        rows = job.source("rows", dataset.stream(spark), event_time="ts", out_of_orderness=f"{DISORDER_SECONDS} s")
        windows = rows.key_by("key").window(tg.TumblingEventTimeWindows.of("1 min"))
        sums = (
            windows.aggregate("per-minute", n=tg.count(), total=tg.sum("value"))
            if function is None
            else windows.aggregate("own", function, accumulator=tuple[int, int], schema="n bigint, total bigint")
        )
        sums.sink("out", tg.DiscardSink())
        checkpoint = tg.Checkpointing(dir=str(work / "checkpoints"), interval="1 s") if checkpoints else None
        running = job.start(
            spark, trigger="available-now", state_backend=backend, options={"local_dir": str(work / "local")},
            checkpoint=checkpoint,
        )  # fmt: skip
        running.await_termination()
        assert running.counters == type(running.counters)(), f"epochs were repeated: {running.counters}"
        return epochs_of(running.query)

    return Contestant(name, run)
