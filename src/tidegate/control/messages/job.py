"""What REST tells about a job."""

from __future__ import annotations

from msgspec import Struct, field


class JobStatusInfo(Struct, frozen=True):
    status: str


class JobIdWithStatus(Struct, frozen=True):
    id: str
    status: str


class JobIdsWithStatusOverview(Struct, frozen=True):
    jobs: list[JobIdWithStatus]


class TaskCounts(Struct, frozen=True):
    total: int
    running: int


class JobDetails(Struct, frozen=True, kw_only=True):
    """A job in one line. `end_time` is -1 until it has ended."""

    jid: str
    name: str
    state: str
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    last_modification: int = field(name="last-modification")
    tasks: TaskCounts
    pending_operators: int = field(name="pending-operators", default=0)
    job_type: str = field(name="jobType", default="STREAMING")
    scheduler_type: str | None = field(name="schedulerType", default=None)


class MultipleJobsDetails(Struct, frozen=True):
    jobs: list[JobDetails]


class IOMetricsInfo(Struct, frozen=True, rename="kebab"):
    read_records: int
    write_records: int


class JobVertexDetailsInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """An operator and the rows that it has read and written."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    status: str
    metrics: IOMetricsInfo


class JobPlan(Struct, frozen=True, kw_only=True):
    """Flink's plan. The nodes are left out."""

    jid: str
    name: str
    type: str = "STREAMING"
    nodes: list[str] = []


class JobDetailsInfo(Struct, frozen=True, kw_only=True):
    """A job with its operators."""

    jid: str
    name: str
    is_stoppable: bool = field(name="isStoppable", default=True)
    state: str
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    max_parallelism: int = field(name="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertexDetailsInfo]
    status_counts: dict[str, int] = field(name="status-counts")
    plan: JobPlan
    job_type: str = field(name="job-type", default="STREAMING")
    scheduler_type: str | None = field(name="schedulerType", default=None)
    application_id: str | None = field(name="application-id", default=None)


class RootExceptionInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A failure. Flink's task, host and concurrent failures are not known here."""

    exception_name: str
    stacktrace: str
    timestamp: int
    task_name: str | None = None
    endpoint: str | None = None
    task_manager_id: str | None = None
    failure_labels: dict[str, str]
    concurrent_exceptions: list[str] = []


class JobExceptionHistory(Struct, frozen=True):
    entries: list[RootExceptionInfo]
    truncated: bool


class JobExceptionsInfo(Struct, frozen=True, rename="camel"):
    """Failures, newest first."""

    exception_history: JobExceptionHistory
