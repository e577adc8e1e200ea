"""Processing time never goes back, never stands still, and comes back to the wall clock."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.runtime.epochs.processing_time import SLOWDOWN, SPEEDUP, ProcessingClock, ProcessingTime
from tidegate.testing.clock import ManualClock, at

NOW_MS = 1_767_225_600_000
TWO_HOURS_MS = 7_200_000
YEAR_MS = 365 * 86_400_000

STEPS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.integers(0, 60_000), st.integers(0, 10 * TWO_HOURS_MS)),
        st.one_of(st.just(0), st.sampled_from([-TWO_HOURS_MS, TWO_HOURS_MS]), st.integers(-YEAR_MS, YEAR_MS)),
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.integers(-YEAR_MS, YEAR_MS), STEPS)
def test_processing_time_never_goes_back_and_never_stands_still(
    checkpoint_ahead_ms: int, steps: list[tuple[int, int]]
) -> None:
    clock = ManualClock(5, NOW_MS)
    time = first = ProcessingTime.begin(clock.now(), NOW_MS + checkpoint_ahead_ms)
    elapsed_ms = 0
    for wait_ms, step_ms in steps:
        clock.step_wall(step_ms)
        clock.advance(wait_ms)
        elapsed_ms += wait_ms
        before, time = time, time.at(clock.now())
        assert before.clock_ms <= time.clock_ms <= before.clock_ms + SPEEDUP * (wait_ms + SLOWDOWN)
        assert time.clock_ms - first.clock_ms >= elapsed_ms // SLOWDOWN


@settings(max_examples=100, deadline=None)
@given(st.integers(-YEAR_MS, YEAR_MS), STEPS, st.lists(st.integers(1, 1_000), max_size=20))
def test_processing_time_meets_a_steady_wall_clock_within_the_bound(
    checkpoint_ahead_ms: int, steps: list[tuple[int, int]], reads: list[int]
) -> None:
    clock = ManualClock(5, NOW_MS)
    time = ProcessingTime.begin(clock.now(), NOW_MS + checkpoint_ahead_ms)
    for wait_ms, step_ms in steps:
        clock.step_wall(step_ms)
        clock.advance(wait_ms)
        time = time.at(clock.now())
    bound_ms = SLOWDOWN * time.ahead_ms if time.ahead_ms >= 0 else -time.ahead_ms // (SPEEDUP - 1) + 1
    for part in reads:  # however often it is read on the way
        wait_ms = bound_ms * part // sum(reads)
        clock.advance(wait_ms)
        time = time.at(clock.now())
    clock.advance(bound_ms + SLOWDOWN * len(reads) + SLOWDOWN - sum(bound_ms * part // sum(reads) for part in reads))
    assert time.at(clock.now()).clock_ms == clock.now().wall_ms


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(10, 60_000), min_size=1, max_size=20), st.integers(-20, 20))
def test_processing_time_is_the_wall_clock_unless_that_is_set(waits: list[int], drift_percent: int) -> None:
    clock = ManualClock(5, NOW_MS)
    time = ProcessingTime.begin(clock.now())
    for wait_ms in waits:
        clock.advance(wait_ms)
        clock.step_wall(wait_ms * drift_percent // 100)
        time = time.at(clock.now())
        assert time.clock_ms == clock.now().wall_ms


def test_a_timer_rings_after_a_run_whose_clock_was_two_hours_ahead() -> None:
    clock = ManualClock(5, NOW_MS)
    processing = ProcessingClock(clock)
    start_ms = processing.resume(NOW_MS + TWO_HOURS_MS)
    assert start_ms == NOW_MS + TWO_HOURS_MS
    clock.advance(20_000)
    assert processing.advance() == start_ms + 10_000


@pytest.mark.feature("B1")
def test_what_came_due_while_nothing_ran_is_due_at_the_start() -> None:
    processing = ProcessingClock(ManualClock(5, NOW_MS))
    assert processing.resume(NOW_MS - TWO_HOURS_MS) == NOW_MS


def test_a_wall_clock_set_back_during_the_run_slows_it_down() -> None:
    clock = ManualClock(5, NOW_MS)
    processing = ProcessingClock(clock)
    clock.step_wall(-TWO_HOURS_MS)
    clock.advance(60_000)
    assert processing.advance() == NOW_MS + 30_000
    clock.advance(2 * TWO_HOURS_MS)
    assert processing.advance() == clock.now().wall_ms


def test_a_wall_clock_that_is_wrong_for_a_second_does_not_move_it_by_two_hours() -> None:
    clock = ManualClock(5, NOW_MS)
    processing = ProcessingClock(clock)
    clock.step_wall(TWO_HOURS_MS)
    clock.advance(1_000)
    assert processing.advance() == NOW_MS + 10_000
    clock.step_wall(-TWO_HOURS_MS)
    clock.advance(18_000)
    assert processing.advance() == NOW_MS + 19_000 == clock.now().wall_ms


def test_going_back_to_a_checkpoint_does_not_take_it_back() -> None:
    clock = ManualClock(5, NOW_MS)
    processing = ProcessingClock(clock)
    clock.advance(5_000)
    reached = processing.advance()
    assert processing.resume(reached - 4_000) == reached


def test_peeking_does_not_advance_processing_time() -> None:
    clock = ManualClock(5, NOW_MS)
    processing = ProcessingClock(clock)
    clock.step_wall(TWO_HOURS_MS)
    clock.advance(100)
    assert processing.peek() == NOW_MS + 1_000
    clock.step_wall(-TWO_HOURS_MS)
    assert processing.advance() == NOW_MS + 100


@pytest.mark.parametrize(
    ("checkpoint_ms", "step_ms", "told"),
    [
        (NOW_MS + TWO_HOURS_MS, 0, "2 h ahead of the wall clock, so it runs at 1/2 of the speed until they meet, in 4 h at most"),
        (0, -TWO_HOURS_MS, "ahead of the wall clock"),
        (0, TWO_HOURS_MS, "behind the wall clock"),
    ],
)  # fmt: skip
def test_a_difference_is_reported_once(
    checkpoint_ms: int, step_ms: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(5, NOW_MS)
    processing = ProcessingClock(clock)
    with caplog.at_level(logging.INFO, logger="tidegate"):
        processing.resume(checkpoint_ms)
        clock.step_wall(step_ms)
        for _ in range(5):
            clock.advance(100)
            processing.advance()
        assert [told in message for message in caplog.messages] == [True]
        clock.advance(3 * TWO_HOURS_MS)
        processing.advance()
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_clock_read_every_millisecond_still_runs_at_half_speed() -> None:
    time = ProcessingTime.begin(at(0, 0), 1_000_000)
    for ms in range(1, 101):
        time = time.at(at(ms, ms))
    assert time.clock_ms == 1_000_050
