"""Spark SQL's own stateful count: no Python at all, state in its RocksDB store, one output row per key and epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.streams import Contestant, Dataset, Epoch, run_to_end

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def contestant() -> Contestant:
    """`groupBy("key").count()` in update mode."""

    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        counts = dataset.stream(spark).groupBy("key").count()
        return run_to_end(counts.writeStream.outputMode("update").foreachBatch(drop), work)

    return Contestant("spark-sql", run)


def drop(batch: DataFrame, _: int) -> None:
    """Compute everything, keep nothing."""
    batch.write.format("noop").mode("overwrite").save()
