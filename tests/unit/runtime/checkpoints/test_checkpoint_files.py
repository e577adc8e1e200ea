"""What checkpoints leave in storage: which files, where, for how long, and how a new run begins from them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.runtime.driver.driver_kit import GROUPS, TASK, Driver
from tidegate.checkpoint.job_log.start import StartRefused
from tidegate.checkpoint.metadata import StoredFileList
from tidegate.checkpoint.output.staging import JobStaging
from tidegate.checkpoint.task import version_upload
from tidegate.core.ids import AttemptId, Uid, ordinal
from tidegate.runtime.sources.source_notes import load_notes
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.savepoint.verify import verify
from tidegate.state.keys.entry_keys import state_prefix
from tidegate.state.version import VersionId
from tidegate.testing.storage import StorageFault, Strike

RARELY = "1 h"
BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])


def named_by(driver: Driver, id: int) -> set[str]:
    """The data files that the metadata of a checkpoint points to."""
    snapshot = StoredSnapshot.open(driver.folder / "checkpoints" / "job" / f"chk-{id}")
    tasks, positions = snapshot.metadata.tasks, snapshot.metadata.positions
    lists = (*map(snapshot.files_of, tasks), *(position.files for position in positions))
    stored = {task.files.path for task in tasks if isinstance(task.files, StoredFileList)}
    return {file.path for listed in lists for file in listed} | stored


@pytest.fixture(params=["lists inside", "stored lists"])
def lists(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether lists of files are objects of their own, however short they are."""
    if request.param == "stored lists":
        monkeypatch.setattr(version_upload, "LONGEST_INSIDE_BYTES", 0)
    return bool(request.param == "stored lists")


@pytest.mark.feature("E3")
@BACKENDS
def test_state_goes_to_files_and_only_their_names_go_to_the_driver(tmp_path: Path, backend: str) -> None:
    with Driver(tmp_path, interval=RARELY, backend=backend) as driver:
        driver.run_epoch(*range(8))
        driver.loop.request()
        driver.settle()
        (order,) = driver.orders()
        sent = driver._upload(order, None).part
        assert sent is not None
        stored = [driver.folder / "checkpoints" / "job" / name for name in driver.files("shared")]
        assert sum(path.stat().st_size for path in stored) > 32_000
        assert len(sent) < 4_000
        assert driver.orders()[0].checkpoint_id == 1
        driver.run_epoch()
        assert named_by(driver, 1) == driver.files("shared")


@pytest.mark.feature("E6")
@BACKENDS
def test_a_checkpoint_is_a_metadata_file_and_the_data_files_it_names(tmp_path: Path, backend: str) -> None:
    with Driver(tmp_path, interval=RARELY, backend=backend) as driver:
        driver.checkpoint(*range(8))
        assert driver.files("chk-1") == {"chk-1/_metadata"}
        assert named_by(driver, 1) == driver.files("shared") != set()
        state = StoredSnapshot.open(tmp_path / "checkpoints" / "job" / "chk-1").metadata.tasks[0]
        assert (state.task, state.version, state.backend) == (TASK, driver.version, backend)


@pytest.mark.feature("E7")
def test_a_job_has_a_folder_with_shared_taskowned_and_one_for_each_checkpoint(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY, num_retained=2) as driver:
        driver.checkpoint(*range(8))
        driver.checkpoint(*range(8))
        epoch = driver.run_epoch(1)
        JobStaging(driver.storage, driver.layout, epoch, Uid("out"), AttemptId(1)).put(b"rows")
        assert {path.name for path in (tmp_path / "checkpoints" / "job").iterdir() if path.is_dir()} == {
            "chk-1", "chk-2", "shared", "taskowned", "log", "entries"
        }  # fmt: skip
        assert driver.files("chk-2") == {"chk-2/_metadata"}
        assert len(driver.files("shared")) == 2
        assert len(driver.files("taskowned")) == 1


