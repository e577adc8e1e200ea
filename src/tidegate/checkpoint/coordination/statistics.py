"""Checkpoint statistics for people: counts, a short history and summaries, modeled on Flink's REST objects."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.pending import PendingCheckpoint
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.files.task_part import UploadAck
from tidegate.checkpoint.output.sink_commits import SinkCommits
from tidegate.core.clock import Instant
from tidegate.core.ids import EpochId, TaskId
from tidegate.core.storage_cost import NO_CALLS, StorageCalls, StoragePrices, calls_cost
from tidegate.storage.routed import name_below

HISTORY = 10
"""How many checkpoints Flink's paths list: its `web.checkpoints.history`."""
REMEMBERED = 60
"""How many checkpoints that have ended are kept, for whoever wants to see more of them."""
# As many as in Flink's `CompletedCheckpointStatsSummary`.
_SUMMARISED = 10_000


class CheckpointStatus(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStats:
    """The part of one subtask in one checkpoint."""

    task: TaskId
    acked_ms: int
    end_to_end_ms: int
    state_size_bytes: int
    checkpointed_size_bytes: int
    sync_ms: int
    async_ms: int
    start_delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStats:
    """The totals of one level's subtasks: Flink's "operators" table."""

    level: int
    tasks: int
    acknowledged: int
    latest_ack_ms: int
    end_to_end_ms: int
    state_size_bytes: int
    checkpointed_size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStats:
    """The progress of one checkpoint. Unknown times are -1, as in Flink."""

    id: int
    epoch: EpochId
    status: CheckpointStatus
    is_savepoint: bool
    trigger_timestamp: int
    latest_ack_timestamp: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    state_size_bytes: int
    checkpointed_size_bytes: int
    end_to_end_ms: int
    tasks: tuple[TaskStats, ...] = ()
    waiting: tuple[TaskId, ...] = ()
    """Subtasks that have not acknowledged."""
    external_path: str | None = None
    discarded: bool = False
    failure_timestamp: int = -1
    failure: CheckpointFailureReason | None = None
    failure_message: str | None = None
    savepoint_format: str | None = None
    checkpoint_type: str = "Checkpoint"
    """In Flink's words: `Checkpoint`, `Full Checkpoint`, `Savepoint` or `Terminate Savepoint`."""
    requests: StorageCalls = NO_CALLS
    """To storage, by the tasks that have acknowledged and, when it has ended, by the driver."""
    cost_dollars: float | None = None
    """Estimated cost of these requests. None: storage is a directory."""

    def levels(self) -> tuple[LevelStats, ...]:
        by_level: dict[int, list[TaskStats]] = {task.level: [] for task in self.waiting}
        for task in self.tasks:
            by_level.setdefault(task.task.level, []).append(task)
        return tuple(
            LevelStats(
                level=level,
                tasks=len(group) + sum(task.level == level for task in self.waiting),
                acknowledged=len(group),
                latest_ack_ms=max((t.acked_ms for t in group), default=-1),
                end_to_end_ms=max((t.end_to_end_ms for t in group), default=-1),
                state_size_bytes=sum(t.state_size_bytes for t in group),
                checkpointed_size_bytes=sum(t.checkpointed_size_bytes for t in group),
            )
            for level, group in sorted(by_level.items())
        )


@dataclass(frozen=True, slots=True)
class Restored:
    """The checkpoint or savepoint that this run started from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Summary of one metric over the last completed checkpoints."""

    min: int
    max: int
    avg: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float

    @staticmethod
    def of(values: Iterable[int]) -> Percentiles | None:
        ordered = sorted(values)
        if not ordered:
            return None
        last = len(ordered) - 1

        def at(quantile: float) -> float:
            # Linear between the two values around it.
            low = int(quantile * last)
            high = min(low + 1, last)
            return ordered[low] + (ordered[high] - ordered[low]) * (quantile * last - low)

        return Percentiles(
            min=ordered[0],
            max=ordered[-1],
            avg=sum(ordered) // len(ordered),
            p50=at(0.5),
            p90=at(0.9),
            p95=at(0.95),
            p99=at(0.99),
            p999=at(0.999),
        )


@dataclass(slots=True)
class CheckpointStatsCounts:
    restored: int = 0
    total: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatsSnapshot:
    """The statistics at one moment. Can be stored, and read when the driver is gone."""

    counts: CheckpointStatsCounts
    latest_completed: CheckpointStats | None
    latest_savepoint: CheckpointStats | None
    latest_failed: CheckpointStats | None
    latest_restored: Restored | None
    summary: dict[str, Percentiles | None]
    """Under Flink's names."""
    in_progress: tuple[CheckpointStats, ...]
    history: tuple[CheckpointStats, ...]
    """Both newest first."""

    def find(self, checkpoint_id: int) -> CheckpointStats | None:
        return next((each for each in (*self.in_progress, *self.history) if each.id == checkpoint_id), None)


@dataclass(slots=True, kw_only=True)
class CheckpointStatsTracker:
    """Updated by the coordinator."""

    directory: str = ""
    """The checkpoint directory, which names of checkpoints are relative to."""
    counts: CheckpointStatsCounts = field(default_factory=CheckpointStatsCounts)
    latest_completed: CheckpointStats | None = None
    latest_savepoint: CheckpointStats | None = None
    latest_failed: CheckpointStats | None = None
    latest_restored: Restored | None = None
    commits: Counter[str] = field(default_factory=Counter)
    """Commit outcomes by the names of `CommitOutcome`. A retried request counts again."""
    sinks: SinkCommits = field(default_factory=SinkCommits)
    metadata_bytes: int = 0
    """Size of the `_metadata` of the last completed checkpoint."""
    prices: StoragePrices | None = None
    """None: requests cost nothing."""
    on_ended: Callable[[CheckpointStats], None] = lambda stats: None
    """Called once for every checkpoint that completes or fails, as it is counted."""
    _history: deque[CheckpointStats] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _under_way: dict[int, PendingCheckpoint] = field(default_factory=dict)
    _finished: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_SUMMARISED))

    def restored(self, restored: Restored) -> None:
        self.counts.restored += 1
        self.latest_restored = restored

    def triggered(self, pending: PendingCheckpoint) -> None:
        self.counts.total += 1
        self.counts.in_progress += 1
        self._under_way[pending.id] = pending

    def completed(self, pending: PendingCheckpoint, now: Instant, external_path: str) -> CheckpointStats:
        place = name_below(self.directory, external_path.removesuffix("/_metadata"))
        stats = replace(self._described(pending, CheckpointStatus.COMPLETED, now), external_path=place)
        self._under_way.pop(pending.id, None)
        self.counts.in_progress -= 1
        self.counts.completed += 1
        if stats.is_savepoint:
            self.latest_savepoint = stats
        else:
            self.latest_completed = stats
        self._finished.append((stats.checkpointed_size_bytes, stats.state_size_bytes, stats.end_to_end_ms))
        return self._ended(stats)

    def failed(
        self, pending: PendingCheckpoint, now: Instant, reason: CheckpointFailureReason, message: str
    ) -> CheckpointStats:
        stats = replace(
            self._described(pending, CheckpointStatus.FAILED, now),
            failure=reason,
            failure_message=message or reason.message,
            failure_timestamp=now.wall_ms,
        )
        self._under_way.pop(pending.id, None)
        self.counts.in_progress -= 1
        self.counts.failed += 1
        self.latest_failed = stats
        return self._ended(stats)

    def _ended(self, stats: CheckpointStats) -> CheckpointStats:
        self._history.append(stats)
        self.on_ended(stats)
        return stats

    def dropped(self, checkpoint_ids: Iterable[int]) -> None:
        """These checkpoints are subsumed; the history shows them as discarded."""
        gone = set(checkpoint_ids)
        kept = [replace(s, discarded=True) if s.id in gone else s for s in self._history]
        self._history = deque(kept, maxlen=REMEMBERED)

    def record_calls(self, checkpoint_id: int, requests: StorageCalls) -> None:
        """The driver has made these requests for a checkpoint that has ended."""

        def with_calls(stats: CheckpointStats) -> CheckpointStats:
            if stats.id != checkpoint_id:
                return stats
            return self._priced(replace(stats, requests=stats.requests + requests))

        self._history = deque((with_calls(each) for each in self._history), maxlen=REMEMBERED)
        self.latest_completed = self.latest_completed and with_calls(self.latest_completed)
        self.latest_savepoint = self.latest_savepoint and with_calls(self.latest_savepoint)
        self.latest_failed = self.latest_failed and with_calls(self.latest_failed)

    def _described(self, pending: PendingCheckpoint, status: CheckpointStatus, now: Instant) -> CheckpointStats:
        return self._priced(describe(pending, status, now))

    def _priced(self, stats: CheckpointStats) -> CheckpointStats:
        return stats if self.prices is None else replace(stats, cost_dollars=calls_cost(stats.requests, self.prices))

    def history(self) -> tuple[CheckpointStats, ...]:
        """Return the checkpoints that have ended, newest first."""
        return tuple(reversed(self._history.copy()))

    def under_way(self, now: Instant) -> tuple[CheckpointStats, ...]:
        """Return the checkpoints in progress, newest first. Can be called from any thread."""
        # Copied first: REST and the UI ask from other threads while the loop adds and removes.
        pending = sorted(self._under_way.copy().values(), key=lambda one: -one.id)
        return tuple(self._described(one, CheckpointStatus.IN_PROGRESS, now) for one in pending)

    def report(self, now: Instant) -> CheckpointStatsSnapshot:
        """Return everything, as it is now. Can be called from any thread."""
        return CheckpointStatsSnapshot(
            counts=replace(self.counts),
            latest_completed=self.latest_completed,
            latest_savepoint=self.latest_savepoint,
            latest_failed=self.latest_failed,
            latest_restored=self.latest_restored,
            summary=self.summary(),
            in_progress=self.under_way(now),
            history=self.history(),
        )

    def summary(self) -> dict[str, Percentiles | None]:
        """Return the summaries under Flink's names."""
        columns = list(zip(*self._finished.copy())) or [(), (), ()]
        names = ("checkpointed_size", "state_size", "end_to_end_duration")
        return {name: Percentiles.of(values) for name, values in zip(names, columns)}


