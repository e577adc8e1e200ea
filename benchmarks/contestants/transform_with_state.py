"""Spark's `transformWithState`, row API, state in its RocksDB store. Spark's Python side of it needs protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.contestants.spark_sql import drop
from benchmarks.streams import Contestant, Dataset, Epoch, run_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import Row, SparkSession


def per_row() -> Contestant:
    """Reads and updates the state for every row, as the other contestants' function does."""
    return Contestant("transform-with-state", _runner(grouped=False))


def per_key() -> Contestant:
    """Reads and updates the state once per key and epoch: Spark hands over all rows of a key at once."""
    return Contestant("transform-with-state-per-key", _runner(grouped=True))


def missing() -> str | None:
    """Why this cannot run here, or None."""
    try:
        import google.protobuf.descriptor  # noqa: F401
    except ImportError:
        return "protobuf is not installed; Spark's transformWithState needs it in Python"
    return None


def row_counter(*, grouped: bool = False) -> Any:
    """The processor: reads and updates the state for every row, or once for all rows of a key."""
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class PerRow(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timer_values: Any = None) -> Iterator[Row]:
            from pyspark.sql import Row

            for _ in rows:
                stored = self.count.get()
                count = (stored[0] if stored is not None else 0) + 1
                self.count.update((count,))
                yield Row(key=key[0], count=count)

        def close(self) -> None:
            pass

    class PerKey(PerRow):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timer_values: Any = None) -> Iterator[Row]:
            from pyspark.sql import Row

            stored = self.count.get()
            count = stored[0] if stored is not None else 0
            for _ in rows:
                count += 1
                yield Row(key=key[0], count=count)
            self.count.update((count,))

    return PerKey() if grouped else PerRow()


def _runner(*, grouped: bool) -> Any:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        counts = (
            dataset.stream(spark)
            .groupBy("key")
            .transformWithState(
                row_counter(grouped=grouped), "key string, count long", outputMode="Update", timeMode="None"
            )
        )
        return run_to_end(counts.writeStream.outputMode("update").foreachBatch(drop), work)

    return run
