"""A job with the changelog: what its checkpoints consist of, and that every row is counted once whatever happens."""

from __future__ import annotations

import pytest

from tests.integration.test_checkpoints import BACKENDS, Fails, Shop
from tests.waiting import files_below, remove
from tidegate.savepoint.snapshot import StoredSnapshot

CHANGELOG = {
    "state.changelog.enabled": True,
    "state.changelog.periodic-materialize.interval": "1 h",
    "execution.checkpointing.data-inline-threshold": "0",
}


@pytest.fixture
def shop(spark, tmp_path):
    return Shop(spark, tmp_path)


def newest(shop: Shop) -> StoredSnapshot:
    return StoredSnapshot.open(str(shop.newest()))


def change_files(shop: Shop) -> list[str]:
    """Those of the last checkpoint. One taken before any other has completed holds whole versions instead, so a test that
    expects some starts the job a second time: its last checkpoint then follows the one that it started from."""
    tasks = newest(shop).metadata.tasks
    return [file.name for task in tasks for file in task.files if file.name.endswith(".changes")]


@BACKENDS
@pytest.mark.feature("G2", "G9", "G10")
def test_a_job_continues_from_its_changelog(shop, backend):
    """On the host that has its versions, on one that has lost them, after a failure, and at another parallelism."""
    choices = {"backend": backend, "interval": "50 ms", "options": CHANGELOG}
    shop.feed(2).run(**choices).feed(2).run(**choices)
    assert change_files(shop)
    assert {task.backend for task in newest(shop).metadata.tasks} == {f"{backend}+changelog"}
    shop.feed(2).run(Fails(shop.folder / "raised"), **choices)
    assert shop.exact()
    remove(shop.folder / "local")
    shop.feed(2).run(**choices)
    assert shop.exact()
    shop.feed(2).run(parallelism=3, **choices)
    assert shop.exact()
    assert len(newest(shop).metadata.tasks) == 3


@BACKENDS
@pytest.mark.feature("G9")
def test_it_is_switched_off_and_on_again(shop, backend):
    choices = {"backend": backend, "interval": "50 ms", "options": CHANGELOG}
    shop.feed(2).run(**choices).feed(1).run(**choices)
    assert change_files(shop)
    shop.feed(2).run(**{**choices, "options": {}})
    assert shop.exact()
    assert not change_files(shop)
    shop.feed(2).run(**choices)
    assert shop.exact()
    assert change_files(shop)


@BACKENDS
@pytest.mark.feature("G3", "G13")
def test_whole_versions_are_stored_in_the_background_and_the_changes_before_them_are_dropped(shop, backend):
    options = CHANGELOG | {"state.changelog.periodic-materialize.interval": "10 ms"}
    shop.feed(14).run(backend=backend, interval="10 ms", options=options)
    assert shop.exact()
    found = change_files(shop)
    assert len(found) < 2 * 6, f"of 14 epochs, these changes are left: {found}"
    local = [path.name for path in files_below(shop.folder / "local") if path.suffix == ".changes"]
    assert len(local) < 2 * 12
    remove(shop.folder / "local")
    shop.feed(1).run(backend=backend, interval="10 ms", options=options)
    assert shop.exact()
