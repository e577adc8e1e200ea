"""Messages of REST about checkpoints. Sizes are bytes, times and durations milliseconds; unknown times are -1, as in Flink."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field


class StatsSummary(Struct, frozen=True, kw_only=True):
    """The distribution of one figure; all zero if there is none."""

    min: int = 0
    max: int = 0
    avg: int = 0
    p50: float = 0
    p90: float = 0
    p95: float = 0
    p99: float = 0
    p999: float = 0


_NONE = StatsSummary()
"""For figures about alignment: nothing waits in a buffer for a barrier here."""


class TaskCheckpointStatistics(Struct, frozen=True, kw_only=True):
    """The part of all tasks of one level in a checkpoint."""

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    # Of unaligned checkpoints in Flink. Here nothing is in flight when a checkpoint is taken.
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0


class StorageRequests(Struct, frozen=True, kw_only=True):
    """Requests by kind."""

    write: int
    list: int
    read: int
    delete: int


class StorageUse(Struct, frozen=True, kw_only=True):
    """What a checkpoint needed of storage: its tasks, and the driver with its clean-up."""

    requests: StorageRequests
    written_bytes: int
    read_bytes: int
    estimated_cost_dollars: float | None
    """Of the requests, at `metrics.storage-price.*`. None: storage is a directory."""


class _Statistics(Struct, frozen=True, kw_only=True, tag_field="className"):
    """What all checkpoints have, whatever their status."""

    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = field(name="savepointFormat")
    checkpoint_type: str
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0
    num_subtasks: int
    num_acknowledged_subtasks: int
    tasks: dict[str, TaskCheckpointStatistics] = {}
    """By level; empty where several checkpoints are listed."""
    advice: str | UnsetType = UNSET
    """What to do about a slow one; ours, so it is left out of all other answers."""
    storage: StorageUse | UnsetType = UNSET
    """Ours. Left out if nothing is known."""


class PendingCheckpointStatistics(_Statistics, frozen=True, kw_only=True, tag="in_progress"):
    """A checkpoint in progress."""


class CompletedCheckpointStatistics(_Statistics, frozen=True, kw_only=True, tag="completed"):
    """A completed checkpoint or savepoint."""

    external_path: str | None
    discarded: bool


class FailedCheckpointStatistics(_Statistics, frozen=True, kw_only=True, tag="failed"):
    """A failed checkpoint or savepoint."""

    failure_timestamp: int
    failure_message: str | None


AnyCheckpointStatistics = PendingCheckpointStatistics | CompletedCheckpointStatistics | FailedCheckpointStatistics


class CheckpointCounts(Struct, frozen=True, kw_only=True):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CheckpointSummary(Struct, frozen=True, kw_only=True):
    """Distributions over the completed checkpoints."""

    checkpointed_size: StatsSummary
    state_size: StatsSummary
    end_to_end_duration: StatsSummary
    alignment_buffered: StatsSummary = _NONE
    processed_data: StatsSummary = _NONE
    persisted_data: StatsSummary = _NONE


class RestoredCheckpointStatistics(Struct, frozen=True, kw_only=True):
    """The checkpoint or savepoint that this run started from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class LatestCheckpoints(Struct, frozen=True, kw_only=True):
    completed: AnyCheckpointStatistics | None
    savepoint: AnyCheckpointStatistics | None
    failed: AnyCheckpointStatistics | None
    restored: RestoredCheckpointStatistics | None


class CheckpointingStatistics(Struct, frozen=True, kw_only=True):
    """Counts, summary, the latest of each kind, and the history with those in progress."""

    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[AnyCheckpointStatistics]


class CheckpointDuration(Struct, frozen=True):
    sync: int
    async_: int = field(name="async")


class CheckpointAlignment(Struct, frozen=True, kw_only=True):
    """All zero: nothing waits in a buffer for a barrier here."""

    buffered: int = 0
    processed: int = 0
    persisted: int = 0
    duration: int = 0


class CompletedSubtaskCheckpointStatistics(Struct, frozen=True, kw_only=True, tag_field="className", tag="completed"):
    """A task that has acknowledged the checkpoint."""

    index: int
    status: str = "completed"
    ack_timestamp: int
    end_to_end_duration: int
    state_size: int
    checkpointed_size: int
    checkpoint: CheckpointDuration
    alignment: CheckpointAlignment = CheckpointAlignment()
    start_delay: int
    unaligned_checkpoint: bool = False
    aborted: bool = False


class PendingSubtaskCheckpointStatistics(Struct, frozen=True, kw_only=True, tag_field="className", tag="pending"):
    """A task that has not acknowledged it, or never did."""

    index: int
    status: str = "pending_or_failed"


AnySubtaskCheckpointStatistics = CompletedSubtaskCheckpointStatistics | PendingSubtaskCheckpointStatistics


class CheckpointDurationSummary(Struct, frozen=True):
    sync: StatsSummary
    async_: StatsSummary = field(name="async")


class CheckpointAlignmentSummary(Struct, frozen=True, kw_only=True):
    buffered: StatsSummary = _NONE
    processed: StatsSummary = _NONE
    persisted: StatsSummary = _NONE
    duration: StatsSummary = _NONE


class SubtaskSummary(Struct, frozen=True, kw_only=True):
    """Distributions over the tasks that have acknowledged."""

    state_size: StatsSummary
    checkpointed_size: StatsSummary
    end_to_end_duration: StatsSummary
    checkpoint_duration: CheckpointDurationSummary
    alignment: CheckpointAlignmentSummary = CheckpointAlignmentSummary()
    start_delay: StatsSummary


class TaskCheckpointStatisticsWithSubtasks(TaskCheckpointStatistics, frozen=True, kw_only=True):
    """One level of a checkpoint, task by task."""

    summary: SubtaskSummary
    subtasks: list[AnySubtaskCheckpointStatistics]


class ExternalizedCheckpointInfo(Struct, frozen=True):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfigInfo(Struct, frozen=True, kw_only=True):
    """How checkpoints are taken."""

    mode: str
    interval: int | None
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: ExternalizedCheckpointInfo
    state_backend: str
    checkpoint_storage: str | None
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool = True
    state_changelog_enabled: bool = False
    changelog_periodic_materialization_interval: int | None = None
    changelog_storage: str | None = None
