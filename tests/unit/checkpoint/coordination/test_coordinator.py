"""The coordinator: messages in, actions out, time told by the test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tests.unit.checkpoint.history_kit import ref
from tidegate.checkpoint.coordination.announcements import Ahead
from tidegate.checkpoint.coordination.coordinator import (
    Action,
    CompleteCheckpoint,
    Coordinator,
    DiscardFiles,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    StartUpload,
    WakeAt,
)  # fmt: skip
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason as Reason
from tidegate.checkpoint.coordination.pending import Stage
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.timing import Cadence, Timing
from tidegate.checkpoint.files.task_part import UploadAck
from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import EpochId, Slot, TaskId, Term
from tidegate.testing.clock import at

TASKS = [TaskId(1, Slot(n)) for n in range(3)]
EVERY_SECOND = Cadence(interval_ms=1_000, timeout_ms=5_000)


def epoch(number: int) -> EpochId:
    return EpochId(Term(1), number)


def ack(id: int, task: int, *files: str) -> UploadAck:
    return UploadAck(
        checkpoint_id=id,
        task=TASKS[task],
        state=f"state-{task}",
        new_files=files,
        state_size_bytes=100,
        checkpointed_size_bytes=10,
        async_ms=7,
    )


def of(kind: type, actions: Sequence[Action]) -> list[Action]:
    return [a for a in actions if isinstance(a, kind)]


def started(cadence: Cadence = EVERY_SECOND, last_id: int = 0) -> Coordinator:
    coordinator = Coordinator(Timing(cadence), TASKS, last_id)
    coordinator.start(at(0), 100)
    return coordinator


def completed(coordinator: Coordinator, id: int, now: int) -> list[Action]:
    for task in range(3):
        coordinator.acknowledge(ack(id, task), at(now))
    return coordinator.on_completed(id, ref(id), (), at(now))


@pytest.mark.feature("C14", "C15", "C1", "C5")
def test_a_checkpoint_takes_the_last_finished_epoch_and_completes_when_all_have_acknowledged() -> None:
    coordinator = started()
    assert not of(StartUpload, coordinator.epoch_finished(epoch(1), True, at(50)))
    coordinator.epoch_finished(epoch(2), True, at(90))
    assert of(StartUpload, coordinator.tick(at(100))) == [
        StartUpload(1, epoch(2), CheckpointRequest(kind=RequestKind.PERIODIC, at_ms=100), None)
    ]
    coordinator.epoch_finished(epoch(3), True, at(150))
    assert coordinator.acknowledge(ack(1, 0), at(200)) == []
    assert coordinator.acknowledge(ack(1, 2), at(210)) == []
    (publish,) = coordinator.acknowledge(ack(1, 1), at(220))
    assert isinstance(publish, CompleteCheckpoint)
    assert publish.pending.epoch == epoch(2)
    assert publish.pending.states == {task: f"state-{n}" for n, task in enumerate(TASKS)}
    assert of(NotifyComplete, coordinator.on_completed(1, ref(1), (), at(230)))


@pytest.mark.feature("C1")
def test_a_job_that_runs_on_takes_one_checkpoint_after_another_each_of_a_later_epoch() -> None:
    coordinator, taken = started(), []
    for number in range(1, 51):
        for upload in of(StartUpload, coordinator.epoch_finished(epoch(number), True, at(100 * number))):
            assert isinstance(upload, StartUpload)
            taken.append((upload.id, upload.epoch.number))
            completed(coordinator, upload.id, 100 * number + 50)
    assert taken == [(1, 1), (2, 11), (3, 21), (4, 31), (5, 41)]


@pytest.mark.feature("C5")
def test_ids_grow_by_one_from_what_the_log_has_through_failures_too() -> None:
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=9), last_id=41)
    coordinator.epoch_finished(epoch(1), True, at(100))
    coordinator.decline(42, Reason.CHECKPOINT_DECLINED, at(200))
    (upload,) = of(StartUpload, coordinator.tick(at(1_200)))
    assert isinstance(upload, StartUpload)
    assert upload.id == 43


@pytest.mark.feature("D11")
def test_a_checkpoint_that_waits_begins_when_the_one_under_way_fails() -> None:
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=9))
    coordinator.epoch_finished(epoch(1), True, at(100))
    assert not of(StartUpload, coordinator.tick(at(1_100)))
    assert len(of(StartUpload, coordinator.decline(1, Reason.CHECKPOINT_DECLINED, at(1_200)))) == 1


@pytest.mark.feature("D11")
def test_a_waiting_checkpoint_begins_when_the_one_in_progress_cannot_complete() -> None:
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=9))
    coordinator.epoch_finished(epoch(1), True, at(100))
    for task in range(3):
        coordinator.acknowledge(ack(1, task), at(1_000))
    assert not of(StartUpload, coordinator.tick(at(1_100)))
    assert len(of(StartUpload, coordinator.on_completion_failed(1, at(1_200)))) == 1


@pytest.mark.feature("C14")
def test_doubled_reordered_and_late_acknowledgements_are_harmless() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    assert coordinator.acknowledge(ack(1, 1, "a"), at(200)) == []
    assert coordinator.acknowledge(ack(1, 1, "a"), at(201)) == []
    assert coordinator.acknowledge(ack(1, 1, "b"), at(202)) == [DiscardFiles(("b",))]
    assert coordinator.acknowledge(ack(7, 0), at(203)) == []
    coordinator.acknowledge(ack(1, 0), at(204))
    assert len(coordinator.acknowledge(ack(1, 2), at(205))) == 1
    assert coordinator.acknowledge(ack(1, 2), at(206)) == []
    coordinator.on_completed(1, ref(1), (), at(210))
    assert coordinator.acknowledge(ack(1, 2), at(300)) == []


@pytest.mark.feature("N11", "F31", "E16")
def test_files_of_a_checkpoint_that_did_not_complete_are_never_reused() -> None:
    """Checkpoint 2 uploads 4.sst and fails; checkpoint 3 may reuse what 1 has, and nothing of 2."""
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=1))
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 200)
    coordinator.epoch_finished(epoch(2), True, at(1_200))
    coordinator.acknowledge(ack(2, 0, "4.sst.chk-2"), at(1_300))
    failed = coordinator.tick(at(6_200))
    assert of(DiscardFiles, failed) == [DiscardFiles(("4.sst.chk-2",))]
    (upload,) = of(StartUpload, failed)
    assert isinstance(upload, StartUpload)
    assert (upload.id, upload.base) == (3, ref(1).metadata)


@pytest.mark.feature("F24", "F25")
@pytest.mark.parametrize("full", [None, False, True])
def test_a_full_checkpoint_has_no_base_and_the_next_one_has_it_for_its_own(full: bool | None) -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 200)
    coordinator.epoch_finished(epoch(2), True, at(300))
    asked = coordinator.request(
        CheckpointRequest(kind=RequestKind.MANUAL, at_ms=at(400).monotonic_ms, token="t", forced=True, full=full),
        at(400),
    )
    (upload,) = of(StartUpload, asked)
    assert isinstance(upload, StartUpload)
    assert upload.base == (None if full else ref(1).metadata)


@pytest.mark.feature("O23")
def test_after_a_start_from_a_savepoint_only_the_first_checkpoint_is_full() -> None:
    """NO_CLAIM: the savepoint is its owner's, so no checkpoint may refer to its files."""
    coordinator = Coordinator(Timing(EVERY_SECOND), TASKS, 7, replace(ref(7), owned=False))
    coordinator.start(at(0), 100)
    bases = []
    for number in (1, 2, 3):
        (upload,) = of(StartUpload, coordinator.epoch_finished(epoch(number), True, at(number * 1_100)))
        assert isinstance(upload, StartUpload)
        bases.append(upload.base)
        completed(coordinator, upload.id, number * 1_100 + 50)
    assert bases == [None, ref(8).metadata, ref(9).metadata]


