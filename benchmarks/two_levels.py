"""Rows per second of two keyed functions behind each other: every row crosses two exchanges, one of them from Python to Python.

The first function counts rows per key, the second one per group of keys. *bare* are two chained exchanges of the engine with
the same calls per row and no state: the first task hands its rows to Spark as Arrow columns, and Spark shuffles them row by
row.

To compare with an older version of tidegate, run this file in both checkouts by turns, and compare the ratios to *bare*.
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
from benchmarks.contestants.tidegate_jobs import Counter
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of, run_to_end

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

GROUPS = 5_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repetitions: int = 5
    keys: int = 50_000
    rows_per_epoch: int = 1_000_000
    epochs: int = 5
    warm_up: int = 2


QUICK = Size(repetitions=1, keys=2_000, rows_per_epoch=40_000, epochs=2, warm_up=1)
FILES_PER_EPOCH = 4


class Grouped(tg.KeyedProcessFunction):
    """Counts per key, and tells the group of the key."""

    counts = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        count = self.counts.value() + 1
        self.counts.update(count)
        yield f"g{hash(row.key) % GROUPS}", count


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure every contestant, or those that `only` names."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    contestants = [
        *(_tidegate(backend, partitions) for backend in ("rocksdb", "hashmap")),
        Contestant("bare", _bare(partitions)),
    ]
    chosen = [c for c in contestants if only is None or c.name in only]

    def prepare(work: Path) -> Dataset:
        return streams.prepare(
            work / "rows", rows_per_epoch=size.rows_per_epoch, files_per_epoch=FILES_PER_EPOCH, epochs=size.epochs,
            warm_up=size.warm_up, keys=size.keys,
        )  # fmt: skip

    with opened(partitions, prepare) as (bench, dataset):
        rates = harness.interleave({c.name: bench.rate(c, dataset) for c in chosen}, rounds, unit="rows/s")
    ratios = {
        f"{backend} / two bare exchanges": harness.ratio(rates, f"tidegate-{backend}", "bare", at_least=1.0)
        for backend in ("rocksdb", "hashmap")
    }
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions},
        "notes": ["Ratios are medians of the ratios of each round."],
        "figures": {f"rate {name}": figure.as_json() for name, figure in rates.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        "epochs": bench.as_json(),
    }


def _tidegate(backend: str, partitions: int) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("two-levels", parallelism=partitions)
        rows = job.source("rows", dataset.stream(spark))
        grouped = rows.key_by("key").process("per-key", Grouped(), schema="key string, n bigint")
        grouped.key_by("key").process("per-group", Counter(), schema="key string, n bigint").sink(
            "out", tg.DiscardSink()
        )
        running = job.start(spark, trigger="available-now", state_backend=backend, options={"local_dir": str(work)})
        running.await_termination()
        assert running.counters == type(running.counters)(), f"epochs were repeated: {running.counters}"
        return epochs_of(running.query)

    return Contestant(f"tidegate-{backend}", run)


def _bare(partitions: int) -> Callable[[SparkSession, Dataset, Path], list[Epoch]]:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        chosen = bare.salts(spark, partitions)

        def epoch(batch: DataFrame, _: int) -> None:
            first = bare.to_slots(batch, chosen).repartition(partitions, "slot")
            grouped = first.mapInArrow(_group_task, "key string, value bigint")
            second = bare.to_slots(grouped, chosen).repartition(partitions, "slot")
            acks = second.mapInArrow(bare.count_task, "rows long, emitted long").collect()
            if sum(ack.rows for ack in acks) != dataset.rows_per_epoch:
                raise AssertionError(f"wanted {dataset.rows_per_epoch} rows, got {acks}")

        return run_to_end(dataset.stream(spark).writeStream.foreachBatch(epoch), work)

    return run


def _group_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first function without a state."""
    import pyarrow

    counts: dict[str, int] = {}

    def process(row: Any) -> Iterator[tuple[str, int]]:
        count = counts[row.key] = counts.get(row.key, 0) + 1
        yield f"g{hash(row.key) % GROUPS}", count

    for _, out in bare.call_for_each_row(batches, process):
        keys, numbers = zip(*out) if out else ((), ())
        yield pyarrow.RecordBatch.from_arrays(
            [pyarrow.array(keys, pyarrow.string()), pyarrow.array(numbers, pyarrow.int64())], names=["key", "value"]
        )
