"""From epochs to metrics."""

from __future__ import annotations

from types import SimpleNamespace

from tidegate.checkpoint.release_plan import WaitingOutput
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.ids import EpochId, Slot, TaskId, Term, Uid
from tidegate.metrics import catalog
from tidegate.metrics.metric import Metric
from tidegate.runtime.driver.epoch_reports import EpochReport
from tidegate.runtime.driver.failover import Counters
from tidegate.runtime.driver.job_metrics import JobMetrics
from tidegate.runtime.exchange.messages import TaskAck, TaskMetrics

RUNNING = SimpleNamespace(
    status="RUNNING", restarts=2, counters=Counters(repeats=3, replacements=1, rewinds=1), checkpoints=None,
    waiting_output=(), held_by=None,
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
    found = [sample for sample in metrics.samples(run) if sample.metric is metric]  # type: ignore[arg-type]
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


def test_the_time_of_a_task_is_divided_into_busy_idle_and_held():
    metrics = JobMetrics(())
    metrics.epoch(report(1), [ack(0, metrics=TaskMetrics(busy_ms=100, idle_ms=300, held_ms=0))])
    assert values(metrics, catalog.BUSY) == {"L1-S0": 250}
    assert values(metrics, catalog.IDLE) == {"L1-S0": 750}
    assert values(metrics, catalog.HELD) == {"L1-S0": 0}


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


def test_repeats_and_rewinds_are_counted():
    assert values(JobMetrics(()), catalog.EPOCHS_REPEATED) == {"": 4}
    assert values(JobMetrics(()), catalog.REWINDS) == {"": 1}
