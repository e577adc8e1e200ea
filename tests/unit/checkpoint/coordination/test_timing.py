"""Every decision about time, and the constants behind them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.coordination.timing import (
    AWAITED_MS,
    EARLY_WAIT_MS,
    LONG_EPOCH_MS,
    LONGEST_EARLY_WAIT_MS,
    LONGEST_PAUSE_MS,
    STORED_ACKS_MS,
    UPLOAD_WAIT_MS,
    Cadence,
    EmptyEpoch,
    Timing,
    empty_epoch,
    idle_s,
    next_look_ms,
    upload_wait_ms,
)
from tidegate.core.clock import MonotonicMs
from tidegate.testing.clock import at

CADENCES = st.builds(Cadence, interval_ms=st.integers(1, 10_000), min_pause_ms=st.integers(0, 20_000))


def timing(cadence: Cadence | None = None, **facts: Any) -> Timing:
    """A timing that has begun at 0, with a first delay of a second."""
    made = Timing(cadence or Cadence(1_000))
    made.begin(at(0), 1_000)
    made.upload_ms = facts.get("upload_ms")
    made.epoch_took(facts.get("epoch_ms", 0), with_rows=True)
    return made


# -- the period ----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("D5", "D6")
@given(CADENCES, st.lists(st.integers(1, 3_000), max_size=60))
def test_two_periods_never_begin_closer_together_than_interval_and_min_pause(
    cadence: Cadence, steps: list[int]
) -> None:
    made, now_ms, begun = timing(cadence), 0, []
    for step in steps:
        now_ms += step
        if made.next_period(at(now_ms)):
            begun.append(now_ms)
    least_ms = max(cadence.interval_ms or 0, cadence.min_pause_ms)
    assert all(later - earlier >= least_ms for earlier, later in pairwise(begun))


@given(CADENCES, st.floats(0, 1))
def test_the_first_delay_is_between_min_pause_and_the_interval(cadence: Cadence, share: float) -> None:
    longest_ms = max(cadence.interval_ms or 0, cadence.min_pause_ms)
    assert cadence.min_pause_ms <= cadence.first_delay_ms(share) <= longest_ms
    assert cadence.first_delay_ms(0) == cadence.min_pause_ms
    assert cadence.first_delay_ms(1) == longest_ms


def test_without_an_interval_nothing_is_ever_due() -> None:
    made = timing(Cadence(None))
    made.begin_again(at(5))
    made.take_early(at(10))
    assert made.due_ms is None
    assert not made.next_period(at(10**9))
    assert made.announces_at(10**6, is_requested=True) is None


def test_after_a_rewind_the_next_one_is_due_after_min_pause_and_after_the_end_never() -> None:
    made = timing(Cadence(1_000, min_pause_ms=300))
    made.begin_again(at(2_000))
    assert made.due_ms == 2_300
    made.end()
    assert made.due_ms is None


@pytest.mark.parametrize(
    ("period_ms", "left_ms", "early"),
    [(10, 10, True), (10, 11, False), (1_000, 100, True), (1_000, 101, False), (60_000, 6_000, True), (60_000, 6_001, False)],
)  # fmt: skip
def test_what_tasks_have_begun_to_store_is_taken_a_little_early(period_ms: int, left_ms: int, early: bool) -> None:
    made = Timing(Cadence(period_ms))
    made.begin(at(0), 1_000 + left_ms)
    made.take_early(at(1_000))
    assert made.next_period(at(1_000)) is early


# -- announcements and waits ---------------------------------------------------------------------------------------------


@pytest.mark.feature("C37")
@given(CADENCES, st.integers(0, 60_000), st.integers(0, 60_000))
def test_a_checkpoint_due_at_the_end_of_an_epoch_is_announced_but_never_within_min_pause(
    cadence: Cadence, expected_ms: int, completed_ms: int
) -> None:
    made = timing(cadence)
    made.completed(at(completed_ms), late=False)
    for is_requested in (False, True):
        from_ms = made.announces_at(expected_ms, is_requested=is_requested)
        assert from_ms is not None
        assert from_ms >= completed_ms + cadence.min_pause_ms
        due = is_requested or from_ms + expected_ms >= 1_000
        assert due, "an epoch that begins then ends before anything is due"


@pytest.mark.feature("C37")
@pytest.mark.parametrize(
    ("late", "took_ms", "until_ms"),
    [(True, 800, 500), (False, 800, None), (True, None, None), (True, LONG_EPOCH_MS, 500), (True, LONG_EPOCH_MS + 1, None)],
)  # fmt: skip
def test_a_checkpoint_waits_for_the_next_epoch_after_a_late_one_and_behind_a_short_epoch(
    late: bool, took_ms: int | None, until_ms: int | None
) -> None:
    """Without uploads it need not wait; behind a long epoch the next one may be long."""
    made = timing()
    made.completed(at(0), late=late)
    made.epoch_ended(at(100), took_ms, announced=False)
    assert made.waits_for_epoch_until(at(100)) == until_ms
    assert made.waits_for_epoch_until(at(500)) is None


def test_a_checkpoint_does_not_wait_for_a_second_epoch_if_the_first_began_too_early() -> None:
    made = timing()
    made.completed(at(0), late=True)
    made.epoch_ended(at(100), 50, announced=False)
    assert made.waits_for_epoch_until(at(150)) == 100 + AWAITED_MS
    made.epoch_ended(at(200), 50, announced=False)
    assert made.waits_for_epoch_until(at(200)) is None
    made.epoch_ended(at(300), 50, announced=True)
    assert made.waits_for_epoch_until(at(300)) == 300 + AWAITED_MS, "nothing was passed by"


def test_a_checkpoint_does_not_wait_for_a_second_epoch_if_the_announcement_to_the_first_became_void() -> None:
    timing_ = timing()
    timing_.completed(at(0), late=True)
    timing_.epoch_ended(at(100), 50, announced=True, is_void=True)
    assert timing_.waits_for_epoch_until(at(100)) is None
    timing_.epoch_ended(at(200), 50, announced=False)
    assert timing_.waits_for_epoch_until(at(200)) == 200 + AWAITED_MS


@pytest.mark.parametrize(
    ("upload_ms", "epoch_ms", "wait_ms"),
    [
        (None, 0, UPLOAD_WAIT_MS), (20, 0, EARLY_WAIT_MS), (150, 0, EARLY_WAIT_MS), (151, 0, UPLOAD_WAIT_MS),
        (9_000, 0, UPLOAD_WAIT_MS), (150, 1_000, EARLY_WAIT_MS), (300, 2_400, 600), (301, 2_400, UPLOAD_WAIT_MS),
        (500, 60_000, LONGEST_EARLY_WAIT_MS), (501, 60_000, UPLOAD_WAIT_MS),
    ],
)  # fmt: skip
def test_tasks_wait_for_early_uploads_that_are_quick_enough_and_longer_in_longer_epochs(
    upload_ms: int | None, epoch_ms: int, wait_ms: int
) -> None:
    assert timing(upload_ms=upload_ms, epoch_ms=epoch_ms).early_wait_ms == wait_ms


@pytest.mark.parametrize(
    ("upload_ms", "epoch_ms", "wait_ms"),
    [
        (None, 30_000, LONGEST_PAUSE_MS), (500, 30_000, LONGEST_PAUSE_MS), (501, 30_000, 0),
        (None, LONG_EPOCH_MS, LONGEST_PAUSE_MS), (None, LONG_EPOCH_MS - 1, 0), (10, 0, 0),
    ],
)  # fmt: skip
def test_only_a_long_epoch_waits_for_a_checkpoint_and_only_for_quick_uploads(
    upload_ms: int | None, epoch_ms: int, wait_ms: int
) -> None:
    assert timing(upload_ms=upload_ms).pause_ms(epoch_ms) == wait_ms


def test_tasks_of_long_epochs_store_their_acknowledgements_whatever_empty_ones_took() -> None:
    made = timing(epoch_ms=STORED_ACKS_MS)
    assert not made.stores_acks
    made.epoch_took(STORED_ACKS_MS + 1, with_rows=True)
    made.epoch_took(10, with_rows=False)
    assert made.stores_acks
    assert (made.epoch_ms(with_rows=True), made.epoch_ms(with_rows=False)) == (STORED_ACKS_MS + 1, 10)


@pytest.mark.parametrize(
    ("is_empty", "early_wait_ms", "wait_ms"), [(False, None, 50), (False, 300, 300), (True, None, 500), (True, 50, 500)]
)
def test_an_empty_epoch_waits_longer_for_uploads_than_rows_do(
    is_empty: bool, early_wait_ms: int | None, wait_ms: int
) -> None:
    assert upload_wait_ms(is_empty=is_empty, early_wait_ms=early_wait_ms) == wait_ms


# -- empty epochs --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("B1")
@pytest.mark.parametrize(
    ("waiting", "timers_due", "held", "found"),
    [
        (False, False, False, None),
        (True, False, False, EmptyEpoch(time_stands=False)),
        (False, True, False, EmptyEpoch(time_stands=False)),
        (False, True, True, None),
        (True, True, True, EmptyEpoch(time_stands=True)),
    ],
)
def test_timers_wait_while_too_much_output_does(
    waiting: bool, timers_due: bool, held: bool, found: EmptyEpoch | None
) -> None:
    assert empty_epoch(waiting, timers_due, held) == found


@pytest.mark.parametrize(
    ("streaming_ms", "expected_s"), [(None, 0.5), (20, 0.5), (400, 0.6), (1_000, 1.5), (60_000, 2.0)]
)
def test_an_empty_epoch_waits_until_no_batch_is_about_to_arrive(streaming_ms: int | None, expected_s: float) -> None:
    assert idle_s(streaming_ms) == pytest.approx(expected_s)


# -- stored acknowledgements ---------------------------------------------------------------------------------------------


@given(st.integers(1_000, 3_600_000))
def test_looks_at_storage_are_few_and_each_is_late_by_at_most_a_tenth_of_the_age(age_ms: int) -> None:
    now_ms, looks = MonotonicMs(0), 0
    while now_ms < age_ms:
        before_ms, now_ms = now_ms, next_look_ms(MonotonicMs(0), now_ms)
        looks += 1
        assert now_ms - before_ms <= max(250, before_ms // 10)
    assert looks <= 200, "an hour costs no more requests than this"