@pytest.mark.feature("D5")
def test_a_checkpoint_expires_and_its_tasks_are_notified() -> None:
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=1))
    coordinator.epoch_finished(epoch(1), True, at(100))
    assert not of(NotifyAborted, coordinator.tick(at(5_099)))
    (aborted,) = of(NotifyAborted, coordinator.tick(at(5_100)))
    assert isinstance(aborted, NotifyAborted)
    assert (aborted.id, aborted.reason) == (1, Reason.CHECKPOINT_EXPIRED)


@pytest.mark.feature("D5")
def test_a_checkpoint_that_is_completing_does_not_expire() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    for task in range(3):
        coordinator.acknowledge(ack(1, task), at(4_000))
    assert not of(NotifyAborted, coordinator.tick(at(60_000)))


@pytest.mark.feature("D7", "D8")
@pytest.mark.parametrize("tolerable", [0, 2])
def test_the_job_fails_when_more_checkpoints_failed_in_a_row_than_tolerable(tolerable: int) -> None:
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=tolerable))
    coordinator.epoch_finished(epoch(1), True, at(100))
    for id in range(1, tolerable + 1):
        assert not of(FailJob, coordinator.decline(id, Reason.CHECKPOINT_ASYNC_EXCEPTION, at(id * 1_000 + 500)))
        coordinator.tick(at((id + 1) * 1_000 + 200))
    (fail,) = of(FailJob, coordinator.decline(tolerable + 1, Reason.CHECKPOINT_ASYNC_EXCEPTION, at(90_000)))
    assert isinstance(fail, FailJob)
    assert fail.message.startswith(
        "Exceeded checkpoint tolerable failure threshold. The latest checkpoint failed due to"
    )


