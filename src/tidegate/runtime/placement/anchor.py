"""The anchor: a tiny cached DataFrame that keeps every partition of a job on the executor it started on.

Unioned with each level's input, partition by partition, it makes Spark prefer the executor that holds its cached block.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import HostId, Lineage
from tidegate.runtime.placement.executor_quota import Quotas, ballast, hold_core
from tidegate.state.key_groups import salts

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROBED = pa.schema([pa.field("partition", pa.int32()), pa.field("host", pa.string())])


@dataclass(frozen=True, slots=True)
class Anchor:
    frame: DataFrame
    layout: tuple[HostId, ...]
    """The host of each partition."""
    salts: tuple[int, ...]
    """For each partition, an integer that Spark's hash maps to it."""

    def join(self, rows: DataFrame) -> DataFrame:
        """Return `rows`, which have a column `part`, in their partitions, each on its own host."""
        schema: StructType = rows.schema
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields[1:]]
        return rows.repartition(len(self.salts), F.col("part")).union(self.frame.select(F.col("part"), *nulls))

    def forget(self, job: str, lineage: Lineage, local_dir: str | None) -> None:
        """Remove a lineage's versions from every host that has a partition."""
        self.frame.mapInArrow(_forget(job, lineage, local_dir), "partition int, host string").toArrow()

    def release(self) -> None:
        try:
            self.frame.unpersist()
        except Exception:
            # Its executors may be gone, and a leftover cache is no reason to fail.
            pass


def drop_anchor(
    spark: SparkSession, parallelism: int, local_dir: str | None, spread_ms: int, quotas: Quotas | None = None
) -> Anchor:
    """Place the partitions again. The first job on the anchor fills its cache, spreads its tasks over the executors by
    letting each wait for `spread_ms`, and reports the host of each partition. `quotas` steer that placement.
    """
    numbers = salts(parallelism)
    # Spark finds cached data by its plan. A random id makes this plan unique: different from other
    # jobs' and from our previous one.
    ids = [uuid.uuid4().hex] * parallelism
    rows = pa.table({"part": pa.array(numbers, pa.int32()), "id": pa.array(ids)})
    frame = spark.createDataFrame(rows).repartition(parallelism, F.col("part")).cache()
    try:
        probe = frame.mapInArrow(_probe(local_dir, spread_ms, quotas), "partition int, host string")
        with ballast(spark, parallelism, local_dir, quotas) if quotas is not None else nullcontext():
            found = probe.toArrow()
        layout: dict[int, str] = dict(zip(found["partition"].to_pylist(), found["host"].to_pylist()))
        if sorted(layout) != list(range(parallelism)):
            raise ProtocolViolation(f"The anchor lies in partitions {sorted(layout)} instead of {parallelism}.")
    except BaseException:
        frame.unpersist()
        raise
    return Anchor(frame, tuple(HostId(layout[p]) for p in range(parallelism)), numbers)


def _forget(job: str, lineage: Lineage, local_dir: str | None) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def forget(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import shutil  # noqa: PLC0415 in the worker

        from tidegate.state.local_root import LocalRoot  # noqa: PLC0415 in the worker

        for _ in batches:
            pass
        shutil.rmtree(LocalRoot.open(local_dir).lineage_directory(job, lineage), ignore_errors=True)
        yield from ()

    return forget


def _probe(local_dir: str | None, spread_ms: int, quotas: Quotas | None) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time  # noqa: PLC0415 in the worker

        from pyspark import TaskContext  # noqa: PLC0415 in the worker

        from tidegate.state.local_root import LocalRoot  # noqa: PLC0415 in the worker

        for _ in batches:
            pass
        root = LocalRoot.open(local_dir)
        if quotas is None:
            time.sleep(spread_ms / 1000)
        else:
            hold_core(root.path, root.host, quotas)
        context = TaskContext.get()
        assert context is not None
        yield pa.RecordBatch.from_arrays(
            [pa.array([context.partitionId()], pa.int32()), pa.array([root.host], pa.string())], schema=_PROBED
        )

    return probe
