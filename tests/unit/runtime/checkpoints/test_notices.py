"""What functions are told of checkpoints, and in which epoch. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.driver.driver_kit import Driver
from tidegate.core.ids import EpochId, Term
from tidegate.runtime.checkpoints.notices import CheckpointNotices
from tidegate.runtime.exchange.assignment import CheckpointNotice

LEVEL = frozenset({1})


def epoch(number: int, term: int = 1) -> EpochId:
    return EpochId(Term(term), number)


def complete(at: EpochId) -> CheckpointNotice:
    return CheckpointNotice(at.as_checkpoint_id, True)


def aborted(at: EpochId) -> CheckpointNotice:
    return CheckpointNotice(at.as_checkpoint_id, False)


def told(driver: Driver) -> tuple[CheckpointNotice, ...]:
    """What the tasks of the next epoch tell their functions."""
    found = driver.begin_epoch(empty=True).notices
    driver.end_epoch()
    return found


# -- what waits for an epoch -----------------------------------------------------------------------------------------


@pytest.mark.feature("J27")
def test_ids_grow_with_epochs_and_with_restarts() -> None:
    epochs = [epoch(1), epoch(2), epoch(2**32 - 1), epoch(1, term=2), epoch(7, term=2), epoch(1, term=3)]
    ids = [each.as_checkpoint_id for each in epochs]
    assert ids == sorted(set(ids))
    assert ids[:2] == [1, 2]


@pytest.mark.feature("J27")
def test_a_notice_is_taken_once_in_the_order_of_ids_and_an_abort_before_a_completion() -> None:
    notices = CheckpointNotices({1, 2})
    for at, is_complete in ((epoch(9), True), (epoch(7), False), (epoch(9), False), (epoch(9), True)):
        notices.add(at, complete=is_complete)
    assert notices.are_waiting()
    expected = (aborted(epoch(7)), aborted(epoch(9)), complete(epoch(9)))
    assert notices.take(empty=True) == {1: expected, 2: expected}
    assert not notices.are_waiting()
    assert notices.take(empty=True) == {}


def test_the_source_stage_is_notified_in_an_epoch_with_rows_and_needs_no_epoch_of_its_own() -> None:
    notices = CheckpointNotices({0})
    notices.add(epoch(3), complete=True)
    assert not notices.are_waiting()
    assert notices.take(empty=True) == {}
    assert notices.take(empty=False) == {0: (complete(epoch(3)),)}


# -- with real checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.feature("J27")
def test_functions_are_notified_of_a_completed_checkpoint_once_in_the_next_epoch(tmp_path: Path) -> None:
    with Driver(tmp_path, listening=LEVEL) as driver:
        assert not driver.loop.uploads.has_work()
        driver.run_epoch(0)
        first = driver.epoch
        driver.checkpoint(1)  # of the epoch after `first`; the checkpoint completes during one more
        assert driver.epoch.number == first.number + 2
        assert driver.loop.uploads.has_work()
        assert told(driver) == (complete(first.next()),)
        assert not driver.loop.uploads.has_work()
        assert told(driver) == ()


@pytest.mark.feature("J27")
def test_nothing_is_sent_and_no_epoch_is_run_for_a_job_without_listeners(tmp_path: Path) -> None:
    with Driver(tmp_path) as driver:
        driver.checkpoint(0)
        assert not driver.loop.uploads.has_work()
        assert told(driver) == ()


@pytest.mark.feature("J27")
def test_functions_are_notified_of_an_aborted_checkpoint_and_the_next_one_completes_with_the_same_work(
    tmp_path: Path,
) -> None:
    with Driver(tmp_path, listening=LEVEL, tolerable_failures=1) as driver:
        at = driver.run_epoch(0)
        driver.loop.request()
        driver.settle()
        driver.run_epoch(error="the bucket is gone")
        assert told(driver) == (aborted(at),)
        driver.checkpoint(1)
        (found,) = told(driver)
        assert found.complete
        assert found.checkpoint_id > at.as_checkpoint_id


@pytest.mark.parametrize("terminal", [False, True])
def test_functions_are_notified_of_a_savepoint_only_if_it_ends_the_job(tmp_path: Path, terminal: bool) -> None:
    """As in Flink: any other is not used for recovery."""
    with Driver(tmp_path, listening=LEVEL) as driver:
        driver.checkpoint(0)
        at = driver.epoch
        driver.begin_epoch(empty=True)
        driver.end_epoch()
        answer = driver.loop.savepoint(str(tmp_path / "savepoints"), terminal=terminal)
        driver.settle()
        if terminal:
            driver.run_epoch()
        else:
            driver.checkpoint(1)
        answer.result(30)
        ids = [each.checkpoint_id for each in told(driver)]
        assert ids == [at.next().as_checkpoint_id if terminal else at.next().next().as_checkpoint_id]


@pytest.mark.feature("J27")
def test_functions_are_not_notified_of_a_savepoint_that_fails(tmp_path: Path) -> None:
    with Driver(tmp_path, listening=LEVEL) as driver:
        driver.run_epoch(0)
        answer = driver.loop.savepoint(str(tmp_path / "savepoints"), terminal=False)
        driver.settle()
        driver.run_epoch(error="the bucket is gone")
        assert answer.exception(30) is not None
        assert told(driver) == ()


@pytest.mark.feature("J27")
def test_the_first_epoch_after_a_restart_notifies_of_the_checkpoint_that_the_job_continues_from(tmp_path: Path) -> None:
    """The driver may have died before anybody was told."""
    with Driver(tmp_path, listening=LEVEL) as driver:
        driver.run_epoch(0)
        driver.checkpoint(1)
        at = EpochId(driver.epoch.term, driver.epoch.number - 1)
    with Driver(tmp_path, listening=LEVEL) as driver:
        assert driver.loop.uploads.has_work()
        assert told(driver) == (complete(at),)
        driver.checkpoint(2)
        (found,) = told(driver)
        assert found.checkpoint_id > at.as_checkpoint_id


@pytest.mark.feature("J27")
def test_a_job_that_returns_to_a_checkpoint_notifies_of_it_again_and_of_those_that_it_aborted(tmp_path: Path) -> None:
    """What functions did when they were told is undone with their state."""
    with Driver(tmp_path, listening=LEVEL) as driver:
        driver.checkpoint(0)
        (first,) = told(driver)
        given_up = driver.run_epoch(1)
        driver.loop.request()
        driver.settle()
        driver.loop.rewind()
        assert told(driver) == (first, aborted(given_up))
