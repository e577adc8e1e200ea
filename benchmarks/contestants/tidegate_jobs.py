"""tidegate itself: the count as a user would write it, on each state backend, and with more or less measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tidegate as tg
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of
from tidegate.metrics.native import NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tidegate.api.streams import Stream


class Counter(tg.KeyedProcessFunction):
    """What a user would write: one generator function, called once for each row."""

    counts = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        count = self.counts.value() + 1
        self.counts.update(count)
        yield row.key, count


class BatchCounter(tg.KeyedBatchFunction):
    """The same over whole batches: one row for each key of a batch."""

    counts = tg.ValueState(int, default=0)

    def process_batch(self, batch, keys, ctx):
        counts = self.counts.values(keys) + keys.counts()
        self.counts.update_all(keys, counts)
        yield {"key": keys.distinct, "n": counts}


def by_row(rows: Stream) -> Stream:
    return rows.key_by("key").process("count", Counter(), schema="key string, n bigint")


def by_batch(rows: Stream) -> Stream:
    return rows.key_by("key").process("count", BatchCounter(), schema="key string, n bigint")


def built_in(rows: Stream) -> Stream:
    return rows.key_by("key").aggregate("count", n=tg.count())


UNMEASURED = {"metrics.tasks.enabled": False}
EVERYTHING = {f"state.backend.rocksdb.metrics.{name}": True for name in NATIVE}
LATENCY = {**EVERYTHING, "state.latency-track.keyed-state-enabled": True}


def contestants(partitions: int) -> list[Contestant]:
    """A function over rows with what is measured by default; on RocksDB also with nothing, all metrics of RocksDB, and sampled
    state accesses as well. A function over batches, and the built-in aggregate.
    """
    return [
        _contestant("batch-function", "rocksdb", partitions, {}, by_batch),
        _contestant("aggregate", "rocksdb", partitions, {}, built_in),
        _contestant("tidegate-rocksdb", "rocksdb", partitions, {}),
        _contestant("tidegate-hashmap", "hashmap", partitions, {}),
        _contestant("rocksdb-unmeasured", "rocksdb", partitions, UNMEASURED),
        _contestant("rocksdb-all-metrics", "rocksdb", partitions, EVERYTHING),
        _contestant("rocksdb-state-latency", "rocksdb", partitions, LATENCY),
    ]


def _contestant(
    name: str,
    backend: str,
    partitions: int,
    measured: Mapping[str, bool],
    counted: Callable[[Stream], Stream] = by_row,
) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("keyed-count", parallelism=partitions)
        counted(job.source("rows", dataset.stream(spark))).sink("out", tg.DiscardSink())
        running = job.start(
            spark, trigger="available-now", state_backend=backend, options={"local_dir": str(work), **measured}
        )
        running.await_termination()
        assert running.counters == type(running.counters)(), f"epochs were repeated: {running.counters}"
        return epochs_of(running.query)

    return Contestant(name, run)
