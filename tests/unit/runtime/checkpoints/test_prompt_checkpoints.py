"""Checkpoints that wait for no epoch: versions are stored when they are sealed, and acknowledgements come through storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.runtime.driver.driver_kit import TASK, Driver
from tidegate.checkpoint.job_log.entry import RunOutcome
from tidegate.core.errors import EpochFailed
from tidegate.storage import OutcomeUnknown
from tidegate.testing.storage import StorageFault, Strike

INTERVAL_MS = 1_000
ALMOST_DUE_MS = INTERVAL_MS - 1
"""The epochs of these tests take a millisecond: the next one ends when a checkpoint is due."""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with Driver(tmp_path, interval=INTERVAL_MS, timeout="10 s") as driver:
        driver.run_epoch(0, 1, 2)
        driver.pass_time(2 * INTERVAL_MS)
        driver.run_epoch()
        assert driver.completed == 1
        yield driver


@pytest.mark.feature("C37")
def test_a_checkpoint_completes_while_the_next_epoch_runs(driver: Driver) -> None:
    driver.run_epoch(3)
    driver.pass_time(INTERVAL_MS)
    (order,) = driver.orders()
    driver.store_ack(order)
    driver.pass_time(300)
    assert driver.completed == 2
    assert driver.files("acks") == set(), "acknowledgements of completed checkpoints are deleted"


def test_acknowledgements_are_looked_for_less_and_less_often(driver: Driver) -> None:
    driver.run_epoch(3)
    driver.pass_time(INTERVAL_MS)
    for _ in range(80):
        driver.pass_time(100)
    (order,) = driver.orders()
    driver.store_ack(order)
    driver.pass_time(100)
    assert driver.completed == 1, "eight seconds after the trigger it looks again after 0.8 seconds"
    driver.pass_time(800)
    assert driver.completed == 2


def test_an_acknowledgement_of_another_attempt_is_not_taken(driver: Driver) -> None:
    driver.run_epoch(3)
    before = driver.version
    driver.pass_time(INTERVAL_MS)
    (order,) = driver.orders()
    driver.run_epoch(4, uploads=False)
    other = driver.version
    assert other != before
    assert other is not None
    driver.store_ack(replace(order, version=other))
    driver.pass_time(300)
    assert driver.completed == 1
    driver.run_epoch()
    assert driver.completed == 2, "the next epoch stores the version that was asked for"


@pytest.mark.feature("C37")
def test_an_announced_checkpoint_completes_with_its_epoch(driver: Driver) -> None:
    driver.pass_time(ALMOST_DUE_MS)
    epoch = driver.run_announced_epoch(5)
    assert driver.completed == 2
    latest = driver.loop.statistics.latest_completed
    assert latest is not None
    assert latest.epoch == epoch
    assert driver.owned.snapshot is not None
    assert [state.version for state in driver.owned.snapshot.tasks] == [driver.version]


@pytest.mark.feature("F26", "N11")
@pytest.mark.parametrize("incremental", [True, False])
def test_an_announced_checkpoint_reuses_files_only_if_checkpoints_are_incremental(
    tmp_path: Path, incremental: bool
) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS, incremental=incremental) as driver:
        driver.checkpoint(0, 1, 2)
        driver.pass_time(5 * INTERVAL_MS)
        driver.run_epoch(1)
        driver.run_epoch()
        driver.pass_time(ALMOST_DUE_MS)
        early = driver.begin_epoch().early
        assert early is not None
        assert driver.version is not None
        assert (early.order(TASK.slot, driver.version).base is not None) is incremental


def test_what_tasks_could_not_store_early_is_stored_with_the_next_epoch(driver: Driver) -> None:
    driver.pass_time(ALMOST_DUE_MS)
    driver.run_announced_epoch(5, stores=False)
    assert driver.completed == 1
    driver.run_announced_epoch(6)
    assert driver.completed == 2


def test_no_checkpoint_is_announced_before_it_is_due(driver: Driver) -> None:
    driver.pass_time(INTERVAL_MS // 2)
    driver.run_announced_epoch(5)
    assert driver.pending == []
    assert driver.completed == 1


@pytest.mark.feature("C37")
def test_a_checkpoint_that_becomes_due_in_a_slow_epoch_is_taken_when_that_ends(driver: Driver) -> None:
    """Until then no task would learn of it. Its age counts from the end of the epoch, so it does not expire."""
    driver.run_epoch(3)
    assert driver.begin_epoch().early is None
    driver.pass_time(20 * INTERVAL_MS)
    assert driver.pending == []
    epoch = driver.end_epoch(4, took_ms=20 * INTERVAL_MS)
    assert driver.pending == [2]
    (order,) = driver.orders()
    assert (order.version, order.version.epoch) == (driver.version, epoch)
    driver.store_ack(order)
    driver.pass_time(300)
    assert driver.completed == 2
    assert driver.loop.statistics.counts.failed == 0


def test_a_checkpoint_that_waits_for_a_slow_epoch_is_announced_to_the_next_one(driver: Driver) -> None:
    """The next epoch may begin before the driver has seen the end of this one."""
    driver.run_epoch(3)
    driver.begin_epoch()
    driver.pass_time(20 * INTERVAL_MS)
    early = driver.begin_epoch().early
    assert early is not None
    assert early.checkpoint_id == 2


@pytest.mark.feature("C37")
def test_an_empty_epoch_says_nothing_about_how_long_one_with_rows_takes(driver: Driver) -> None:
    """Empty epochs run between slow ones, when no batch has arrived yet."""
    driver.begin_epoch()
    driver.pass_time(INTERVAL_MS // 2)
    driver.end_epoch(3, took_ms=INTERVAL_MS // 2)
    assert driver.begin_epoch(empty=True).early is None, "no checkpoint is due when it ends"
    driver.end_epoch(took_ms=1)
    early = driver.begin_epoch().early
    assert early is not None
    assert early.checkpoint_id == 2


@pytest.mark.parametrize(("took_ms", "stored"), [(500, False), (30_000, True)])
def test_tasks_store_acknowledgements_at_once_if_epochs_take_long(driver: Driver, took_ms: int, stored: bool) -> None:
    driver.begin_epoch()
    driver.end_epoch(3, took_ms=took_ms)
    driver.begin_epoch(empty=True)
    driver.end_epoch(took_ms=1)
    assert driver.begin_epoch().stores_acks is stored


@pytest.mark.parametrize("asked", ["a checkpoint", "a savepoint"])
def test_a_request_by_hand_does_not_wait_for_the_epoch_that_runs(driver: Driver, asked: str) -> None:
    driver.run_epoch(3)
    driver.begin_epoch()
    savepoints = str(driver.folder / "sp")
    answer = driver.loop.request() if asked == "a checkpoint" else driver.loop.savepoint(savepoints, terminal=False)
    driver.settle()
    assert driver.pending == [2]
    driver.end_epoch(4)
    driver.run_epoch()
    driver.run_epoch()
    answer.result(30)


def test_no_checkpoint_waits_for_an_epoch_that_failed(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        driver.begin_epoch()
        driver.loop.rewind()
        driver.loop.begin_at(driver._snapshot())
        driver.pass_time(2 * INTERVAL_MS)
        assert driver.completed == 1


@pytest.mark.parametrize("asked", ["a checkpoint", "a savepoint"])
def test_an_announcement_is_void_once_another_checkpoint_is_triggered(driver: Driver, asked: str) -> None:
    """Its tasks have begun to store their versions under an id that nobody uses."""
    driver.pass_time(ALMOST_DUE_MS)
    early = driver.loop.uploads.work(empty=False)[1].early
    assert early is not None
    savepoints = str(driver.folder / "sp")
    answer = driver.loop.request() if asked == "a checkpoint" else driver.loop.savepoint(savepoints, terminal=False)
    driver.settle()
    (order,) = driver.orders()
    assert order.checkpoint_id > early.checkpoint_id
    driver.run_epoch()
    driver.run_epoch(7)
    driver.run_epoch()
    answer.result(30)
    done = [each.id for each in driver.loop.statistics.history()]
    assert early.checkpoint_id not in done


@pytest.mark.feature("C5")
def test_an_announcement_ends_with_a_rewind(driver: Driver) -> None:
    driver.pass_time(ALMOST_DUE_MS)
    early = driver.loop.uploads.work(empty=False)[1].early
    assert early is not None
    driver.loop.rewind()
    driver.pass_time(INTERVAL_MS)
    driver.run_announced_epoch(5)
    driver.run_announced_epoch(6)
    ids = [each.id for each in driver.loop.statistics.history()]
    assert early.checkpoint_id not in ids
    assert len(ids) == len(set(ids)) > 1


def test_an_acknowledgement_counts_until_the_very_end(driver: Driver) -> None:
    """The driver looks seldom at an old checkpoint, but once more before it expires."""
    driver.run_epoch(3)
    driver.pass_time(INTERVAL_MS)
    for _ in range(98):
        driver.pass_time(100)
    (order,) = driver.orders()
    driver.store_ack(order)
    driver.pass_time(400)
    assert driver.completed == 2


@pytest.mark.feature("C37")
def test_an_unknown_outcome_of_a_log_entry_ends_the_term(driver: Driver) -> None:
    """As it does when an epoch brings the last acknowledgement: only a new claim tells what is in the log."""
    driver.run_epoch(3)
    driver.pass_time(INTERVAL_MS)
    (order,) = driver.orders()
    driver.store_ack(order)
    driver.storage.script(StorageFault(Strike.FAIL_AFTER, "create", "/entries/"))
    driver.clock.advance(300)
    with pytest.raises(OutcomeUnknown):
        driver.settle()
    assert driver.loop.failed.wait(60)
    assert isinstance(driver.loop.broken, OutcomeUnknown)
    driver.owned.store.entry = replace(driver.owned.store.entry, outcome=RunOutcome.FAILED)


def test_an_expired_checkpoint_fails_its_request_with_a_reason(driver: Driver) -> None:
    driver.run_epoch(3)
    answer = driver.loop.request()
    driver.settle()
    driver.pass_time(11_000)
    with pytest.raises(EpochFailed, match="expired"):
        answer.result(30)
