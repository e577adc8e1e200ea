"""Checkpoints at an interval that is shorter than an epoch: every epoch gets its own, at its own end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.driver.driver_kit import Driver
from tidegate.checkpoint.coordination.coordinator import Coordinator, StartUpload
from tidegate.checkpoint.coordination.timing import Cadence, Timing
from tidegate.core.ids import EpochId, Slot, TaskId, Term
from tidegate.testing.clock import at

INTERVAL_MS = 10


def late_checkpoint(driver: Driver) -> None:
    """After one of the very beginning, have a checkpoint of the first epoch complete at the end of the second, as it does when
    nothing was announced."""
    driver.pass_time(INTERVAL_MS)
    driver.run_epoch(1)
    driver.pass_time(500)
    assert driver.pending == [2]
    driver.run_epoch(2)
    assert (driver.completed, driver.pending) == (2, [])


@pytest.mark.feature("C37")
def test_after_a_late_checkpoint_the_next_epoch_gets_its_own(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        driver.epoch_ms = 800
        late_checkpoint(driver)
        for number in (3, 4, 5):
            driver.pass_time(INTERVAL_MS)
            driver.run_announced_epoch(number)
            assert (driver.completed, driver.pending) == (number, [])
            assert driver.loop.statistics.latest_completed.epoch == driver.epoch


def test_if_no_epoch_follows_the_checkpoint_is_taken_of_the_last_one(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        late_checkpoint(driver)
        driver.pass_time(399)
        assert driver.pending == []
        driver.pass_time(1)
        assert driver.pending == [3]


def test_an_epoch_that_begins_before_the_announcement_is_not_followed_by_a_second_wait(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        late_checkpoint(driver)
        driver.pass_time(INTERVAL_MS)
        driver.loop.uploads.announcements.announce(None)  # as if the epoch had been planned a moment before
        driver.run_announced_epoch(3)
        assert driver.pending == [3]


TASK = TaskId(1, Slot(0))


@pytest.mark.parametrize(("period_ms", "later_ms", "taken"), [(10, 10, True), (1_000, 100, True), (1_000, 101, False)])
def test_an_announced_checkpoint_is_taken_although_it_is_due_a_little_later(
    period_ms: int, later_ms: int, taken: bool
) -> None:
    made = Coordinator(Timing(Cadence(interval_ms=period_ms)), [TASK])
    made.start(at(0), 1_000 + later_ms)

    actions = made.epoch_finished(EpochId(Term(1), 1), True, at(1_000), 1, 800)

    assert any(isinstance(each, StartUpload) for each in actions) is taken
