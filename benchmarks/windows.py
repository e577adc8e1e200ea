"""Rows per second of a count and a sum per key in windows: tidegate against Spark SQL's own. Tumbling windows of a minute,
windows of a minute every 30 seconds, and sessions that end after ten seconds without a row.

Both read the same files in the same epochs, allow rows to be five seconds out of order, keep their state in RocksDB, and
give out a window once, when the watermark has passed its end. Rows are dropped where they come out.

*bare* is the engine without a state: rows combined by Spark SQL per key and minute, sent to Python and added up in a dict
that is dropped with its epoch. Nothing that hands windows to Python can be quicker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams
from benchmarks.bench import opened
from benchmarks.contestants import bare
from benchmarks.contestants.spark_sql import drop
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of, run_to_end

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

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
        Contestant("spark-sql", _spark_sql()),
        _tidegate("tidegate-sliding", partitions, "rocksdb", assigner=tg.SlidingEventTimeWindows.of("1 min", "30 s")),
        Contestant("spark-sql-sliding", _spark_sql("window(ts, '1 minute', '30 seconds')")),
        _tidegate("tidegate-sessions", partitions, "rocksdb", assigner=tg.EventTimeSessionWindows.with_gap("10 s")),
        Contestant("spark-sql-sessions", _spark_sql("session_window(ts, '10 seconds')")),
        Contestant("bare", _bare(partitions)),
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
        "sliding / Spark SQL": harness.ratio(rates, "tidegate-sliding", "spark-sql-sliding", at_least=1.0),
        "sessions / Spark SQL": harness.ratio(rates, "tidegate-sessions", "spark-sql-sessions", at_least=1.0),
        "rocksdb with checkpoints / Spark SQL": harness.ratio(rates, "tidegate-rocksdb-checkpoints", "spark-sql"),
        "rocksdb / bare": harness.ratio(rates, "tidegate-rocksdb", "bare"),
        "bare / Spark SQL": harness.ratio(rates, "bare", "spark-sql"),
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


def _spark_sql(window: str = f"window(ts, '{WINDOW}')") -> Callable[[SparkSession, Dataset, Path], list[Epoch]]:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        from pyspark.sql import functions as F

        sums = (
            dataset.stream(spark)
            .withWatermark("ts", f"{DISORDER_SECONDS} seconds")
            .groupBy("key", F.expr(window))
            .agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        )
        return run_to_end(sums.writeStream.outputMode("append").foreachBatch(drop), work)

    return run


def _bare(partitions: int) -> Callable[[SparkSession, Dataset, Path], list[Epoch]]:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        chosen = bare.salts(spark, partitions)

        def epoch(batch: DataFrame, _: int) -> None:
            from pyspark.sql import functions as F

            panes = batch.groupBy("key", F.expr("unix_millis(ts) div 60000").alias("pane")).agg(
                F.count("*").alias("n"), F.sum("value").alias("value")
            )
            slots = bare.to_slots(panes, chosen, "pane", "n").repartition(partitions, "slot")
            acks = slots.mapInArrow(_add_up, "rows long").collect()
            if sum(ack.rows for ack in acks) != dataset.rows_per_epoch:
                raise AssertionError(f"wanted {dataset.rows_per_epoch} rows, got {acks}")

        return run_to_end(dataset.stream(spark).writeStream.foreachBatch(epoch), work)

    return run


def _add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow

    windows: dict[tuple[str, int], tuple[int, int]] = {}
    for batch in batches:
        for key, pane, n, value in zip(*(batch.column(name).to_pylist() for name in ("key", "pane", "n", "value"))):
            count, total = windows.get((key, pane), (0, 0))
            windows[key, pane] = count + n, total + value
    yield pyarrow.RecordBatch.from_pydict({"rows": [sum(count for count, _ in windows.values())]})


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
    name: str, partitions: int, backend: str, *, checkpoints: bool = False, function: CountAndSum | None = None,
    assigner: tg.WindowAssigner | None = None,
) -> Contestant:  # fmt: skip
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("windows", parallelism=partitions)
        rows = job.source("rows", dataset.stream(spark), event_time="ts", out_of_orderness=f"{DISORDER_SECONDS} s")
        windows = rows.key_by("key").window(assigner or tg.TumblingEventTimeWindows.of("1 min"))
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
