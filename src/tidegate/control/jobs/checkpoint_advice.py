"""What to do about a slow checkpoint."""

from __future__ import annotations

from tidegate.checkpoint.coordination.statistics import CheckpointStats, TaskStats

SLOW_MS = 5_000
"""A task that acknowledges sooner needs no advice."""

_EPOCHS = (
    "A task acknowledges a checkpoint at the end of an epoch, so shorter epochs make checkpoints faster: bound them at the "
    "source (target_epoch_duration, maxOffsetsPerTrigger, maxFilesPerTrigger), make the slowest function faster, or raise the "
    "parallelism."
)
_UPLOADS = (
    "Upload less or faster: set execution.checkpointing.incremental to true, let TTL remove entries that nobody needs, raise "
    "the parallelism so that more hosts upload at once, or use storage that is closer."
)


def checkpoint_advice(stats: CheckpointStats) -> str | None:
    """Which part of the checkpoint took longest in its slowest task, and the remedy for that part. None if it was fast."""
    slowest = max(stats.tasks, key=lambda task: task.end_to_end_ms, default=None)
    if slowest is None or slowest.end_to_end_ms < SLOW_MS:
        return None
    return _late(slowest) if slowest.start_delay_ms >= slowest.async_ms else _uploading(slowest)


def _late(task: TaskStats) -> str:
    return f"Task {task.task} waited for the end of an epoch for {_share(task.start_delay_ms, task)}. {_EPOCHS}"


def _uploading(task: TaskStats) -> str:
    megabytes = task.checkpointed_size_bytes / 1e6
    return f"Task {task.task} uploaded {megabytes:,.1f} MB for {_share(task.async_ms, task)}. {_UPLOADS}"


def _share(part_ms: int, task: TaskStats) -> str:
    return f"{part_ms / 1000:.1f} of its {task.end_to_end_ms / 1000:.1f} s"
