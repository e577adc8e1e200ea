"""Data for stream benchmarks, prepared once, and the way every contestant's epochs are timed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = "key string, value long"
TIMED_COLUMNS = "key string, ts timestamp, value long"
FIRST_US = 1_700_000_040_000_000
"""When the rows of timed datasets begin: a full minute."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Parquet files of `key string, value long`, or other columns, of which a stream takes `files_per_epoch` at a time."""

    directory: Path
    rows_per_epoch: int
    files_per_epoch: int
    epochs: int
    warm_up: int
    columns: str = COLUMNS

    def stream(self, spark: SparkSession) -> DataFrame:
        """The files as a stream that gives one epoch of `rows_per_epoch` rows after the other."""
        reader = spark.readStream.schema(self.columns).option("maxFilesPerTrigger", self.files_per_epoch)
        return reader.parquet(str(self.directory))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch: how many rows it took in, and how long it took from trigger to trigger's end."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Contestant:
    """Counts per key over a dataset, emits (key, count) for every row, and drops what it emits.

    `run(spark, dataset, work)` processes the whole dataset as a stream, in `work` as its private directory, and returns
    its epochs in order, warm-up included.
    """

    name: str
    run: Callable[[SparkSession, Dataset, Path], list[Epoch]]


def prepare(
    directory: Path, *, rows_per_epoch: int, files_per_epoch: int, epochs: int, warm_up: int, keys: int, seed: int = 7
) -> Dataset:
    """Write the files of a dataset: keys `user-0` to `user-{keys - 1}`, uniformly at random, the same for each seed."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    names = pa.array([f"user-{i}" for i in range(keys)])
    random = np.random.default_rng(seed)
    rows = rows_per_epoch // files_per_epoch
    for number in range(epochs * files_per_epoch):
        chosen = random.integers(0, keys, rows)
        columns = {"key": names.take(pa.array(chosen)), "value": random.integers(0, 1 << 40, rows)}
        pq.write_table(pa.table(columns), directory / f"part-{number:05}.parquet")
    return Dataset(directory, rows * files_per_epoch, files_per_epoch, epochs, warm_up)


def prepare_timed(
    directory: Path, *, rows_per_epoch: int, files_per_epoch: int, epochs: int, warm_up: int, keys: int,
    epoch_seconds: int, disorder_seconds: float = 0.0, hot_share: float = 0.0, seed: int = 7,
) -> Dataset:  # fmt: skip
    """Write a dataset with a column `ts` besides: event time goes on by `epoch_seconds` an epoch, rows are up to
    `disorder_seconds` behind it. `hot_share` of all rows have the key `user-0`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    names = pa.array([f"user-{i}" for i in range(keys)])
    random = np.random.default_rng(seed)
    rows = rows_per_epoch // files_per_epoch
    file_us = epoch_seconds * 1_000_000 // files_per_epoch
    for number in range(epochs * files_per_epoch):
        times = FIRST_US + number * file_us + np.linspace(0, file_us, rows, endpoint=False).astype(np.int64)
        times = times - random.integers(0, max(1, int(disorder_seconds * 1_000_000)), rows)
        chosen = random.integers(0, keys, rows)
        if hot_share:
            chosen[random.random(rows) < hot_share] = 0
        columns = {
            "key": names.take(pa.array(chosen)),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "value": random.integers(0, 1 << 40, rows),
        }
        pq.write_table(pa.table(columns), directory / f"part-{number:05}.parquet")
    return Dataset(directory, rows * files_per_epoch, files_per_epoch, epochs, warm_up, TIMED_COLUMNS)


def session(partitions: int, more: Mapping[str, str] | None = None) -> SparkSession:
    """A local session on all cores with the settings that tidegate asks for: all contestants share one engine."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.locality.wait": "10s",
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        **(more or {}),
    }
    builder = SparkSession.builder.master("local[*]").appName("tidegate-benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run_to_end(writer: DataStreamWriter, work: Path) -> list[Epoch]:
    """Start a query that takes all there is, wait for its end, and return its epochs."""
    query = writer.option("checkpointLocation", str(work / "query")).trigger(availableNow=True).start()
    query.awaitTermination()
    return epochs_of(query)


def epochs_of(query: StreamingQuery) -> list[Epoch]:
    """The epochs of a query as Spark itself timed them."""
    return [Epoch(p.numInputRows, p.batchDuration / 1000) for p in query.recentProgress if p.numInputRows]


def measured(dataset: Dataset, epochs: list[Epoch]) -> list[Epoch]:
    """The epochs after the warm-up. Raises if the contestant did not see exactly the dataset."""
    if [epoch.rows for epoch in epochs] != [dataset.rows_per_epoch] * dataset.epochs:
        raise AssertionError(f"wanted {dataset.epochs} epochs of {dataset.rows_per_epoch} rows, got {epochs}")
    return epochs[dataset.warm_up :]