@pytest.mark.feature("D7")
def test_a_success_forgives_earlier_failures() -> None:
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=1))
    coordinator.epoch_finished(epoch(1), True, at(100))
    coordinator.decline(1, Reason.IO_EXCEPTION, at(200))
    coordinator.tick(at(1_100))
    completed(coordinator, 2, 1_200)
    coordinator.epoch_finished(epoch(2), True, at(2_200))
    assert not of(FailJob, coordinator.decline(3, Reason.IO_EXCEPTION, at(2_300)))


@pytest.mark.feature("D8", "D10")
def test_only_these_reasons_count() -> None:
    assert {reason.name for reason in Reason if reason.counted} == {
        "IO_EXCEPTION", "CHECKPOINT_ASYNC_EXCEPTION", "CHECKPOINT_DECLINED", "CHECKPOINT_EXPIRED",
        "FINALIZE_CHECKPOINT_FAILURE",
    }  # fmt: skip


@pytest.mark.feature("D10")
def test_a_newer_completed_checkpoint_subsumes_an_older_pending_one_without_blame() -> None:
    coordinator = started(replace(EVERY_SECOND, max_concurrent=2))
    coordinator.epoch_finished(epoch(1), True, at(100))
    coordinator.epoch_finished(epoch(2), True, at(1_100))
    assert [p.id for p in coordinator.pending] == [1, 2]
    actions = completed(coordinator, 2, 1_200)
    assert of(NotifyAborted, actions) == [
        NotifyAborted(
            1, CheckpointRequest(kind=RequestKind.PERIODIC, at_ms=100), Reason.CHECKPOINT_SUBSUMED, epoch=epoch(1)
        )
    ]
    assert not of(FailJob, actions)


@pytest.mark.feature("I2", "I4")
def test_a_savepoint_is_not_subsumed_and_reuses_nothing() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 150)
    wish = CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=200, token="token", target="somewhere")
    assert of(StartUpload, coordinator.request(wish, at(200))) == [StartUpload(2, epoch(1), wish, None)]
    coordinator.epoch_finished(epoch(2), True, at(1_300))
    assert [p.id for p in coordinator.pending] == [2, 3]
    completed(coordinator, 3, 1_500)
    assert [p.id for p in coordinator.pending] == [2]


@pytest.mark.feature("I19", "I20")
def test_the_first_checkpoint_after_a_start_from_a_users_snapshot_reuses_none_of_its_files() -> None:
    coordinator = Coordinator(Timing(EVERY_SECOND), TASKS, last_id=0, base=ref(7, owned=False))
    coordinator.start(at(0), 100)
    (first,) = of(StartUpload, coordinator.epoch_finished(epoch(1), True, at(100)))
    completed(coordinator, 1, 150)
    (second,) = of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(1_200)))
    assert (first.base, second.base) == (None, ref(1).metadata)  # type: ignore[attr-defined]


@pytest.mark.feature("D11")
@pytest.mark.parametrize("savepoints", [1, 3])
def test_savepoints_under_way_do_not_hold_back_checkpoints(savepoints: int) -> None:
    coordinator = started(replace(EVERY_SECOND, timeout_ms=600_000))
    coordinator.epoch_finished(epoch(1), True, at(50))
    for number in range(savepoints):
        coordinator.request(
            CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=60 + number, target="unreachable"), at(60 + number)
        )
    for round in range(5):
        now = 1_100 * (round + 1)
        (upload,) = of(StartUpload, coordinator.epoch_finished(epoch(round + 2), True, at(now)))
        assert isinstance(upload, StartUpload)
        completed(coordinator, upload.id, now + 100)
    assert coordinator.statistics.counts.completed == 5
    assert len(coordinator.pending) == savepoints


@pytest.mark.feature("D11")
def test_checkpoints_during_a_savepoint_respect_max_concurrent() -> None:
    coordinator = started(replace(EVERY_SECOND, timeout_ms=600_000))
    coordinator.epoch_finished(epoch(1), True, at(50))
    coordinator.request(CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=60), at(60))
    assert len(of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(1_100)))) == 1
    assert not of(StartUpload, coordinator.epoch_finished(epoch(3), True, at(2_300)))


