"""Messages of REST about the vertices of a job and their subtasks. A vertex is a level, a subtask one of its tasks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

ExecutionState = Literal[
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
]
"""What a subtask can be in Flink."""


class IOMetricsInfo(Struct, frozen=True, kw_only=True, rename="kebab"):
    """Figures since the driver started. One that is not `complete` is not known."""

    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: float


class JobVertexInfo(Struct, frozen=True, kw_only=True):
    """A vertex in one line. `parallelism` is -1 where Spark chooses it in every epoch."""

    id: str
    slot_sharing_group_id: str = field(name="slotSharingGroupId", default="")
    name: str
    max_parallelism: int = field(name="maxParallelism")
    parallelism: int
    status: ExecutionState
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    tasks: dict[str, int]
    metrics: IOMetricsInfo


class FigureSummary(Struct, frozen=True, kw_only=True):
    """One figure over the subtasks; all zero if there is none."""

    min: float = 0
    max: float = 0
    avg: float = 0
    sum: float = 0
    median: float = 0
    p25: float = 0
    p75: float = 0
    p95: float = 0


class AggregatedTaskDetailsInfo(Struct, frozen=True, kw_only=True):
    """Distributions of the figures of `IOMetricsInfo`, and of the time spent in each state."""

    metrics: dict[str, FigureSummary]
    status_duration: dict[str, FigureSummary] = field(name="status-duration")


class SubtaskInfo(Struct, frozen=True, kw_only=True, rename="kebab"):
    """A task. `endpoint` is the name of the host that holds its state, `taskmanager_id` its id."""

    subtask: int
    status: ExecutionState
    attempt: int
    endpoint: str
    start_time: int
    end_time: int
    duration: int
    metrics: IOMetricsInfo
    taskmanager_id: str
    status_duration: dict[str, int]


class JobVertexDetailsInfo(Struct, frozen=True, kw_only=True):
    """A vertex with its subtasks."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int = field(name="maxParallelism")
    now: int
    subtasks: list[SubtaskInfo]
    aggregated: AggregatedTaskDetailsInfo


class SubtaskBackPressureInfo(Struct, frozen=True, kw_only=True):
    """Shares of the time since the epoch before the last one. `ratio` is the time in which the task waited for its output to be
    read."""

    subtask: int
    attempt_number: int = field(name="attempt-number")
    backpressure_level: str = field(name="backpressure-level")
    ratio: float
    idle_ratio: float = field(name="idleRatio")
    busy_ratio: float = field(name="busyRatio")


class JobVertexBackPressureInfo(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The levels are `ok` up to a ratio of 0.1, `low` up to 0.5, and `high`."""

    status: str = "ok"
    backpressure_level: str
    end_timestamp: int
    subtasks: list[SubtaskBackPressureInfo]


class SubtaskTimeInfo(Struct, frozen=True, kw_only=True):
    subtask: int
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class SubtasksTimesInfo(Struct, frozen=True, kw_only=True):
    """When the subtasks of a vertex got into their states; 0 for states that they were not in."""

    id: str
    name: str
    now: int
    subtasks: list[SubtaskTimeInfo]


class VertexTaskManagerInfo(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The subtasks of a vertex that one host runs."""

    endpoint: str
    status: ExecutionState
    start_time: int
    end_time: int
    duration: int
    metrics: IOMetricsInfo
    status_counts: dict[str, int]
    taskmanager_id: str
    aggregated: AggregatedTaskDetailsInfo


class JobVertexTaskManagersInfo(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    now: int
    taskmanagers: list[VertexTaskManagerInfo]
