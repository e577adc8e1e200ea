"""Why a checkpoint did not complete: one enum for logs, tolerance and tests, with Flink's names."""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """Each reason with its message, and whether it counts against `tolerable-failed-checkpoints`."""

    message: str
    counted: bool

    def __new__(cls, message: str, counted: bool = False) -> CheckpointFailureReason:
        # Its value is the message alone: reports of runs are stored.
        made = object.__new__(cls)
        made._value_ = made.message = message
        made.counted = counted
        return made

    TOO_MANY_CHECKPOINT_REQUESTS = "The maximum number of queued checkpoint requests exceeded"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "The minimum time between checkpoints has not passed yet"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "Not all required tasks are currently running; no epoch has finished yet"
    IO_EXCEPTION = "An exception occurred while writing to checkpoint storage", True
    CHECKPOINT_ASYNC_EXCEPTION = "The upload of a task's state failed", True
    CHECKPOINT_DECLINED = "A task declined the checkpoint", True
    CHECKPOINT_EXPIRED = "Checkpoint expired before completing", True
    FINALIZE_CHECKPOINT_FAILURE = "The checkpoint was acknowledged by all tasks and could not be published", True
    CHECKPOINT_SUBSUMED = "Checkpoint has been subsumed by a newer one"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "The job has ended"
    CHECKPOINT_COORDINATOR_SUSPEND = "The job restarts from its last checkpoint"
    TASK_FAILURE = "Task has failed"
    JOB_FAILURE = "The job has failed"


class ToleranceTracker:
    """Counts consecutive failures: each checkpoint id once, only counted reasons, reset at every success."""

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self._failed: set[int] = set()

    def failed(self, checkpoint_id: int, reason: CheckpointFailureReason) -> bool:
        """Record a failure. Return whether the job must fail now."""
        if not reason.counted:
            return False
        self._failed.add(checkpoint_id)
        return len(self._failed) > self._tolerable

    def succeeded(self) -> None:
        self._failed.clear()


def exceeded(reason: CheckpointFailureReason) -> str:
    return f"Exceeded checkpoint tolerable failure threshold. The latest checkpoint failed due to {reason.message}."
