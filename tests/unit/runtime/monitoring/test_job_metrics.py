"""From epochs to metrics."""

from __future__ import annotations

import timeit
from time import process_time
from types import SimpleNamespace

import pytest

from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.output.release_plan import WaitingOutput
from tidegate.checkpoint.output.sink_commits import SinkCommits
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.ids import EpochId, Slot, TaskId, Term, Uid
from tidegate.graph.event_times import split_name
from tidegate.metrics import catalog
from tidegate.metrics.metric import Metric, Scope
from tidegate.metrics.native import NATIVE
from tidegate.metrics.state_access import MEASURED, MEASURED_TOTAL, STATE_ACCESS
from tidegate.runtime.epochs.failover import Counters
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.messages import (
    AsyncCallFigures,
    HostResources,
    HotKey,
    StateAccess,
    TaskAck,
    TaskMetrics,
)
from tidegate.runtime.monitoring.job_metrics import JobMetrics

RUNNING = SimpleNamespace(
    status="RUNNING", restarts=2, counters=Counters(repeats=3, replacements=1, rewinds=1), checkpoints=None,
    waiting_output=(), held_by=None, sink_commits=SinkCommits(), pending_rows={}, split_watermarks={},
    storage_traffic={},
)  # fmt: skip


class Clock:
    elapsed_ms = 0

    def now(self) -> Instant:
        return Instant(MonotonicMs(self.elapsed_ms), WallMs(1_000_000 + self.elapsed_ms))


def report(number: int, **more: object) -> EpochReport:
    given = {
        "epoch": EpochId(Term(1), number), "rows_in": 10, "tries": 1, "duration_ms": 500, "plan_ms": 20, "job_ms": 470,
        "operators": {"count": (10, 4)}, "hosts": {},
    }  # fmt: skip
    return EpochReport(**{**given, **more})  # type: ignore[arg-type]


def ack(slot: int, **more: object) -> TaskAck:
    given = {
        "term": 1, "number": 1, "level": 1, "sender": slot, "partition": slot, "attempt": 1, "host": "h", "version": None,
        "digest": b"", "rows_in": 5, "rows_out": 2,
    }  # fmt: skip
    return TaskAck(**{**given, **more})  # type: ignore[arg-type]


def values(metrics: JobMetrics, metric: Metric, run: object = RUNNING) -> dict[str, float]:
    found = [sample for sample in metrics.samples(run, run) if sample.metric is metric]  # type: ignore[arg-type]
    return {",".join(sample.labels.values()): sample.value for sample in found}


def test_rows_of_all_epochs_add_up_and_rates_are_those_of_the_last():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0), ack(1)])
    metrics.epoch(report(2, operators={"count": (30, 0)}), [ack(0, rows_in=30)])
    assert values(metrics, catalog.RECORDS_IN) == {"count": 40}
    assert values(metrics, catalog.RECORDS_OUT) == {"count": 4}
    assert values(metrics, catalog.RECORDS_IN_RATE) == {"count": 60}
    assert values(metrics, catalog.TASK_RECORDS_IN) == {"L1-S0": 35, "L1-S1": 5}
    assert values(metrics, catalog.EPOCHS) == {"": 2}


def test_the_rate_of_an_operator_is_zero_in_an_epoch_without_its_rows():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0)])
    metrics.epoch(report(2, operators={}), [ack(0, rows_in=0)])
    assert values(metrics, catalog.RECORDS_IN_RATE) == {"count": 0}
    assert values(metrics, catalog.RECORDS_OUT_RATE) == {"count": 0}


def test_the_time_of_a_task_is_divided_into_busy_idle_and_held():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0, metrics=TaskMetrics(busy_ms=100, idle_ms=300, held_ms=0))])
    assert values(metrics, catalog.BUSY) == {"L1-S0": 250}
    assert values(metrics, catalog.IDLE) == {"L1-S0": 750}
    assert values(metrics, catalog.HELD) == {"L1-S0": 0}


