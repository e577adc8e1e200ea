"""The anchor: a tiny cached DataFrame that keeps every partition of a job on the executor it started on.

Unioned with each level's input, partition by partition, it makes Spark prefer the executor that holds its cached block.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import EpochId, HostId, Lineage, TaskId
from tidegate.runtime.exchange.progress_marks import MarkPlace
from tidegate.runtime.job_label import placement_label
from tidegate.runtime.placement.executor_quota import Quotas, ballast, hold_core
from tidegate.runtime.placement.local_versions import LocalVersions
from tidegate.runtime.placement.placement_check import Arrived, PlacementCheck
from tidegate.state.disk import left_lineages
from tidegate.state.disk.disk_token import note_start
from tidegate.state.disk.local_root import LocalRoot
from tidegate.state.keys.key_groups import salts
from tidegate.storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROBED = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("host", pa.string()),
        pa.field("found", pa.list_(pa.string())),
        pa.field("checked", pa.list_(pa.list_(pa.int32()))),
        pa.field("anchors", pa.int32()),
    ]
)
_PROBED_DDL = "partition int, host string, found array<string>, checked array<array<int>>, anchors int"
log = logging.getLogger("tidegate")

_MARKED_S = 1.0
"""A host whose tasks start together leaves one mark in this time."""


@dataclass(frozen=True, slots=True)
class Anchor:
    frame: DataFrame
    layout: tuple[HostId, ...]
    """The host of each partition."""
    salts: tuple[int, ...]
    """For each partition, an integer that Spark's hash maps to it."""
    found: Mapping[TaskId, HostId] = field(default_factory=dict)
    """The hosts that have versions which a restore looks for."""

    def join(self, rows: DataFrame) -> DataFrame:
        """Return `rows`, which have a column `part`, in their partitions, each on its own host."""
        schema: StructType = rows.schema
        # The union needs equal columns. The anchor's row is recognized by its nulls, and dropped in the task.
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields[1:]]
        return rows.repartition(len(self.salts), F.col("part")).union(self.frame.select(F.col("part"), *nulls))

    def forget(self, job: str, lineage: Lineage, local_dir: str | None, leave: bool = False) -> None:
        """Remove a lineage's versions from every host that has a partition, or `leave` them there for the next run."""
        self.frame.mapInArrow(_forget(job, lineage, local_dir, leave), "host string").toArrow()

    def unpersist(self) -> None:
        try:
            self.frame.unpersist()
        except Exception:
            # Its executors may be gone, and a leftover cache is no reason to fail.
            pass


@dataclass(frozen=True, slots=True)
class PlacementMarks:
    """The marks that the first tasks on an anchor leave: their Python workers have started."""

    place: MarkPlace
    id: EpochId
    after_s: float
    """Before this moment, in seconds since 1970, nobody looks for marks: most placements end earlier. If the clocks of two hosts
    differ, marks begin earlier or later."""

    def leave(self) -> None:
        """In a worker."""
        if time.time() < self.after_s:
            return
        try:
            self.place.leave(self.id, _MARKED_S)
        except (OSError, StorageError) as error:
            log.info("the placement of a task could not be reported: %s", error)

    def take(self) -> bool:
        """In the driver: return whether there are new marks."""
        return self.place.of(self.id).take()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the first job on an anchor does on each host, besides reporting it."""

    versions: LocalVersions
    """What it looks for. The lineage is in use from now on, also if that is nothing."""
    local_dir: str | None
    spread_ms: int
    """How long each of its tasks waits, so that they spread over the executors."""
    quotas: Quotas | None = None
    """These steer where its tasks run."""
    retention_s: float = 24 * 3600
    """Versions on the host that no run has used for longer are removed."""
    marks: PlacementMarks | None = None
    checks_spark: bool = False
    """Whether rows travel with it that show what Spark does with rows."""

    def run(self) -> tuple[HostId, list[TaskId]]:
        """In a worker: return the host, and the tasks whose versions it has."""
        root = LocalRoot.open(self.local_dir)
        # Before any version is looked at: it decides whether versions on this disk are trusted without their checksums (decision
        # 0033).
        note_start(root.path)
        # Before the sweep, which would otherwise remove what this run is about to use.
        found = self.versions.claim_on(root)
        own = root.lineage_directory(self.versions.job, self.versions.lineage)
        left_lineages.sweep_if_due(root, self.retention_s, own)
        if self.marks is not None:
            self.marks.leave()
        # Spark gives a second task to an executor that is free again sooner than to one that is still starting.
        if self.quotas is None:
            time.sleep(self.spread_ms / 1000)
        else:
            hold_core(root.path, root.host, self.quotas)
        return root.host, found


def create_anchor(spark: SparkSession, parallelism: int, probe: Probe) -> Anchor:
    """Place the partitions again. The first job on the anchor fills its cache, and reports the host of each partition."""
    numbers = salts(parallelism)

    # Spark finds cached data by its plan. A random id makes this plan unique: different from other
    # jobs' and from our previous one.
    ids = [uuid.uuid4().hex] * parallelism
    table = pa.table({"part": pa.array(numbers, pa.int32()), "id": pa.array(ids)})
    frame = spark.createDataFrame(table).repartition(parallelism, F.col("part")).cache()

    try:
        check = PlacementCheck(numbers, spark.version) if probe.checks_spark else None
        probed = frame if check is None else Anchor(frame, (), numbers).join(check.rows(spark))
        probing = probed.mapInArrow(_probing(probe), _PROBED_DDL)
        steered = (
            ballast(spark, parallelism, probe.local_dir, probe.quotas) if probe.quotas is not None else nullcontext()
        )
        with placement_label(probe.versions.job).on(spark), steered:
            rows = probing.toArrow().to_pylist()
        if check is not None:
            check.verify({row["partition"]: Arrived(row["checked"], row["anchors"]) for row in rows})
        layout = {row["partition"]: HostId(row["host"]) for row in rows}
        if sorted(layout) != list(range(parallelism)):
            raise ProtocolViolation(f"The anchor lies in partitions {sorted(layout)} instead of {parallelism}.")
    except BaseException:
        # Its blocks would stay on the executors as long as the session lives.
        frame.unpersist()
        raise

    names = {str(task): task for task in probe.versions.wanted}
    found = {names[name]: HostId(row["host"]) for row in rows for name in row["found"]}
    return Anchor(frame, tuple(layout[p] for p in range(parallelism)), numbers, found)


def _forget(job: str, lineage: Lineage, local_dir: str | None, leave: bool) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def forget(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        root = LocalRoot.open(local_dir)
        if leave:
            left_lineages.leave(root, job, lineage)
        else:
            shutil.rmtree(root.lineage_directory(job, lineage), ignore_errors=True)
        yield from ()

    return forget


def _probing(probe: Probe) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 in the worker

        checked: list[list[int] | None] = []
        for batch in batches:
            if probe.checks_spark:
                checked += batch.column("checked").to_pylist()
        host, found = probe.run()
        context = TaskContext.get()
        assert context is not None
        row = {
            "partition": context.partitionId(),
            "host": host,
            "found": [str(task) for task in found],
            "checked": [each for each in checked if each is not None],
            "anchors": checked.count(None),
        }
        yield pa.RecordBatch.from_pylist([row], schema=_PROBED)

    return run