@pytest.mark.feature("D6")
def test_savepoints_that_complete_one_after_the_other_do_not_hold_back_checkpoints_by_min_pause() -> None:
    coordinator = started(replace(EVERY_SECOND, min_pause_ms=1_000))
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 200)
    begun: list[Action] = []
    for number in range(10):
        now = 300 + number * 400
        coordinator.request(CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=now), at(now))
        begun += of(StartUpload, completed(coordinator, coordinator.pending[-1].id, now + 100))
        begun += of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(now + 200)))
        if begun:
            return
    pytest.fail("no checkpoint began beside the savepoints")


@pytest.mark.feature("D5", "D8")
def test_the_requester_learns_why_a_task_declined() -> None:
    coordinator = started(Cadence(interval_ms=None))
    coordinator.epoch_finished(epoch(1), True, at(100))
    wish = CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=100, token="token")
    coordinator.request(wish, at(100))
    actions = coordinator.decline(1, Reason.CHECKPOINT_ASYNC_EXCEPTION, at(200), "L1-S0: no such bucket")
    assert of(NotifyAborted, actions) == [
        NotifyAborted(1, wish, Reason.CHECKPOINT_ASYNC_EXCEPTION, "L1-S0: no such bucket", epoch=epoch(1))
    ]


@pytest.mark.feature("I1")
def test_a_savepoint_exists_only_once_the_log_has_a_checkpoint_of_its_epoch() -> None:
    """Otherwise a rewind could discard its epoch, and the output waiting in it would be overtaken."""
    coordinator = started(Cadence(interval_ms=None))
    coordinator.epoch_finished(epoch(1), True, at(100))
    coordinator.request(CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=100), at(100))
    coordinator.acknowledge(ack(1, 0), at(200))
    coordinator.acknowledge(ack(1, 1), at(200))
    (upload,) = of(StartUpload, coordinator.acknowledge(ack(1, 2), at(200)))
    assert isinstance(upload, StartUpload)
    assert (upload.id, upload.epoch) == (2, epoch(1))
    actions = completed(coordinator, 2, 300)
    assert [a.pending.id for a in actions if isinstance(a, CompleteCheckpoint)] == [1]


@pytest.mark.feature("I1")
def test_a_savepoint_waits_for_a_checkpoint_of_its_epoch_also_if_the_log_has_an_earlier_one() -> None:
    coordinator = started(Cadence(interval_ms=None))
    coordinator.epoch_finished(ref(1).epoch, True, at(100))
    coordinator.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=100), at(100))
    completed(coordinator, 1, 200)
    coordinator.epoch_finished(ref(3).epoch, True, at(300))
    coordinator.request(CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=300), at(300))
    coordinator.acknowledge(ack(2, 0), at(400))
    coordinator.acknowledge(ack(2, 1), at(400))
    actions = coordinator.acknowledge(ack(2, 2), at(400))
    assert not of(CompleteCheckpoint, actions)
    assert [a.epoch for a in actions if isinstance(a, StartUpload)] == [ref(3).epoch]
    assert [a.pending.id for a in completed(coordinator, 3, 500) if isinstance(a, CompleteCheckpoint)] == [2]


@pytest.mark.feature("D10")
def test_a_forced_checkpoint_is_subsumed_like_any_other() -> None:
    """Ids in the log only grow, so one that comes late cannot be published any more."""
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(10))
    coordinator.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=20, forced=True), at(20))
    coordinator.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=30, forced=True), at(30))
    aborted = of(NotifyAborted, completed(coordinator, 2, 50))
    assert [a.id for a in aborted if isinstance(a, NotifyAborted)] == [1]


@pytest.mark.feature("D6", "D13", "N32")
def test_min_pause_holds_back_the_next_periodic_checkpoint() -> None:
    coordinator = started(replace(EVERY_SECOND, min_pause_ms=600))
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 1_050)  # it outlasted its interval
    coordinator.epoch_finished(epoch(2), True, at(1_100))
    assert coordinator.pending == ()
    assert min(a.at_ms for a in coordinator.tick(at(1_200)) if isinstance(a, WakeAt)) == 1_650
    assert of(StartUpload, coordinator.tick(at(1_650)))


@pytest.mark.feature("D11", "D13")
def test_without_min_pause_a_late_checkpoint_is_followed_at_once() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    coordinator.epoch_finished(epoch(2), True, at(1_150))
    assert len(coordinator.pending) == 1
    assert of(StartUpload, completed(coordinator, 1, 1_200))