def describe(pending: PendingCheckpoint, status: CheckpointStatus, now: Instant) -> CheckpointStats:
    """Return the statistics of a checkpoint in progress or just ended."""
    acks = list(pending.acks.values())
    return CheckpointStats(
        id=pending.id,
        epoch=pending.epoch,
        status=status,
        is_savepoint=pending.request.kind.is_savepoint,
        savepoint_format=pending.request.format,
        checkpoint_type=_type(pending.request),
        trigger_timestamp=pending.triggered.wall_ms,
        latest_ack_timestamp=-1 if pending.last_ack is None else pending.last_ack.wall_ms,
        num_subtasks=len(pending.tasks),
        num_acknowledged_subtasks=len(acks),
        state_size_bytes=sum(a.state_size_bytes for a in acks),
        checkpointed_size_bytes=sum(a.checkpointed_size_bytes for a in acks),
        end_to_end_ms=now.since(pending.triggered),
        tasks=tuple(_task(ack, pending) for ack in acks),
        requests=StorageCalls.sum(ack.requests for ack in acks),
        waiting=tuple(sorted(pending.tasks - {ack.task for ack in acks})),
    )


def _type(request: CheckpointRequest) -> str:
    match request.kind:
        case RequestKind.TERMINAL_SAVEPOINT:
            return "Terminate Savepoint"
        case RequestKind.SAVEPOINT:
            return "Savepoint"
    return "Full Checkpoint" if request.full else "Checkpoint"


def _task(ack: UploadAck, pending: PendingCheckpoint) -> TaskStats:
    acked = pending.acked_at[ack.task]
    end_to_end_ms = acked.since(pending.triggered)
    return TaskStats(
        task=ack.task,
        acked_ms=acked.wall_ms,
        end_to_end_ms=end_to_end_ms,
        state_size_bytes=ack.state_size_bytes,
        checkpointed_size_bytes=ack.checkpointed_size_bytes,
        sync_ms=ack.sync_ms,
        async_ms=ack.async_ms,
        # The rest of the time: waiting for the next epoch, its tasks, and the driver to receive the result.
        # Not below 0: two machines have measured.
        start_delay_ms=max(0, end_to_end_ms - ack.sync_ms - ack.async_ms),
    )
