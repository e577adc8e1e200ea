"""The metrics of a run: totals over its epochs, and the last values of its tasks.

The thread that runs epochs writes, any thread reads. What is replaced is replaced as a whole, so a reader needs no lock: it may
see the epoch before in one place and the last epoch in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from tidegate.checkpoint.release_plan import WaitingOutput
from tidegate.checkpoint.sink_commits import SinkCommits
from tidegate.checkpoint.statistics import CheckpointStatistics
from tidegate.core.clock import SYSTEM_CLOCK, Clock
from tidegate.core.ids import Slot, TaskId, Uid
from tidegate.core.redaction import redacted
from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK
from tidegate.metrics import catalog
from tidegate.metrics.metric import Metric, Sample
from tidegate.runtime.driver.epoch_ages import EpochAges
from tidegate.runtime.driver.epoch_reports import EpochReport, added_rows
from tidegate.runtime.driver.failover import Counters
from tidegate.runtime.driver.run_report import TaskLine
from tidegate.runtime.driver.sink_metrics import sink_samples
from tidegate.runtime.driver.span_metrics import SpanMetrics
from tidegate.runtime.driver.status_times import StatusTimes
from tidegate.runtime.driver.storage_metrics import Transferred, added, storage_samples
from tidegate.runtime.exchange.messages import TaskAck

STATUSES = ("INITIALIZING", "RUNNING", "RESTARTING", "CANCELLING", "CANCELED", "FINISHED", "FAILED")

_TASK_TOTALS: tuple[tuple[Metric, str], ...] = (
    (catalog.TASK_RECORDS_IN, "rows_in"),
    (catalog.TASK_RECORDS_OUT, "rows_out"),
    (catalog.LATE_DROPPED, "late_dropped"),
)
_MEASURED_TOTALS: tuple[tuple[Metric, str], ...] = (
    (catalog.TASK_BYTES_IN, "bytes_in"),
    (catalog.TASK_BYTES_OUT, "bytes_out"),
    (catalog.FIRED_TIMERS, "fired_timers"),
    (catalog.RECORDS_IN_ERRORS, "failed_rows"),
    (catalog.TOTAL_BUSY, "busy_ms"),
    (catalog.TOTAL_IDLE, "idle_ms"),
    (catalog.TOTAL_HELD, "held_ms"),
)
_RESOURCES: tuple[tuple[Metric, str], ...] = (
    (catalog.MEMORY_USED, "memory_used_bytes"),
    (catalog.MEMORY_BUDGET, "memory_budget_bytes"),
    (catalog.DISK_FREE, "disk_free_bytes"),
    (catalog.DISK_SIZE, "disk_size_bytes"),
)
_SHARES = ((catalog.BUSY, "busy_ms"), (catalog.IDLE, "idle_ms"), (catalog.HELD, "held_ms"))


class RunView(Protocol):
    """What the metrics of a run are read from, besides its epochs."""

    @property
    def status(self) -> str: ...
    @property
    def restarts(self) -> int: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def checkpoints(self) -> CheckpointStatistics | None: ...
    @property
    def waiting_output(self) -> tuple[WaitingOutput, ...]: ...
    @property
    def held_by(self) -> WaitingOutput | None: ...


class Figures(Protocol):
    """What is read where it arises (`run_figures`)."""

    @property
    def sink_commits(self) -> SinkCommits: ...
    @property
    def pending_rows(self) -> Mapping[str, int]: ...
    @property
    def storage_traffic(self) -> Transferred: ...


class JobMetrics:
    """`sinks` are all sinks of the job: one without waiting output has the value 0. `rescales`: how often the run was
    restored with another parallelism. `is_priced`: its storage is one that costs money for each request.
    """

    def __init__(
        self, sinks: Iterable[Uid], clock: Clock = SYSTEM_CLOCK, *, interval_ms: int | None = None, rescales: int = 0,
        is_priced: bool = False,
    ) -> None:  # fmt: skip
        self._sinks, self._clock = tuple(sinks), clock
        self._interval_ms, self._rescales, self._is_priced = interval_ms, rescales, is_priced
        self.statuses = StatusTimes(clock)
        self.ages = EpochAges(clock)
        self._source_rows: Mapping[str, int] = {}
        self._fetch_lag_ms: Mapping[str, int] = {}
        self._storage: Transferred = {}
        self._started = clock.now()
        self._last: EpochReport | None = None
        self._epochs = 0
        self.operators: Mapping[str, tuple[int, int]] = {}
        """Rows in and out of the run so far, by operator."""
        self._tasks: Mapping[TaskId, TaskAck] = {}
        self._totals: Mapping[tuple[Metric, TaskId], int] = {}
        self._state_bytes: Mapping[TaskId, int] = {}
        self._restore_ms: Mapping[TaskId, int] = {}
        self.event_times: Mapping[str, int] = {}
        """The greatest event time read so far, by split of a source."""
        self._spans = SpanMetrics()

    def epoch(self, report: EpochReport, acks: Iterable[TaskAck]) -> None:
        """Add an accepted epoch."""
        acks = tuple(acks)
        self._spans.epoch(acks)
        operators, totals = added_rows((self.operators, report.operators)), Counter(self._totals)
        state_bytes, restore_ms, event_times = dict(self._state_bytes), dict(self._restore_ms), dict(self.event_times)
        tasks: dict[TaskId, TaskAck] = {}
        for ack in acks:
            task = TaskId(ack.level, Slot(ack.sender))
            tasks[task] = ack
            totals.update({(metric, task): getattr(ack, field) for metric, field in _TASK_TOTALS})
            totals.update({(metric, task): getattr(ack.metrics, field) for metric, field in _MEASURED_TOTALS})
            if ack.state_bytes:
                state_bytes[task] = ack.state_bytes
            if ack.metrics.restore_ms:
                restore_ms[task] = ack.metrics.restore_ms
            for split, greatest_ms in ack.event_times.items():
                event_times[split] = max(greatest_ms, event_times.get(split, greatest_ms))
        self._add_sources(report, tasks.values())
        self._storage = added([self._storage, *(ack.metrics.storage for ack in tasks.values())])
        self.operators, self._tasks, self._totals = operators, tasks, totals
        self._state_bytes, self._restore_ms, self.event_times = state_bytes, restore_ms, event_times
        self._epochs += 1
        self._last = report

    def _add_sources(self, report: EpochReport, acks: Iterable[TaskAck]) -> None:
        rows, seen = Counter(self._source_rows), Counter[str]()
        for ack in acks:
            rows.update(ack.metrics.source_rows)
            for split, greatest_ms in ack.event_times.items():
                seen[split] = max(greatest_ms, seen.get(split, greatest_ms))
        read_ms = self._clock.now().wall_ms - report.duration_ms
        self._fetch_lag_ms = {**self._fetch_lag_ms, **{split: read_ms - ms for split, ms in seen.items()}}
        self._source_rows = rows

    def tasks(self) -> tuple[TaskLine, ...]:
        """Every task of the last epoch, with its totals."""
        return tuple(self._task(task, ack) for task, ack in sorted(self._tasks.items()))

    def _task(self, task: TaskId, ack: TaskAck) -> TaskLine:
        totals, found = self._totals, ack.metrics
        spent_ms = max(1, found.busy_ms + found.idle_ms + found.held_ms)
        return TaskLine(
            task=str(task),
            level=task.level,
            slot=int(task.slot),
            host=ack.host,
            busy=found.busy_ms / spent_ms,
            idle=found.idle_ms / spent_ms,
            held=found.held_ms / spent_ms,
            rows_in=totals.get((catalog.TASK_RECORDS_IN, task), 0),
            rows_out=totals.get((catalog.TASK_RECORDS_OUT, task), 0),
            bytes_in=totals.get((catalog.TASK_BYTES_IN, task), 0),
            bytes_out=totals.get((catalog.TASK_BYTES_OUT, task), 0),
            fired_timers=totals.get((catalog.FIRED_TIMERS, task), 0),
            late_dropped=totals.get((catalog.LATE_DROPPED, task), 0),
            state_bytes=self._state_bytes.get(task, 0),
            resident_bytes=found.resident_bytes,
            restore_ms=self._restore_ms.get(task, 0),
            seal_ms=found.seal_ms,
        )

    def samples(self, run: RunView, figures: Figures) -> list[Sample]:
        """The current value of every metric that has one."""
        return [
            *self._of_job(run),
            *self._of_checkpoints(run.checkpoints),
            *self._of_tasks(),
            *self._of_operators(),
            *self._spans.samples(),
            *self._of_epochs(run),
            *self._of_sources(figures.pending_rows),
            *sink_samples(
                self._sinks,
                waiting=run.waiting_output,
                commits=figures.sink_commits,
                ages=self.ages,
                rows=self.operators,
            ),
            *self._of_storage(run.checkpoints, figures.storage_traffic),
        ]

    def _of_job(self, run: RunView) -> Iterator[Sample]:
        now, status = self._clock.now(), run.status
        yield Sample(catalog.UPTIME, now.since(self._started))
        yield Sample(catalog.RESTARTS, run.restarts)
        yield from (Sample(catalog.STATE, float(each == status), {"status": each}) for each in STATUSES)
        yield Sample(catalog.RESCALES, self._rescales)
        if self._interval_ms is not None:
            yield Sample(catalog.CHECKPOINT_INTERVAL, self._interval_ms)
        current = self.statuses.current_ms()
        yield from (Sample(catalog.STATUS_TIME, ms, {"status": each}) for each, ms in current.items())
        yield from (
            Sample(catalog.STATUS_TIME_TOTAL, ms, {"status": each}) for each, ms in self.statuses.total_ms().items()
        )
        yield Sample(catalog.DOWNTIME, current["RESTARTING"])
        if self._last is not None and MIN_WATERMARK < self._last.watermark_ms < MAX_WATERMARK:
            yield Sample(catalog.WATERMARK, self._last.watermark_ms)
            yield Sample(catalog.OUTPUT_WATERMARK, self._last.watermark_ms)
            yield Sample(catalog.WATERMARK_LAG, now.wall_ms - self._last.watermark_ms)

    def _of_sources(self, pending: Mapping[str, int]) -> Iterator[Sample]:
        now = self._clock.now()
        for source, rows in self._source_rows.items():
            yield Sample(catalog.SOURCE_RECORDS, rows, {"source": source})
        for source, rows in pending.items():
            yield Sample(catalog.PENDING_RECORDS, rows, {"source": source})
        for source, greatest_ms in self.event_times.items():
            yield Sample(catalog.EVENT_TIME_LAG, now.wall_ms - greatest_ms, {"source": source})
        for source, lag_ms in self._fetch_lag_ms.items():
            yield Sample(catalog.FETCH_EVENT_TIME_LAG, lag_ms, {"source": source})

    def _of_storage(self, found: CheckpointStatistics | None, by_driver: Transferred) -> Iterator[Sample]:
        last = None if found is None else found.latest_completed
        yield from storage_samples(
            added([by_driver, self._storage]),
            is_priced=self._is_priced,
            stored_bytes=0 if last is None else last.state_size_bytes,
            uptime_ms=self._clock.now().since(self._started),
        )

    def _of_checkpoints(self, found: CheckpointStatistics | None) -> Iterator[Sample]:
        if found is None:
            return
        counts, last = found.counts, found.latest_completed
        yield Sample(catalog.CHECKPOINTS_IN_PROGRESS, counts.in_progress)
        yield Sample(catalog.CHECKPOINTS_COMPLETED, counts.completed)
        yield Sample(catalog.CHECKPOINTS_FAILED, counts.failed)
        yield Sample(catalog.CHECKPOINTS_TOTAL, counts.total)
        for outcome, count in list(found.commits.items()):
            yield Sample(catalog.COMMITS, count, {"outcome": outcome.lower()})
        if found.latest_restored is not None:
            yield Sample(catalog.LAST_CHECKPOINT_RESTORED, found.latest_restored.restore_timestamp)
        yield Sample(catalog.UNPROTECTED_AGE, self.ages.oldest_ms(None if last is None else last.epoch))
        if last is None:
            return
        yield Sample(catalog.LAST_CHECKPOINT_DURATION, last.end_to_end_ms)
        yield Sample(catalog.LAST_CHECKPOINT_SIZE, last.checkpointed_size_bytes)
        yield Sample(catalog.LAST_CHECKPOINT_FULL_SIZE, last.state_size_bytes)
        yield Sample(catalog.LAST_COMPLETED_CHECKPOINT_ID, last.id)
        yield Sample(catalog.LAST_CHECKPOINT_METADATA_SIZE, found.metadata_bytes)
        yield Sample(catalog.LAST_CHECKPOINT_PATH, 1, {"path": redacted(last.external_path or "")})
        yield Sample(catalog.LAST_CHECKPOINT_COMPLETED, last.trigger_timestamp + last.end_to_end_ms)
        for task in last.tasks:
            labels = {"task": str(task.task)}
            yield Sample(catalog.START_DELAY, task.start_delay_ms * 1_000_000, labels)
            yield Sample(catalog.ALIGNMENT_TIME, 0, labels)

    def _of_tasks(self) -> Iterator[Sample]:
        for (metric, task), total in self._totals.items():
            yield Sample(metric, total, {"task": str(task)})
        for metric, values in (
            (catalog.STATE_SIZE, self._state_bytes),
            (catalog.INITIALIZATION_TIME, self._restore_ms),
        ):
            for task, value in values.items():
                yield Sample(metric, value, {"task": str(task)})
        seconds = 1.0 if self._last is None else max(1, self._last.duration_ms) / 1000
        for task, ack in self._tasks.items():
            labels, found = {"task": str(task)}, ack.metrics
            yield Sample(catalog.TASK_RECORDS_IN_RATE, ack.rows_in / seconds, labels)
            yield Sample(catalog.TASK_RECORDS_OUT_RATE, ack.rows_out / seconds, labels)
            spent_ms = max(1, found.busy_ms + found.idle_ms + found.held_ms)
            yield from (Sample(m, 1000 * getattr(found, field) / spent_ms, labels) for m, field in _SHARES)
            yield Sample(catalog.SNAPSHOT_DURATION, found.seal_ms, labels)
            yield Sample(catalog.RESIDENT, found.resident_bytes, labels)
            for metric, field in _RESOURCES:
                if value := getattr(found.resources, field):
                    yield Sample(metric, value, labels)

    def _of_operators(self) -> Iterator[Sample]:
        for name, (rows_in, rows_out) in self.operators.items():
            yield Sample(catalog.RECORDS_IN, rows_in, {"operator": name})
            yield Sample(catalog.RECORDS_OUT, rows_out, {"operator": name})
        if self._last is not None:
            seconds = max(1, self._last.duration_ms) / 1000
            for name, (rows_in, rows_out) in self._last.operators.items():
                yield Sample(catalog.RECORDS_IN_RATE, rows_in / seconds, {"operator": name})
                yield Sample(catalog.RECORDS_OUT_RATE, rows_out / seconds, {"operator": name})

    def _of_epochs(self, run: RunView) -> Iterator[Sample]:
        counters, last = run.counters, self._last
        yield Sample(catalog.EPOCHS, self._epochs)
        yield Sample(catalog.EPOCHS_REPEATED, counters.repeats + counters.replacements)
        yield Sample(catalog.REWINDS, counters.rewinds)
        yield Sample(catalog.HELD_BATCHES, float(run.held_by is not None))
        if last is None:
            return
        yield Sample(catalog.EPOCH_DURATION, last.duration_ms)
        yield Sample(catalog.CONTROL_BYTES, last.control_bytes)
        for phase, ms in (("plan", last.plan_ms), ("run", last.job_ms)):
            yield Sample(catalog.EPOCH_PHASE, ms, {"phase": phase})
