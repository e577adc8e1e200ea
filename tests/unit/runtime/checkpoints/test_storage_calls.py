"""Each checkpoint tells the requests that tasks and driver made for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.runtime.driver.driver_kit import VALUE_BYTES, Driver
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.core.storage_cost import LIST_PRICES, StorageCalls
from tidegate.runtime.checkpoints.storage_calls import CheckpointCalls


def test_a_checkpoint_has_the_requests_of_its_task_and_of_the_driver(tmp_path: Path) -> None:
    with Driver(tmp_path, interval="1 h", incremental=True) as driver:
        for keys in ((0, 1, 2, 3, 4, 5, 6, 7), (0,)):
            driver.checkpoint(*keys)
        driver.settle()
        second, first = driver.loop.statistics.history()
    assert first.requests.writes == 3, "a file, the metadata and the log entry"
    assert first.requests.written_bytes > 8 * VALUE_BYTES
    assert second.requests.writes == 2, "what changed is small enough for the metadata"
    assert second.requests.deletes >= 1, "the first one is deleted for the second one"
    assert (first.cost_dollars, second.cost_dollars) == (None, None), "a directory costs nothing"


def test_a_failed_checkpoint_has_its_storage_calls(tmp_path: Path) -> None:
    with Driver(tmp_path, interval="1 h", tolerable_failures=5) as driver:
        driver.run_epoch(0)
        answer = driver.loop.request()
        driver.settle()
        driver.pass_time(1_000)
        driver.run_epoch(error="the disk is full")
        assert answer.exception(30) is not None
        driver.settle()
        (failed,) = driver.loop.statistics.history()
    assert failed.requests.lists >= 1, "acknowledgements were looked for"


def test_a_stored_acknowledgement_is_one_write_more(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=1_000) as driver:
        driver.run_epoch(0)
        driver.pass_time(2_000)
        (order,) = driver.orders()
        driver.store_ack(order)
        driver.pass_time(300)
        (only,) = driver.loop.statistics.history()
    assert only.requests.writes == 3, "the acknowledgement, the metadata and the log entry"
    assert only.requests.reads >= 1


def test_whole_versions_stored_with_a_changelog_count_for_the_next_checkpoint(tmp_path: Path) -> None:
    with Driver(tmp_path, interval="1 h") as driver:
        driver.checkpoint(0)
        driver.settle()
        statistics = driver.loop.statistics
        before = statistics.history()[0].requests
        counted = CheckpointCalls(driver.owned.history.storage, statistics)
        counted.add(StorageCalls(writes=7, written_bytes=70))
        counted.storage.list()
        counted.record_calls(1)
        counted.record_calls(1)
        counted.record_calls(None)
        assert statistics.history()[0].requests == before + StorageCalls(writes=7, lists=1, written_bytes=70)
        assert statistics.latest_completed == statistics.history()[0]


def test_the_cost_follows_the_requests_and_the_prices(tmp_path: Path) -> None:
    with Driver(tmp_path, interval="1 h") as driver:
        driver.loop.statistics.prices = replace(LIST_PRICES, per_million_writes=1e6, per_million_reads=0)
        driver.checkpoint(0)
        driver.settle()
        (only,) = driver.loop.statistics.history()
    assert only.cost_dollars == pytest.approx(only.requests.writes + only.requests.lists)


def test_a_charge_for_a_checkpoint_that_is_forgotten_changes_nothing() -> None:
    statistics = CheckpointStatsTracker()
    statistics.record_calls(9, StorageCalls(writes=1))
    assert statistics.history() == ()