@pytest.mark.feature("E8", "F24", "F25", "F33")
def test_a_shared_file_stays_as_long_as_any_checkpoint_names_it(tmp_path: Path, lists: bool) -> None:
    with Driver(tmp_path, interval=RARELY, incremental=True, inline_threshold=0) as driver:
        driver.checkpoint(*range(8))
        first = {name for name in driver.files("shared") if "chk-1-files-" not in name}
        assert len(driver.files("shared")) == len(first) + lists
        driver.checkpoint(1)
        assert driver.checkpoints() == {"chk-2/_metadata"}
        assert first < named_by(driver, 2) == driver.files("shared")
        unchanged = driver.loop.request()
        driver.settle()
        driver.run_epoch()
        assert unchanged.result(30).id == 3
        assert first < named_by(driver, 3) == driver.files("shared")
        full = driver.loop.request(full=True)
        driver.settle()
        driver.run_epoch()
        full.result(30)
        assert first.isdisjoint(driver.files("shared"))
        assert named_by(driver, 4) == driver.files("shared")


@pytest.mark.feature("E10")
def test_files_of_one_checkpoint_are_in_its_folder_and_deleted_with_it(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY, incremental=True) as driver:
        driver.note_position("many files " * 2_000)
        driver.checkpoint(1)
        own = driver.files("chk-1")
        assert len(own) == 2
        assert own - {"chk-1/_metadata"} <= named_by(driver, 1)
        driver.note_position("other files " * 2_000)  # What is still true would belong to the next checkpoint, too.
        driver.checkpoint(1)
        assert driver.files("chk-1") == set()
        assert len(driver.files("chk-2")) == 2


@pytest.mark.feature("C1", "D27", "E11")
@pytest.mark.usefixtures("lists")
def test_checkpoints_are_taken_and_dropped_without_a_request(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=1_000, inline_threshold=0) as driver:
        for key in range(5):
            driver.pass_time(1_000)
            driver.run_epoch(key)
            driver.run_epoch()
        assert driver.completed == 5
        assert driver.checkpoints() == {"chk-5/_metadata"}
        assert driver.files("shared") == named_by(driver, 5) != set()


@pytest.mark.feature("E15")
@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("named", ["chk-2", "chk-2/", "chk-2/_metadata"])
def test_a_run_begins_from_the_retained_checkpoint_whose_path_it_is_given(
    tmp_path: Path, named: str, scheme: str
) -> None:
    with Driver(tmp_path, interval=RARELY, num_retained=2) as driver:
        for key in range(3):
            driver.checkpoint(key)
    place = tmp_path / "checkpoints" / "job"
    with Driver(tmp_path, interval=RARELY, num_retained=2, path=f"{scheme}{place}/{named}") as driver:
        found = driver.owned.restore_point()
        assert (found.checkpoint_id, ordinal(found.term)) == (2, 2)
        assert found.snapshot == StoredSnapshot.open(place / "chk-2").metadata
        assert found.stored is not None, "the next checkpoint reuses its files"


@pytest.mark.feature("E15")
def test_a_checkpoint_that_is_no_longer_retained_is_refused(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY) as driver:
        driver.checkpoint(1)
        old = (tmp_path / "checkpoints" / "job" / "chk-1" / "_metadata").read_bytes()
        driver.checkpoint(2)
    driver.storage.put("job/chk-1/_metadata", old)
    with pytest.raises(StartRefused, match="no longer retained"):
        Driver(tmp_path, interval=RARELY, path=str(tmp_path / "checkpoints" / "job" / "chk-1"))


@pytest.mark.feature("E16")
def test_files_of_a_checkpoint_that_could_not_be_completed_are_deleted(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY, inline_threshold=0, tolerable_failures=1) as driver:
        driver.checkpoint(1)
        whole = driver.files("shared")
        driver.storage.script(StorageFault(Strike.FAIL_BEFORE, "create", "chk-2/_metadata"))
        driver.run_epoch(2)
        driver.loop.request()
        driver.settle()
        driver.run_epoch()
        assert ("put", "job/shared") in {(kind, path[:10]) for kind, path in driver.storage.seen}
        assert driver.files("shared") == whole


