"""tidegate itself: the count as a user would write it, on each state backend, and with more or less measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tidegate as tg
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of
from tidegate.metrics.native import NATIVE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


class Counter(tg.KeyedProcessFunction):
    """What a user would write: one generator function, called once for each row."""

    counts = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        count = self.counts.value() + 1
        self.counts.update(count)
        yield row.key, count


UNMEASURED = {"metrics.tasks.enabled": False}
EVERYTHING = {f"state.backend.rocksdb.metrics.{name}": True for name in NATIVE}
LATENCY = {**EVERYTHING, "state.latency-track.keyed-state-enabled": True}


def contestants(partitions: int) -> list[Contestant]:
    """What is measured by default; on RocksDB also nothing, all metrics of RocksDB, and sampled state accesses as well."""
    return [
        _contestant("tidegate-rocksdb", "rocksdb", partitions, {}),
        _contestant("tidegate-hashmap", "hashmap", partitions, {}),
        _contestant("rocksdb-unmeasured", "rocksdb", partitions, UNMEASURED),
        _contestant("rocksdb-all-metrics", "rocksdb", partitions, EVERYTHING),
        _contestant("rocksdb-state-latency", "rocksdb", partitions, LATENCY),
    ]


def _contestant(name: str, backend: str, partitions: int, measured: Mapping[str, bool]) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("keyed-count", parallelism=partitions)
        rows = job.source("rows", dataset.stream(spark))
        rows.key_by("key").process("count", Counter(), schema="key string, n bigint").sink("out", tg.DiscardSink())
        running = job.start(
            spark, trigger="available-now", state_backend=backend, options={"local_dir": str(work), **measured}
        )
        running.await_termination()
        assert running.counters == type(running.counters)(), f"epochs were repeated: {running.counters}"
        return epochs_of(running.query)

    return Contestant(name, run)