def test_a_task_that_does_not_run_is_idle():
    """Epochs of half a second, one in ten seconds: the task could do twenty times as much."""
    clock = Clock()
    metrics = JobMetrics((), clock)
    for number in (1, 2):
        clock.elapsed_ms = 10_000 * number
        metrics.epoch(report(number), [ack(0, metrics=TaskMetrics(busy_ms=400, idle_ms=50, held_ms=100))])
    assert values(metrics, catalog.BUSY) == {"L1-S0": 40}
    assert values(metrics, catalog.HELD) == {"L1-S0": 10}
    assert values(metrics, catalog.IDLE) == {"L1-S0": pytest.approx(950)}


def test_an_idle_job_is_less_and_less_busy_and_its_rates_fall():
    clock = Clock()
    metrics = JobMetrics((), clock)
    for number in (1, 2):
        clock.elapsed_ms = 1_000 * number
        metrics.epoch(report(number, duration_ms=1_000), [ack(0, metrics=TaskMetrics(busy_ms=900, idle_ms=100))])
    clock.elapsed_ms = 101_000
    assert values(metrics, catalog.BUSY) == {"L1-S0": 9}
    assert values(metrics, catalog.RECORDS_IN_RATE) == {"count": 0.1}
    assert values(metrics, catalog.TASK_RECORDS_IN_RATE) == {"L1-S0": 0.05}


def test_an_epoch_that_runs_long_does_not_lower_the_figures_of_the_last_one():
    clock = Clock()
    metrics = JobMetrics((), clock)
    for number in (1, 2):
        clock.elapsed_ms = 1_000 * number
        metrics.epoch(report(number, duration_ms=1_000), [ack(0, metrics=TaskMetrics(busy_ms=900, idle_ms=100))])
    metrics.times.began()
    clock.elapsed_ms = 101_000
    assert values(metrics, catalog.BUSY) == {"L1-S0": 900}
    assert values(metrics, catalog.RECORDS_IN_RATE) == {"count": 10}
    assert metrics.times.running_since_ms == 1_002_000
    metrics.times.over()
    assert metrics.times.running_since_ms is None


def test_tasks_that_have_only_restored_their_state_are_idle_and_have_its_size():
    metrics = JobMetrics(())
    measured = TaskMetrics(busy_ms=740, idle_ms=260, restore_ms=700)
    metrics.restored([ack(0, state_bytes=4_096, metrics=measured)])
    (line,) = metrics.tasks()
    assert (line.busy, line.idle, line.state_bytes, line.restore_ms) == (0, 1, 4_096, 700)
    metrics.epoch(report(1), [ack(0, state_bytes=4_100, metrics=TaskMetrics(busy_ms=100, idle_ms=300))])
    assert metrics.tasks()[0].busy == 0.25


def test_a_task_that_changes_nothing_keeps_the_size_of_its_state():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0, state_bytes=4_096)])
    metrics.epoch(report(2), [ack(0, state_bytes=0)])
    assert values(metrics, catalog.STATE_SIZE) == {str(TaskId(1, Slot(0))): 4_096}


def test_the_status_is_one_of_flinks():
    states = values(JobMetrics(()), catalog.STATE)
    assert [status for status, value in states.items() if value] == ["RUNNING"]


def test_event_time_lag_grows_while_a_source_stalls():
    clock = Clock()
    metrics = JobMetrics((), clock)
    metrics.epoch(report(1), [ack(0, event_times={"orders": 999_000}), ack(1, event_times={"orders": 999_500})])
    assert values(metrics, catalog.EVENT_TIME_LAG) == {"orders": 500}
    clock.elapsed_ms = 60_000
    assert values(metrics, catalog.EVENT_TIME_LAG) == {"orders": 60_500}


def test_every_sink_reports_what_waits_for_it():
    waiting = WaitingOutput(Uid("db"), 7, 1_000, EpochId(Term(1), 1), "connection refused")
    run = SimpleNamespace(**{**vars(RUNNING), "waiting_output": (waiting,)})
    metrics = JobMetrics((Uid("db"), Uid("log")))
    assert values(metrics, catalog.OUTPUT_WAITING, run) == {"db": 7, "log": 0}
    assert values(metrics, catalog.SEND_ERRORS, run) == {"db": 1, "log": 0}