@pytest.mark.feature("K11")
def test_an_interval_shorter_than_min_pause_is_raised_to_it() -> None:
    coordinator = started(Cadence(interval_ms=100, min_pause_ms=700))
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 100)
    coordinator.epoch_finished(epoch(2), True, at(150))
    assert not of(StartUpload, coordinator.tick(at(799)))
    assert of(WakeAt, coordinator.tick(at(799))) == [WakeAt(800)]
    assert of(StartUpload, coordinator.tick(at(800)))


@pytest.mark.feature("D1")
def test_without_an_interval_no_checkpoint_is_periodic() -> None:
    coordinator = started(Cadence(interval_ms=None))
    assert coordinator.epoch_finished(epoch(1), True, at(10**9)) == []
    assert of(StartUpload, coordinator.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=10**9), at(10**9)))


@pytest.mark.feature("D3")
def test_nothing_moved_nothing_is_saved() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 200)
    assert not of(StartUpload, coordinator.epoch_finished(epoch(1), False, at(1_100)))
    assert of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(2_200)))


def test_too_many_cleanings_hold_everything_back() -> None:
    coordinator = started(replace(EVERY_SECOND, timeout_ms=600_000))
    for id in (1, 2, 3):
        coordinator.epoch_finished(epoch(id), True, at(id * 2_000))
        for task in range(3):
            coordinator.acknowledge(ack(id, task), at(id * 2_000 + 1))
        if id < 3:
            coordinator.on_completed(id, ref(id), (id - 1,) if id > 1 else (0,), at(id * 2_000 + 2))
    assert coordinator.pending == ()
    assert of(StartUpload, coordinator.cleaned(1, at(9_000)))


@pytest.mark.feature("C1", "D10", "H2")
def test_a_rewind_aborts_pending_checkpoints_and_the_next_epoch_starts_over() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    actions = coordinator.abort_all(Reason.CHECKPOINT_COORDINATOR_SUSPEND, at(200))
    assert [a.reason for a in actions if isinstance(a, NotifyAborted)] == [Reason.CHECKPOINT_COORDINATOR_SUSPEND]
    assert not of(FailJob, actions)
    assert coordinator.tick(at(300)) == [WakeAt(1_300)]
    (upload,) = of(StartUpload, coordinator.epoch_finished(epoch(5), True, at(400)))
    assert isinstance(upload, StartUpload)
    assert (upload.id, upload.epoch) == (2, epoch(5))


@pytest.mark.feature("I14")
def test_after_the_savepoint_that_ends_the_job_nothing_is_triggered() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(50))
    coordinator.request(CheckpointRequest(kind=RequestKind.TERMINAL_SAVEPOINT, at_ms=60), at(60))
    completed(coordinator, 1, 100)
    assert coordinator.epoch_finished(epoch(2), True, at(5_000)) == []
    refused = coordinator.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=6_000), at(6_000))
    assert [a.reason for a in refused if isinstance(a, NotifyAborted)] == [Reason.CHECKPOINT_COORDINATOR_SHUTDOWN]


@pytest.mark.feature("I14")
def test_while_the_job_is_being_stopped_no_later_checkpoint_begins() -> None:
    """The savepoint would go back behind it, and output that had completed would be lost."""
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(50))
    coordinator.request(CheckpointRequest(kind=RequestKind.TERMINAL_SAVEPOINT, at_ms=60), at(60))
    assert not of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(2_000)))
    assert [a.id for a in coordinator.tick(at(5_060)) if isinstance(a, StartUpload)] == [
        2
    ]  # it expired; the job goes on


@pytest.mark.feature("E8")
def test_clean_up_keeps_files_that_may_still_be_reused() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(100))
    completed(coordinator, 1, 200)
    assert coordinator.in_flight().lowest_id == 2
    coordinator.epoch_finished(epoch(2), True, at(1_200))
    assert coordinator.in_flight().lowest_id == 2
    assert coordinator.in_flight().bases == {ref(1).metadata}


def test_one_acknowledgement_of_ten_thousand_tasks_is_cheap() -> None:
    tasks = [TaskId(1, Slot(n)) for n in range(10_000)]
    coordinator = Coordinator(Timing(EVERY_SECOND), tasks)
    coordinator.start(at(0), 0)
    coordinator.epoch_finished(epoch(1), True, at(1))
    acks = [
        UploadAck(
            checkpoint_id=1, task=task, state=None, new_files=("a", "b"), state_size_bytes=1, checkpointed_size_bytes=1
        )
        for task in tasks
    ]
    began = time.process_time()
    for one in acks:
        actions = coordinator.acknowledge(one, at(5))
    spent_us = (time.process_time() - began) * 1e6 / len(acks)
    assert isinstance(actions[0], CompleteCheckpoint)
    assert spent_us < 50


