"""Spans of a job's events, as plain data: what a trace shows, without a tracing library.

Names and attributes are Flink's for `Checkpoint` and `JobInitialization`. Flink calls a level a task, and a task a subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.config.choices import SpanDetail
from tidegate.events.event import (
    CheckpointEvent,
    EpochEvent,
    JobInitializationEvent,
    RestoredTask,
    TaskCheckpoint,
)

Value = str | int | float | bool | Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTree:
    """A span with the spans below it. Times are milliseconds since 1970-01-01 UTC."""

    name: str
    start_ms: float
    end_ms: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str | None = None
    children: tuple[SpanTree, ...] = ()


def checkpoint_span(event: CheckpointEvent, detail: SpanDetail) -> SpanTree:
    """Return the span of a checkpoint from its trigger to its end. `detail` decides how its tasks are shown."""
    end_ms = event.triggered_ms + event.duration_ms
    attributes: dict[str, Value] = {
        "checkpointId": event.checkpoint_id,
        "checkpointedSize": event.checkpointed_size_bytes,
        "fullSize": event.full_size_bytes,
        "checkpointStatus": event.status,
        "checkpointType": event.checkpoint_type,
        "isUnaligned": False,
        "epoch": event.epoch,
        **_of_tasks(event.tasks),
    }
    if event.failure_reason is not None:
        attributes |= {"failureReason": event.failure_reason, "failureMessage": event.failure_message or ""}
    levels = _by_level(event.tasks)
    if detail is SpanDetail.SPAN_PER_CHECKPOINT_WITH_TASKS:
        attributes |= _arrays(levels)
    children: list[SpanTree] = []
    if detail in (SpanDetail.CHILDREN_SPANS_PER_TASK, SpanDetail.CHILDREN_SPANS_PER_SUBTASK):
        children += [_level_span(event, level, tasks, detail) for level, tasks in levels.items()]
        if event.completed and event.last_ack_ms is not None:
            # From the last acknowledgement to the entry in the log: the metadata is built and written.
            children.append(SpanTree(name="Publish", start_ms=min(event.last_ack_ms, end_ms), end_ms=end_ms))
    return SpanTree(
        name="Checkpoint",
        start_ms=event.triggered_ms,
        end_ms=end_ms,
        attributes=attributes,
        error=None if event.completed else event.failure_message or event.status,
        children=tuple(children),
    )


def _level_span(event: CheckpointEvent, level: int, tasks: Sequence[TaskCheckpoint], detail: SpanDetail) -> SpanTree:
    # Flink's word for a level is task, and for a task subtask.
    subtasks = [_task_span(event, task) for task in tasks] if detail is SpanDetail.CHILDREN_SPANS_PER_SUBTASK else []
    return SpanTree(
        name="Checkpoint_Task",
        start_ms=event.triggered_ms,
        end_ms=max(task.acked_ms for task in tasks),
        attributes={"checkpointId": event.checkpoint_id, "level": level, **_of_tasks(tasks)},
        children=tuple(subtasks),
    )


def _task_span(event: CheckpointEvent, task: TaskCheckpoint) -> SpanTree:
    """Return the span of a task of a checkpoint with its phases in turn: the wait for the epoch in progress, the snapshot, the
    upload."""
    phases = []
    at_ms = float(event.triggered_ms)
    for name, took_ms in (("StartDelay", task.start_delay_ms), ("Snapshot", task.sync_ms), ("Upload", task.async_ms)):
        if took_ms:
            phases.append(SpanTree(name=name, start_ms=at_ms, end_ms=at_ms + took_ms))
            at_ms += took_ms
    return SpanTree(
        name="Checkpoint_Subtask",
        start_ms=event.triggered_ms,
        end_ms=task.acked_ms,
        attributes={
            "checkpointId": event.checkpoint_id,
            "task": f"L{task.level}-S{task.slot}",
            "StateSizeBytes": task.full_size_bytes,
            "CheckpointedSizeBytes": task.checkpointed_size_bytes,
            "CheckpointStartDelayMs": task.start_delay_ms,
            "SyncCheckpointDurationMs": task.sync_ms,
            "AsyncCheckpointDurationMs": task.async_ms,
        },
        children=tuple(phases),
    )


_MEASURED: tuple[tuple[str, str], ...] = (
    ("StateSizeBytes", "full_size_bytes"),
    ("CheckpointedSizeBytes", "checkpointed_size_bytes"),
    ("CheckpointStartDelayMs", "start_delay_ms"),
    ("SyncCheckpointDurationMs", "sync_ms"),
    ("AsyncCheckpointDurationMs", "async_ms"),
)
"""What is known of every task, under Flink's names."""


def _of_tasks(tasks: Sequence[TaskCheckpoint]) -> dict[str, Value]:
    attributes: dict[str, Value] = {}
    for name, field_name in _MEASURED:
        attributes |= _max_and_sum(name, (getattr(task, field_name) for task in tasks))
    return attributes