def test_rows_are_counted_by_source() -> None:
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0, metrics=TaskMetrics(source_rows={"a": 3, "b": 1})), ack(1)])
    metrics.epoch(report(2), [ack(0, metrics=TaskMetrics(source_rows={"a": 4}))])
    assert values(metrics, catalog.SOURCE_RECORDS) == {"a": 7, "b": 1}


def test_splits_of_a_source_have_a_watermark_each_and_one_lag_together() -> None:
    clock = Clock()
    metrics = JobMetrics((), clock)
    seen = {split_name("orders", "0"): 999_000, split_name("orders", "1"): 997_000}
    metrics.epoch(report(1, duration_ms=100), [ack(0, event_times=seen)])
    run = SimpleNamespace(**{**vars(RUNNING), "split_watermarks": {("orders", "0"): 998_999, ("orders", "1"): 996_999}})
    assert values(metrics, catalog.EVENT_TIME_LAG, run) == {"orders": 1_000}
    assert values(metrics, catalog.FETCH_EVENT_TIME_LAG, run) == {"orders": 900}
    assert values(metrics, catalog.SPLIT_WATERMARK, run) == {"orders,0": 998_999, "orders,1": 996_999}


def test_pending_rows_are_those_that_the_run_reports() -> None:
    run = SimpleNamespace(**{**vars(RUNNING), "pending_rows": {"orders": 12}})
    assert values(JobMetrics(()), catalog.PENDING_RECORDS, run) == {"orders": 12}


def test_the_fetch_lag_stays_while_a_source_stalls() -> None:
    clock = Clock()
    metrics = JobMetrics((), clock)
    metrics.epoch(report(1), [ack(0, event_times={"orders": 999_000})])
    clock.elapsed_ms = 60_000
    assert values(metrics, catalog.FETCH_EVENT_TIME_LAG) == {"orders": 500}


def test_the_watermark_has_a_lag_and_is_the_output_watermark_too() -> None:
    metrics = JobMetrics((), Clock())
    metrics.epoch(report(1, watermark_ms=990_000), [ack(0)])
    assert values(metrics, catalog.OUTPUT_WATERMARK) == {"": 990_000}
    assert values(metrics, catalog.WATERMARK_LAG) == {"": 10_000}


def test_the_last_commit_of_a_sink_has_the_time_that_its_target_took() -> None:
    commits = SinkCommits()
    commits.committed(Uid("db"), 80, 4, 1_000)
    commits.committed_up_to([Uid("db")], EpochId(Term(1), 6))
    run = SimpleNamespace(**{**vars(RUNNING), "sink_commits": commits})
    metrics = JobMetrics((Uid("db"),))
    metrics.epoch(report(1, operators={"db": (9, 0)}), [ack(0)])
    assert values(metrics, catalog.COMMIT_DURATION, run) == {"db": 80}
    assert values(metrics, catalog.SEND_TIME, run) == {"db": 20}
    assert values(metrics, catalog.PUBLISHED_EPOCH, run) == {"db": 6}
    assert values(metrics, catalog.RECORDS_SEND, run) == {"db": 9}


def test_waiting_output_is_as_old_as_its_epoch() -> None:
    clock = Clock()
    metrics = JobMetrics((Uid("db"), Uid("log")), clock)
    clock.elapsed_ms = 1_000
    metrics.ages.ended(EpochId(Term(1), 1))
    clock.elapsed_ms = 5_000
    waiting = WaitingOutput(Uid("db"), 1, 10, EpochId(Term(1), 1), None)
    run = SimpleNamespace(**{**vars(RUNNING), "waiting_output": (waiting,)})
    assert values(metrics, catalog.OLDEST_WAITING, run) == {"db": 4_000, "log": 0}


