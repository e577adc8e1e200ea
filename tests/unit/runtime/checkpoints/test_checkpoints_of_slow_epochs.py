"""Before a slow epoch begins, the checkpoint before it completes if that takes a moment, and the epoch is told of its own."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.runtime.driver.driver_kit import Driver
from tidegate.checkpoint.coordination.timing import LONGEST_PAUSE_MS
from tidegate.core.errors import EpochFailed
from tidegate.runtime.driver.running_job import Epochs
from tidegate.runtime.epochs.reports import EpochReport

INTERVAL_MS = 10
SLOW_MS = 30_000


class KitEpochs(Epochs):
    """Whose empty epochs are run by a driver without Spark."""

    def __init__(self, driver: Driver, last_ms: int = SLOW_MS, uploads: bool = True) -> None:
        super().__init__(cast(Any, SimpleNamespace(loop=driver.loop, autoscaler=None)), driver.folder, None)
        self.driver, self.uploads, self._last_ms = driver, uploads, last_ms
        self.empty = 0

    def run_empty(self, *, final: bool = False, time_stands: bool = False) -> EpochReport:
        assert time_stands, "a timer that fired would make the epoch long"
        self.empty += 1
        self.driver.run_epoch(uploads=self.uploads)
        return cast(EpochReport, None)


def with_a_checkpoint_in_progress(driver: Driver) -> None:
    """Nothing was announced to the first epoch, so its checkpoint waits for another one."""
    driver.pass_time(INTERVAL_MS)
    driver.run_epoch(1)
    driver.pass_time(500)
    assert driver.pending == [2]


@pytest.mark.feature("C37")
def test_a_slow_epoch_begins_when_the_checkpoint_before_it_is_complete_and_its_own_is_announced(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        driver.epoch_ms = SLOW_MS
        with_a_checkpoint_in_progress(driver)
        epochs = KitEpochs(driver)
        for number in (3, 4, 5):
            epochs.await_pending_checkpoint(driver.loop)
            assert driver.pending == []
            driver.run_announced_epoch(number)
            assert driver.completed == number, "it completes at the end of its own epoch"
        assert epochs.empty == 1, "the first one only"


def test_without_a_checkpoint_in_progress_nothing_waits(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=600_000) as driver:
        epochs = KitEpochs(driver)
        driver.run_epoch(1)
        started = time.monotonic()
        epochs.await_pending_checkpoint(driver.loop)
        assert time.monotonic() - started < LONGEST_PAUSE_MS / 1000
        assert epochs.empty == 0


def test_a_short_epoch_does_not_wait(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        with_a_checkpoint_in_progress(driver)
        epochs = KitEpochs(driver, last_ms=800)
        epochs.await_pending_checkpoint(driver.loop)
        assert (epochs.empty, driver.pending) == (0, [2])


def test_an_upload_that_takes_long_is_helped_by_one_empty_epoch_and_waited_for_a_second(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        with_a_checkpoint_in_progress(driver)
        epochs = KitEpochs(driver, uploads=False)
        started = time.monotonic()
        epochs.await_pending_checkpoint(driver.loop)
        assert 1 <= time.monotonic() - started < 10
        assert (epochs.empty, driver.pending) == (1, [2])


def test_the_end_of_the_term_ends_the_wait(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=INTERVAL_MS) as driver:
        with_a_checkpoint_in_progress(driver)
        driver.owned.fail(EpochFailed("the job was claimed by another driver"))
        with pytest.raises(EpochFailed, match="another driver"):
            KitEpochs(driver).await_pending_checkpoint(driver.loop)
