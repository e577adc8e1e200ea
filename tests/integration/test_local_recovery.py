"""A driver that starts again uses the versions that are still on the disks of its hosts, however the last one ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_checkpoints import BACKENDS, Shop
from tests.waiting import eventually, files_below, remove
from tidegate.events.event import JobInitializationEvent, RestoredTask
from tidegate.events.listener import JobListener

INLINE_NOTHING = {"execution.checkpointing.data-inline-threshold": "0"}
"""So that all state is in files, which are fetched or found."""


class Starts(JobListener):
    """Remembers what each start restored."""

    def __init__(self) -> None:
        self.restored: list[tuple[RestoredTask, ...]] = []

    def on_initialization(self, event: JobInitializationEvent) -> None:
        self.restored.append(tuple(event.tasks))

    def last(self) -> tuple[int, int]:
        """Bytes that were found on local disk by the last start, and bytes that were fetched."""
        return sum(t.local_bytes for t in self.restored[-1]), sum(t.remote_bytes for t in self.restored[-1])


def starts(shop: Shop, **choices) -> Starts:
    """Run the job on all there is, and return what it restored."""
    heard = Starts()
    options = {**INLINE_NOTHING, **choices.pop("options", {})}
    force = choices.pop("force", False)
    given = shop.choices(interval="1 h", options=options, **choices)
    shop.job().run(shop.spark, trigger="available-now", listeners=[heard], force=force, **given)
    return heard


@pytest.fixture
def shop(spark, tmp_path):
    shop = Shop(spark, tmp_path).feed(3)
    yield shop
    shop.end()


@BACKENDS
@pytest.mark.feature("H2")
@pytest.mark.parametrize("changelog", [False, True])
def test_after_a_clean_end_everything_is_found_and_nothing_fetched(shop, backend, changelog):
    options = {"state.changelog.enabled": changelog}
    starts(shop, backend=backend, options=options)
    found, fetched = starts(shop.feed(1), backend=backend, options=options).last()
    assert found > 0
    assert fetched == 0
    assert shop.exact()


@pytest.mark.feature("H2")
def test_versions_are_reused_after_a_native_savepoint(shop):
    run = shop.start(backend="rocksdb", interval="1 h", options=INLINE_NOTHING)
    eventually(lambda: sum(report.rows_in for report in run.reports) == shop.rows, "all rows")
    saved = run.stop_with_savepoint(str(shop.folder / "saved"), format="NATIVE")
    found, fetched = starts(shop.feed(1), backend="rocksdb", options={"execution.state-recovery.path": saved}).last()
    assert found > 0
    assert fetched == 0
    assert shop.exact()


@pytest.mark.feature("H2")
def test_versions_are_reused_after_a_driver_was_killed(shop):
    run = shop.start(backend="rocksdb", interval="200 ms", options=INLINE_NOTHING)
    eventually(lambda: shop.exact(), "all output")
    run._job.loop.leave()  # as a kill would: nothing is recorded, marked or removed
    run._supervisor.attempt.query.stop()
    found, fetched = starts(shop.feed(1), backend="rocksdb", force=True).last()
    assert found > 0
    assert fetched == 0
    assert shop.exact()


@pytest.mark.feature("H2")
def test_versions_are_found_after_their_volume_has_moved(shop):
    starts(shop, backend="rocksdb")
    moved = shop.folder / "another-mount"
    (shop.folder / "local").rename(moved)
    found, fetched = starts(shop.feed(1), backend="rocksdb", options={"local_dir": str(moved)}).last()
    assert found > 0
    assert fetched == 0
    assert shop.exact()


@pytest.mark.feature("H2")
def test_what_is_damaged_or_gone_is_fetched(shop):
    starts(shop, backend="rocksdb")
    for path in (shop.folder / "local").rglob("*.sst"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert starts(shop.feed(1), backend="rocksdb").last()[1] > 0
    remove(shop.folder / "local")
    found, fetched = starts(shop.feed(1), backend="rocksdb").last()
    assert (found, fetched > 0) == (0, True)
    assert shop.exact()


def test_a_job_whose_checkpoints_are_deleted_at_its_end_leaves_nothing(shop):
    run = shop.start(backend="rocksdb", interval="200 ms", retention="DELETE_ON_CANCELLATION")
    eventually(lambda: shop.exact(), "all output")
    run.cancel()
    assert left(shop.folder / "local") == []


def left(local: Path) -> list[Path]:
    """All files but what the host itself is known by."""
    own = {local / name for name in (".host-uuid", ".last-start", ".swept")}
    return [path for path in files_below(local) if path not in own]