def test_statistics_are_kept_for_people() -> None:
    coordinator = started(replace(EVERY_SECOND, tolerable_failures=99))
    now = 0
    for id in range(1, 64):
        now = id * 2_000
        coordinator.epoch_finished(epoch(id), True, at(now))
        if id == 5:
            coordinator.decline(5, Reason.CHECKPOINT_DECLINED, at(now + 50), "disk full")
        else:
            completed(coordinator, id, now + 100 + id)
    stats = coordinator.statistics
    assert (stats.counts.total, stats.counts.completed, stats.counts.failed, stats.counts.in_progress) == (63, 62, 1, 0)
    assert [s.id for s in stats.history()] == list(range(63, 3, -1))
    assert stats.latest_failed is not None
    assert stats.latest_failed.failure_message == "disk full"
    last = stats.latest_completed
    assert last is not None
    assert (last.state_size_bytes, last.checkpointed_size_bytes, last.num_acknowledged_subtasks) == (300, 30, 3)
    assert last.levels()[0].state_size_bytes == 300
    duration = stats.summary()["end_to_end_duration"]
    assert duration is not None
    assert (duration.min, duration.max) == (101, 163)


@pytest.mark.feature("C10")
def test_ids_enter_the_log_in_order_even_when_the_older_upload_ends_last() -> None:
    coordinator = started(replace(EVERY_SECOND, max_concurrent=2))
    coordinator.epoch_finished(epoch(1), True, at(100))
    coordinator.epoch_finished(epoch(2), True, at(1_200))
    for task in range(3):
        last = coordinator.acknowledge(ack(2, task, f"f2-{task}"), at(1_300))
    assert [a.pending.id for a in of(CompleteCheckpoint, last)] == [2]
    for task in range(3):
        last = coordinator.acknowledge(ack(1, task, f"f1-{task}"), at(1_400))
    assert of(CompleteCheckpoint, last) == []
    assert len(of(DiscardFiles, coordinator.on_completed(2, ref(2), (), at(1_500)))) == 1


@pytest.mark.feature("C10")
def test_the_older_checkpoint_completes_when_the_newer_one_could_not() -> None:
    coordinator = started(replace(EVERY_SECOND, max_concurrent=2, tolerable_failures=1))
    coordinator.epoch_finished(epoch(1), True, at(100))
    coordinator.epoch_finished(epoch(2), True, at(1_200))
    for id in (2, 1):
        for task in range(3):
            coordinator.acknowledge(ack(id, task), at(1_300))
    assert [a.pending.id for a in of(CompleteCheckpoint, coordinator.on_completion_failed(2, at(1_400)))] == [1]


@pytest.mark.feature("D11")
def test_a_checkpoint_on_request_counts_as_one_of_the_concurrent_ones() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(50))
    coordinator.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=at(60).monotonic_ms, forced=True), at(60))
    coordinator.epoch_finished(epoch(2), True, at(1_200))
    assert [pending.epoch for pending in coordinator.pending] == [epoch(1)]


EVENTS = st.lists(
    st.sampled_from(
        [
            "announced epoch",
            "request in an announced epoch",
            "completion in an announced epoch",
            "time in an announced epoch",
            "time in an epoch",
            "savepoint in an epoch",
            "epoch",
            "manual",
            "full",
            "savepoint",
            "complete",
            "tick",
            "rewind",
        ]
    ),
    max_size=40,
)


