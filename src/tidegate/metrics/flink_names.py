"""The same samples under the names that Flink's own Prometheus reporter gives them, for dashboards made for Flink.

Flink's reporter keeps Flink's units (milliseconds) and writes every number as a gauge. What Flink does not have is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate.metrics import catalog as c
from tidegate.metrics.metric import Metric, Sample, Scope

# Flink's reporter builds a name of `flink`, the logical scope and the metric, joined by underscores.
_JOB = "flink_jobmanager_job_"
_TASK = "flink_taskmanager_job_task_"
_OPERATOR = "flink_taskmanager_job_task_operator_"
_BY_STATUS = {c.STATE: "State", c.STATUS_TIME: "Time", c.STATUS_TIME_TOTAL: "TimeTotal"}
"""Metrics that Flink has once for each status: `runningState`, `runningTime`, `runningTimeTotal`."""
_OF_OPERATORS = (c.WATERMARK, c.OUTPUT_WATERMARK, c.WATERMARK_LAG)
"""Flink has them for each operator. Here an epoch has one watermark, and all operators have its value."""
_OWN = frozenset(
    {
        c.LAST_CHECKPOINT_PATH,
        c.LAST_CHECKPOINT_REQUESTS,
        c.LAST_CHECKPOINT_COST,
        c.CHECKPOINT_INTERVAL,
        c.UNPROTECTED_AGE,
        c.COMMITS,
        c.STORAGE_REQUESTS,
        c.STORAGE_BYTES,
        c.STORAGE_COST,
        c.STATE_SIZE,
        c.SNAPSHOT_DURATION,
        c.RESIDENT,
        c.MEMORY_USED,
        c.MEMORY_BUDGET,
        c.BLOCK_CACHE_USAGE,
        c.BLOCK_CACHE_CAPACITY,
        c.BLOCK_CACHE_HIT_RATIO,
        c.WRITE_BUFFER_USAGE,
        c.WRITE_CACHE_USAGE,
        c.DISK_FREE,
        c.DISK_SIZE,
        c.OUTPUT_WAITING,
        c.OUTPUT_WAITING_BYTES,
        c.COMMIT_DURATION,
        c.OLDEST_WAITING,
        c.PUBLISHED_EPOCH,
        c.ESTIMATED_STATE_SIZE,
    }
)
"""What Flink does not have."""


@dataclass(frozen=True, slots=True)
class FlinkSample:
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    help: str


def flink_samples(job: str, job_id: str, samples: Iterable[Sample]) -> Iterator[FlinkSample]:
    """`job_id` is the job's lineage, which has the form of Flink's job ids."""
    current = tuple(samples)
    common = (("job_id", job_id), ("job_name", job))
    operators = sorted({sample.labels["operator"] for sample in current if sample.metric.scope is Scope.OPERATOR})
    for sample in current:
        metric = sample.metric
        if metric in _OWN or metric.scope in (Scope.EPOCH, Scope.AUTOSCALER):
            continue
        if metric in _OF_OPERATORS:
            for operator in operators:
                yield _sample(sample, _OPERATOR + _plain(metric.name), (*common, ("operator_name", operator)))
        else:
            yield _sample(sample, _name(metric, sample), (*common, *_labels(metric, sample)))


def _name(metric: Metric, sample: Sample) -> str:
    if metric in _BY_STATUS:
        return f"{_JOB}{sample.labels['status'].lower()}{_BY_STATUS[metric]}"
    if metric is c.SPLIT_WATERMARK:
        return f"{_OPERATOR}split_{_plain(metric.name)}"
    return {Scope.JOB: _JOB, Scope.TASK: _TASK}.get(metric.scope, _OPERATOR) + _plain(metric.name)


def _labels(metric: Metric, sample: Sample) -> tuple[tuple[str, str], ...]:
    match metric.scope:
        case Scope.TASK:
            # `L2-S7` is subtask 7 of the vertex of level 2.
            level, _, slot = sample.labels["task"].partition("-S")
            return ("task_name", f"level-{level.removeprefix('L')}"), ("subtask_index", slot)
        case Scope.OPERATOR | Scope.SOURCE | Scope.SINK:
            own = tuple((name, sample.labels[name]) for name in metric.labels if name == "split")
            return ("operator_name", sample.labels[str(metric.scope)]), *own
    return ()


def _sample(sample: Sample, name: str, labels: tuple[tuple[str, str], ...]) -> FlinkSample:
    return FlinkSample(name, labels, sample.value, sample.metric.help)


def _plain(name: str) -> str:
    """Flink's reporter replaces what Prometheus does not allow in a name."""
    return re.sub(r"[^A-Za-z0-9_:]", "_", name)
