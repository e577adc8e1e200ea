"""Timers registered and fired per second: tidegate against Spark's `transformWithState` timers, and timers in RocksDB against
timers on the heap.

Every row registers one event-time timer, a moment after its own time, and every epoch fires those that the epoch before
registered: in the steady state an epoch registers as many as it fires. Spark's timers take so much longer that they get
fewer rows an epoch, over the same keys.

The heap is `state.backend.rocksdb.timer-service.factory: heap`. It is compared three times: in the job above; in the same job
with few rows in an epoch, by the time of an epoch; and in the state of one task without Spark (`benchmarks.few_timers`).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams
from benchmarks.bench import Bench, opened
from benchmarks.contestants import transform_with_state
from benchmarks.few_timers import FACTORY, FIRING, few_timers
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

AFTER_MS = 1_000
SMALL_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: a million timers after the warm-up, of Spark's a fraction."""

    repetitions: int = 3
    keys: int = 50_000
    rows_per_epoch: int = 250_000
    epochs: int = 6
    warm_up: int = 2
    slow_rows_per_epoch: int = 20_000
    slow_epochs: int = 3
    small_epochs: int = 26
    small_warm_up: int = 6
    few_epochs: int = 30
    waiting: tuple[int, ...] = (0, 1_000, 10_000, 100_000)


QUICK = Size(
    repetitions=1, keys=1_000, rows_per_epoch=20_000, epochs=3, warm_up=1, slow_rows_per_epoch=1_000, small_epochs=4,
    small_warm_up=1, few_epochs=3, waiting=(0, 1_000),
)  # fmt: skip
FILES_PER_EPOCH = 4


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure every contestant, or those that `only` names. `small` is the job with small epochs, `few` the state alone."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    skipped: dict[str, str] = {}
    fast = [
        _tidegate("tidegate-rocksdb", partitions, "rocksdb"),
        _tidegate("tidegate-rocksdb-heap", partitions, "rocksdb", {FACTORY: "heap"}),
        _tidegate("tidegate-hashmap", partitions, "hashmap"),
    ]
    slow = [Contestant("transform-with-state", _transform_with_state)]
    if why := transform_with_state.missing():
        skipped, slow = {"transform-with-state": why}, []

    def prepare(work: Path) -> tuple[Dataset, Dataset, Dataset]:
        return (
            _dataset(work / "large", size, size.rows_per_epoch, size.epochs, size.warm_up),
            _dataset(work / "slower", size, size.slow_rows_per_epoch, size.slow_epochs, 1),
            _dataset(work / "small", size, SMALL_ROWS, size.small_epochs, size.small_warm_up),
        )

    def chosen(name: str) -> bool:
        return only is None or name in only

    with opened(partitions, prepare) as (bench, (large, slower, small)):
        each = [(c, large) for c in fast] + [(c, slower) for c in slow]
        samples = {c.name: bench.rate(c, data) for c, data in each if chosen(c.name)}
        rates = harness.interleave(samples, rounds, unit="timers/s")
        every_small = {c.name: _small(bench, c, small) for c in fast[:2] if chosen("small")}
        epochs = harness.interleave(every_small, rounds, what="small epoch", unit="ms")
    few = few_timers(size.few_epochs, size.waiting) if chosen("few") else {}
    ratios = {
        "rocksdb / transformWithState": harness.ratio(rates, "tidegate-rocksdb", "transform-with-state", at_least=20),
        "hashmap / transformWithState": harness.ratio(rates, "tidegate-hashmap", "transform-with-state"),
        "many timers, rate: heap / rocksdb": harness.ratio(rates, "tidegate-rocksdb-heap", "tidegate-rocksdb"),
        f"epoch of {SMALL_ROWS} rows: heap / rocksdb": harness.ratio(
            epochs, "tidegate-rocksdb-heap", "tidegate-rocksdb"
        ),
    }
    cases = dict.fromkeys(name.rpartition(", ")[0] for name in few)
    ratios |= {
        f"{FIRING} timers, {case}: heap / rocksdb": harness.ratio(few, f"{case}, heap", f"{case}, rocksdb")
        for case in cases
    }
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions},
        "notes": [
            f"transformWithState took epochs of {size.slow_rows_per_epoch} rows, tidegate of {size.rows_per_epoch}.",
            "A timer counts once: the epochs measured register and fire the same number.",
            "Ratios are medians of the ratios of each round.",
        ],
        "figures": {f"rate {name}": figure.as_json() for name, figure in rates.items()}
        | {f"epoch of {SMALL_ROWS} rows {name}": figure.as_json() for name, figure in epochs.items()}
        | {f"processor for {FIRING} timers, {name}": figure.as_json() for name, figure in few.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        "skipped": skipped,
        "epochs": bench.as_json(),
    }


def _dataset(directory: Path, size: Size, rows: int, epochs: int, warm_up: int) -> Dataset:
    return streams.prepare_timed(
        directory, rows_per_epoch=rows, files_per_epoch=FILES_PER_EPOCH, epochs=epochs, warm_up=warm_up,
        keys=size.keys, epoch_seconds=60,
    )  # fmt: skip


def _small(bench: Bench, contestant: Contestant, dataset: Dataset) -> Callable[[], float]:
    """The usual time of a small epoch, in milliseconds."""
    return lambda: statistics.median(e.seconds * 1000 for e in bench.epochs("small", contestant, dataset))


class Remind(tg.KeyedProcessFunction):
    """A timer for every row, a row for every timer."""

    def process_element(self, row, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + AFTER_MS)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


def _tidegate(name: str, partitions: int, backend: str, options: Mapping[str, str] | None = None) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("timers", parallelism=partitions)
        rows = job.source("rows", dataset.stream(spark), event_time="ts")
        reminded = rows.key_by("key").process("remind", Remind(), schema="key string, at bigint")
        reminded.sink("out", tg.DiscardSink())
        running = job.start(
            spark, trigger="available-now", state_backend=backend, options={"local_dir": str(work), **(options or {})}
        )
        running.await_termination()
        fired = sum(report.operators.get("remind", (0, 0))[1] for report in running.reports)
        _check_fired(fired, dataset)
        return epochs_of(running.query)

    return Contestant(name, run)


def _transform_with_state(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Reminding(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any = None) -> Iterator[Row]:
            for row in rows:
                self.handle.registerTimer(int(row.ts.timestamp() * 1000) + AFTER_MS)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            from pyspark.sql import Row

            yield Row(key=key[0], at=expiredTimerInfo.getExpiryTimeInMs())

        def close(self) -> None:
            pass

    fired = []

    def count(batch: Any, number: int) -> None:
        fired.append(batch.count())

    reminded = (
        dataset.stream(spark)
        .withWatermark("ts", "0 seconds")
        .groupBy("key")
        .transformWithState(Reminding(), "key string, at long", outputMode="Append", timeMode="EventTime")
    )
    epochs = run_to_end(reminded.writeStream.outputMode("append").foreachBatch(count), work)
    _check_fired(sum(fired), dataset)
    return epochs


def _check_fired(fired: int, dataset: Dataset) -> None:
    """All but the last epochs' timers must have fired: a contestant that fires none would look fast."""
    rows = dataset.rows_per_epoch * dataset.epochs
    if not 0.9 * (rows - 2 * dataset.rows_per_epoch) <= fired <= rows:
        raise AssertionError(f"{rows} timers were registered, and {fired} fired")
