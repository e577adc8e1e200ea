"""The closed sets of values that options choose from, with Flink's names."""

from __future__ import annotations

from enum import StrEnum


class CheckpointingMode(StrEnum):
    """When output becomes visible: with its checkpoint, or at the end of its epoch."""

    EXACTLY_ONCE = "EXACTLY_ONCE"
    AT_LEAST_ONCE = "AT_LEAST_ONCE"


class Publisher(StrEnum):
    """Who publishes output to targets that take it from any process."""

    AUTO = "AUTO"
    TASKS = "TASKS"
    DRIVER = "DRIVER"


class AggregatePhaseStrategy(StrEnum):
    """Whether built-in aggregates are computed in two stages, the first of them before the shuffle."""

    AUTO = "AUTO"
    TWO_PHASE = "TWO_PHASE"
    ONE_PHASE = "ONE_PHASE"


class MetricNaming(StrEnum):
    """Under which names `/metrics` shows metrics."""

    TIDEGATE = "TIDEGATE"
    FLINK = "FLINK"


class BusyTimeAggregator(StrEnum):
    """Which task of a level says how busy the level is."""

    MAX = "MAX"
    AVG = "AVG"
    MIN = "MIN"


class ParallelismAlignment(StrEnum):
    """How the autoscaler fits a parallelism to the number of key groups."""

    BALANCED = "BALANCED"
    EVENLY_SPREAD = "EVENLY_SPREAD"
    OFF = "OFF"


class LogFormat(StrEnum):
    """How the lines of a job's log look."""

    TEXT = "text"
    JSON = "json"


class ExporterProtocol(StrEnum):
    """How OTLP is sent."""

    HTTP = "HTTP"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"


class SpanDetail(StrEnum):
    """How much of a checkpoint has spans of its own. Flink calls a level a task, and a task a subtask."""

    SPAN_PER_CHECKPOINT = "SPAN_PER_CHECKPOINT"
    SPAN_PER_CHECKPOINT_WITH_TASKS = "SPAN_PER_CHECKPOINT_WITH_TASKS"
    CHILDREN_SPANS_PER_TASK = "CHILDREN_SPANS_PER_TASK"
    CHILDREN_SPANS_PER_SUBTASK = "CHILDREN_SPANS_PER_SUBTASK"


class JobEnd(StrEnum):
    """How a run of a job ended."""

    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    SUSPENDED = "SUSPENDED"


class Retention(StrEnum):
    """What becomes of a job's checkpoints when it ends. Savepoints are never touched."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"

    def keeps(self, end: JobEnd) -> bool:
        """Flink's table. A job that finished has no use for its checkpoints, so none of the three keeps them then."""
        return end in _KEPT[self]


_KEPT: dict[Retention, frozenset[JobEnd]] = {
    Retention.NO_EXTERNALIZED_CHECKPOINTS: frozenset(),
    Retention.DELETE_ON_CANCELLATION: frozenset({JobEnd.FAILED}),
    Retention.RETAIN_ON_CANCELLATION: frozenset({JobEnd.CANCELED, JobEnd.FAILED, JobEnd.SUSPENDED}),
}


class ClaimMode(StrEnum):
    """Who owns the snapshot that a job was started from."""

    CLAIM = "CLAIM"
    NO_CLAIM = "NO_CLAIM"


class BackendType(StrEnum):
    HASHMAP = "hashmap"
    ROCKSDB = "rocksdb"


class RestartType(StrEnum):
    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    FAILURE_RATE = "failure-rate"
    EXPONENTIAL_DELAY = "exponential-delay"
    FALLBACK = "fallback"
    """What the cluster's configuration says; only of use in a job's own."""
