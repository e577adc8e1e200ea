"""The events of a job, one type for each kind. Their values are plain, so a listener needs nothing else of tidegate.

`attributes` has Flink's names where Flink has the event; `str(event)` is the line in the job's log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tidegate.core.durations import show_ms
from tidegate.core.errors import help_of_kind

Attribute: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheckpoint:
    """The part of one task in a checkpoint. Times are milliseconds; `acked_ms` is since 1970-01-01 UTC."""

    level: int
    slot: int
    acked_ms: int
    start_delay_ms: int
    sync_ms: int
    async_ms: int
    full_size_bytes: int
    checkpointed_size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTask:
    """The part of one task in the restore of a checkpoint."""

    level: int
    slot: int
    restore_ms: int
    download_ms: int
    """The part of `restore_ms` in which it read from the job's storage."""
    remote_bytes: int
    """Bytes of files that it read from the job's storage."""
    local_bytes: int
    """Bytes of files that were still on local disk."""
    memory_bytes: int
    """Bytes of small files that came in the checkpoint's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTime:
    """How long the tasks of one level of an epoch took, from the start of the first to the end of the last."""

    level: int
    started_ms: int
    """Milliseconds since 1970-01-01 UTC, on the clock of the executor."""
    duration_ms: int
    tasks: int
    busy_ms: int
    """Of all tasks together, as the next two."""
    idle_ms: int
    held_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTime:
    """What `ctx.span(name)` measured in one epoch, over all tasks of an operator."""

    operator: str
    name: str
    level: int
    count: int
    total_ms: float
    max_ms: float
    """The longest single use."""
    longest_task_ms: float
    """The total of the task that spent most time in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that happened to a job."""

    NAME: ClassVar[str] = "JobEvent"
    job: str
    """The name of the job."""
    at_ms: int
    """When, in milliseconds since 1970-01-01 UTC. Flink's `observedTs`."""

    @property
    def severity(self) -> int:
        """The level of its line in the log."""
        return logging.INFO

    def attributes(self) -> Mapping[str, Attribute]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEvent(JobEvent):
    """An epoch was accepted."""

    NAME: ClassVar[str] = "EpochEvent"
    epoch: str
    """Term and number: `1.41`."""
    started_ms: int
    """When it started, in milliseconds since 1970-01-01 UTC."""
    duration_ms: int
    """From its start until it was accepted."""
    plan_ms: int
    """The part of that in which Spark planned it."""
    run_ms: int
    """The part of that in which its tasks ran."""
    rows_in: int
    """The rows that it read from all sources."""
    tries: int
    """How often it was tried."""
    watermark_ms: int | None = None
    """The watermark at its end; None without event time."""
    late_rows_dropped: int = 0
    """Rows that windows and joins dropped because they were too late."""
    operators: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Rows in and out by operator."""
    levels: tuple[LevelTime, ...] = ()
    """The time of each level of tasks."""
    spans: tuple[SpanTime, ...] = ()
    """What `ctx.span` measured."""

    def attributes(self) -> Mapping[str, Attribute]:
        optional: dict[str, Attribute] = {} if self.watermark_ms is None else {"watermark": self.watermark_ms}
        return {
            **optional,
            "epoch": self.epoch,
            "rowsIn": self.rows_in,
            "durationMs": self.duration_ms,
            "planMs": self.plan_ms,
            "runMs": self.run_ms,
            "tries": self.tries,
            "lateRowsDropped": self.late_rows_dropped,
        }

    def __str__(self) -> str:
        rate = self.rows_in * 1000 // max(1, self.duration_ms)
        return f"epoch {self.epoch}: {self.rows_in} rows in {self.duration_ms} ms ({rate} rows/s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEvent(JobEvent):
    """A checkpoint or savepoint has completed or failed."""

    NAME: ClassVar[str] = "CheckpointEvent"
    checkpoint_id: int
    """The number in the name of the checkpoint: `chk-41`."""
    checkpoint_type: str
    """As in Flink: `Checkpoint`, `Full Checkpoint`, `Savepoint`, `Terminate Savepoint`."""
    status: str
    """`COMPLETED` or `FAILED`."""
    epoch: str
    """The epoch that it holds."""
    triggered_ms: int
    """When it was triggered, in milliseconds since 1970-01-01 UTC."""
    duration_ms: int
    """From the trigger until it completed or failed."""
    checkpointed_size_bytes: int
    """What it uploaded."""
    full_size_bytes: int
    """All state that it holds, with files of earlier checkpoints."""
    last_ack_ms: int | None = None
    """When the last task acknowledged it, in milliseconds since 1970-01-01 UTC."""
    path: str | None = None
    """Where it is, once it has completed."""
    failure_reason: str | None = None
    """The name of one of Flink's `CheckpointFailureReason`s."""
    failure_message: str | None = None
    """The error, if it failed."""
    tasks: tuple[TaskCheckpoint, ...] = ()
    """The part of each task."""

    @property
    def completed(self) -> bool:
        return self.status == "COMPLETED"

    @property
    def severity(self) -> int:
        quiet = self.completed or self.failure_reason in _EXPECTED_FAILURES
        return logging.INFO if quiet else logging.WARNING

    def attributes(self) -> Mapping[str, Attribute]:
        values: dict[str, Attribute] = {
            "checkpointId": self.checkpoint_id,
            "checkpointedSize": self.checkpointed_size_bytes,
            "fullSize": self.full_size_bytes,
            "checkpointStatus": self.status,
            "checkpointType": self.checkpoint_type,
            # Flink's attribute. A checkpoint takes a finished epoch, so there are no rows in flight to store.
            "isUnaligned": False,
            "epoch": self.epoch,
            "durationMs": self.duration_ms,
        }
        if self.path is not None:
            values["path"] = self.path
        if self.failure_reason is not None:
            values |= {"failureReason": self.failure_reason, "failureMessage": self.failure_message or ""}
        return values

    def __str__(self) -> str:
        # Flink's types: `Savepoint` and `Terminate Savepoint`.
        what = "savepoint" if "Savepoint" in self.checkpoint_type else "checkpoint"
        if not self.completed:
            return f"{what} {self.checkpoint_id} failed: {self.failure_message}"
        if what == "savepoint":
            return f"savepoint {self.path} complete: epoch {self.epoch}, {self.duration_ms} ms"
        return (
            f"checkpoint {self.checkpoint_id} complete: epoch {self.epoch}, {self.checkpointed_size_bytes} bytes of "
            f"{self.full_size_bytes}, {self.duration_ms} ms"
        )


