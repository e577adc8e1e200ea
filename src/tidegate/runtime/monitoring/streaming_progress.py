"""The progress of a run in the form of Spark's `StreamingQueryProgress`, so that what reads that can read tidegate's.

Spark reports the progress of the query that delivers the batches. To Spark, that query has no state, and its sink is a function.
Here its reports get the operators with state, the rows, the watermark and the sinks of the epoch that ran the batch.

A figure that nobody counts is -1, as in Spark's own progress of a sink. Counting the keys of a state, or those that an epoch
changed, would take a pass over them.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph
from tidegate.graph.outline import OutlineNode, outline
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.monitoring.job_metrics import JobMetrics
from tidegate.runtime.monitoring.run_report import StateSizeLine
from tidegate.runtime.monitoring.task_figures import LevelState

UNKNOWN = -1
MOST_BATCHES = 100
"""Spark keeps as many reports (`spark.sql.streaming.numRecentProgressUpdates`)."""


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What Spark does not know of a batch."""

    rows_in: int
    watermark_ms: int
    state_operators: list[dict[str, Any]]
    sink: dict[str, Any]

    def added_to(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return Spark's report of the batch, with these figures."""
        event_time = dict(report.get("eventTime", {}))
        if MIN_WATERMARK < self.watermark_ms < MAX_WATERMARK:
            event_time["watermark"] = _iso(self.watermark_ms)
        seconds = max(1, report.get("batchDuration", 0)) / 1000
        return {
            **report,
            # Spark counts a row again whenever an epoch is repeated.
            "numInputRows": self.rows_in,
            "processedRowsPerSecond": self.rows_in / seconds,
            "eventTime": event_time,
            "stateOperators": self.state_operators,
            "sink": self.sink,
        }


class ProgressLog:
    """The figures of the last batches of one attempt. Written by the thread that runs epochs, read by any."""

    def __init__(self, graph: Graph, plan: Plan, parallelism: int) -> None:
        nodes = outline(graph, plan).nodes
        self._stateful = [node for node in nodes if node.kind == "process" or node.states]
        self._sinks = [node for node in nodes if node.kind == "sink"]
        self._parallelism = parallelism
        self._batches: OrderedDict[int, BatchFigures] = OrderedDict()

    def batch(self, batch_id: int, report: EpochReport, metrics: JobMetrics) -> None:
        """Add an epoch that ran a batch. `metrics` have seen it."""
        levels, sizes = metrics.state_of_levels(), metrics.states()
        operators = [
            self._operator(node, report, levels.get(node.level, LevelState()), sizes) for node in self._stateful
        ]
        self._batches[batch_id] = BatchFigures(report.rows_in, report.watermark_ms, operators, self._sink(report))
        while len(self._batches) > MOST_BATCHES:
            self._batches.popitem(last=False)

    def of(self, reports: Iterable[StreamingQueryProgress]) -> list[StreamingQueryProgress]:
        """Return Spark's reports with the figures of their batches. A report about a batch that was not run, because it had been
        run before, stays as it is."""
        found: list[StreamingQueryProgress] = []
        for report in reports:
            figures = self._batches.get(report["batchId"])
            if figures is not None:
                report = StreamingQueryProgress.fromJson(figures.added_to(json.loads(report.json)))
            found.append(report)
        return found

    def _operator(
        self, node: OutlineNode, report: EpochReport, level: LevelState, states: Sequence[StateSizeLine]
    ) -> dict[str, Any]:
        # What is known of a level is known of its only operator with state.
        is_alone = sum(other.level == node.level for other in self._stateful) == 1
        late = sum(ack.late_dropped for ack in report.acks if ack.level == node.level)
        rows_in, rows_out = report.operators.get(node.name, (0, 0))
        custom = {"numRecordsIn": rows_in, "numRecordsOut": rows_out}
        if node.name in level.pending_timers:
            custom["pendingTimers"] = level.pending_timers[node.name]
        sizes = {each.state: each.bytes for each in states if each.operator == node.uid}
        if sizes:
            custom["estimatedStateSize"] = sum(sizes.values())
            custom |= {f"estimatedStateSize.{state}": size for state, size in sizes.items()}
        return {
            "operatorName": node.uid,
            "numRowsTotal": level.keys if is_alone else UNKNOWN,
            "numRowsUpdated": UNKNOWN,
            "allUpdatesTimeMs": UNKNOWN,
            "numRowsRemoved": UNKNOWN,
            "allRemovalsTimeMs": UNKNOWN,
            "commitTimeMs": level.seal_ms if is_alone else UNKNOWN,
            "memoryUsedBytes": level.memory_bytes if is_alone else UNKNOWN,
            "numRowsDroppedByWatermark": late if is_alone or not late else UNKNOWN,
            "numShufflePartitions": self._parallelism,
            "numStateStoreInstances": self._parallelism,
            "customMetrics": custom,
        }

    def _sink(self, report: EpochReport) -> dict[str, Any]:
        rows = {node.uid: report.operators.get(node.name, (0, 0))[0] for node in self._sinks}
        return {
            "description": f"tidegate[{', '.join(node.label for node in self._sinks)}]",
            "numOutputRows": sum(rows.values()),
            "metrics": {f"{uid}.numRecordsSend": str(count) for uid, count in rows.items()},
        }


def _iso(ms: int) -> str:
    """As Spark writes a time."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
