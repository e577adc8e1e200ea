"""What the options of checkpoints do, from `tg.Checkpointing` to the driver that acts on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.driver.driver_kit import Driver
from tidegate.checkpoint.coordination.timing import LONG_EPOCH_MS
from tidegate.checkpoint.task import version_upload
from tidegate.config import OptionError
from tidegate.config.choices import JobEnd
from tidegate.core.errors import EpochFailed
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.testing.storage import StorageFault, Strike

RARELY = "1 h"


def fail_checkpoint(driver: Driver) -> None:
    """Take a checkpoint that the task cannot upload."""
    driver.run_epoch(1)
    driver.loop.request()
    driver.settle()
    driver.run_epoch(error="no such bucket")


@pytest.mark.feature("D2", "E11")
def test_an_interval_of_a_second_takes_a_checkpoint_every_second(tmp_path: Path) -> None:
    with Driver(tmp_path, interval="1 s") as driver:
        driver.pass_time(1_000)  # The first one is taken at a random moment of the first second.
        driver.run_epoch(1)
        assert (driver.completed, driver.pending) == (1, [])
        driver.pass_time(999)
        assert driver.pending == []
        driver.pass_time(1)
        assert driver.pending == [2]


@pytest.mark.feature("D3")
def test_a_shorter_interval_costs_more_checkpoints_and_leaves_fewer_epochs_to_repeat(tmp_path: Path) -> None:
    taken, to_repeat = {}, {}
    for interval in (1_000, 5_000):
        with Driver(tmp_path, f"every-{interval}", interval=interval) as driver:
            driver.pass_time(interval)
            for _ in range(19):
                driver.run_epoch(1)
                driver.pass_time(500)
            base = driver.owned.store.entry.base
            assert base is not None
            taken[interval], to_repeat[interval] = driver.completed, driver.epoch.number - base.epoch.number
    assert taken == {1_000: 10, 5_000: 2}
    assert to_repeat == {1_000: 1, 5_000: 9}


@pytest.mark.feature("C27", "D5")
def test_a_checkpoint_that_takes_longer_than_the_timeout_is_abandoned(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY, timeout=3_000, tolerable_failures=1) as driver:
        driver.run_epoch(1)
        asked = driver.loop.request()
        driver.settle()
        driver.pass_time(2_999)
        assert (driver.pending, len(driver.orders())) == ([1], 1)
        driver.pass_time(1)
        assert (driver.pending, driver.orders()) == ([], ())
        with pytest.raises(EpochFailed, match="expired before completing"):
            asked.result(60)


@pytest.mark.feature("D6", "D12", "D13", "K11")
def test_a_minimum_pause_follows_every_checkpoint_and_leaves_room_for_one_at_a_time(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=1_000, min_pause=500, max_concurrent=3) as driver:
        driver.pass_time(1_000)
        driver.run_epoch(1)
        driver.pass_time(1_000)
        driver.pass_time(1_900)
        assert driver.pending == [2], "nothing starts beside it"
        driver.run_epoch(2)
        assert (driver.completed, driver.pending) == (2, [])
        driver.pass_time(499)
        assert driver.pending == []
        driver.pass_time(1)
        assert driver.pending == [3]


@pytest.mark.feature("D7")
@pytest.mark.parametrize(("chosen", "tolerated"), [({}, 0), ({"tolerable_failures": 2}, 2)])
def test_one_failed_checkpoint_more_than_tolerable_fails_the_job(
    tmp_path: Path, chosen: dict[str, Any], tolerated: int
) -> None:
    with Driver(tmp_path, interval=RARELY, **chosen) as driver:
        for _ in range(tolerated):
            fail_checkpoint(driver)
        driver.loop.check()
        assert not driver.loop.failed.is_set()
        fail_checkpoint(driver)
        assert driver.loop.failed.is_set()
        with pytest.raises(CheckpointsFailed, match="Exceeded checkpoint tolerable failure threshold"):
            driver.loop.check()
        driver.loop.rewind()
        driver.loop.check()  # The job continues from its last checkpoint.


@pytest.mark.feature("D7")
def test_only_failures_in_a_row_add_up(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY, tolerable_failures=1) as driver:
        for key in range(3):
            fail_checkpoint(driver)
            driver.checkpoint(key)
        driver.loop.check()


@pytest.mark.feature("D10")
def test_a_checkpoint_that_a_restart_of_the_job_ends_does_not_count_as_failed(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY, tolerable_failures=2) as driver:
        driver.run_epoch(1)
        driver.loop.request()
        driver.settle()
        assert driver.pending == [1]
        driver.loop.rewind()
        assert driver.pending == []
        fail_checkpoint(driver)  # Two of them: after a restart one is due at once.
        driver.loop.check()


@pytest.mark.feature("D13")
def test_a_checkpoint_that_took_longer_than_the_interval_is_followed_at_once(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=1_000) as driver:
        driver.pass_time(1_000)
        driver.run_epoch(1)
        driver.pass_time(1_000)
        driver.run_epoch(2, uploads=False)
        driver.pass_time(1_000)
        assert driver.pending == [2]
        driver.run_epoch(3)
        early = driver.begin_epoch().early
        assert early is not None
        assert (driver.completed, early.checkpoint_id) == (2, 3)


@pytest.mark.feature("D13")
def test_between_long_epochs_the_completion_of_a_late_checkpoint_starts_the_next_one(tmp_path: Path) -> None:
    """It waits for no epoch to be announced to: the tasks of the very next one upload it."""
    with Driver(tmp_path, interval=1_000) as driver:
        driver.epoch_ms = LONG_EPOCH_MS + 1
        driver.pass_time(1_000)
        driver.run_epoch(1)
        driver.pass_time(1_000)
        driver.run_epoch(2, uploads=False)
        driver.pass_time(1_000)
        assert driver.pending == [2]
        driver.run_epoch(3)
        assert (driver.completed, driver.pending) == (2, [3])
        assert [order.checkpoint_id for order in driver.orders()] == [3]


@pytest.mark.feature("D8")
@pytest.mark.parametrize("cause", ["the task cannot upload", "the driver cannot write", "it takes too long"])
def test_failed_uploads_failed_writes_of_the_driver_and_timeouts_count_as_failures(tmp_path: Path, cause: str) -> None:
    with Driver(tmp_path, interval=RARELY, timeout=3_000) as driver:
        driver.storage.script(StorageFault(Strike.FAIL_BEFORE, "create", "chk-1/_metadata"))
        driver.run_epoch(1)
        driver.loop.request()
        driver.settle()
        if cause == "it takes too long":
            driver.pass_time(3_000)
        else:
            driver.run_epoch(error="no such bucket" if cause == "the task cannot upload" else None)
        with pytest.raises(CheckpointsFailed):
            driver.loop.check()


@pytest.mark.feature("C10", "D11")
@pytest.mark.parametrize(("chosen", "at_once"), [({}, 1), ({"max_concurrent": 2}, 2)])
def test_a_checkpoint_waits_while_as_many_as_allowed_are_under_way(
    tmp_path: Path, chosen: dict[str, int], at_once: int
) -> None:
    with Driver(tmp_path, interval=1_000, **chosen) as driver:
        driver.run_epoch(1)
        for _ in range(4):
            driver.pass_time(1_000)
            driver.run_epoch(1, uploads=False)
        assert len(driver.pending) == at_once


@pytest.mark.feature("C10", "D12")
def test_with_several_at_once_a_slow_upload_does_not_delay_the_next_checkpoint(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=1_000, max_concurrent=3) as driver:
        begun = []
        for _ in range(3):
            driver.run_epoch(1, uploads=False)
            driver.pass_time(1_000)
            begun.append(list(driver.pending))
        assert begun == [[1], [1, 2], [1, 2, 3]]
        driver.run_epoch()
        assert (driver.completed, driver.pending) == (3, [])


ENDS = [
    ("RETAIN_ON_CANCELLATION", JobEnd.CANCELED, True),
    ("RETAIN_ON_CANCELLATION", JobEnd.FAILED, True),
    ("RETAIN_ON_CANCELLATION", JobEnd.FINISHED, False),
    ("DELETE_ON_CANCELLATION", JobEnd.CANCELED, False),
    ("DELETE_ON_CANCELLATION", JobEnd.FAILED, True),
    ("NO_EXTERNALIZED_CHECKPOINTS", JobEnd.CANCELED, False),
    ("NO_EXTERNALIZED_CHECKPOINTS", JobEnd.FAILED, False),
]


@pytest.mark.feature("D14", "D15", "E13")
@pytest.mark.parametrize(("retention", "end", "kept"), ENDS)
@pytest.mark.parametrize("longest_inside_bytes", [8_192, 0])
def test_the_end_of_a_job_keeps_or_deletes_its_checkpoint_as_retention_says(
    tmp_path: Path,
    retention: str,
    end: JobEnd,
    kept: bool,
    longest_inside_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With lists of files inside the metadata, and with lists that are objects of their own."""
    monkeypatch.setattr(version_upload, "LONGEST_INSIDE_BYTES", longest_inside_bytes)
    driver = Driver(tmp_path, interval=RARELY, retention=retention, num_retained=3)
    for _ in range(3):
        driver.checkpoint(*range(8))
    whole = driver.checkpoints() | driver.files("shared")
    assert len(whole) == (6 if longest_inside_bytes else 9)
    driver.end(end)
    assert driver.checkpoints() | driver.files("shared") == (whole if kept else set())