def test_work_is_unprotected_from_the_first_epoch_after_the_last_checkpoint() -> None:
    clock = Clock()
    metrics = JobMetrics((), clock, interval_ms=10_000)
    run = SimpleNamespace(**{**vars(RUNNING), "checkpoints": CheckpointStatsTracker()})
    assert values(metrics, catalog.UNPROTECTED_AGE, run) == {"": 0}
    metrics.ages.ended(EpochId(Term(1), 1))
    clock.elapsed_ms = 30_000
    assert values(metrics, catalog.UNPROTECTED_AGE, run) == {"": 30_000}
    metrics.ages.forget(EpochId(Term(1), 1), None)
    assert values(metrics, catalog.UNPROTECTED_AGE, run) == {"": 0}
    assert values(metrics, catalog.CHECKPOINT_INTERVAL, run) == {"": 10_000}


def test_downtime_is_the_time_since_the_failure() -> None:
    clock = Clock()
    metrics = JobMetrics((), clock)
    metrics.statuses.enter("RUNNING")
    clock.elapsed_ms = 2_000
    metrics.statuses.enter("RESTARTING")
    clock.elapsed_ms = 5_000
    assert values(metrics, catalog.DOWNTIME) == {"": 3_000}
    metrics.statuses.enter("RUNNING")
    assert values(metrics, catalog.DOWNTIME) == {"": 0}
    assert values(metrics, catalog.STATUS_TIME_TOTAL) == {"INITIALIZING": 0, "RUNNING": 2_000, "RESTARTING": 3_000}


def test_storage_requests_of_driver_and_tasks_add_up() -> None:
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0, metrics=TaskMetrics(storage={"write": (2, 500)}))])
    metrics.epoch(report(2), [ack(0, metrics=TaskMetrics(storage={"write": (1, 100), "list": (1, 0)}))])
    run = SimpleNamespace(**{**vars(RUNNING), "storage_traffic": {"write": (1, 7)}})
    assert values(metrics, catalog.STORAGE_REQUESTS, run) == {"write": 4, "list": 1}
    assert values(metrics, catalog.STORAGE_BYTES, run) == {"write": 607}
    assert values(metrics, catalog.STORAGE_COST, run) == {}


def test_a_host_of_unknown_memory_has_no_sample() -> None:
    metrics = JobMetrics(())
    metrics.epoch(
        report(1), [ack(0, metrics=TaskMetrics(resources=HostResources(disk_free_bytes=5, disk_size_bytes=9)))]
    )
    assert values(metrics, catalog.DISK_FREE) == {"L1-S0": 5}
    assert values(metrics, catalog.MEMORY_BUDGET) == {}


def test_times_of_a_task_add_up_and_its_rates_are_those_of_the_last_epoch():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0, metrics=TaskMetrics(busy_ms=100, idle_ms=300, held_ms=20))])
    metrics.epoch(report(2, duration_ms=500), [ack(0, rows_in=30, metrics=TaskMetrics(busy_ms=50))])
    assert values(metrics, catalog.TOTAL_BUSY) == {"L1-S0": 150}
    assert values(metrics, catalog.TOTAL_IDLE) == {"L1-S0": 300}
    assert values(metrics, catalog.TOTAL_HELD) == {"L1-S0": 20}
    assert values(metrics, catalog.TASK_RECORDS_IN_RATE) == {"L1-S0": 60}


def test_spans_of_functions_add_up_over_tasks_and_epochs():
    metrics = JobMetrics(())
    slowest = {"n": {"parse": "ann"}}
    used = [
        ack(0, spans={"n": {"parse": (2, 3_000, 2_000)}}, slowest_keys={"n": {"parse": "bob"}}),
        ack(1, spans={"n": {"parse": (1, 4_000, 4_000)}}, slowest_keys=slowest),
    ]
    metrics.epoch(report(1), used)
    metrics.epoch(report(2), [ack(0, spans={"n": {"parse": (1, 500, 500)}})])
    metrics.epoch(report(3), [ack(0)])
    assert values(metrics, catalog.SPANS) == {"n,parse": 4}
    assert values(metrics, catalog.SPAN_TIME) == {"n,parse": 7.5}
    assert values(metrics, catalog.SPAN_TIME_MAX) == {"n,parse": 0.5}, "in the last epoch that used it"
    (line,) = metrics.spans.lines()
    assert (line.uses, line.total_ms, line.longest_ms, line.longest_key) == (4, 7.5, 4.0, "ann"), "of the run"


