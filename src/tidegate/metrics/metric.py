"""A metric, under Flink's name, and a sample of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Scope(StrEnum):
    """What a metric describes. Flink's scopes, and one for what only tidegate has."""

    JOB = "job"
    TASK = "task"
    OPERATOR = "operator"
    SOURCE = "source"
    SINK = "sink"
    EPOCH = "epoch"
    STATE = "state"
    ROCKSDB = "rocksdb"
    AUTOSCALER = "autoscaler"


class Kind(StrEnum):
    COUNTER = "counter"
    """Only grows, from 0 at the start of the driver."""
    GAUGE = "gauge"


LABELS: Mapping[Scope, tuple[str, ...]] = {
    Scope.JOB: (),
    Scope.TASK: ("task",),
    Scope.OPERATOR: ("operator",),
    Scope.SOURCE: ("source",),
    Scope.SINK: ("sink",),
    Scope.EPOCH: (),
    Scope.STATE: ("operator", "state"),
    Scope.ROCKSDB: ("task",),
    Scope.AUTOSCALER: (),
}
"""The labels that every sample of a scope has, besides `job`. A metric may add some of its own."""

_UNITS = {
    "ms": ("seconds", 1e-3),
    "ns": ("seconds", 1e-9),
    "us": ("seconds", 1e-6),
    "ms since 1970": ("timestamp_seconds", 1e-3),
    "ms per s": ("ratio", 1e-3),
    "dollars": ("dollars", 1.0),
    "info": ("info", 1.0),
    "bytes": ("bytes", 1.0),
    "": ("", 1.0),
}
"""Flink's unit → the ending that Prometheus wants, and the factor."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is Flink's where Flink has it; its unit is Flink's as well."""

    name: str
    scope: Scope
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    """Labels besides those of the scope."""

    @property
    def prometheus_name(self) -> str:
        """`lastCheckpointDuration` of a job, in ms: `tidegate_job_last_checkpoint_duration_seconds`."""
        words = _snake(self.name)
        if self.kind is Kind.COUNTER:
            # `statusTimeTotal`: the ending for counters is added below, after the unit.
            words = words.removesuffix("_total")
        # Flink's names end with Flink's unit. Prometheus' base unit takes its place, so the old one would mislead.
        for suffix in ("_nanos", "_micros", "_ms_per_second", "_ms", "_timestamp", "_in_bytes"):
            words = words.removesuffix(suffix) if _UNITS[self.unit][0] else words
        ending = _UNITS[self.unit][0]
        parts = ["tidegate", str(self.scope), words]
        if ending and not words.endswith(f"_{ending}"):
            parts.append(ending)
        if self.kind is Kind.COUNTER:
            parts.append("total")
        return "_".join(parts)

    @property
    def factor(self) -> float:
        """Multiplies a value in the metric's unit to one in Prometheus' base unit."""
        return _UNITS[self.unit][1]

    @property
    def label_names(self) -> tuple[str, ...]:
        return ("job", *LABELS[self.scope], *self.labels)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric, in the metric's own unit."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def _snake(name: str) -> str:
    """`numberOfInProgressCheckpoints` as `number_of_in_progress_checkpoints`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]", "_", name).lower()