class Life:
    """A coordinator through many events; notes which ids were announced to which epochs, and which were used."""

    def __init__(self) -> None:
        self.coordinator, self.now, self.number = started(), 0, 0
        self.running = False
        self.announced: dict[int, int] = {}
        self.used: list[int] = []

    def look(self) -> None:
        self.coordinator.look(Ahead(max(self.announced, default=0), self.running))

    def run(self, event: str) -> list[Action]:
        now = at(self.now)
        self.look()
        match event:
            case "epoch" | "announced epoch":
                return self._epoch(event == "announced epoch")
            case "request in an announced epoch":
                return self._epoch(True, ["manual"])
            case "completion in an announced epoch":
                return self._epoch(True, ["savepoint", "complete", "tick"])
            case "time in an announced epoch" | "time in an epoch":
                return self._epoch(event == "time in an announced epoch", ["tick", "complete", "tick"])
            case "savepoint in an epoch":
                return self._epoch(False, ["savepoint", "complete", "tick"])
            case "manual" | "full":
                request = CheckpointRequest(
                    kind=RequestKind.MANUAL, at_ms=self.now, forced=True, full=event == "full" or None
                )
                return self.coordinator.request(request, now)
            case "savepoint":
                return self.coordinator.request(
                    CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=self.now, target="sp"), now
                )
            case "complete":
                return self._complete()
            case "rewind":
                return self.coordinator.abort_all(Reason.CHECKPOINT_COORDINATOR_SUSPEND, now)
        return self.coordinator.tick(now)

    def _epoch(self, announces: bool, during: Sequence[str] = ()) -> list[Action]:
        id = self.coordinator.announce(400, at(self.now)) if announces else None
        self.running, self.number, self.now = True, self.number + 1, self.now + 300
        if id is not None:
            assert id not in self.announced
            self.announced[id] = self.number
            assert self.coordinator.in_flight().lowest_id <= id, "a sweep would delete what its tasks store"
        for event in during:
            self.note(self.run(event))
        self.running = False
        self.look()
        return self.coordinator.epoch_finished(epoch(self.number), True, at(self.now), id)

    def _complete(self) -> list[Action]:
        for pending in self.coordinator.pending[:1]:
            for task in range(3):
                self.coordinator.acknowledge(ack(pending.id, task), at(self.now))
            if pending.stage is Stage.COMPLETING:
                done = replace(ref(pending.id), epoch=pending.epoch)
                return self.coordinator.on_completed(pending.id, done, (), at(self.now))
        return []

    def note(self, actions: Sequence[Action]) -> None:
        for begun in actions:
            if isinstance(begun, StartUpload):
                self.used.append(begun.id)
                assert not (self.running and begun.request.kind is RequestKind.PERIODIC)
                as_stored = not begun.request.full and not begun.request.kind.is_savepoint
                assert begun.id not in self.announced or (self.announced[begun.id] == begun.epoch.number and as_stored)


@given(events=EVENTS, steps=st.lists(st.integers(0, 700), min_size=40, max_size=40))
@settings(max_examples=examples(200))
def test_ids_grow_and_an_announced_one_is_used_only_by_its_epoch(events: list[str], steps: list[int]) -> None:
    life = Life()
    for event, step in zip(events, steps):
        life.now += step
        life.note(life.run(event))
    assert life.used == sorted(set(life.used))


@pytest.mark.feature("C37")
def test_a_checkpoint_that_becomes_due_in_an_announced_epoch_is_taken_of_that_epoch() -> None:
    """Its tasks store their versions already. A checkpoint of the epoch before could not begin earlier than the next one."""
    coordinator = started()
    completed_first(coordinator)
    coordinator.epoch_finished(epoch(2), True, at(900))
    assert coordinator.announce(400, at(900)) == 2
    coordinator.look(Ahead(taken=2, runs=True))
    assert not of(StartUpload, coordinator.tick(at(1_150)))
    coordinator.look(Ahead(taken=2))
    (begun,) = of(StartUpload, coordinator.epoch_finished(epoch(3), True, at(1_300), 2))
    assert (begun.id, begun.epoch) == (2, epoch(3))


@pytest.mark.feature("C37")
def test_a_checkpoint_that_becomes_due_while_an_epoch_runs_is_taken_when_that_ends() -> None:
    """Its orders could not go out sooner than with the next epoch, and its time would run."""
    coordinator = started()
    completed_first(coordinator)
    coordinator.epoch_finished(epoch(2), True, at(900))
    coordinator.look(Ahead(runs=True))
    for now in (1_150, 2_300, 60_000):
        assert not of(StartUpload, coordinator.tick(at(now)))
    coordinator.look(Ahead())
    (begun,) = of(StartUpload, coordinator.epoch_finished(epoch(3), True, at(61_000)))
    assert begun.epoch == epoch(3)
    assert coordinator.pending[0].deadline_ms == 66_000


def test_a_checkpoint_that_becomes_due_before_the_first_change_is_taken_of_the_epoch_that_makes_it() -> None:
    """Whether an epoch changes anything is known when it ends."""
    coordinator = started()
    completed_first(coordinator)
    coordinator.look(Ahead(runs=True))
    assert not of(StartUpload, coordinator.tick(at(1_150)))
    coordinator.look(Ahead())
    assert of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(1_300)))


def test_a_checkpoint_that_waits_for_an_epoch_is_announced_to_the_next_one() -> None:
    """That one may begin before the end of the running one is known here."""
    coordinator = started()
    completed_first(coordinator)
    coordinator.epoch_finished(epoch(2), True, at(900))
    assert coordinator.announce(0, at(1_050)) is None
    coordinator.look(Ahead(runs=True))
    coordinator.tick(at(1_150))
    assert coordinator.announce(0, at(1_150)) == 2


