"""Rows per second of a count per key: tidegate, the engine bare, and Spark's own two ways, in one interleaved run.

Two measurements. *Rate*: epochs of a million rows over 50,000 keys; rows by seconds after the warm-up. *Small
epochs*: what an epoch of 1,000 rows costs, median over the epochs of a run. transformWithState is so much slower that
it gets smaller epochs of its own data, over the same keys. That is not neutral: fixed costs of an epoch weigh more, and
the variant that reads state once per key has fewer rows per key to share that read.

What measuring costs is a ratio of the same run, to the same job with nothing measured in its tasks.

tidegate's own contestants come from `benchmarks.contestants.tidegate_jobs`, which has `contestants(partitions)`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import harness, streams
from benchmarks.bench import Bench, opened
from benchmarks.contestants import bare, spark_sql, transform_with_state
from benchmarks.streams import Contestant, Dataset

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repetitions: int = 5
    keys: int = 50_000
    rows_per_epoch: int = 1_000_000
    epochs: int = 5
    warm_up: int = 2
    slow_rows_per_epoch: int = 300_000
    slow_epochs: int = 2
    small_epochs: int = 26
    small_warm_up: int = 6


QUICK = Size(
    repetitions=1,
    keys=5_000,
    rows_per_epoch=50_000,
    epochs=2,
    warm_up=1,
    slow_rows_per_epoch=10_000,
    small_epochs=6,
    small_warm_up=2,
)
SMALL_ROWS = 1_000
FILES_PER_EPOCH = 4


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure everything; `only` names contestants to keep, `repetitions` replaces the usual number of rounds."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    fast, slow, skipped = _contestants(partitions)
    if only is not None:
        fast, slow = ([c for c in group if c.name in only] for group in (fast, slow))
    with opened(partitions, lambda work: _datasets(work, size)) as (bench, (large, slower, small)):
        rates = harness.interleave(
            {c.name: bench.rate(c, large) for c in fast} | {c.name: bench.rate(c, slower) for c in slow},
            rounds,
            what="rate",
            unit="rows/s",
        )
        every_small = {c.name: _small(bench, c, small) for c in fast if c.name != "spark-sql"}
        epochs = harness.interleave(every_small, rounds, what="small epoch", unit="ms")
    figures = {f"rate {name}": figure.as_json() for name, figure in rates.items()}
    figures |= {f"epoch of {SMALL_ROWS} rows {name}": figure.as_json() for name, figure in epochs.items()}
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions},
        "notes": [
            f"transformWithState took epochs of {size.slow_rows_per_epoch} rows, the others of {size.rows_per_epoch}.",
            "Smaller epochs disfavour transformWithState, above all per key: fewer rows share one read of state.",
            f"Each sample of a small epoch is the median of {size.small_epochs - size.small_warm_up} epochs.",
            "Ratios are medians of the ratios of each round.",
        ],
        "figures": figures,
        "ratios": _ratios(rates, epochs),
        "skipped": skipped,
        "epochs": bench.as_json(),
    }


def _small(bench: Bench, contestant: Contestant, dataset: Dataset) -> Callable[[], float]:
    """The usual time of a small epoch, in milliseconds."""
    return lambda: statistics.median(e.seconds * 1000 for e in bench.epochs("small", contestant, dataset))


def _contestants(partitions: int) -> tuple[list[Contestant], list[Contestant], dict[str, str]]:
    """Those for the full data, those for less of it, and those that cannot run here, with the reason."""
    ours = "benchmarks.contestants.tidegate_jobs"
    skipped: dict[str, str] = {}
    fast: list[Contestant] = []
    if importlib.util.find_spec(ours) is not None:
        fast += importlib.import_module(ours).contestants(partitions)
    else:
        skipped["tidegate"] = f"there is no {ours}"
    fast += [bare.contestant(partitions), bare.no_op(partitions), spark_sql.contestant()]
    slow = [transform_with_state.per_row(), transform_with_state.per_key()]
    if why := transform_with_state.missing():
        skipped |= {contestant.name: why for contestant in slow}
        slow = []
    return fast, slow, skipped


def _datasets(work: Path, size: Size) -> tuple[Dataset, Dataset, Dataset]:
    def sized(name: str, rows: int, epochs: int, warm_up: int) -> Dataset:
        files = FILES_PER_EPOCH if rows > SMALL_ROWS else 1
        return streams.prepare(
            work / name,
            rows_per_epoch=rows,
            files_per_epoch=files,
            epochs=epochs,
            warm_up=warm_up,
            keys=size.keys,
        )

    return (
        # After a slow contestant the next one's first epoch took 16 s and its second twice the usual: skip both.
        sized("large", size.rows_per_epoch, size.epochs, size.warm_up),
        sized("slower", size.slow_rows_per_epoch, size.slow_epochs, 1),
        sized("small", SMALL_ROWS, size.small_epochs, size.small_warm_up),
    )


def _ratios(rates: dict[str, harness.Figure], epochs: dict[str, harness.Figure]) -> dict[str, Any]:
    """What the project wants of the figures."""
    slow, bare_of_metrics = "transform-with-state", "rocksdb-unmeasured"
    wanted = {
        "rocksdb / bare": harness.ratio(rates, "tidegate-rocksdb", "bare", at_least=0.8),
        "hashmap / bare": harness.ratio(rates, "tidegate-hashmap", "bare", at_least=0.85),
        "batch function / bare": harness.ratio(rates, "batch-function", "bare", at_least=1.2),
        "batch function / no-op task": harness.ratio(rates, "batch-function", "no-op", at_least=0.9),
        "aggregate / Spark SQL": harness.ratio(rates, "aggregate", "spark-sql", at_least=1.3),
        "rocksdb / transformWithState": harness.ratio(rates, "tidegate-rocksdb", slow, at_least=20),
        "rocksdb / transformWithState per key": harness.ratio(rates, "tidegate-rocksdb", f"{slow}-per-key"),
        "rocksdb / Spark SQL": harness.ratio(rates, "tidegate-rocksdb", "spark-sql"),
        "bare / transformWithState": harness.ratio(rates, "bare", slow),
        "bare / Spark SQL": harness.ratio(rates, "bare", "spark-sql"),
        "default metrics / none": harness.ratio(rates, "tidegate-rocksdb", bare_of_metrics, at_least=0.98),
        "all metrics / none": harness.ratio(rates, "rocksdb-all-metrics", bare_of_metrics, at_least=0.98),
        "sampled state access / none": harness.ratio(rates, "rocksdb-state-latency", bare_of_metrics, at_least=0.95),
        "small epoch all metrics / none": harness.ratio(epochs, "rocksdb-all-metrics", bare_of_metrics, at_most=1.02),
        "small epoch rocksdb / bare": harness.ratio(epochs, "tidegate-rocksdb", "bare", at_most=1.5),
        "small epoch hashmap / bare": harness.ratio(epochs, "tidegate-hashmap", "bare", at_most=1.5),
    }
    return {name: value for name, value in wanted.items() if value is not None}
