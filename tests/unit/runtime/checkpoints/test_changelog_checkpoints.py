"""Checkpoints of what changed, as the driver takes them: which versions they start from, and what is swept afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.driver.driver_kit import TASK, Driver
from tidegate.core import faults
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.state.changelog import ChangelogBackend

INTERVAL_MS = 1_000
CHANGELOG: dict[str, Any] = {
    "state.changelog.enabled": True,
    "state.changelog.periodic-materialize.interval": "600 ms",
    "execution.checkpointing.data-inline-threshold": "0",
}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with begun(tmp_path) as driver:
        yield driver


def begun(folder: Path) -> Driver:
    """Return a job whose latest checkpoint consists of a version and of changes."""
    driver = Driver(folder, interval=INTERVAL_MS, timeout="10 s", options=CHANGELOG)
    driver.checkpoint(0, 1, 2)
    driver.pass_time(2 * INTERVAL_MS)
    for key in (3, 4, 5):
        driver.run_epoch(key)
        driver.checkpoint(key)
    assert not driver.pending
    assert not driver.loop.uploads.materialized
    assert driver.owned.snapshot is not None
    assert driver.owned.snapshot.tasks[0].backend == "hashmap+changelog"
    return driver


def materialize(driver: Driver) -> None:
    """Have the task store its whole version in the background."""
    driver.pass_time(700)
    driver.run_epoch(4, uploads=False)
    driver.run_epoch()


def unreferenced(driver: Driver) -> set[str]:
    """Stored files of the task that are not in the latest checkpoint."""
    assert driver.owned.snapshot is not None
    return {
        name for name in driver.files("shared") if name not in {f.path for f in driver.owned.snapshot.tasks[0].files}
    }


def test_a_version_that_became_ready_after_the_announcement_stays_for_the_next_checkpoint(driver: Driver) -> None:
    """The next epoch begins with the announcement before the driver has seen the end of the one that stored the version."""
    driver.pass_time(700)
    driver.run_epoch(4, uploads=False)
    (order,) = driver.orders()
    driver.pass_time(299)
    early = driver.begin_epoch().early
    assert early is not None
    assert early.materialized == (None,), "it is not stored yet"
    driver.epoch = driver.epoch.next()
    driver._report(((TASK, driver._upload(order, None)),))
    driver.epoch = driver.epoch.next()
    driver._write((5,))
    assert driver.version is not None
    stored = driver._upload(early.order(TASK.slot, driver.version), None)
    driver._report(((TASK, stored),), early.checkpoint_id)
    assert early.checkpoint_id == driver.owned.store.entry.last_id
    assert driver.loop.uploads.materialized, "no checkpoint was offered it"
    driver.checkpoint(6)
    assert not driver.loop.uploads.materialized
    assert not unreferenced(driver)


def test_a_version_that_a_checkpoint_did_not_use_is_swept(driver: Driver) -> None:
    materialize(driver)
    assert driver.loop.uploads.materialized
    assert not driver.loop.checkpointer._cleaning._sweeps, "nothing else asks for a sweep"
    driver.run_epoch(5)
    for path in driver.home.glob("changes/*.changes"):
        path.unlink()
    driver.checkpoint(6)
    assert not driver.loop.uploads.materialized
    assert not unreferenced(driver)


def test_nothing_is_announced_that_starts_from_a_version_of_discarded_epochs(driver: Driver) -> None:
    materialize(driver)
    driver.pass_time(INTERVAL_MS)
    driver.loop.rewind()
    taken = driver.loop.uploads.announcements.begin_epoch(empty=False)
    assert taken is None or not taken.materialized


def test_after_a_rewind_no_task_is_asked_for_the_whole_version_of_a_discarded_epoch(driver: Driver) -> None:
    driver.pass_time(700)
    driver.run_epoch(4, uploads=False)
    (order,) = driver.orders()
    driver.loop.rewind()
    assert order not in driver.orders()


@pytest.mark.feature("G10")
@pytest.mark.parametrize("on", [True, False])
def test_a_job_switches_the_changelog_on_or_off_in_code_whatever_all_jobs_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    """Tasks write changes or do not, and checkpoints ask for them or do not: also one that is announced to its epoch."""
    (tmp_path / "config.yaml").write_text(f"state.changelog.enabled: {str(not on).lower()}\n")
    monkeypatch.setenv("TIDEGATE_CONF_DIR", str(tmp_path))
    chosen = {**CHANGELOG, "state.changelog.enabled": on}
    with Driver(tmp_path, interval=INTERVAL_MS, timeout="10 s", incremental=True, options=chosen) as driver:
        driver.checkpoint(0, 1, 2)
        driver.pass_time(2 * INTERVAL_MS)
        driver.run_epoch(3)
        driver.run_epoch()
        driver.pass_time(INTERVAL_MS - 1)
        early = driver.begin_epoch().early
        assert early is not None
        assert driver.version is not None
        driver.end_epoch(4)
        driver.loop.request()
        driver.settle()
        (order,) = driver.orders()
        assert (isinstance(driver.backend, ChangelogBackend), early.changelog, order.changelog) == (on, on, on)
        assert (early.order(TASK.slot, driver.version).changelog, bool(list(driver.home.glob("changes/*")))) == (on, on)


class Died(Exception):
    """The thread of the checkpoint loop ends at a step, as with its process."""


STEPS = {
    "materialize.1-reserved": False,
    "materialize.2-asked": False,
    "materialize.3-stored": True,
    "materialize.4-offered": True,
    "materialize.5-completed": True,
    "materialize.6-released": True,
}
"""And whether a crash there leaves files that are not in the latest checkpoint: those of the version, then those that the
checkpoint has replaced by them."""


@pytest.mark.parametrize("step", STEPS)
def test_what_a_crash_leaves_is_swept_by_the_next_owner(step: str, tmp_path: Path) -> None:
    driver = begun(tmp_path)

    def die(point: str, **context: Any) -> None:
        if point == step:
            raise Died

    faults.arm(die)
    try:
        with suppress(Exception):
            materialize(driver)
            driver.checkpoint(5)
        with pytest.raises(Died):
            driver.settle()
    finally:
        faults.arm(None)
    latest = history_of(tmp_path)
    left = {name for name in driver.files("shared") if name not in latest}
    assert bool(left) == STEPS[step], left
    with Driver(tmp_path, interval=INTERVAL_MS, timeout="10 s", options=CHANGELOG) as successor:
        assert successor.owned.snapshot is not None
        assert {file.path for file in successor.owned.snapshot.tasks[0].files} == latest
        for key in (6, 7, 0):
            successor.checkpoint(key)
        assert not unreferenced(successor)


def history_of(folder: Path) -> set[str]:
    """Return the files of the latest checkpoint in storage."""
    newest = max((folder / "checkpoints" / "job").glob("chk-*/_metadata"), key=lambda path: int(path.parent.name[4:]))
    return {file.path for file in StoredSnapshot.open(str(newest)).metadata.tasks[0].files}
