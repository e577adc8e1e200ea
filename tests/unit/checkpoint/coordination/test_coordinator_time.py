"""The wall clock is for people: however it is set, checkpoints begin, pause and expire at the same moments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import ref
from tidegate.checkpoint.coordination.coordinator import (
    Action,
    CompleteCheckpoint,
    Coordinator,
    NotifyAborted,
    StartUpload,
    WakeAt,
)
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason as Reason
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.timing import Cadence, Timing
from tidegate.checkpoint.files.task_part import UploadAck
from tidegate.core.ids import EpochId, Slot, TaskId, Term
from tidegate.testing.clock import ManualClock

TASK = TaskId(1, Slot(0))
TWO_HOURS_MS = 7_200_000
DAY_MS = 86_400_000

CADENCES = st.builds(
    Cadence,
    interval_ms=st.one_of(st.none(), st.integers(1, 3_000)),
    timeout_ms=st.integers(100, 5_000),
    min_pause_ms=st.integers(0, 2_000),
    max_concurrent=st.integers(1, 3),
    tolerable_failures=st.just(1_000),
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 4_000),
        st.sampled_from(["epoch", "tick", "ack", "decline", "publish", "fail", "manual", "savepoint", "rewind", "clean"]),
        st.one_of(st.just(0), st.sampled_from([-TWO_HOURS_MS, TWO_HOURS_MS]), st.integers(-DAY_MS, DAY_MS)),
    ),
    max_size=40,
)  # fmt: skip


class Played:
    """A coordinator led through events. `steps`: whether the wall clock is set before each, or left alone."""

    def __init__(self, cadence: Cadence, steps: bool) -> None:
        self.clock, self.steps = ManualClock(1_000_000, 1_767_225_600_000), steps
        self.coordinator = Coordinator(Timing(cadence), [TASK])
        self.seen: list[Any] = []
        self.publishing: list[int] = []
        self.epochs = 0
        self.take(self.coordinator.start(self.clock.now(), 50))

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, CompleteCheckpoint):
                self.publishing.append(action.pending.id)
                self.seen.append(("publish", action.pending.id, action.pending.epoch))
            else:
                self.seen.append(action)

    def play(self, elapsed_ms: int, event: str, step_ms: int) -> None:
        self.clock.advance(elapsed_ms)
        if self.steps:
            self.clock.step_wall(step_ms)
        coordinator, now = self.coordinator, self.clock.now()
        uploading = [p.id for p in coordinator.pending if p.id not in self.publishing]
        if event == "epoch":
            self.epochs += 1
            self.take(coordinator.epoch_finished(EpochId(Term(1), self.epochs), True, now))
        elif event == "ack" and uploading:
            self.take(
                coordinator.acknowledge(
                    UploadAck(checkpoint_id=uploading[0], task=TASK, state=None, new_files=(f"f-{uploading[0]}",)), now
                )
            )
        elif event == "decline" and uploading:
            self.take(coordinator.decline(uploading[-1], Reason.CHECKPOINT_DECLINED, now))
        elif event == "publish" and self.publishing:
            id = self.publishing.pop(0)
            self.take(coordinator.on_completed(id, ref(id), (id - 1,), now))
        elif event == "fail" and self.publishing:
            self.take(coordinator.on_completion_failed(self.publishing.pop(0), now))
        elif event in ("manual", "savepoint"):
            kind = RequestKind.MANUAL if event == "manual" else RequestKind.SAVEPOINT
            self.take(coordinator.request(CheckpointRequest(kind=kind, at_ms=now.monotonic_ms, target="sp"), now))
        elif event == "rewind" and not self.publishing:
            self.take(coordinator.abort_all(Reason.CHECKPOINT_COORDINATOR_SUSPEND, now))
        elif event == "clean":
            self.take(coordinator.cleaned(1, now))
        else:
            self.take(coordinator.tick(now))
        ended = {p.id for p in coordinator.pending}
        self.publishing = [id for id in self.publishing if id in ended]


@pytest.mark.feature("D2")
@settings(max_examples=100, deadline=None)
@given(CADENCES, EVENTS)
def test_setting_the_wall_clock_changes_nothing_about_when_checkpoints_run(
    cadence: Cadence, events: list[tuple[int, str, int]]
) -> None:
    steady, stepped = Played(cadence, steps=False), Played(cadence, steps=True)
    for elapsed_ms, event, step_ms in events:
        steady.play(elapsed_ms, event, step_ms)
        stepped.play(elapsed_ms, event, step_ms)
        assert stepped.seen == steady.seen
    durations = [[s.end_to_end_ms for s in p.coordinator.statistics.history()] for p in (steady, stepped)]
    assert durations[0] == durations[1]


@pytest.mark.feature("D5", "D6")
def test_a_clock_set_back_two_hours_does_not_hold_back_the_next_checkpoint_or_its_timeout() -> None:
    clock = ManualClock(wall_ms=1_767_225_600_000)
    coordinator = Coordinator(Timing(Cadence(1_000, timeout_ms=5_000, min_pause_ms=300, tolerable_failures=9)), [TASK])
    assert coordinator.start(clock.now(), 1_000) == [WakeAt(1_000)]
    clock.step_wall(-TWO_HOURS_MS)
    clock.advance(1_000)
    actions = coordinator.epoch_finished(EpochId(Term(1), 1), True, clock.now())
    assert [a.id for a in actions if isinstance(a, StartUpload)] == [1]
    clock.step_wall(-TWO_HOURS_MS)
    clock.advance(5_000)
    assert [a.reason for a in coordinator.tick(clock.now()) if isinstance(a, NotifyAborted)] == [
        Reason.CHECKPOINT_EXPIRED
    ]


def test_a_clock_set_forward_two_hours_expires_nothing_and_people_see_the_time_that_passed() -> None:
    clock = ManualClock(wall_ms=1_767_225_600_000)
    coordinator = Coordinator(Timing(Cadence(1_000, timeout_ms=5_000)), [TASK])
    coordinator.start(clock.now(), 0)
    coordinator.epoch_finished(EpochId(Term(1), 1), True, clock.now())
    clock.step_wall(TWO_HOURS_MS)
    clock.advance(400)
    assert not [a for a in coordinator.tick(clock.now()) if isinstance(a, NotifyAborted)]
    coordinator.acknowledge(UploadAck(checkpoint_id=1, task=TASK, state=None), clock.now())
    coordinator.on_completed(1, ref(1), (), clock.now())
    shown = coordinator.statistics.latest_completed
    assert shown is not None
    assert (shown.trigger_timestamp, shown.end_to_end_ms) == (1_767_225_600_000, 400)
    assert shown.latest_ack_timestamp == 1_767_225_600_400 + TWO_HOURS_MS
