"""The statistics of checkpoints in the form of Flink's REST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tidegate.checkpoint.coordination.statistics import (
    HISTORY,
    CheckpointStats,
    CheckpointStatsSnapshot,
    CheckpointStatus,
    LevelStats,
    Percentiles,
    Restored,
)
from tidegate.control.jobs.checkpoint_advice import checkpoint_advice
from tidegate.control.jobs.plan import vertex_id
from tidegate.control.jobs.stored_jobs import StoredJob
from tidegate.control.messages.checkpoints import (
    AnyCheckpointStatistics,
    AnySubtaskCheckpointStatistics,
    CheckpointCounts,
    CheckpointDuration,
    CheckpointDurationSummary,
    CheckpointingStatistics,
    CheckpointSummary,
    CompletedCheckpointStatistics,
    CompletedSubtaskCheckpointStatistics,
    FailedCheckpointStatistics,
    LatestCheckpoints,
    PendingCheckpointStatistics,
    PendingSubtaskCheckpointStatistics,
    RestoredCheckpointStatistics,
    StatsSummary,
    StorageRequests,
    StorageUse,
    SubtaskSummary,
    TaskCheckpointStatistics,
    TaskCheckpointStatisticsWithSubtasks,
)
from tidegate.core.redaction import redacted
from tidegate.runtime.driver.recorder import recorded_runs

_NO_TASKS = LevelStats(
    level=0, tasks=0, acknowledged=0, latest_ack_ms=-1, end_to_end_ms=-1, state_size_bytes=0, checkpointed_size_bytes=0
)


def checkpointing_statistics(report: CheckpointStatsSnapshot, most: int = HISTORY) -> CheckpointingStatistics:
    """Flink's answer, with the last `most` checkpoints that have ended."""
    counts = report.counts
    return CheckpointingStatistics(
        counts=CheckpointCounts(
            restored=counts.restored,
            total=counts.total,
            in_progress=counts.in_progress,
            completed=counts.completed,
            failed=counts.failed,
        ),
        summary=CheckpointSummary(**{name: _summary(spread) for name, spread in report.summary.items()}),
        latest=LatestCheckpoints(
            completed=_latest(report.latest_completed),
            savepoint=_latest(report.latest_savepoint),
            failed=_latest(report.latest_failed),
            restored=_restored(report.latest_restored),
        ),
        history=[checkpoint_statistics(stats) for stats in (*report.in_progress, *report.history[:most])],
    )


def statistics_with_subtasks(
    stats: CheckpointStats, levels: Iterable[int], vertex: str
) -> TaskCheckpointStatisticsWithSubtasks | None:
    """Return one level of a checkpoint; None if neither the checkpoint nor the job has such a level."""
    level = statistics_by_level(stats, levels).get(vertex)
    if level is None:
        return None

    # Every subtask is listed, as in Flink: with figures if it has acknowledged, otherwise as pending.
    acknowledged = [task for task in stats.tasks if vertex_id(task.task.level) == vertex]
    subtasks: list[AnySubtaskCheckpointStatistics] = [
        CompletedSubtaskCheckpointStatistics(
            index=int(task.task.slot),
            ack_timestamp=task.acked_ms,
            end_to_end_duration=task.end_to_end_ms,
            state_size=task.state_size_bytes,
            checkpointed_size=task.checkpointed_size_bytes,
            checkpoint=CheckpointDuration(task.sync_ms, task.async_ms),
            start_delay=task.start_delay_ms,
        )
        for task in acknowledged
    ]
    subtasks += [
        PendingSubtaskCheckpointStatistics(index=int(task.slot))
        for task in stats.waiting
        if vertex_id(task.level) == vertex
    ]
    summary = SubtaskSummary(
        state_size=_summary(Percentiles.of(task.state_size_bytes for task in acknowledged)),
        checkpointed_size=_summary(Percentiles.of(task.checkpointed_size_bytes for task in acknowledged)),
        end_to_end_duration=_summary(Percentiles.of(task.end_to_end_ms for task in acknowledged)),
        checkpoint_duration=CheckpointDurationSummary(
            _summary(Percentiles.of(task.sync_ms for task in acknowledged)),
            _summary(Percentiles.of(task.async_ms for task in acknowledged)),
        ),
        start_delay=_summary(Percentiles.of(task.start_delay_ms for task in acknowledged)),
    )
    return TaskCheckpointStatisticsWithSubtasks(
        **msgspec.structs.asdict(level), summary=summary, subtasks=sorted(subtasks, key=lambda one: one.index)
    )


