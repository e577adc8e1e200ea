"""The events that the driver makes of what it knows."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.checkpoints.test_loop import WAIT_S, Place
from tests.unit.runtime.driver.epoch_kit import epoch_report
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.pending import PendingCheckpoint
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.core.ids import EpochId, Slot, TaskId, Term
from tidegate.events.event import (
    CheckpointEvent,
    EpochEvent,
    JobEvent,
    JobFailureEvent,
    JobInitializationEvent,
    JobStatusChangeEvent,
)
from tidegate.events.listener import JobListener
from tidegate.runtime.exchange.messages import TaskAck, TaskMetrics
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.testing.clock import ManualClock

STATUSES = ("INITIALIZING", "RUNNING", "RESTARTING", "CANCELLING", "CANCELED", "FINISHED", "FAILED")


class Heard(JobListener):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_epoch(self, event: JobEvent) -> None:
        self.events.append(event)

    on_checkpoint = on_status_change = on_failure = on_rescale = on_initialization = on_epoch


def ack(level: int, slot: int, **more: Any) -> TaskAck:
    return TaskAck(
        term=1, number=7, level=level, sender=slot, partition=slot, attempt=1, host="h", version=None, digest=b"",
        rows_in=1, rows_out=1, **more,
    )  # fmt: skip


def only(events: JobEvents, heard: Heard) -> Any:
    events.close()
    (event,) = heard.events
    return event


def test_an_epoch_has_the_time_of_each_level_and_the_spans_of_all_its_tasks() -> None:
    heard = Heard()
    events = JobEvents("orders", [heard])
    acks = (
        ack(
            1, 0, metrics=TaskMetrics(started_ms=100, busy_ms=50, idle_ms=10), spans={"n": {"parse": (2, 3_000, 2_000)}}
        ),
        ack(
            1, 1, metrics=TaskMetrics(started_ms=110, busy_ms=60, held_ms=20), spans={"n": {"parse": (1, 5_000, 5_000)}}
        ),
        ack(2, 0, metrics=TaskMetrics(started_ms=200, busy_ms=5)),
    )
    events.epoch(epoch_report(EpochId(Term(1), 7), acks=acks, duration_ms=150))
    event = only(events, heard)
    assert isinstance(event, EpochEvent)
    assert [(each.level, each.started_ms, each.duration_ms, each.busy_ms) for each in event.levels] == [
        (1, 100, 90, 110),
        (2, 200, 5, 5),
    ]
    (span,) = event.spans
    assert (span.operator, span.name, span.count, span.total_ms) == ("n", "parse", 3, 8.0)
    assert (span.max_ms, span.longest_task_ms) == (5.0, 5.0)
    assert event.at_ms - event.started_ms == 150


@given(st.lists(st.sampled_from(STATUSES)))
def test_listeners_get_a_status_when_it_changes_and_never_after_the_end(wanted: list[str]) -> None:
    heard = Heard()
    events = JobEvents("orders", [heard])
    for status in wanted:
        events.status(status)
    events.close()
    told = [event.new_status for event in heard.events if isinstance(event, JobStatusChangeEvent)]
    ends = ("CANCELED", "FINISHED", "FAILED")
    until = next((place + 1 for place, status in enumerate(wanted) if status in ends), len(wanted))
    assert told == [status for status, _ in itertools.groupby(wanted[:until])]
    assert [event.old_status for event in heard.events] == [None, *told][: len(told)]


def test_a_failure_hides_secrets_and_says_what_follows() -> None:
    heard = Heard()
    events = JobEvents("orders", [heard])
    error = ConnectionError("cannot reach postgresql://tide:hunter2@db")
    events.failure(error, "engine", can_restart=True, checkpoint_id=7, delay_ms=100)
    event = only(events, heard)
    assert isinstance(event, JobFailureEvent)
    assert "hunter2" not in str(event)
    assert str(event).startswith("the job goes back to checkpoint 7 in 100 ms: cannot reach")
    assert event.attributes()["canRestart"] is True


def test_a_restore_event_has_what_each_task_fetched(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidegate")
    heard, clock = Heard(), ManualClock()
    events = JobEvents("orders", [heard], clock)
    started = clock.now()
    clock.advance(500)
    metrics = TaskMetrics(restore_ms=90, download_ms=80, download_bytes=700)
    sizes = {TaskId(1, Slot(0)): (600, 50), TaskId(1, Slot(1)): (2_500_000, 0)}
    events.initialized(started, 7, sizes, (ack(1, 0, metrics=metrics), ack(1, 1), ack(0, 0)))
    event = only(events, heard)
    assert isinstance(event, JobInitializationEvent)
    assert (event.checkpoint_id, event.full_size_bytes, event.duration_ms) == (7, 2_500_650, 500)
    task, other = event.tasks
    assert (task.restore_ms, task.download_ms, task.remote_bytes, task.memory_bytes) == (90, 80, 600, 50)
    assert (other.remote_bytes, other.local_bytes) == (0, 2_500_000)
    assert str(event).endswith("2.5 MB found on local disk, 0.0 MB fetched")
    assert [record.getMessage() for record in caplog.records] == [str(event)], "once in the log"


def test_listeners_get_one_event_for_every_counted_checkpoint(tmp_path: Any) -> None:
    heard = Heard()
    events = JobEvents("job", [heard])
    statistics = CheckpointStatsTracker(on_ended=events.checkpoint)
    with Place(tmp_path).run(statistics=statistics, savepoint_dir=str(tmp_path / "saved")) as loop:
        loop.request().result(WAIT_S)
        loop.request(full=True).result(WAIT_S)
        path = loop.savepoint(None, terminal=False).result(WAIT_S)
    events.close()
    told = [event for event in heard.events if isinstance(event, CheckpointEvent)]
    kinds = {event.checkpoint_id: event.checkpoint_type for event in told}
    assert len(kinds) == len(told) == statistics.counts.completed + statistics.counts.failed
    assert list(kinds.values())[:2] == ["Checkpoint", "Full Checkpoint"]
    (savepoint,) = [event for event in told if event.checkpoint_type == "Savepoint"]
    assert savepoint.path == path
    assert str(savepoint).startswith(f"savepoint {path} complete")


def test_a_failed_checkpoint_says_why() -> None:
    heard, now = Heard(), ManualClock().now()
    events = JobEvents("job", [heard])
    statistics = CheckpointStatsTracker(on_ended=events.checkpoint)
    request = CheckpointRequest(kind=RequestKind.PERIODIC, at_ms=now.monotonic_ms)
    pending = PendingCheckpoint(
        id=3,
        epoch=EpochId(Term(1), 7),
        request=request,
        triggered=now,
        deadline_ms=now.plus(9),
        tasks=frozenset(),
        base=None,
    )
    statistics.triggered(pending)
    statistics.failed(pending, now, CheckpointFailureReason.IO_EXCEPTION, "secret=abc: disk full")
    event = only(events, heard)
    assert (event.status, event.failure_reason) == ("FAILED", "IO_EXCEPTION")
    assert str(event).startswith(
        "checkpoint 3 failed: An exception occurred while writing to checkpoint storage: secret=***"
    )
    assert event.severity == logging.WARNING