@pytest.mark.feature("E16")
@pytest.mark.usefixtures("lists")
def test_files_of_an_abandoned_checkpoint_are_deleted_with_the_next_one(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=RARELY, timeout=3_000, inline_threshold=0, tolerable_failures=1) as driver:
        driver.checkpoint(0)
        driver.run_epoch(*range(8))
        driver.loop.request()
        driver.settle()
        (order,) = driver.orders()
        driver._upload(order, None)
        left = driver.files("shared") - named_by(driver, 1)
        driver.pass_time(3_000)  # It expires, and the driver never hears of the upload.
        assert left <= driver.files("shared")
        assert left
        driver.checkpoint(1)
        assert left.isdisjoint(driver.files("shared"))


@pytest.mark.feature("E16")
@pytest.mark.usefixtures("lists")
def test_files_that_a_crashed_run_left_are_deleted_by_the_next_run(tmp_path: Path) -> None:
    driver = Driver(tmp_path, interval=RARELY, inline_threshold=0)
    driver.run_epoch(*range(8))
    driver.loop.request()
    driver.settle()
    driver._upload(driver.orders()[0], None)
    left = driver.files("shared")
    driver.loop.leave()
    with Driver(tmp_path, interval=RARELY, inline_threshold=0) as driver:
        driver.checkpoint(1)
        assert left.isdisjoint(driver.files("shared"))
        assert driver.files("shared") == named_by(driver, 1)


def run_until_nothing_waits(driver: Driver) -> None:
    """Two checkpoints are complete, epochs have run since, and the next epoch gets an announced checkpoint."""
    driver.checkpoint(0, 1, 2)
    driver.checkpoint(0)
    driver.pass_time(5_000)
    driver.run_epoch(1)
    driver.run_epoch(1)
    assert not driver.pending
    assert not driver.loop.checkpointer._cleaning._sweeps, "nothing else asks for a search"


@pytest.mark.feature("E16")
@pytest.mark.parametrize("how", ["another checkpoint was taken", "an attempt was repeated"])
def test_files_stored_early_for_an_announced_checkpoint_that_does_not_contain_them_are_deleted(
    tmp_path: Path, how: str
) -> None:
    with Driver(tmp_path, interval=1_000, inline_threshold=0) as driver:
        run_until_nothing_waits(driver)
        driver.pass_time(999)
        early = driver.begin_epoch().early
        assert early is not None
        if how == "another checkpoint was taken":
            driver.loop.request()
            driver.settle()
        driver.epoch = driver.epoch.next()
        # Of two attempts, the driver accepts the second. The first has stored its version all the same.
        other = VersionId(driver.epoch, AttemptId(9))
        store = driver.backend.begin(driver.home, driver.version, other, GROUPS)
        store.write([(state_prefix(3, 1) + b"key", b"of nobody")], ())
        store.seal()
        before = driver.files("shared")
        driver._upload(early.order(TASK.slot, other), None)
        left = driver.files("shared") - before
        assert left
        driver._write((3,))
        driver._report((), early.checkpoint_id, tries=1 if how == "another checkpoint was taken" else 2)
        driver.run_epoch(4)
        driver.checkpoint(5)
        driver.checkpoint(6)
        assert left.isdisjoint(driver.files("shared"))
        assert driver.files("shared") == named_by(driver, driver.owned.store.entry.last_id)


@pytest.mark.feature("E16")
def test_files_stored_early_in_an_epoch_that_a_return_to_the_checkpoint_abandons_are_deleted(tmp_path: Path) -> None:
    with Driver(tmp_path, interval=1_000, inline_threshold=0) as driver:
        run_until_nothing_waits(driver)
        reached, before = driver._snapshot(), driver.files("shared")
        driver.pass_time(999)
        early = driver.begin_epoch().early
        assert early is not None
        driver.epoch = driver.epoch.next()
        driver._write((3,))
        assert driver.version is not None
        driver._upload(early.order(TASK.slot, driver.version), None)
        left = driver.files("shared") - before
        assert left
        driver.loop.rewind()
        driver.version = reached.versions[TASK]
        driver.loop.begin_at(driver._snapshot())
        driver.checkpoint(5)
        driver.checkpoint(6)
        assert left.isdisjoint(driver.files("shared"))
        assert driver.files("shared") == named_by(driver, driver.owned.store.entry.last_id)


