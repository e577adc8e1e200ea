"""Timers registered and fired per second: tidegate against Spark's `transformWithState` timers.

Every row registers one event-time timer, a moment after its own time, and every epoch fires those that the epoch before
registered: in the steady state an epoch registers as many as it fires. Spark's timers take so much longer that they get
fewer rows an epoch, over the same keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams
from benchmarks.bench import opened
from benchmarks.contestants import transform_with_state
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

AFTER_MS = 1_000


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


QUICK = Size(repetitions=1, keys=1_000, rows_per_epoch=20_000, epochs=3, warm_up=1, slow_rows_per_epoch=1_000)
FILES_PER_EPOCH = 4


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure every contestant, or those that `only` names."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    skipped: dict[str, str] = {}
    fast = [_tidegate("tidegate-rocksdb", partitions, "rocksdb"), _tidegate("tidegate-hashmap", partitions, "hashmap")]
    slow = [Contestant("transform-with-state", _transform_with_state)]
    if why := transform_with_state.missing():
        skipped, slow = {"transform-with-state": why}, []

    def prepare(work: Path) -> tuple[Dataset, Dataset]:
        large = _dataset(work / "large", size, size.rows_per_epoch, size.epochs, size.warm_up)
        return large, _dataset(work / "slower", size, size.slow_rows_per_epoch, size.slow_epochs, 1)

    with opened(partitions, prepare) as (bench, (large, slower)):
        each = [(c, large) for c in fast] + [(c, slower) for c in slow]
        samples = {c.name: bench.rate(c, data) for c, data in each if only is None or c.name in only}
        rates = harness.interleave(samples, rounds, unit="timers/s")
    ratios = {
        "rocksdb / transformWithState": harness.ratio(rates, "tidegate-rocksdb", "transform-with-state", at_least=20),
        "hashmap / transformWithState": harness.ratio(rates, "tidegate-hashmap", "transform-with-state"),
    }
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions},
        "notes": [
            f"transformWithState took epochs of {size.slow_rows_per_epoch} rows, tidegate of {size.rows_per_epoch}.",
            "A timer counts once: the epochs measured register and fire the same number.",
            "Ratios are medians of the ratios of each round.",
        ],
        "figures": {f"rate {name}": figure.as_json() for name, figure in rates.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        "skipped": skipped,
        "epochs": bench.as_json(),
    }


def _dataset(directory: Path, size: Size, rows: int, epochs: int, warm_up: int) -> Dataset:
    return streams.prepare_timed(
        directory, rows_per_epoch=rows, files_per_epoch=FILES_PER_EPOCH, epochs=epochs, warm_up=warm_up,
        keys=size.keys, epoch_seconds=60,
    )  # fmt: skip


class Remind(tg.KeyedProcessFunction):
    """A timer for every row, a row for every timer."""

    def process_element(self, row, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + AFTER_MS)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


def _tidegate(name: str, partitions: int, backend: str) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("timers", parallelism=partitions)
        rows = job.source("rows", dataset.stream(spark), event_time="ts")
        reminded = rows.key_by("key").process("remind", Remind(), schema="key string, at bigint")
        reminded.sink("out", tg.DiscardSink())
        running = job.start(spark, trigger="available-now", state_backend=backend, options={"local_dir": str(work)})
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