_EXPECTED_FAILURES = ("CHECKPOINT_COORDINATOR_SHUTDOWN", "CHECKPOINT_SUBSUMED")
"""Of checkpoints that a newer one, or the end of the job, made unnecessary."""


TERMINAL = ("FINISHED", "CANCELED", "FAILED")
"""The statuses that a job keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatusChangeEvent(JobEvent):
    """The job has another status."""

    NAME: ClassVar[str] = "JobStatusChangeEvent"
    new_status: str
    """In Flink's terms, as `JobRun.status`."""
    old_status: str | None = None
    """None for the first one of a run."""

    @property
    def severity(self) -> int:
        return logging.ERROR if self.new_status == "FAILED" else logging.INFO

    @property
    def is_terminal(self) -> bool:
        return self.new_status in TERMINAL

    def attributes(self) -> Mapping[str, Attribute]:
        optional = {} if self.old_status is None else {"oldJobStatus": self.old_status}
        return {"newJobStatus": self.new_status} | optional

    def __str__(self) -> str:
        return f"job {self.job} is {self.new_status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailureEvent(JobEvent):
    """A failure ended an attempt of the job, or the job."""

    NAME: ClassVar[str] = "JobFailureEvent"
    kind: str
    """`user-code`, `state-lost`, `engine`, or the code of the error in lower case; `driver-lost` if the driver before this one
    died."""
    message: str
    """The error."""
    can_restart: bool
    """Whether the restart strategy starts the job again."""
    checkpoint_id: int | None = None
    """The checkpoint that the job returns to; None: it starts over, or ends."""
    delay_ms: int = 0
    """How long the restart strategy waits before it."""

    @property
    def severity(self) -> int:
        return logging.WARNING if self.can_restart else logging.ERROR

    def attributes(self) -> Mapping[str, Attribute]:
        optional: dict[str, Attribute] = {} if self.checkpoint_id is None else {"checkpointId": self.checkpoint_id}
        return {
            **optional,
            "canRestart": self.can_restart,
            # Flink's attribute. Every failure here restarts the whole job; there are no regions.
            "isGlobalFailure": True,
            "failureLabel.kind": self.kind,
            "failureMessage": self.message,
        }

    def __str__(self) -> str:
        if not self.can_restart:
            return "\n".join((f"the job fails: {self.message}", *help_of_kind(self.kind)))
        if self.kind == "driver-lost":
            return self.message  # This run only begins: it does not return to a checkpoint.
        return f"the job goes back to checkpoint {self.checkpoint_id or '(none)'} in {self.delay_ms} ms: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleEvent(JobEvent):
    """The job runs with another parallelism than the snapshot that it was restored from."""

    NAME: ClassVar[str] = "RescaleEvent"
    old_parallelism: int
    """That of the snapshot."""
    new_parallelism: int
    """That of the job now."""

    def attributes(self) -> Mapping[str, Attribute]:
        return {"oldParallelism": self.old_parallelism, "newParallelism": self.new_parallelism}

    def __str__(self) -> str:
        return f"job {self.job} is rescaled from {self.old_parallelism} to {self.new_parallelism}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInitializationEvent(JobEvent):
    """All tasks are ready: their workers have started and, if there is a checkpoint, their state is restored."""

    NAME: ClassVar[str] = "JobInitializationEvent"
    started_ms: int
    """When it began, in milliseconds since 1970-01-01 UTC."""
    duration_ms: int
    """Until all tasks were ready."""
    checkpoint_id: int | None = None
    """The checkpoint that was restored; None if there was none."""
    full_size_bytes: int = 0
    """The size of its state."""
    tasks: tuple[RestoredTask, ...] = ()
    """The part of each task."""

    def attributes(self) -> Mapping[str, Attribute]:
        optional = {} if self.checkpoint_id is None else {"checkpointId": self.checkpoint_id}
        return {"fullSize": self.full_size_bytes, "durationMs": self.duration_ms} | optional

    def __str__(self) -> str:
        if self.checkpoint_id is None:
            return f"job {self.job} is ready after {show_ms(self.duration_ms)}"
        local_bytes = sum(task.local_bytes for task in self.tasks)
        fetched_bytes = sum(task.remote_bytes for task in self.tasks)
        return (
            f"state of checkpoint {self.checkpoint_id} is back after {show_ms(self.duration_ms)}: "
            f"{local_bytes / 1e6:,.1f} MB found on local disk, {fetched_bytes / 1e6:,.1f} MB fetched"
        )
