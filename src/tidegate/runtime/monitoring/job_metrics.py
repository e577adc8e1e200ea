"""The metrics of a run: totals over its epochs, and the last values of its tasks.

The thread that runs epochs writes, any thread reads, without a lock. Each figure is whole; a reader may see the epoch before in
one place and the last epoch in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Protocol

from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.output.release_plan import WaitingOutput
from tidegate.checkpoint.output.sink_commits import SinkCommits
from tidegate.core.clock import SYSTEM_CLOCK, Clock
from tidegate.core.ids import Slot, TaskId, Uid
from tidegate.core.redaction import redacted
from tidegate.core.storage_cost import LIST_PRICES, StoragePrices
from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK
from tidegate.graph.event_times import of_split_name
from tidegate.metrics import catalog
from tidegate.metrics.metric import Metric, Sample
from tidegate.metrics.native import FILES_AT_LEVEL, NATIVE
from tidegate.metrics.state_access import MEASURED, MEASURED_TOTAL, QUANTILES, STATE_ACCESS
from tidegate.runtime.epochs.failover import Counters, RepeatCause
from tidegate.runtime.epochs.reports import EpochReport, added_rows
from tidegate.runtime.exchange.messages import TaskAck
from tidegate.runtime.monitoring.async_metrics import AsyncMetrics
from tidegate.runtime.monitoring.epoch_ages import EpochAges
from tidegate.runtime.monitoring.epoch_times import EpochTimes
from tidegate.runtime.monitoring.hot_keys import HotKeyTable
from tidegate.runtime.monitoring.run_report import StateSizeLine, TaskLine
from tidegate.runtime.monitoring.span_metrics import SpanMetrics
from tidegate.runtime.monitoring.status_times import StatusTimes
from tidegate.runtime.monitoring.storage_metrics import Transferred, added, checkpoint_samples, storage_samples
from tidegate.runtime.monitoring.task_figures import (
    AccessTotals,
    LevelState,
    TaskFigures,
    sizes_of_states,
    state_of_levels,
)

STATUSES = ("INITIALIZING", "RUNNING", "RESTARTING", "CANCELLING", "CANCELED", "FINISHED", "FAILED")

_TASK_TOTALS: tuple[tuple[Metric, str], ...] = (
    (catalog.TASK_RECORDS_IN, "rows_in"),
    (catalog.TASK_RECORDS_OUT, "rows_out"),
    (catalog.LATE_DROPPED, "late_dropped"),
    (catalog.RECORDS_IN_ERRORS, "failed_rows"),
)
_MEASURED_TOTALS: tuple[tuple[Metric, str], ...] = (
    (catalog.TASK_BYTES_IN, "bytes_in"),
    (catalog.TASK_BYTES_OUT, "bytes_out"),
    (catalog.FIRED_TIMERS, "fired_timers"),
    (catalog.UPLOAD_REQUESTS, "uploads_started"),
    (catalog.UPLOAD_FAILURES, "uploads_failed"),
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
_STATE_MEMORY = (
    catalog.BLOCK_CACHE_USAGE,
    catalog.BLOCK_CACHE_CAPACITY,
    catalog.BLOCK_CACHE_HIT_RATIO,
    catalog.WRITE_BUFFER_USAGE,
    catalog.WRITE_CACHE_USAGE,
)
MOST_SPLITS = 100
"""A source of files has a split for each of them."""
_SHARES = (catalog.BUSY, catalog.IDLE, catalog.HELD)


class RunView(Protocol):
    """What the metrics of a run are read from, besides its epochs."""

    @property
    def status(self) -> str: ...
    @property
    def restarts(self) -> int: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def checkpoints(self) -> CheckpointStatsTracker | None: ...
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
    def split_watermarks(self) -> Mapping[tuple[str, str], int]: ...
    @property
    def storage_traffic(self) -> Transferred: ...


class JobMetrics:
    """`sinks` are all sinks of the job: one without waiting output has the value 0. `rescales`: 1 if the run was
    restored with another parallelism. `prices`: of its storage, if that costs money for each
    request.
    """

    def __init__(
        self,
        sinks: Iterable[Uid],
        clock: Clock = SYSTEM_CLOCK,
        *,
        interval_ms: int | None = None,
        rescales: int = 0,
        prices: StoragePrices | None = None,
    ) -> None:
        self._sinks = tuple(sinks)
        self._clock = clock
        self._interval_ms = interval_ms
        self._rescales = rescales
        self._prices = prices
        self.statuses = StatusTimes(clock)
        self.ages = EpochAges(clock)
        self._source_rows: Mapping[str, int] = {}
        self._fetch_lag_ms: Mapping[str, int] = {}
        self._storage: Transferred = {}
        self._started = clock.now()
        self._last: EpochReport | None = None
        self._epochs = 0
        self.times = EpochTimes(clock)
        self.operators: Mapping[str, tuple[int, int]] = {}
        """Rows in and out of the run so far, by operator."""
        self._tasks: dict[TaskId, TaskFigures] = {}
        """The figures of every task that has acknowledged an epoch."""
        self.event_times: Mapping[str, int] = {}
        """The greatest event time read so far, by source."""
        self.spans = SpanMetrics()
        self._calls = AsyncMetrics()
        self._hot_keys = HotKeyTable()
        self._accesses = AccessTotals()
        self._held_batches: Counter[Uid] = Counter()
        self._held_ms: Counter[Uid] = Counter()

    def epoch(self, report: EpochReport, acks: Iterable[TaskAck]) -> None:
        """Add an accepted epoch, in time that grows with its acknowledgements."""
        acks = tuple(acks)
        self.spans.epoch(acks)
        self._calls.epoch(acks)
        self._add(acks)
        self._add_sources(report, acks)
        self._storage = added([self._storage, *(ack.metrics.storage for ack in acks)])
        # Replaced as a whole: there are few of them, and other threads go through them.
        self.operators = added_rows((self.operators, report.operators))
        self._hot_keys.add(report.operators, acks)
        self._accesses.add(each for ack in acks for each in ack.metrics.states)
        self.times.ended()
        self._epochs += 1
        self._last = report

    def _add_sources(self, report: EpochReport, acks: Iterable[TaskAck]) -> None:
        rows, seen = Counter(self._source_rows), Counter[str]()
        for ack in acks:
            rows.update(ack.metrics.source_rows)
            for split, greatest_ms in ack.event_times.items():
                source, _ = of_split_name(split)
                seen[source] = max(greatest_ms, seen.get(source, greatest_ms))
        # Rows count as read when the epoch began.
        read_ms = self._clock.now().wall_ms - report.duration_ms
        self._fetch_lag_ms = {**self._fetch_lag_ms, **{source: read_ms - ms for source, ms in seen.items()}}
        known = self.event_times
        self.event_times = {**known, **{source: max(ms, known.get(source, ms)) for source, ms in seen.items()}}
        self._source_rows = rows

    def restored(self, acks: Iterable[TaskAck]) -> None:
        """Add what tasks measured while they restored their state, in an epoch that is none of the job's: it has no rows, so the
        tasks are idle after it."""
        self._add(acks)
        for figures in self._tasks.values():
            figures.rests = True

    def _add(self, acks: Iterable[TaskAck]) -> None:
        for ack in acks:
            task = TaskId(ack.level, Slot(ack.sender))
            figures = self._tasks.get(task)
            if figures is None:
                figures = self._tasks[task] = TaskFigures(ack)
            else:
                figures.add(ack)
            figures.seen = self._epochs + 1

    def rescaled(self) -> None:
        """The run has another parallelism than before."""
        self._rescales += 1

    def forget_slots(self, first: int) -> None:
        """Forget the tasks of this slot and of those after it. No epoch runs."""
        self._tasks = {task: each for task, each in self._tasks.items() if task.level == 0 or task.slot < first}

    def tasks(self) -> tuple[TaskLine, ...]:
        """Every task of the last epoch, with its totals."""
        found = [(task, figures) for task, figures in list(self._tasks.items()) if figures.seen >= self._epochs]
        period_ms = self.times.period_ms()
        return tuple(figures.line(task, period_ms) for task, figures in sorted(found, key=lambda each: each[0]))

    def states(self) -> tuple[StateSizeLine, ...]:
        """The size of every state, the largest first."""
        return sizes_of_states(dict(self._tasks))

    def state_of_levels(self) -> dict[int, LevelState]:
        """The state of each level."""
        return state_of_levels(dict(self._tasks))

    def batch_held(self, sink: Uid) -> None:
        """A batch waits for a sink."""
        self._held_batches[sink] += 1

    def held_for(self, sink: Uid, seconds: float) -> None:
        """It has waited that much longer."""
        self._held_ms[sink] += round(seconds * 1000)

    @property
    def hot_keys(self) -> dict[str, list[tuple[str, float]]]:
        """For each keyed operator, the keys with the most rows in the last epochs, as text, with their share of the rows."""
        return self._hot_keys.shares()

    def samples(self, run: RunView, figures: Figures) -> list[Sample]:
        """The current value of every metric that has one."""
        return [
            *self._of_job(run),
            *self._of_checkpoints(run.checkpoints),
            *self._of_tasks(),
            *self._of_operators(),
            *self.spans.samples(),
            *self._calls.samples(),
            *self._of_state_accesses(),
            *self._of_epochs(run),
            *self._of_sources(figures),
            *self._of_sinks(run.waiting_output, figures.sink_commits),
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
        # Before the first event there is none, and after a drain it is the end of time: neither is a date.
        if self._last is not None and MIN_WATERMARK < self._last.watermark_ms < MAX_WATERMARK:
            yield Sample(catalog.WATERMARK, self._last.watermark_ms)
            yield Sample(catalog.OUTPUT_WATERMARK, self._last.watermark_ms)
            yield Sample(catalog.WATERMARK_LAG, now.wall_ms - self._last.watermark_ms)

    def _of_sources(self, figures: Figures) -> Iterator[Sample]:
        now = self._clock.now()
        for source, rows in self._source_rows.items():
            yield Sample(catalog.SOURCE_RECORDS, rows, {"source": source})
        for source, rows in figures.pending_rows.items():
            yield Sample(catalog.PENDING_RECORDS, rows, {"source": source})
        for source, greatest_ms in self.event_times.items():
            yield Sample(catalog.EVENT_TIME_LAG, now.wall_ms - greatest_ms, {"source": source})
        for source, lag_ms in self._fetch_lag_ms.items():
            yield Sample(catalog.FETCH_EVENT_TIME_LAG, lag_ms, {"source": source})
        # Those furthest behind: they hold back the watermark.
        behind = nsmallest(MOST_SPLITS, figures.split_watermarks.items(), key=lambda each: each[1])
        for (source, split), watermark_ms in behind:
            yield Sample(catalog.SPLIT_WATERMARK, watermark_ms, {"source": source, "split": split})

    def _of_sinks(self, waiting: Iterable[WaitingOutput], commits: SinkCommits) -> Iterator[Sample]:
        """What waits for each target, and how its last commit went."""
        found = {each.sink: each for each in waiting}
        for sink in self._sinks:
            labels = {"sink": str(sink)}
            each = found.get(sink)
            last = commits.last.get(sink)
            yield Sample(catalog.OUTPUT_WAITING, 0 if each is None else each.epochs, labels)
            yield Sample(catalog.OUTPUT_WAITING_BYTES, 0 if each is None else each.size_bytes, labels)
            yield Sample(catalog.SEND_ERRORS, float(each is not None and each.error is not None), labels)
            yield Sample(catalog.OLDEST_WAITING, 0 if each is None else self.ages.age_ms(each.since), labels)
            # A sink counts as an operator that emits no rows.
            yield Sample(catalog.RECORDS_SEND, self.operators.get(str(sink), (0, 0))[0], labels)
            if last is not None:
                yield Sample(catalog.COMMIT_DURATION, last.duration_ms, labels)
                yield Sample(catalog.SEND_TIME, last.duration_ms / max(1, last.parts), labels)
            if sink in commits.up_to:
                yield Sample(catalog.PUBLISHED_EPOCH, commits.up_to[sink].number, labels)

    def _of_storage(self, found: CheckpointStatsTracker | None, by_driver: Transferred) -> Iterator[Sample]:
        last = None if found is None else found.latest_completed
        yield from storage_samples(
            added([by_driver, self._storage]),
            is_priced=self._prices is not None,
            prices=self._prices or LIST_PRICES,
            stored_bytes=0 if last is None else last.state_size_bytes,
            uptime_ms=self._clock.now().since(self._started),
        )

    def _of_checkpoints(self, found: CheckpointStatsTracker | None) -> Iterator[Sample]:
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
        yield from checkpoint_samples(last.requests, last.cost_dollars)
        yield Sample(catalog.LAST_COMPLETED_CHECKPOINT_ID, last.id)
        yield Sample(catalog.LAST_CHECKPOINT_METADATA_SIZE, found.metadata_bytes)
        yield Sample(catalog.LAST_CHECKPOINT_PATH, 1, {"path": redacted(last.external_path or "")})
        yield Sample(catalog.LAST_CHECKPOINT_COMPLETED, last.trigger_timestamp + last.end_to_end_ms)

        for task in last.tasks:
            labels = {"task": str(task.task)}
            # Flink's metrics of these names are in nanoseconds.
            yield Sample(catalog.START_DELAY, task.start_delay_ms * 1_000_000, labels)
            # An epoch ends for all tasks at the same rows, so none waits for barriers of another.
            yield Sample(catalog.ALIGNMENT_TIME, 0, labels)
            yield Sample(catalog.UPLOAD_LATENCY, task.async_ms * 1_000_000, labels)
            yield Sample(catalog.UPLOAD_SIZE, task.checkpointed_size_bytes, labels)

    def _of_tasks(self) -> Iterator[Sample]:
        last, epochs = self._last, self._epochs
        seconds = self._last_seconds()
        period_ms = self.times.period_ms()
        for task, figures in list(self._tasks.items()):
            labels = {"task": str(task)}
            yield from (Sample(metric, getattr(figures, field), labels) for metric, field in _TASK_TOTALS)
            if figures.state_bytes:
                yield Sample(catalog.STATE_SIZE, figures.state_bytes, labels)
            if figures.is_measured:
                yield from (Sample(metric, getattr(figures, field), labels) for metric, field in _MEASURED_TOTALS)
            if figures.restore_ms:
                yield Sample(catalog.INITIALIZATION_TIME, figures.restore_ms, labels)
            if figures.seen < epochs:
                continue  # The source stage may have had more tasks in an earlier epoch.
            yield Sample(catalog.TASK_RECORDS_IN_RATE, figures.last_rows_in / seconds, labels)
            yield Sample(catalog.TASK_RECORDS_OUT_RATE, figures.last_rows_out / seconds, labels)
            if last is not None:
                yield from self._of_watermarks(last, labels)
            for metric, field in _RESOURCES:
                if value := getattr(figures.metrics.resources, field):
                    yield Sample(metric, value, labels)
            if figures.is_measured:
                yield from _measured(figures, labels, period_ms)

    def _last_seconds(self) -> float:
        """The time that rows of the last epoch are rates of."""
        return 1.0 if self._last is None else max(1, self._last.duration_ms, self.times.period_ms()) / 1000

    def _of_watermarks(self, last: EpochReport, labels: dict[str, str]) -> Iterator[Sample]:
        if last.input_watermark_ms > MIN_WATERMARK:
            yield Sample(catalog.TASK_INPUT_WATERMARK, last.input_watermark_ms, labels)
        if last.watermark_ms > MIN_WATERMARK:
            yield Sample(catalog.TASK_OUTPUT_WATERMARK, last.watermark_ms, labels)
            if last.watermark_ms < MAX_WATERMARK:
                yield Sample(catalog.TASK_WATERMARK_LAG, self._clock.now().wall_ms - last.watermark_ms, labels)

    def _of_operators(self) -> Iterator[Sample]:
        for name, (rows_in, rows_out) in self.operators.items():
            yield Sample(catalog.RECORDS_IN, rows_in, {"operator": name})
            yield Sample(catalog.RECORDS_OUT, rows_out, {"operator": name})
        timers: Counter[str] = Counter()
        for figures in list(self._tasks.values()):
            timers.update(figures.pending_timers)
        for each in self.states():
            yield Sample(catalog.ESTIMATED_STATE_SIZE, each.bytes, {"operator": each.operator, "state": each.state})
        yield from (Sample(catalog.PENDING_TIMERS, count, {"operator": name}) for name, count in timers.items())
        for name, keys in self.hot_keys.items():
            # Only the share: a key is data of the user's.
            yield Sample(catalog.HOT_KEY_SHARE, keys[0][1] if keys else 0.0, {"operator": name})
        if self._last is not None:
            seconds = self._last_seconds()
            for name in self.operators:  # Also those that the last epoch had no rows for.
                rows_in, rows_out = self._last.operators.get(name, (0, 0))
                yield Sample(catalog.RECORDS_IN_RATE, rows_in / seconds, {"operator": name})
                yield Sample(catalog.RECORDS_OUT_RATE, rows_out / seconds, {"operator": name})

    def _of_state_accesses(self) -> Iterator[Sample]:
        found = self._accesses
        for (operator, state, name), values in list(found.quantiles.items()):
            labels = {"operator": operator, "state": state}
            for quantile, value in zip(QUANTILES, values):
                yield Sample(STATE_ACCESS[name], value, {**labels, "quantile": quantile})
            yield Sample(MEASURED, found.counts[operator, state, name], {**labels, "access": name})
            yield Sample(MEASURED_TOTAL, found.totals[operator, state, name], {**labels, "access": name})

    def _of_epochs(self, run: RunView) -> Iterator[Sample]:
        counters, last = run.counters, self._last
        yield Sample(catalog.EPOCHS, self._epochs)
        for cause, count in _repeats(counters):
            yield Sample(catalog.EPOCHS_REPEATED, count, {"reason": cause})
        yield Sample(catalog.TASKS_AWAY, counters.misplaced_tasks)
        yield Sample(catalog.REWINDS, counters.rewinds)
        held_by = run.held_by
        yield Sample(catalog.HELD_BATCHES, float(held_by is not None))
        for sink in self._sinks:
            labels = {"sink": str(sink)}
            yield Sample(catalog.HELD_BY, float(held_by is not None and held_by.sink == sink), labels)
            yield Sample(catalog.HELD_BATCHES_TOTAL, self._held_batches[sink], labels)
            yield Sample(catalog.HELD_TIME, self._held_ms[sink], labels)
        if last is None:
            return
        yield Sample(catalog.EPOCH_DURATION, last.duration_ms)
        yield Sample(catalog.CONTROL_BYTES, last.control_bytes)
        for phase, ms in last.phases.items():
            yield Sample(catalog.EPOCH_PHASE, ms, {"phase": phase})


def _repeats(counters: Counters) -> tuple[tuple[str, int], ...]:
    """How often epochs were repeated, by cause."""
    return (
        (RepeatCause.MISPLACED, counters.replacements),
        (RepeatCause.INTERRUPTED, counters.interrupted),
        (RepeatCause.USER_ERROR, counters.user_errors),
        (RepeatCause.INCOMPLETE, counters.repeats - counters.interrupted - counters.user_errors),
    )


def _measured(figures: TaskFigures, labels: dict[str, str], period_ms: int) -> Iterator[Sample]:
    """What a task measured in its last epoch."""
    found = figures.metrics
    yield from (Sample(m, 1000 * share, labels) for m, share in zip(_SHARES, figures.shares(period_ms)))
    yield Sample(catalog.SNAPSHOT_DURATION, found.seal_ms, labels)
    yield Sample(catalog.RESIDENT, found.resident_bytes, labels)
    yield Sample(catalog.UPLOAD_QUEUE, found.uploads_queued, labels)
    yield from (Sample(m, figures.memory[m.name], labels) for m in _STATE_MEMORY if m.name in figures.memory)
    yield from _native(figures, labels)


def _native(figures: TaskFigures, labels: dict[str, str]) -> Iterator[Sample]:
    """Metrics reported by the state backend. Unknown names from custom backends are ignored."""
    for name, value in figures.store.items():
        level = name.removeprefix(FILES_AT_LEVEL)
        if level != name:
            yield Sample(NATIVE[FILES_AT_LEVEL], value, {**labels, "level": level})
        elif name in NATIVE:
            yield Sample(NATIVE[name], value, labels)
