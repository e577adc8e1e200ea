"""A checkpoint directory that is restored from a backup, with a driver, its task and its target, but without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.runtime.driver.driver_kit import KEYS, Driver
from tidegate.checkpoint.job_log.start import DirectoryMoved
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import decode
from tidegate.connectors.outcome import ForeignOutput
from tidegate.core.ids import EpochId, Lineage, Uid, ordinal
from tidegate.graph.model import Graph
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.runtime.driver.launch import accept_output
from tidegate.storage import RoutedStorage, open_storage

OUT = Uid("out")


def checkpoint(driver: Driver) -> EpochId:
    """Take a checkpoint whose files are too large for its metadata."""
    driver.checkpoint(*range(KEYS))
    base = driver.owned.store.entry.base
    assert base is not None
    return base.epoch


def foreign(folder: Path, *markers: EpochId) -> Mapping[Uid, Collection[EpochId]]:
    history = JobHistory(RoutedStorage(open_storage(str(folder / "checkpoints"))), JobLayout("job"), None)  # type: ignore[arg-type]
    return history.foreign_output(lambda lineage: {OUT: markers})


class Week:
    """Runs on Monday, is backed up, runs on Tuesday, and is restored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with Driver(folder) as driver:
            self.monday = checkpoint(driver)
        shutil.copytree(folder / "checkpoints", folder / "backup")
        with Driver(folder) as driver:
            self.tuesday = checkpoint(driver)

    def restore(self) -> None:
        shutil.rmtree(self.folder / "checkpoints")
        shutil.copytree(self.folder / "backup", self.folder / "checkpoints")


def test_a_target_with_output_of_a_lost_history_is_reported(tmp_path: Path) -> None:
    week = Week(tmp_path)
    assert foreign(tmp_path, week.monday, week.tuesday) == {}
    week.restore()
    assert foreign(tmp_path, week.monday) == {}
    found = foreign(tmp_path, week.monday, week.tuesday)
    assert found == {OUT: (week.tuesday,)}
    error = ForeignOutput(OUT, found[OUT])
    assert f"epoch {week.tuesday.number} of term 2" in str(error)
    assert "--fresh -s" in str(error)
    assert "execution.state-recovery.accept-foreign-output" in str(error)


def test_a_restored_run_that_had_continued_after_the_backup_is_reported(tmp_path: Path) -> None:
    with Driver(tmp_path) as driver:
        first = checkpoint(driver)
        shutil.copytree(tmp_path / "checkpoints", tmp_path / "backup")
        second = checkpoint(driver)
    assert first.term == second.term
    shutil.rmtree(tmp_path / "checkpoints")
    shutil.move(tmp_path / "backup", tmp_path / "checkpoints")
    assert foreign(tmp_path, first, second) == {OUT: (second,)}


def test_a_restored_job_repeats_no_epoch_no_version_and_no_file_of_the_lost_history(tmp_path: Path) -> None:
    week = Week(tmp_path)
    stored = names(tmp_path / "checkpoints" / "job" / "shared")
    local = names(tmp_path / "local")
    week.restore()
    with Driver(tmp_path) as driver:
        restored = {*names(tmp_path / "checkpoints" / "job" / "shared")}
        wednesday = checkpoint(driver)
    assert ordinal(wednesday.term) == ordinal(week.tuesday.term) == 2
    assert wednesday.term != week.tuesday.term
    new = names(tmp_path / "checkpoints" / "job" / "shared") - restored
    assert new
    assert not new & stored
    assert not (names(tmp_path / "local") - local) & local


def test_a_checkpoint_of_a_restored_job_names_only_files_that_exist(tmp_path: Path) -> None:
    week = Week(tmp_path)
    week.restore()
    with Driver(tmp_path) as driver:
        for _ in range(3):
            checkpoint(driver)
            assert missing_files(driver) == []


def test_a_start_that_accepts_the_output_continues_after_it(tmp_path: Path) -> None:
    week = Week(tmp_path)
    week.restore()
    found = foreign(tmp_path, week.tuesday)
    with pytest.raises(ForeignOutput):
        accept_output(found, accepts=False)
    assert accept_output(found, accepts=True) == (week.tuesday,)
    with Driver(tmp_path, accepted=(week.tuesday,)) as driver:
        wednesday = checkpoint(driver)
    assert ordinal(wednesday.term) == 3
    assert foreign(tmp_path, week.monday, week.tuesday, wednesday) == {}


def test_a_target_that_cannot_be_asked_does_not_prevent_the_start(caplog: pytest.LogCaptureFixture) -> None:
    class Unreachable:
        def commit(self, requests: object) -> None: ...

        def markers(self, lineage: Lineage, sink: Uid) -> Collection[EpochId]:
            raise OSError("no route to host")

    class Silent:
        def commit(self, requests: object) -> None: ...

    committers = Committers(Graph("job", ()), None)
    committers.committers = {OUT: Unreachable(), Uid("other"): Silent()}  # type: ignore[dict-item]
    assert committers.markers(Lineage("line")) == {}
    assert committers.unasked == {OUT}
    assert "no route to host" in caplog.text


def missing_files(driver: Driver) -> list[str]:
    """Return the files that the newest checkpoint names and that are not there."""
    base = driver.owned.store.entry.base
    assert base is not None
    named = [file.path for task in decode(driver.storage.get(base.metadata)).tasks for file in task.files]
    assert named
    return [path for path in named if not (driver.folder / "checkpoints" / "job" / path).exists()]


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_savepoint_of_another_line_of_history_is_left_to_the_claim_which_refuses_it(tmp_path: Path) -> None:
    """Its job may write to the same target. The markers are that job's, and this one's log says nothing about them."""
    with Driver(tmp_path) as driver:
        own = checkpoint(driver)
        base = driver.owned.store.entry.base
    assert base is not None
    stranger = replace(base, lineage=Lineage("another"), owned=False, metadata="another/savepoint/_metadata")
    history = JobHistory(RoutedStorage(open_storage(str(tmp_path / "checkpoints"))), JobLayout("job"), None)  # type: ignore[arg-type]
    assert history.foreign_output(lambda lineage: {OUT: [EpochId(own.term, 99)]}, stranger) == {}
    assert history.foreign_output(lambda lineage: {OUT: [EpochId(own.term, 99)]}, base) != {}


def test_a_copy_of_the_directory_is_refused_and_the_original_continues(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    with Driver(original) as driver:
        checkpoint(driver)
        shutil.copytree(original, copy)
        checkpoint(driver)
    with pytest.raises(DirectoryMoved) as refused, Driver(copy):
        pass
    assert str(original / "checkpoints" / "job") in str(refused.value)
    assert str(copy / "checkpoints" / "job") in str(refused.value)
    (tmp_path / "link").symlink_to(original)
    with Driver(tmp_path / "link") as driver:  # the same directory under another name
        checkpoint(driver)