@pytest.mark.feature("D20", "F24", "F25", "F26")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(("chosen", "again"), [({}, 8), ({"incremental": False}, 8), ({"incremental": True}, 1)])
def test_an_incremental_checkpoint_uploads_only_what_the_last_one_does_not_have(
    tmp_path: Path, backend: str, chosen: dict[str, bool], again: int
) -> None:
    with Driver(tmp_path, interval=RARELY, backend=backend, inline_threshold=0, **chosen) as driver:
        driver.checkpoint(*range(8))
        driver.checkpoint(1)
        last = driver.loop.statistics.latest_completed
        assert last is not None
        assert again * 4_000 < last.checkpointed_size_bytes < (again + 4) * 4_000
        assert last.state_size_bytes > 8 * 4_000


@pytest.mark.feature("D24")
def test_jobs_that_share_a_directory_have_one_of_their_own_below_it(tmp_path: Path) -> None:
    with Driver(tmp_path, "orders", interval=RARELY) as one:
        one.checkpoint(*range(8))
        mine = one.files()
        other = Driver(tmp_path, "clicks", interval=RARELY, retention="DELETE_ON_CANCELLATION")
        other.checkpoint(*range(8))
        assert other.checkpoints() == one.checkpoints() == {"chk-1/_metadata"}
        other.end(JobEnd.CANCELED)
        assert other.checkpoints() == set()
        assert one.files() == mine
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["clicks", "orders"]


