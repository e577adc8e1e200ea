"""Samples under the ids that Flink's REST gives to metrics.

A metric of a job is `numRestarts`, one of a subtask `0.busyTimeMsPerSecond`, one of an operator `totals.numRecordsIn`. Labels
that a metric has besides those of its scope follow its name: `numCommits.committed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tidegate.control.messages.metrics import Aggregate, AggregatedMetric, MetricValue
from tidegate.graph.event_times import of_split_name
from tidegate.metrics import catalog
from tidegate.metrics.metric import LABELS, Sample, Scope

Values = Mapping[str, float]
"""By the id of the metric."""


def _skew(values: Sequence[float]) -> float:
    # Flink's measure: the mean absolute deviation in percent of the mean, at most 100.
    mean = sum(values) / len(values)
    if mean == 0:
        return 0.0
    deviation = sum(abs(value - mean) for value in values) / len(values)
    return min(100 * deviation / mean, 100.0)


AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
    "skew": _skew,
}


def of_job(samples: Iterable[Sample]) -> dict[str, float]:
    """Return the metrics of the job, of its epochs as `epoch.numEpochs`, and of its autoscaler as
    `AutoScaler.LOAD.Average.job`."""
    values: dict[str, float] = {}
    for sample in samples:
        if sample.metric.scope is Scope.JOB:
            values[_id(sample)] = sample.value
        elif sample.metric.scope is Scope.EPOCH:
            values[f"epoch.{_id(sample)}"] = sample.value
        elif sample.metric.scope is Scope.AUTOSCALER:
            values[f"AutoScaler.{_id(sample)}"] = sample.value
    return values


def of_tasks(samples: Iterable[Sample]) -> dict[str, dict[str, float]]:
    """Return the metrics of every task, by the task's name (`L1-S0`)."""
    values: dict[str, dict[str, float]] = {}
    for sample in samples:
        if _owner(sample) == "task":
            values.setdefault(sample.labels["task"], {})[_id(sample)] = sample.value
    return values


def of_operators(samples: Iterable[Sample], names: Collection[str]) -> dict[str, float]:
    """Return the metrics of these operators, sources and sinks."""
    values: dict[str, float] = {}
    for sample in samples:
        owner = _owner(sample)
        if owner in ("operator", "source", "sink"):
            name = sample.labels[owner]
            # The splits of a source have samples of their own.
            if name in names or (owner == "source" and of_split_name(name)[0] in names):
                values[f"{name}.{_id(sample)}"] = sample.value
    return values


def metric_values(values: Values, ids: Collection[str] | None) -> list[MetricValue]:
    """Return all ids or, if some were asked for, the values of those that exist."""
    if ids is None:
        return [MetricValue(name) for name in sorted(values)]
    return [MetricValue(name, value_text(values[name])) for name in ids if name in values]


def aggregated_metrics(
    parts: Sequence[Values], ids: Collection[str] | None, aggregates: Collection[str], expected: Collection[str] = ()
) -> list[AggregatedMetric]:
    """Return all ids or, if some were asked for, their aggregates. An id in `known` is NaN where no part has it."""
    if ids is None:
        return [AggregatedMetric(id=name) for name in sorted({name for part in parts for name in part})]
    metrics = []
    for name in ids:
        values = [part[name] for part in parts if name in part]
        if values or name in expected:
            results: dict[str, Aggregate] = {
                each: _number(AGGREGATES[each](values)) if values else "NaN" for each in aggregates
            }
            metrics.append(AggregatedMetric(id=name, **results))
    return metrics


def value_text(value: float) -> str:
    """As Flink shows numbers: `20`, `0.25`, `NaN`."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(_number(value))


def _number(value: float) -> Aggregate:
    return float(value) if math.isfinite(value) else "NaN"


def _owner(sample: Sample) -> str | None:
    """Return the label that says whose sample it is: `task`, `operator`, `source`, `sink`, or none for the job."""
    labels = LABELS[sample.metric.scope]
    if not labels:
        return None
    return labels[0]


def _id(sample: Sample) -> str:
    if sample.metric is catalog.STATE:
        # Flink has a metric for each status: `runningState`.
        return f"{sample.labels['status'].lower()}State"
    metric = sample.metric
    # The first label of the scope says whose metric it is, and is no part of the id.
    within = [sample.labels[label] for label in LABELS[metric.scope][1:]]
    more = [sample.labels[label] for label in metric.labels]
    return ".".join((*within, metric.name, *more))
