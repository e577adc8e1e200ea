"""The events of a run: made here and nowhere else, from what the driver knows.

Each method is called in one place: an epoch by `Epochs.run`, a checkpoint by the statistics, a failure and the status by the
supervisor, the rest by the start of an attempt or of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidegate.checkpoint.coordination.statistics import CheckpointStats
from tidegate.core.clock import SYSTEM_CLOCK, Clock, Instant
from tidegate.core.ids import Slot, TaskId
from tidegate.core.log_setup import LogContext
from tidegate.core.redaction import redacted
from tidegate.core.times import MIN_WATERMARK
from tidegate.events.bus import DRAIN_S, EventBus
from tidegate.events.event import (
    TERMINAL,
    CheckpointEvent,
    EpochEvent,
    JobFailureEvent,
    JobInitializationEvent,
    JobStatusChangeEvent,
    LevelTime,
    RescaleEvent,
    RestoredTask,
    SpanTime,
    TaskCheckpoint,
)
from tidegate.events.listener import JobListener
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.messages import TaskAck
from tidegate.runtime.monitoring.run_report import FailureLine


class JobEvents:
    """Emits the events of one run. Any thread may call any method."""

    def __init__(self, job: str, listeners: Sequence[JobListener] = (), clock: Clock = SYSTEM_CLOCK) -> None:
        self._job = job
        self._clock = clock
        self.log_context = LogContext(job)
        self._bus = EventBus(listeners)
        self._status: str | None = None
        self._status_lock = threading.Lock()

    def epoch(self, report: EpochReport) -> None:
        """An epoch was accepted just now."""
        now_ms = self._clock.now().wall_ms
        self._bus.emit(
            EpochEvent(
                job=self._job,
                at_ms=now_ms,
                epoch=str(report.epoch),
                started_ms=now_ms - report.duration_ms,
                duration_ms=report.duration_ms,
                plan_ms=report.plan_ms,
                run_ms=report.job_ms,
                rows_in=report.rows_in,
                tries=report.tries,
                watermark_ms=report.watermark_ms if report.watermark_ms > MIN_WATERMARK else None,
                late_rows_dropped=report.late_rows_dropped,
                operators=report.operators,
                levels=tuple(_levels(report.acks)),
                spans=tuple(_spans(report.acks)),
            )
        )

    def checkpoint(self, stats: CheckpointStats) -> None:
        """A checkpoint or savepoint has completed or failed."""
        self._bus.emit(
            CheckpointEvent(
                job=self._job,
                at_ms=stats.trigger_timestamp + stats.end_to_end_ms,
                checkpoint_id=stats.id,
                checkpoint_type=stats.checkpoint_type,
                status=str(stats.status),
                epoch=str(stats.epoch),
                triggered_ms=stats.trigger_timestamp,
                duration_ms=stats.end_to_end_ms,
                checkpointed_size_bytes=stats.checkpointed_size_bytes,
                full_size_bytes=stats.state_size_bytes,
                # Flink's -1 for "no task has acknowledged" stays in REST; events have null.
                last_ack_ms=stats.latest_ack_timestamp if stats.latest_ack_timestamp >= 0 else None,
                path=stats.external_path,
                failure_reason=None if stats.failure is None else stats.failure.name,
                failure_message=_why(stats),
                tasks=tuple(
                    TaskCheckpoint(
                        level=each.task.level,
                        slot=each.task.slot,
                        acked_ms=each.acked_ms,
                        start_delay_ms=each.start_delay_ms,
                        sync_ms=each.sync_ms,
                        async_ms=each.async_ms,
                        full_size_bytes=each.state_size_bytes,
                        checkpointed_size_bytes=each.checkpointed_size_bytes,
                    )
                    for each in stats.tasks
                ),
            )
        )

    def failure(
        self, error: BaseException, kind: str, *, can_restart: bool, checkpoint_id: int | None = None, delay_ms: int = 0
    ) -> None:
        """A failure ended an attempt or, unless it `can_restart`, the run."""
        self._bus.emit(
            JobFailureEvent(
                job=self._job,
                at_ms=self._clock.now().wall_ms,
                kind=kind,
                message=redacted(str(error)) or type(error).__name__,
                can_restart=can_restart,
                checkpoint_id=checkpoint_id or None,
                delay_ms=delay_ms,
            )
        )

    def driver_lost(self, lost: FailureLine, checkpoint_id: int | None) -> None:
        """The driver before this one ended without a word, and the run continues from this checkpoint."""
        self._bus.emit(
            JobFailureEvent(
                job=self._job,
                at_ms=lost.at_ms,
                kind=lost.kind,
                message=lost.message,
                can_restart=True,
                checkpoint_id=checkpoint_id,
            )
        )

    def status(self, new: str) -> None:
        """The job has this status. Emits nothing if it had it before, or has ended."""
        with self._status_lock:
            old = self._status
            # Several threads announce the status. Only the first of them emits, and nothing follows the end.
            if new == old or old in TERMINAL:
                return
            self._status = new
            self._bus.emit(
                JobStatusChangeEvent(job=self._job, at_ms=self._clock.now().wall_ms, new_status=new, old_status=old)
            )

    def rescaled(self, old_parallelism: int, new_parallelism: int) -> None:
        """The run has another parallelism than the snapshot that it starts from."""
        self._bus.emit(
            RescaleEvent(
                job=self._job,
                at_ms=self._clock.now().wall_ms,
                old_parallelism=old_parallelism,
                new_parallelism=new_parallelism,
            )
        )

    def initialized(
        self,
        started: Instant,
        checkpoint_id: int | None = None,
        sizes: Mapping[TaskId, tuple[int, int]] | None = None,
        acks: Iterable[TaskAck] = (),
    ) -> None:
        """The tasks are ready. `acks` are those of the epoch that restored the checkpoint; `sizes`: for each
        task, the bytes of files in storage and of those in the metadata.
        """
        now, sizes = self._clock.now(), sizes or {}
        event = JobInitializationEvent(
            job=self._job,
            at_ms=now.wall_ms,
            started_ms=started.wall_ms,
            duration_ms=now.since(started),
            checkpoint_id=checkpoint_id,
            full_size_bytes=sum(map(sum, sizes.values())),
            tasks=tuple(_restored(acks, sizes)),
        )
        self._bus.emit(event)

    def close(self, within_s: float = DRAIN_S) -> None:
        """The run has ended: let the listeners finish, within this time. May be repeated."""
        self._bus.close(within_s)
        self.log_context.leave()


def _why(stats: CheckpointStats) -> str | None:
    reason, message = stats.failure, stats.failure_message
    if reason is None:
        return None
    return redacted(f"{reason.message}: {message}") if message and message != reason.message else f"{reason.message}."


def _levels(acks: Iterable[TaskAck]) -> Iterator[LevelTime]:
    by_level: dict[int, list[TaskAck]] = {}
    for ack in acks:
        if ack.metrics.started_ms:
            by_level.setdefault(ack.level, []).append(ack)
    for level, found in sorted(by_level.items()):
        measured = [ack.metrics for ack in found]
        started_ms = min(each.started_ms for each in measured)
        ended_ms = max(each.started_ms + each.busy_ms + each.idle_ms + each.held_ms for each in measured)
        yield LevelTime(
            level=level,
            started_ms=started_ms,
            duration_ms=ended_ms - started_ms,
            tasks=len(found),
            busy_ms=sum(each.busy_ms for each in measured),
            idle_ms=sum(each.idle_ms for each in measured),
            held_ms=sum(each.held_ms for each in measured),
        )


def _spans(acks: Iterable[TaskAck]) -> Iterator[SpanTime]:
    found: dict[tuple[int, str, str], list[tuple[int, int, int]]] = {}
    for ack in acks:
        for operator, spans in ack.spans.items():
            for name, measured in spans.items():
                found.setdefault((ack.level, operator, name), []).append(measured)
    for (level, operator, name), uses in sorted(found.items()):
        counts, totals, longest = zip(*uses)
        yield SpanTime(
            operator=operator,
            name=name,
            level=level,
            count=sum(counts),
            total_ms=sum(totals) / 1000,
            max_ms=max(longest) / 1000,
            longest_task_ms=max(totals) / 1000,
        )


def _restored(acks: Iterable[TaskAck], sizes: Mapping[TaskId, tuple[int, int]]) -> Iterator[RestoredTask]:
    for ack in acks:
        size = sizes.get(TaskId(ack.level, Slot(ack.sender)))
        if size is not None:
            measured, (in_files, in_metadata) = ack.metrics, size
            # A resumed download counts bytes twice, and more than all files cannot be remote.
            remote = min(measured.download_bytes, in_files)
            yield RestoredTask(
                level=ack.level,
                slot=ack.sender,
                restore_ms=measured.restore_ms,
                download_ms=min(measured.download_ms, measured.restore_ms),
                remote_bytes=remote,
                local_bytes=in_files - remote,
                memory_bytes=in_metadata,
            )