@pytest.mark.feature("D26")
def test_data_and_metadata_of_checkpoints_are_below_their_directory(tmp_path: Path) -> None:
    root = tmp_path / "far" / "away"
    with Driver(tmp_path, interval=RARELY, dir=f"file://{root}") as driver:
        driver.checkpoint(*range(8))
        found = StoredSnapshot.open(root / "job" / "chk-1").metadata
        assert [(root / "job" / file.path).stat().st_size for file in found.tasks[0].files] == [found.full_size_bytes]


@pytest.mark.feature("D27", "E14", "F33")
@pytest.mark.parametrize(
    ("chosen", "kept"), [({}, {3}), ({"num_retained": 2}, {2, 3}), ({"num_retained": 3}, {1, 2, 3})]
)
def test_only_as_many_completed_checkpoints_as_chosen_are_kept(
    tmp_path: Path, chosen: dict[str, int], kept: set[int]
) -> None:
    with Driver(tmp_path, interval=RARELY, inline_threshold=0, **chosen) as driver:
        for key in range(3):
            driver.checkpoint(key)
        assert driver.checkpoints() == {f"chk-{id}/_metadata" for id in kept}
        assert {int(name.rpartition("/chk-")[2].partition("-")[0]) for name in driver.files("shared")} == kept


@pytest.mark.feature("D28", "I9")
def test_a_savepoint_goes_to_the_directory_for_savepoints_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver(tmp_path, interval=RARELY, savepoint_dir=str(tmp_path / "mine")) as driver:
        taken = driver.loop.savepoint(None, terminal=False).result(30)
        assert Path(taken).parent == tmp_path / "mine"
        taken = driver.loop.savepoint(str(tmp_path / "named"), terminal=False).result(30)
        assert Path(taken).parent == tmp_path / "named"
        monkeypatch.chdir(tmp_path)
        taken = driver.loop.savepoint("here", terminal=False).result(30)
        assert Path(taken).parent == tmp_path / "here"
    with (
        Driver(tmp_path, interval=RARELY) as driver,
        pytest.raises(OptionError, match="no directory for the savepoint"),
    ):
        driver.loop.savepoint(None, terminal=False)


@pytest.mark.feature("D29")
@pytest.mark.parametrize(
    ("chosen", "kilobytes", "files"),
    [({}, 4, 0), ({}, 32, 1), ({"inline_threshold": 0}, 4, 1), ({"inline_threshold": "40 kb"}, 32, 0)],
)
def test_small_state_files_are_in_the_metadata_and_larger_ones_are_not(
    tmp_path: Path, chosen: dict[str, Any], kilobytes: int, files: int
) -> None:
    with Driver(tmp_path, interval=RARELY, **chosen) as driver:
        driver.checkpoint(*range(kilobytes // 4))
        found = StoredSnapshot.open(tmp_path / "checkpoints" / "job" / "chk-1").metadata
        assert len(driver.files("shared")) == len(found.tasks[0].files) == files
        assert len(found.tasks[0].inline) == 1 - files
        assert found.full_size_bytes > kilobytes * 1_000