@pytest.mark.feature("H12")
def test_tasks_keep_the_version_of_the_latest_checkpoint_on_local_disk(tmp_path: Path) -> None:
    with Driver(tmp_path, interval="1 h") as driver:
        driver.checkpoint(1)
        saved = driver.version
        driver.run_epoch(2)
        driver.run_epoch(3)
        assert saved in driver.loop.uploads.work(empty=False)[1].keep[0]


@pytest.mark.feature("I4", "I24", "I30")
@BACKENDS
def test_a_savepoint_stores_all_state_in_its_own_folder_although_checkpoints_are_incremental(
    tmp_path: Path, backend: str
) -> None:
    with Driver(tmp_path, interval=RARELY, incremental=True, inline_threshold=0, backend=backend) as driver:
        driver.checkpoint(*range(8))
        asked = driver.loop.savepoint(str(tmp_path / "savepoints"), terminal=False, format="NATIVE")
        driver.settle()
        driver.run_epoch()
        driver.run_epoch()  # A savepoint is complete when a checkpoint of its epoch is.
        taken = StoredSnapshot.open(asked.result(30))
        assert list(verify(taken)) == []
        stored = [path for path in Path(asked.result()).rglob("*") if path.name != "_metadata"]
        assert sum(path.stat().st_size for path in stored) == taken.metadata.full_size_bytes > 8 * 4_000
        assert taken.metadata.tasks[0].backend == backend


@pytest.mark.feature("D23")
@pytest.mark.parametrize("parallel", [None, True, False])
def test_files_of_dropped_checkpoints_are_deleted_by_threads_of_their_own(
    tmp_path: Path, parallel: bool | None
) -> None:
    chosen = {} if parallel is None else {"execution.checkpointing.cleaner.parallel-mode": parallel}
    with Driver(tmp_path, interval=RARELY, options=chosen) as driver:
        deleters: dict[str, str] = {}
        delete = driver.storage.delete

        def noted(paths: Iterable[str]) -> None:
            names = list(paths)
            deleters.update(dict.fromkeys(names, threading.current_thread().name))
            delete(names)

        driver.storage.delete = noted  # type: ignore[method-assign]
        first = driver.checkpoint(1)
        driver.checkpoint(2)

        name = deleters[f"job/chk-{first}/_metadata"]
        assert name.startswith("tidegate-delete") == (parallel is not False)


def test_the_log_of_a_source_is_stored_once_and_outlives_the_checkpoint_that_stored_it(tmp_path: Path) -> None:
    with Driver(tmp_path, num_retained=1) as driver:
        log = "".join(f"line {n}\n" for n in range(10_000))
        driver.note_position(log)
        first = driver.checkpoint()
        (part,) = driver.files(f"chk-{first}") - {f"chk-{first}/_metadata"}
        driver.note_position(log + "one more line\n" * 2_000)
        second = driver.checkpoint()
        assert driver.files(f"chk-{first}") == {part}, "without its _metadata"
        third = driver.checkpoint()
        assert driver.files(f"chk-{third}") == {f"chk-{third}/_metadata"}
        assert len(driver.files(f"chk-{second}")) == 1
        full = driver.loop.request(full=True)
        driver.settle()
        driver.run_epoch()
        assert len(driver.files(f"chk-{full.result(30).id}")) == 2, "a full one shares no file"
        assert not driver.files(f"chk-{first}")
    with Driver(tmp_path, num_retained=1) as driver:
        snapshot = driver.owned.snapshot
        assert snapshot is not None
        (notes,), _ = load_notes(driver.owned.history.storage, driver.layout.root, snapshot, [Uid("rows")], False)
        assert notes.notes == {"0": (log + "one more line\n" * 2_000).encode()}
