"""Rows per second of one unchanged `StatefulProcessor`: Spark's `transformWithState` against `tg.transform_with_state`.

The processors are those of `benchmarks.contestants.transform_with_state`: one reads and updates its state for every row, the
other once for all rows of a key. Spark takes so much longer that it gets fewer rows an epoch, over as many fewer keys: both
have the same number of rows for each key and epoch.
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
from benchmarks.contestants import transform_with_state
from benchmarks.contestants.transform_with_state import row_counter
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repetitions: int = 3
    keys: int = 50_000
    rows_per_epoch: int = 1_000_000
    epochs: int = 4
    warm_up: int = 2
    slow_share: int = 10
    """Spark gets one of this many rows, and of this many keys."""
    slow_epochs: int = 2


QUICK = Size(repetitions=1, keys=2_000, rows_per_epoch=40_000, epochs=2, warm_up=1)
FILES_PER_EPOCH = 4


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure every contestant, or those that `only` names."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    fast = [
        _tidegate("tidegate-rocksdb", partitions, "rocksdb"),
        _tidegate("tidegate-hashmap", partitions, "hashmap"),
        _tidegate("tidegate-rocksdb-per-key", partitions, "rocksdb", grouped=True),
    ]
    slow, skipped = [transform_with_state.per_row(), transform_with_state.per_key()], {}
    if why := transform_with_state.missing():
        slow, skipped = [], {contestant.name: why for contestant in slow}

    def prepare(work: Path) -> tuple[Dataset, Dataset]:
        share = size.slow_share
        return (
            _dataset(work / "large", size.rows_per_epoch, size.keys, size.epochs, size.warm_up),
            _dataset(work / "slower", size.rows_per_epoch // share, size.keys // share, size.slow_epochs, 1),
        )

    with opened(partitions, prepare) as (bench, (large, slower)):
        each = [(c, large) for c in fast] + [(c, slower) for c in slow]
        samples = {c.name: bench.rate(c, data) for c, data in each if only is None or c.name in only}
        rates = harness.interleave(samples, rounds, unit="rows/s")
    spark = "transform-with-state"
    ratios = {
        "rocksdb / Spark": harness.ratio(rates, "tidegate-rocksdb", spark, at_least=20),
        "hashmap / Spark": harness.ratio(rates, "tidegate-hashmap", spark, at_least=20),
        "rocksdb per key / Spark per key": harness.ratio(rates, "tidegate-rocksdb-per-key", f"{spark}-per-key"),
    }
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions},
        "notes": [
            "The same processor object runs on both engines.",
            f"Spark got 1/{size.slow_share} of the {size.rows_per_epoch} rows an epoch and of the {size.keys} keys.",
            "Smaller epochs disfavour Spark, whose fixed costs weigh more.",
            "Ratios are medians of the ratios of each round.",
        ],
        "figures": {f"rate {name}": figure.as_json() for name, figure in rates.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        "skipped": skipped,
        "epochs": bench.as_json(),
    }


def _dataset(directory: Path, rows: int, keys: int, epochs: int, warm_up: int) -> Dataset:
    return streams.prepare(
        directory, rows_per_epoch=rows, files_per_epoch=FILES_PER_EPOCH, epochs=epochs, warm_up=warm_up, keys=keys
    )


def _tidegate(name: str, partitions: int, backend: str, *, grouped: bool = False) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("transform-with-state", parallelism=partitions)
        counted = tg.transform_with_state(
            job.source("rows", dataset.stream(spark)).key_by("key"),
            row_counter(grouped=grouped),
            uid="count",
            outputStructType="key string, count long",
            outputMode="Update",
            timeMode="None",
        )
        counted.sink("out", tg.DiscardSink())
        running = job.start(spark, trigger="available-now", state_backend=backend, options={"local_dir": str(work)})
        running.await_termination()
        assert running.counters == type(running.counters)(), f"epochs were repeated: {running.counters}"
        read, emitted = map(sum, zip(*(report.operators.get("count", (0, 0)) for report in running.reports)))
        assert read == emitted == sum(report.rows_in for report in running.reports), (read, emitted)
        return epochs_of(running.query)

    return Contestant(name, run)