@pytest.mark.parametrize("kind", [RequestKind.MANUAL, RequestKind.SAVEPOINT, RequestKind.TERMINAL_SAVEPOINT])
def test_a_request_by_hand_waits_for_no_epoch(kind: RequestKind) -> None:
    coordinator = started()
    completed_first(coordinator)
    coordinator.look(Ahead(runs=True))
    assert of(
        StartUpload, coordinator.request(CheckpointRequest(kind=kind, at_ms=at(300).monotonic_ms, target="sp"), at(300))
    )


def test_a_checkpoint_is_taken_at_the_end_of_an_epoch_whose_announcement_became_void() -> None:
    """It has waited for that epoch, and does not wait for another one."""
    coordinator = started()
    coordinator.epoch_finished(epoch(10), True, at(100))
    coordinator.epoch_finished(epoch(11), True, at(500))
    completed(coordinator, 1, 600)
    assert coordinator.announce(600, at(600)) == 2
    coordinator.look(Ahead(taken=2, runs=True))
    assert coordinator.reserve(None) == 3
    coordinator.look(Ahead(taken=2))
    (begun,) = of(StartUpload, coordinator.epoch_finished(epoch(12), True, at(1_200), announced=2, took_ms=600))
    assert isinstance(begun, StartUpload)
    assert begun.id == 4
    assert begun.epoch == epoch(12)


def test_a_message_after_an_announcement_needs_another_look() -> None:
    """An epoch may have begun with it."""
    coordinator = started()
    completed_first(coordinator)
    coordinator.epoch_finished(epoch(2), True, at(900))
    assert coordinator.announce(400, at(900)) == 2
    with pytest.raises(ProtocolViolation, match="looked"):
        coordinator.tick(at(1_150))
    coordinator.look(Ahead(taken=2, runs=True))
    assert not of(StartUpload, coordinator.tick(at(1_150)))


@pytest.mark.feature("D6")
def test_nothing_is_announced_before_the_pause_after_a_checkpoint_is_over() -> None:
    coordinator = started(Cadence(interval_ms=1_000, min_pause_ms=900))
    coordinator.epoch_finished(epoch(1), True, at(50))
    coordinator.tick(at(100))
    completed(coordinator, 1, 500)
    coordinator.epoch_finished(epoch(2), True, at(600))
    assert coordinator.announce(800, at(1_300)) is None
    assert coordinator.announce(800, at(1_400)) == 2


def completed_first(coordinator: Coordinator) -> None:
    coordinator.epoch_finished(epoch(1), True, at(50))
    coordinator.tick(at(100))
    completed(coordinator, 1, 200)


@pytest.mark.feature("C50", "C52")
@pytest.mark.parametrize("kind", [RequestKind.MANUAL, RequestKind.TERMINAL_SAVEPOINT])
def test_only_what_the_job_ends_with_contains_an_epoch_at_the_end_of_event_time(kind: RequestKind) -> None:
    """A job that went back to such a checkpoint would find all its further rows late."""
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(50), drains=True)
    user = CheckpointRequest(kind=RequestKind.MANUAL, at_ms=at(60).monotonic_ms, token="user", forced=True)
    assert not of(StartUpload, coordinator.request(user, at(60)))
    assert not of(StartUpload, coordinator.tick(at(5_000)))
    assert coordinator.announce(0, at(5_000)) is None
    coordinator.look(Ahead())
    last = CheckpointRequest(kind=kind, at_ms=at(5_000).monotonic_ms, final=kind is RequestKind.MANUAL, forced=True)
    assert [each.request for each in of(StartUpload, coordinator.request(last, at(5_000)))] == [last]


@pytest.mark.feature("C50")
def test_a_job_that_went_back_from_its_drain_takes_checkpoints_again() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(50), drains=True)
    coordinator.abort_all(Reason.CHECKPOINT_COORDINATOR_SUSPEND, at(60))
    (upload,) = of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(70)))
    assert upload.epoch == epoch(2)


@pytest.mark.feature("C50")
def test_a_checkpoint_that_was_announced_to_an_epoch_at_the_end_of_event_time_is_not_taken() -> None:
    coordinator = started()
    coordinator.epoch_finished(epoch(1), True, at(50))
    announced = coordinator.announce(1_000, at(60))
    assert announced == 1
    coordinator.look(Ahead(taken=1))
    assert not of(StartUpload, coordinator.epoch_finished(epoch(2), True, at(150), announced, drains=True))
    last = CheckpointRequest(kind=RequestKind.MANUAL, at_ms=at(160).monotonic_ms, final=True, forced=True)
    (upload,) = of(StartUpload, coordinator.request(last, at(160)))
    assert (upload.id, upload.epoch) == (2, epoch(2))
