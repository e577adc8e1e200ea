"""Writes what an import carries over as a savepoint.

1. The notes of the sources are stored in a temporary directory: the savepoint copies them.
2. Each state is read from Spark's state store, partition by partition, and written as tables. If the query has
   run another batch meanwhile, the import fails.
3. `_metadata` is written. From here on the savepoint exists. A crash before leaves files without it, which is no savepoint.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any

from tidegate.api.job import Job
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, SplitTime
from tidegate.control.spark_import.carried_state import CarriedState, ImportRefused
from tidegate.control.spark_import.import_plan import ImportPlan
from tidegate.core.ids import EpochId, Lineage, Term
from tidegate.graph.model import Process, Source
from tidegate.graph.parallelism import default_max_parallelism
from tidegate.runtime.sources.source_notes import store_notes
from tidegate.runtime.sources.stopped_query import StoppedQuery
from tidegate.savepoint.additions import Addition
from tidegate.savepoint.copy import Copied, copy_snapshot
from tidegate.savepoint.entries import StateEntry, StateLayout
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage import Storage, open_storage

_REPORT_EVERY = 10_000

Report = Callable[[CarriedState, int], None]
"""Called with a state and how many of its entries have been read."""


def write_import(
    query: StoppedQuery, job: Job, plan: ImportPlan, spark: Any, target: Storage, report: Report
) -> Copied:
    """Write the savepoint from which the job continues where the query stopped."""
    nodes = {node.uid: node for node in job.graph().stateful if isinstance(node, Process)}
    additions = [
        Addition(
            uid=str(state.uid),
            state=state.spec.name,
            key=_key(nodes[state.uid]),
            contents=_Contents(query, state, spark, report),
            windowed=state.spec.windowed,
            **_described(state),
        )
        for state in plan.states
    ]
    with tempfile.TemporaryDirectory(prefix="tidegate-import-") as folder:
        notes = open_storage(folder)
        metadata = _metadata(query, job, plan, notes)
        base = StoredSnapshot(notes, "", metadata, notes.url)
        _check_stopped(query, spark)
        return copy_snapshot(base, target, additions=additions)


def _check_stopped(query: StoppedQuery, spark: Any) -> None:
    if query.has_gone_on(spark):
        raise ImportRefused(
            f"The query of {query.path} has finished another batch meanwhile, so it is running. Stop it and import again."
        )


class _Contents:
    """The entries of one state, read from Spark when the savepoint is written."""

    def __init__(self, query: StoppedQuery, state: CarriedState, spark: Any, report: Report) -> None:
        self._query = query
        self._state = state
        self._spark = spark
        self._report = report

    def __call__(self, layout: StateLayout) -> Iterator[StateEntry]:
        state = self._state
        with self._query.state(self._spark, state.operator, state.options) as frame:
            # One partition at a time, with the next one on its way: state may exceed the memory of the driver.
            rows = frame.select(*state.columns).toLocalIterator(prefetchPartitions=True)
            yield from self._counted(state.entries(layout, rows))
        _check_stopped(self._query, self._spark)

    def _counted(self, entries: Iterable[StateEntry]) -> Iterator[StateEntry]:
        count = 0
        for count, entry in enumerate(entries, 1):
            yield entry
            if count % _REPORT_EVERY == 0:
                self._report(self._state, count)
        self._report(self._state, count)


def _metadata(query: StoppedQuery, job: Job, plan: ImportPlan, notes: Storage) -> CheckpointMetadata:
    # Before every claim: the first one of the job is 1.
    epoch = EpochId(Term(0), 0)
    about = {"batchWatermarkMs": 0, "batchTimestampMs": query.clock_ms, "conf": {}}
    positions, files = store_notes(
        storage=notes,
        root="",
        folder="notes",
        checkpoint_id=0,
        epoch=epoch,
        uids=[match.source.uid for match in plan.sources],
        sources=[query.sources[match.place] for match in plan.sources],
        batch=json.dumps(about),
    )
    return CheckpointMetadata(
        job=job.name,
        lineage=Lineage(uuid.uuid4().hex),
        checkpoint_id=0,
        term=epoch.term,
        epoch=epoch,
        kind=SnapshotKind.SAVEPOINT,
        triggered_ms=query.clock_ms,
        completed_ms=query.clock_ms,
        tidegate_version=version("tidegate"),
        spark_version="",
        max_parallelism=job.max_parallelism or default_max_parallelism(job.parallelism or 2 * (os.cpu_count() or 2)),
        parallelism=job.parallelism or max((operator.partitions for operator in query.operators), default=1),
        clock_ms=query.clock_ms,
        # Spark's watermark is the first time that is not late, tidegate's the last that is.
        watermark_ms=None if query.watermark_ms is None else query.watermark_ms - 1,
        splits=tuple(_split_times(query, [match.source for match in plan.sources])),
        positions=positions,
        query=files,
    )


def _split_times(query: StoppedQuery, sources: Iterable[Source]) -> Iterator[SplitTime]:
    """Yield the event time that gives each source the watermark which Spark's next batch would have had."""
    for source in sources:
        if query.next_watermark_ms is not None and source.event_time is not None and source.generator is None:
            yield SplitTime(source.uid, "", query.next_watermark_ms + source.out_of_orderness_ms)


def _key(node: Process) -> tuple[str, ...]:
    schema = node.input.schema
    return tuple(schema.fields[schema.index(name)].type.ddl() for name in node.input.key)


def _described(state: CarriedState) -> dict[str, Any]:
    described = state.spec.describe()
    return {"kind": described["kind"], "value": described["value"], "map_key": described.get("map_key")}