def statistics_by_level(stats: CheckpointStats, levels: Iterable[int]) -> dict[str, TaskCheckpointStatistics]:
    """By the id of the vertex, for all levels of the job. The source stage has no tasks that acknowledge a checkpoint: the driver
    stores the positions of sources."""
    by_level = {level.level: level for level in stats.levels()}
    return {
        vertex_id(number): TaskCheckpointStatistics(
            id=stats.id,
            status=str(stats.status),
            latest_ack_timestamp=level.latest_ack_ms,
            checkpointed_size=level.checkpointed_size_bytes,
            state_size=level.state_size_bytes,
            end_to_end_duration=level.end_to_end_ms,
            num_subtasks=level.tasks,
            num_acknowledged_subtasks=level.acknowledged,
        )
        for number in sorted({*by_level, *levels})
        for level in [by_level.get(number, _NO_TASKS)]
    }


def _latest(stats: CheckpointStats | None) -> AnyCheckpointStatistics | None:
    if stats is None:
        return None
    return checkpoint_statistics(stats)


def checkpoint_statistics(
    stats: CheckpointStats, tasks: dict[str, TaskCheckpointStatistics] | None = None
) -> AnyCheckpointStatistics:
    """Return one checkpoint. `tasks` are its levels, which are left out, as its advice is, where several checkpoints are
    listed."""
    # The last two are not Flink's. UNSET leaves them out where there is nothing to add.
    shared: dict[str, Any] = {
        "id": stats.id,
        "status": str(stats.status),
        "is_savepoint": stats.is_savepoint,
        "savepoint_format": stats.savepoint_format,
        "checkpoint_type": "SAVEPOINT" if stats.is_savepoint else "CHECKPOINT",
        "trigger_timestamp": stats.trigger_timestamp,
        "latest_ack_timestamp": stats.latest_ack_timestamp,
        "checkpointed_size": stats.checkpointed_size_bytes,
        "state_size": stats.state_size_bytes,
        "end_to_end_duration": stats.end_to_end_ms,
        "num_subtasks": stats.num_subtasks,
        "num_acknowledged_subtasks": stats.num_acknowledged_subtasks,
        "tasks": tasks or {},
        "advice": (tasks and checkpoint_advice(stats)) or msgspec.UNSET,
        "storage": storage_use(stats) or msgspec.UNSET,
    }
    match stats.status:
        case CheckpointStatus.COMPLETED:
            return CompletedCheckpointStatistics(
                **shared, external_path=_redacted(stats.external_path), discarded=stats.discarded
            )
        case CheckpointStatus.FAILED:
            return FailedCheckpointStatistics(
                **shared, failure_timestamp=stats.failure_timestamp, failure_message=_redacted(stats.failure_message)
            )
        case CheckpointStatus.IN_PROGRESS:
            return PendingCheckpointStatistics(**shared)


def storage_use(stats: CheckpointStats) -> StorageUse | None:
    """Return what a checkpoint needed of storage, or None if that is unknown."""
    requests = stats.requests
    if not requests:
        return None
    return StorageUse(
        requests=StorageRequests(
            write=requests.writes, list=requests.lists, read=requests.reads, delete=requests.deletes
        ),
        written_bytes=requests.written_bytes,
        read_bytes=requests.read_bytes,
        estimated_cost_dollars=stats.cost_dollars,
    )


def storage_of_checkpoints(job: StoredJob) -> dict[int, StorageUse]:
    """Return what retained checkpoints needed of storage, by id, as far as the records of the job's runs contain it."""
    retained = {ref.id for ref in job.newest.retained}
    uses: dict[int, StorageUse] = {}
    for run in recorded_runs(job.storage, job.layout):
        if run.checkpoints is None:
            continue
        for stats in run.checkpoints.history:
            if stats.id in retained and (use := storage_use(stats)) is not None:
                uses.setdefault(stats.id, use)  # runs come newest first, and the newest record counts
        if uses.keys() >= retained:
            break
    return uses


def _restored(restored: Restored | None) -> RestoredCheckpointStatistics | None:
    if restored is None:
        return None
    return RestoredCheckpointStatistics(
        id=restored.id,
        restore_timestamp=restored.restore_timestamp,
        is_savepoint=restored.is_savepoint,
        external_path=_redacted(restored.external_path),
    )


def _redacted(text: str | None) -> str | None:
    if text is None:
        return None
    return redacted(text)


def _summary(spread: Percentiles | None) -> StatsSummary:
    if spread is None:
        return StatsSummary()
    return msgspec.convert(spread, StatsSummary, from_attributes=True)