def _arrays(levels: Mapping[int, Sequence[TaskCheckpoint]]) -> dict[str, Value]:
    """Return the maximum and the sum of each level, in the order of levels."""
    attributes: dict[str, Value] = {}
    for name, field_name in _MEASURED:
        values = [[int(getattr(task, field_name)) for task in tasks] for tasks in levels.values()]
        attributes[f"perTaskMax{name}"] = [max(each) for each in values]
        attributes[f"perTaskSum{name}"] = [sum(each) for each in values]
    return attributes


def _max_and_sum(name: str, values: Iterable[int]) -> dict[str, Value]:
    figures = list(values)
    return {f"Max{name}": max(figures), f"Sum{name}": sum(figures)} if figures else {}


def _by_level(tasks: Iterable[TaskCheckpoint]) -> dict[int, list[TaskCheckpoint]]:
    levels: dict[int, list[TaskCheckpoint]] = {}
    for task in sorted(tasks, key=lambda each: (each.level, each.slot)):
        levels.setdefault(task.level, []).append(task)
    return levels


def initialization_span(event: JobInitializationEvent) -> SpanTree:
    """From the start of an attempt until all tasks are ready."""
    optional: dict[str, Value] = {} if event.checkpoint_id is None else {"checkpointId": event.checkpoint_id}
    return SpanTree(
        name="JobInitialization",
        start_ms=event.started_ms,
        end_ms=event.started_ms + event.duration_ms,
        attributes={
            "initializationStatus": "COMPLETED",
            "fullSize": event.full_size_bytes,
            **optional,
            **_restored(event.tasks),
        },
    )


def _restored(tasks: Sequence[RestoredTask]) -> dict[str, Value]:
    attributes = _max_and_sum("InitializeStateDurationMs", (task.restore_ms for task in tasks))
    attributes |= _max_and_sum("RestoreStateDurationMs", (task.restore_ms - task.download_ms for task in tasks))
    attributes |= _max_and_sum("DownloadStateDurationMs", (task.download_ms for task in tasks))
    attributes |= _max_and_sum("RestoredStateSizeBytes.REMOTE", (task.remote_bytes for task in tasks))
    attributes |= _max_and_sum("RestoredStateSizeBytes.LOCAL_DISK", (task.local_bytes for task in tasks))
    return attributes | _max_and_sum("RestoredStateSizeBytes.LOCAL_MEMORY", (task.memory_bytes for task in tasks))


def epoch_span(event: EpochEvent) -> SpanTree:
    """Return the span of an epoch, with a child for planning, one for each level, and below those what `ctx.span` measured.

    A child never extends beyond its parent: clocks of executors may differ from that of the driver.
    """
    start_ms = event.started_ms
    end_ms = event.started_ms + event.duration_ms
    optional: dict[str, Value] = {} if event.watermark_ms is None else {"watermark": event.watermark_ms}

    # Only durations are known, so phases are placed from the end: the tasks ran last, right after planning. What is left at the
    # beginning are tries that were discarded.
    run_ms = max(start_ms, end_ms - event.run_ms)
    plan = SpanTree(name="Plan", start_ms=max(start_ms, run_ms - event.plan_ms), end_ms=run_ms)
    levels = []
    for level in event.levels:
        begun, ended = _within(level.started_ms, level.started_ms + level.duration_ms, start_ms, end_ms)
        levels.append(
            SpanTree(
                name=f"Level {level.level}",
                start_ms=begun,
                end_ms=ended,
                attributes={
                    "level": level.level,
                    "tasks": level.tasks,
                    "busyTimeMs": level.busy_ms,
                    "idleTimeMs": level.idle_ms,
                    "backPressuredTimeMs": level.held_ms,
                },
                children=tuple(_user_spans(event, level.level, begun, ended)),
            )
        )
    return SpanTree(
        name="Epoch",
        start_ms=start_ms,
        end_ms=end_ms,
        attributes={
            "epoch": event.epoch,
            "rowsIn": event.rows_in,
            "tries": event.tries,
            "lateRowsDropped": event.late_rows_dropped,
            **optional,
        },
        children=(plan, *levels),
    )


def _user_spans(event: EpochEvent, level: int, start_ms: float, end_ms: float) -> Iterable[SpanTree]:
    """Yield one span for all uses of a name: as long as the task took that spent most time in it."""
    for span in event.spans:
        if span.level == level:
            begun, ended = _within(start_ms, start_ms + span.longest_task_ms, start_ms, end_ms)
            yield SpanTree(
                name=span.name,
                start_ms=begun,
                end_ms=ended,
                attributes={
                    "operator": span.operator,
                    "count": span.count,
                    "totalMs": span.total_ms,
                    "maxMs": span.max_ms,
                },
            )


def _within(start_ms: float, end_ms: float, first_ms: float, last_ms: float) -> tuple[float, float]:
    begun = min(max(start_ms, first_ms), last_ms)
    return begun, min(max(end_ms, begun), last_ms)
