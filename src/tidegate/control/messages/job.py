"""Messages of REST about a job."""

from __future__ import annotations

from msgspec import Struct, field

from tidegate.control.messages.plan import JobPlan
from tidegate.control.messages.vertices import JobVertexInfo


class JobStatusInfo(Struct, frozen=True):
    status: str


class JobIdWithStatus(Struct, frozen=True):
    id: str
    status: str


class JobIdsWithStatusOverview(Struct, frozen=True):
    jobs: list[JobIdWithStatus]


class TaskCounts(Struct, frozen=True, kw_only=True):
    """How many tasks there are, and in which state."""

    total: int
    created: int = 0
    scheduled: int = 0
    deploying: int = 0
    running: int = 0
    finished: int = 0
    canceling: int = 0
    canceled: int = 0
    failed: int = 0
    reconciling: int = 0
    initializing: int = 0


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


class JobDetailsInfo(Struct, frozen=True, kw_only=True):
    """A job with its vertices. A vertex is a level, as in the statistics of checkpoints."""

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
    vertices: list[JobVertexInfo]
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