def calls(count: int, *, in_flight: int = 1, slowest_us: int = 1000) -> TaskMetrics:
    figures = AsyncCallFigures(
        operator="tier", calls=count, retries=2, timeouts=1, failures=1, most_in_flight=in_flight, total_us=count * 500,
        median_us=slowest_us // 2, p99_us=slowest_us, most_us=slowest_us,
    )  # fmt: skip
    return TaskMetrics(calls=(figures,))


def test_calls_of_async_functions_add_up_and_their_latencies_are_those_of_the_last_epoch():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0, metrics=calls(10, in_flight=9, slowest_us=9_000)), ack(1, metrics=calls(10))])
    last = [ack(0, metrics=calls(4, in_flight=3, slowest_us=2_000)), ack(1, metrics=calls(4, in_flight=4))]
    metrics.epoch(report(2), last)
    metrics.epoch(report(3), [ack(0)])
    assert values(metrics, catalog.ASYNC_CALLS) == {"tier": 28}
    assert values(metrics, catalog.ASYNC_RETRIES) == {"tier": 8}
    assert values(metrics, catalog.ASYNC_TIMEOUTS) == {"tier": 4}
    assert values(metrics, catalog.ASYNC_FAILURES) == {"tier": 4}
    assert values(metrics, catalog.ASYNC_TIME) == {"tier": 14}
    assert values(metrics, catalog.ASYNC_IN_FLIGHT) == {"tier": 4}
    assert values(metrics, catalog.ASYNC_LATENCY) == {"tier,0.5": 1, "tier,0.99": 2, "tier,1": 2}


def test_the_time_of_a_restore_is_known_although_its_epoch_does_not_count():
    metrics = JobMetrics(())
    metrics.restored([ack(0, rows_in=0, rows_out=0, metrics=TaskMetrics(started_ms=1, restore_ms=250))])
    metrics.epoch(report(2), [ack(0, metrics=TaskMetrics(started_ms=1))])
    assert values(metrics, catalog.INITIALIZATION_TIME) == {"L1-S0": 250}
    assert values(metrics, catalog.EPOCHS) == {"": 1}


def test_repeats_are_counted_by_cause():
    counters = Counters(repeats=6, replacements=2, rewinds=1, interrupted=3, user_errors=1, misplaced_tasks=5)
    run = SimpleNamespace(**{**vars(RUNNING), "counters": counters})
    found = values(JobMetrics(()), catalog.EPOCHS_REPEATED, run)
    assert found == {"misplaced": 2, "interrupted": 3, "user_error": 1, "incomplete": 2}
    assert values(JobMetrics(()), catalog.TASKS_AWAY, run) == {"": 5}
    assert values(JobMetrics(()), catalog.REWINDS, run) == {"": 1}


def test_the_sink_that_holds_batches_is_named():
    held = WaitingOutput(Uid("db"), 7, 1_000, EpochId(Term(1), 1), None)
    run = SimpleNamespace(**{**vars(RUNNING), "held_by": held})
    metrics = JobMetrics((Uid("db"), Uid("log")))
    metrics.batch_held(Uid("db"))
    metrics.held_for(Uid("db"), 1.5)
    metrics.held_for(Uid("db"), 0.5)
    assert values(metrics, catalog.HELD_BY, run) == {"db": 1, "log": 0}
    assert values(metrics, catalog.HELD_BATCHES_TOTAL, run) == {"db": 1, "log": 0}
    assert values(metrics, catalog.HELD_TIME, run) == {"db": 2_000, "log": 0}


def test_metrics_include_the_phases_of_the_last_epoch():
    metrics = JobMetrics(())
    metrics.epoch(report(1, phases={"plan": 9, "run": 9}), [])
    metrics.epoch(report(2, phases={"plan": 20, "run": 470, "level 1": 400}), [])
    assert values(metrics, catalog.EPOCH_PHASE) == {"plan": 20, "run": 470, "level 1": 400}


def test_tasks_know_the_watermark_before_and_after_the_rows():
    metrics = JobMetrics((), Clock())
    metrics.epoch(report(1, input_watermark_ms=990_000, watermark_ms=995_000), [ack(0)])
    assert values(metrics, catalog.TASK_INPUT_WATERMARK) == {"L1-S0": 990_000}
    assert values(metrics, catalog.TASK_OUTPUT_WATERMARK) == {"L1-S0": 995_000}
    assert values(metrics, catalog.TASK_WATERMARK_LAG) == {"L1-S0": 5_000}


def test_uploads_add_up_and_the_queue_is_that_of_the_last_epoch():
    metrics = JobMetrics(())
    for failed, queued in ((1, 2), (0, 1)):
        found = TaskMetrics(started_ms=1, uploads_started=1, uploads_failed=failed, uploads_queued=queued)
        metrics.epoch(report(1), [ack(0, metrics=found)])
    assert values(metrics, catalog.UPLOAD_REQUESTS) == {"L1-S0": 2}
    assert values(metrics, catalog.UPLOAD_FAILURES) == {"L1-S0": 1}
    assert values(metrics, catalog.UPLOAD_QUEUE) == {"L1-S0": 1}


def test_timers_of_an_operator_are_those_of_all_its_tasks():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(slot, metrics=TaskMetrics(pending_timers={"n": 3})) for slot in (0, 1)])
    metrics.epoch(report(2), [ack(0), ack(1, metrics=TaskMetrics(pending_timers={"n": 0}))])
    assert values(metrics, catalog.PENDING_TIMERS) == {"n": 3}


@pytest.mark.feature("K5")
def test_gauges_of_rocksdb_are_the_last_ones_and_its_counters_add_up():
    metrics = JobMetrics(())
    for keys, hits in ((10, 5), (20, 7)):
        store = {"estimate-num-keys": keys, "block-cache-hit": hits, "num-files-at-level0": 1, "of my own": 3}
        metrics.epoch(report(1), [ack(0, metrics=TaskMetrics(started_ms=1, store=store))])
    metrics.epoch(report(3), [ack(0, metrics=TaskMetrics(started_ms=1))])
    assert values(metrics, NATIVE["estimate-num-keys"]) == {"L1-S0": 20}
    assert values(metrics, NATIVE["block-cache-hit"]) == {"L1-S0": 12}
    assert values(metrics, NATIVE["num-files-at-level"]) == {"L1-S0,0": 1}


def test_quantiles_of_state_accesses_are_those_of_the_slowest_task():
    def access(median: int, most: int) -> StateAccess:
        return StateAccess("count", "n", "valueStateGetLatency", 10, 1_000, median, most, most)

    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(s, metrics=TaskMetrics(states=(access(50 + s, 900 - s),))) for s in (0, 1)])
    metrics.epoch(report(2), [ack(0)])
    found = values(metrics, STATE_ACCESS["valueStateGetLatency"])
    assert found == {"count,n,0.5": 51, "count,n,0.99": 900, "count,n,1": 900}
    assert values(metrics, MEASURED) == {"count,n,valueStateGetLatency": 20}
    assert values(metrics, MEASURED_TOTAL) == {"count,n,valueStateGetLatency": 2_000}


def hot(**rows: int) -> TaskMetrics:
    return TaskMetrics(hot_keys=tuple(HotKey("count", key, count) for key, count in rows.items()))


def test_hot_keys_of_all_tasks_are_shares_of_the_operators_rows():
    metrics = JobMetrics(())
    metrics.epoch(report(1, operators={"count": (100, 0)}), [ack(0, metrics=hot(ann=40)), ack(1, metrics=hot(bob=10))])
    assert metrics.hot_keys == {"count": [("ann", 0.4), ("bob", 0.1)]}
    assert values(metrics, catalog.HOT_KEY_SHARE) == {"count": 0.4}


def test_a_key_cools_down_when_its_rows_stop():
    metrics = JobMetrics(())
    metrics.epoch(report(1, operators={"count": (100, 0)}), [ack(0, metrics=hot(ann=90))])
    for _ in range(20):
        metrics.epoch(report(2, operators={"count": (100, 0)}), [ack(0, metrics=hot(bob=50))])
        metrics.epoch(report(3, operators={"count": (0, 0)}), [ack(0)])
    (first, share), (second, rest) = metrics.hot_keys["count"]
    assert (first, round(share, 1), second) == ("bob", 0.5, "ann")
    assert rest < 0.01


def test_no_sample_bears_a_key():
    metrics = JobMetrics(())
    metrics.epoch(report(1, operators={"count": (100, 0)}), [ack(0, metrics=hot(ann=90))])
    assert "ann" not in str(metrics.samples(RUNNING, RUNNING))  # type: ignore[arg-type]


def test_tasks_that_measure_nothing_have_only_what_the_driver_counts():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0)])
    found = {sample.metric.name for sample in metrics.samples(RUNNING, RUNNING) if sample.metric.scope is Scope.TASK}  # type: ignore[arg-type]
    assert found == {
        "numRecordsIn", "numRecordsInPerSecond", "numRecordsOut", "numRecordsOutPerSecond", "numLateRecordsDropped",
        "numRecordsInErrors",
    }  # fmt: skip


@pytest.mark.budget(5)
def test_an_epoch_of_a_thousand_tasks_costs_milliseconds():
    metrics = JobMetrics(())
    acks = [
        ack(slot, metrics=TaskMetrics(started_ms=1, busy_ms=1, bytes_in=7), event_times={"in": slot})
        for slot in range(1_000)
    ]
    metrics.epoch(report(0), acks)
    best = min(timeit.repeat(lambda: metrics.epoch(report(1), acks), number=1, repeat=20, timer=process_time))
    assert best < 0.02


def stateful(slot: int, state_bytes: int, sizes: dict[str, dict[str, int]] | None = None, level: int = 1) -> TaskAck:
    return ack(slot, level=level, state_bytes=state_bytes, metrics=TaskMetrics(state_sizes=sizes or {}))


def test_sizes_of_states_are_added_over_tasks_and_divide_the_state_of_their_level():
    metrics = JobMetrics(())
    metrics.epoch(
        report(1),
        [
            stateful(0, 1_000, {"count": {"n": 900, "seen": 100}}),
            stateful(1, 1_000, {"count": {"n": 500, "seen": 500}}),
            stateful(0, 10, {"other": {"n": 10}}, level=2),
        ],
    )
    assert values(metrics, catalog.ESTIMATED_STATE_SIZE) == {"count,n": 1_400, "count,seen": 600, "other,n": 10}
    lines = [(each.operator, each.state, each.bytes) for each in metrics.states()]
    assert lines == [("count", "n", 1_400), ("count", "seen", 600), ("other", "n", 10)]


def test_sizes_of_states_follow_the_size_of_their_tasks_until_the_next_estimate():
    metrics = JobMetrics(())
    metrics.restored([stateful(0, 1_000, {"count": {"n": 900, "seen": 100}}), stateful(1, 1_000)])
    assert values(metrics, catalog.ESTIMATED_STATE_SIZE) == {"count,n": 1_800, "count,seen": 200}
    metrics.epoch(report(1), [stateful(0, 3_000), stateful(1, 1_000)])
    assert values(metrics, catalog.ESTIMATED_STATE_SIZE) == {"count,n": 3_600, "count,seen": 400}
    metrics.forget_slots(1)
    assert values(metrics, catalog.ESTIMATED_STATE_SIZE) == {"count,n": 2_700, "count,seen": 300}


def test_states_have_no_size_before_a_task_has_looked():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [stateful(0, 1_000)])
    assert metrics.states() == ()
    assert values(metrics, catalog.ESTIMATED_STATE_SIZE) == {}
