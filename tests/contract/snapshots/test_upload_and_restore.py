"""A version goes up, comes back on another host, and is the same; whatever happened on the way."""

from __future__ import annotations

import contextlib
import resource
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.snapshots.hosts import LAYOUT, TERM, Host, key, some, version
from tidegate.checkpoint.files.file_lists import loaded_task
from tidegate.checkpoint.files.task_part import ListChange, encode_part, read_part
from tidegate.checkpoint.metadata import FileList, MetadataDamaged, StoredFileList, TaskState
from tidegate.checkpoint.task import version_upload
from tidegate.checkpoint.task.version_restore import HostVersions
from tidegate.core import faults
from tidegate.core.errors import StateError
from tidegate.core.ids import AttemptId, HostId, Slot, TaskId
from tidegate.core.storage_cost import StorageCalls
from tidegate.state.backends import backend_named
from tidegate.state.disk.disk_token import note_start
from tidegate.state.disk.local_root import LocalRoot
from tidegate.state.disk.version_directory import version_path
from tidegate.state.port import StateBackend
from tidegate.state.rocksdb.store import RocksDBStore
from tidegate.state.version import VersionId
from tidegate.storage import CorruptFile, LocalStorage, ObjectMissing, Storage

POINTS = (
    "upload.1-begun", "storage.upload.2-part-stored", "storage.upload.3-recorded", "storage.upload.4-complete", "upload.2-noted",
)  # fmt: skip


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "storage")


@pytest.fixture
def home(tmp_path: Path, backend: StateBackend, storage: Storage) -> Host:
    return Host(tmp_path / "home" / "L1-S0", backend, storage)


@pytest.fixture
def elsewhere(tmp_path: Path, backend: StateBackend, storage: Storage) -> Host:
    return Host(tmp_path / "elsewhere" / "L1-S0", backend, storage)


@pytest.fixture
def stored_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every list of files is an object of its own, however short it is."""
    monkeypatch.setattr(version_upload, "LONGEST_INSIDE_BYTES", 0)


class Interrupted(Exception):
    pass


@pytest.mark.feature("C15", "F30", "H6")
def test_a_version_comes_back_on_another_host(home: Host, elsewhere: Host) -> None:
    home.build(None, version(1), some(0, 300))
    home.build(version(1), version(2), some(250, 100), (key(0, "k00000"),))
    state, new = home.upload(home.order(1, version(2)))
    assert {found.path for found in home.storage.list("job/shared")} == set(new)
    assert elsewhere.restore(state) == version(2)
    assert elsewhere.read(version(2)) == home.read(version(2))


@pytest.mark.feature("F25", "F28", "F30", "H6", "I5")
def test_the_next_checkpoint_uploads_only_what_is_new(home: Host, elsewhere: Host) -> None:
    home.build(None, version(1), some(0, 2000))
    first, brought = home.upload(home.order(1, version(1)))
    home.build(version(1), version(2), some(2000, 20), (key(0, "k00000"),))
    second, more = home.upload(home.order(2, version(2), base=first, base_id=1))
    assert second.delta_bytes(2) < first.delta_bytes(1) / 5
    assert set(more).isdisjoint(brought)
    assert {file.name for file in second.files} == {
        f.name for f in home.backend.manifest(home.directory, version(2)).files
    }
    assert elsewhere.restore(second) == version(2)
    assert elsewhere.read(version(2)) == some(1, 2019)


@pytest.mark.feature("F25", "F28", "F32")
@pytest.mark.usefixtures("stored_lists")
def test_an_upload_reports_files_that_the_base_does_not_have(home: Host, elsewhere: Host) -> None:
    home.build(None, version(1), some(0, 2000))
    first, brought = home.upload(home.order(1, version(1)))
    home.build(version(1), version(2), some(2000, 20))
    change, second = part_of(home, home.order(2, version(2), base=first, base_id=1))
    assert isinstance(first.files, StoredFileList)
    assert isinstance(second.files, StoredFileList)
    assert objects(home, second) == (set(brought) - set(change.unreferenced)) | set(change.new)
    assert f"job/{first.files.path}" in change.unreferenced
    assert f"job/{second.files.path}" in change.new
    assert second.files.size_since(2) == second.delta_bytes(2) > 0
    assert elsewhere.restore(second) == version(2)
    assert elsewhere.read(version(2)) == some(0, 2020)


@pytest.mark.feature("F25", "F28")
@pytest.mark.usefixtures("stored_lists")
def test_an_unchanged_list_is_not_stored_again(home: Host) -> None:
    home.build(None, version(1), some(0, 300))
    first, _ = home.upload(home.order(1, version(1)))
    before = home.storage.list("job")
    change, second = part_of(home, home.order(2, version(1), base=first, base_id=1))
    assert second.files == first.files
    assert (change.new, change.unreferenced) == ((), ())
    assert home.storage.list("job") == before


@pytest.mark.feature("F28", "H6")
@pytest.mark.usefixtures("stored_lists")
def test_after_a_restore_from_a_stored_list_the_next_checkpoint_is_incremental(home: Host, elsewhere: Host) -> None:
    home.build(None, version(1), some(0, 2000))
    first, brought = home.upload(home.order(1, version(1)))
    elsewhere.restore(first)
    elsewhere.build(version(1), version(2), some(2000, 20))
    change, second = part_of(elsewhere, elsewhere.order(2, version(2), base=first, base_id=1))
    assert second.delta_bytes(2) < first.delta_bytes(1) / 5
    assert objects(home, second) == (set(brought) - set(change.unreferenced)) | set(change.new)


@pytest.mark.feature("F25", "F28", "H6")
@pytest.mark.usefixtures("stored_lists")
def test_only_the_changes_of_a_list_are_stored_also_after_a_restore(
    home: Host, elsewhere: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_upload, "DELTAS_PER_LIST", 100.0)  # These lists are short.
    home.build(None, version(1), some(0, 2000))
    first, brought = home.upload(home.order(1, version(1)))
    home.build(version(1), version(2), some(2000, 20))
    change, second = part_of(home, home.order(2, version(2), base=first, base_id=1))
    assert isinstance(first.files, StoredFileList)
    assert isinstance(second.files, StoredFileList)
    assert second.files.base == first.files.path
    assert f"job/{first.files.path}" not in change.unreferenced
    there = objects(home, second)
    assert there == (set(brought) - set(change.unreferenced)) | set(change.new)
    assert elsewhere.restore(second, stored=(TERM, 2)) == version(2)
    elsewhere.build(version(2), version(3), some(2020, 20))
    change, third = part_of(elsewhere, elsewhere.order(3, version(3), base=second, base_id=2))
    assert isinstance(third.files, StoredFileList)
    assert third.files.base == first.files.path
    assert f"job/{second.files.path}" in change.unreferenced
    assert objects(home, third) == (there - set(change.unreferenced)) | set(change.new)
    home.storage.delete(list(change.unreferenced))
    assert home.restore(third, stored=(TERM, 3)) == version(3)
    assert home.read(version(3)) == some(0, 2040)


@pytest.mark.feature("H6", "N11")
@pytest.mark.usefixtures("stored_lists")
@pytest.mark.parametrize("damage", ["missing", "changed", "another list"])
def test_a_damaged_list_is_never_used(home: Host, elsewhere: Host, damage: str) -> None:
    home.build(None, version(1), some(0, 300))
    state, _ = home.upload(home.order(1, version(1)))
    assert isinstance(state.files, StoredFileList)
    name = f"job/{state.files.path}"
    data = home.storage.get(name)
    if damage == "missing":
        home.storage.delete([name])
    else:
        home.storage.put(name, data[:-2] + b" }" if damage == "changed" else FileList().packed)
    with pytest.raises(MetadataDamaged, match="file list"):
        elsewhere.restore(state)
    with pytest.raises(TypeError):
        list(state.files)  # type: ignore[call-overload]


def part_of(host: Host, order: version_upload.UploadOrder) -> tuple[ListChange, TaskState]:
    manifest = host.backend.manifest(host.directory, order.version)
    part = host.uploader(order).run(manifest, AttemptId(5), lambda: True, lambda: None)
    assert part is not None
    return read_part(part).change, read_part(part).state


def objects(host: Host, state: TaskState) -> set[str]:
    assert isinstance(state.files, StoredFileList)
    return {f"job/{name}" for name in (*loaded_task(host.storage, "job", state).objects(), *state.files.paths)}


@pytest.mark.feature("F29")
def test_names_in_storage_contain_their_checkpoint_and_are_never_reused(home: Host, elsewhere: Host) -> None:
    """Two hosts begin from the same version and upload files of the same local names for one checkpoint, one of them twice."""
    home.build(None, version(1), some(0, 300))
    first, old = home.upload(home.order(1, version(1)))
    elsewhere.restore(first)
    for host in (home, elsewhere):
        host.build(version(1), version(2), some(0, 20))
    _, ours = home.upload(home.order(2, version(2)))
    _, theirs = elsewhere.upload(elsewhere.order(2, version(2)))
    _, again = home.upload(home.order(3, version(2)))
    new = [*ours, *theirs, *again]
    assert [LAYOUT.parse(path).number for path in (*ours, *theirs)] == [2] * len((*ours, *theirs))  # type: ignore[union-attr]
    assert [LAYOUT.parse(path).number for path in again] == [3] * len(again)  # type: ignore[union-attr]
    assert len({*old, *new}) == len(old) + len(new)


@pytest.mark.feature("F29", "I4")
def test_files_of_a_savepoint_have_names_of_their_own_in_its_folder(home: Host, elsewhere: Host) -> None:
    """Two attempts of a task upload files of the same local names."""
    home.build(None, version(1), some(0, 300))
    first, _ = home.upload(home.order(1, version(1)))
    elsewhere.restore(first)
    names = [host.upload(replace(host.order(2, version(1)), folder="savepoints/one"))[1] for host in (home, elsewhere)]
    assert all(name.startswith("savepoints/one/") for attempt in names for name in attempt)
    assert len({name for attempt in names for name in attempt}) == len(names[0]) + len(names[1]) > 1


@pytest.mark.feature("C37")
def test_an_upload_that_another_attempt_began_for_the_same_checkpoint_does_not_count(
    home: Host, elsewhere: Host
) -> None:
    """Two attempts of an epoch seal versions with files of the same names. The first has stored a part of its files, or all."""
    home.build(None, version(1), some(0, 300))
    for attempt in (1, 2):
        home.build(version(1), version(2, attempt), some(1000 * attempt, 300))
    home.upload(home.order(1, version(2, 1)))
    assert home.uploader(home.order(1, version(2, 2))).finished() is None
    state, _ = home.upload(home.order(1, version(2, 2)))
    assert state.version == version(2, 2)
    assert elsewhere.restore(state) == version(2, 2)
    assert elsewhere.read(version(2, 2)) == home.read(version(2, 2))


@pytest.mark.feature("C37")
def test_a_file_that_another_attempt_stored_partly_is_stored_again(home: Host, elsewhere: Host) -> None:
    home.build(None, version(1), some(0, 300))
    for attempt in (1, 2):
        home.build(version(1), version(2, attempt), some(1000 * attempt, 300))

    def die(reached: str, **context: object) -> None:
        if reached == "storage.upload.3-recorded":
            raise Interrupted

    faults.arm(die)
    try:
        with pytest.raises(Interrupted):
            home.upload(home.order(1, version(2, 1)))
    finally:
        faults.arm(None)
    state, _ = home.upload(home.order(1, version(2, 2)))
    assert elsewhere.restore(state) == version(2, 2)
    assert elsewhere.read(version(2, 2)) == home.read(version(2, 2))


@pytest.mark.feature("K1")
def test_an_upload_reports_its_duration(home: Host) -> None:
    home.build(None, version(1), some(0, 100))
    manifest = home.backend.manifest(home.directory, version(1))
    upload = home.uploader(home.order(1, version(1)))
    part = upload.run(manifest, AttemptId(5), lambda: True, lambda: time.sleep(0.05))
    assert part is not None
    assert read_part(part).async_ms >= 50


def test_an_upload_reports_its_requests_in_a_few_bytes(home: Host) -> None:
    home.build(None, version(1), some(0, 2000))
    upload = home.uploader(home.order(1, version(1)))
    part = upload.run(home.backend.manifest(home.directory, version(1)), AttemptId(1), lambda: True, lambda: None)
    assert part is not None
    found, told = home.storage.list("job/shared"), read_part(part)
    assert told.requests == StorageCalls(writes=len(found), written_bytes=sum(each.size_bytes for each in found))
    assert len(part) - len(encode_part(told.state, told.change, told.async_ms)) <= 8


@pytest.mark.feature("N11", "O16")
def test_the_second_checkpoint_stores_one_new_table_and_refers_to_those_of_the_first(tmp_path: Path) -> None:
    host = Host(tmp_path / "L1-S0", backend_named("rocksdb"), LocalStorage(tmp_path / "storage"))
    host.build(None, version(1), some(0, 2000))
    first, _ = host.upload(host.order(1, version(1)))
    host.build(version(1), version(2), some(0, 20))
    second, _ = host.upload(host.order(2, version(2), base=first, base_id=1))
    tables = [
        {(file.since, file.path) for file in state.files if file.name.endswith(".sst")} for state in (first, second)
    ]
    assert {since for since, _ in tables[0]} == {1}
    assert tables[0] < tables[1]
    assert [since for since, _ in tables[1] - tables[0]] == [2]


@pytest.mark.feature("F24")
def test_a_full_checkpoint_uploads_again_what_did_not_change(home: Host) -> None:
    home.build(None, version(1), some(0, 2000))
    first, brought = home.upload(home.order(1, version(1)))
    home.build(version(1), version(2), some(0, 20))
    second, more = home.upload(home.order(2, version(2)))
    assert second.delta_bytes(2) == second.size_bytes >= first.size_bytes
    assert set(more).isdisjoint(brought)


@pytest.mark.feature("F31", "N11")
def test_what_this_host_remembers_counts_only_if_it_is_what_completed(home: Host) -> None:
    home.build(None, version(1), some(0, 500))
    first, _ = home.upload(home.order(1, version(1)))
    other = TaskState(task=first.task, key_groups=first.key_groups, backend=first.backend, version=first.version)
    again, new = home.upload(home.order(2, version(1), base=other, base_id=1))
    assert again.delta_bytes(2) == again.size_bytes
    assert new


@pytest.mark.feature("F28")
def test_after_a_restore_the_next_checkpoint_is_incremental_again(home: Host, elsewhere: Host) -> None:
    home.build(None, version(1), some(0, 2000))
    state, _ = home.upload(home.order(1, version(1)))
    assert elsewhere.restore(state) == version(1)
    elsewhere.build(version(1), version(60, term=2), some(0, 10))
    after, _ = elsewhere.upload(elsewhere.order(7, version(60, term=2), base=state, base_id=1))
    assert after.delta_bytes(7) < state.size_bytes / 5


@pytest.mark.feature("C15", "D29", "H6")
def test_small_files_go_into_the_metadata_up_to_a_total(home: Host, elsewhere: Host) -> None:
    home.build(None, version(1), some(0, 10))
    state, new = home.upload(home.order(1, version(1), inline=1 << 20))
    assert (new, len(state.files)) == ((), 0)
    assert elsewhere.restore(state) == version(1)
    assert elsewhere.read(version(1)) == home.read(version(1))


@pytest.mark.feature("C24")
@pytest.mark.parametrize("point", POINTS)
def test_an_upload_that_dies_at_any_step_is_finished_by_another(home: Host, elsewhere: Host, point: str) -> None:
    home.build(None, version(1), some(0, 300))

    def die(reached: str, **context: object) -> None:
        if reached == point:
            raise Interrupted

    faults.arm(die)
    try:
        with pytest.raises(Interrupted):
            home.upload(home.order(1, version(1)))
    finally:
        faults.arm(None)
    state, new = home.upload(home.order(1, version(1)), attempt=6)
    assert {found.path for found in home.storage.list("job/shared")} == set(new)
    assert elsewhere.restore(state) == version(1)
    assert elsewhere.read(version(1)) == home.read(version(1))


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Files can be made and take a few bytes, as on a disk without space."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("inline", [0, 1 << 20])
def test_an_upload_on_a_full_disk_leaves_nothing_that_takes_space(home: Host, inline: int) -> None:
    home.build(None, version(1), some(0, 300))
    order = home.order(1, version(1), inline=inline)
    for _ in range(3):
        with full_disk(), pytest.raises(OSError, match="File too large"):
            home.upload(order)
    assert [path.name for path in (home.directory / "uploads" / "1-1").iterdir()] == ["lock"]
    home.upload(order)


def test_files_of_a_killed_process_are_removed_before_its_upload_continues(home: Host) -> None:
    home.build(None, version(1), some(0, 300))
    folder = home.directory / "uploads" / "1-1"
    folder.mkdir(parents=True)
    for name in ("part", "data.upload"):
        (folder / f"{name}.{uuid.uuid4().hex}").write_bytes(bytes(1000))
    home.upload(home.order(1, version(1), inline=1 << 20))
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "part"]


@pytest.mark.feature("C27")
def test_while_one_process_uploads_another_does_not(home: Host) -> None:
    home.build(None, version(1), some(0, 300))
    order = home.order(1, version(1))
    manifest = home.backend.manifest(home.directory, version(1))
    tried: list[bytes | None] = []

    def ask_another() -> None:
        tried.append(home.uploader(order).run(manifest, AttemptId(9), lambda: True, lambda: None))

    done = home.uploader(order).run(manifest, AttemptId(5), lambda: True, ask_another)
    assert tried
    assert set(tried) == {None}
    assert home.uploader(order).finished() == done


@pytest.mark.feature("H11")
@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_or_missing_file_is_an_error_that_names_it(home: Host, elsewhere: Host, damage: str) -> None:
    home.build(None, version(1), some(0, 300))
    state, new = home.upload(home.order(1, version(1)))
    victim = new[0]
    if damage == "gone":
        home.storage.delete([victim])
    else:
        good = home.storage.get(victim)
        home.storage.put(victim, good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(ObjectMissing if damage == "gone" else CorruptFile, match=victim.rsplit("/", 1)[1]):
        elsewhere.restore(state)
    assert not version_path(elsewhere.directory, version(1)).exists()


@pytest.mark.feature("H11", "H12", "I5")
def test_a_version_on_local_disk_is_used_instead_of_a_download(home: Host) -> None:
    home.build(None, version(1), some(0, 300))
    state, new = home.upload(home.order(1, version(1)))
    home.storage.delete(new)
    place = version_path(home.directory, version(1))
    found = place.stat().st_ino
    assert home.restore(state) == version(1)
    assert place.stat().st_ino == found, "it is used where it is: a fetch replaces it, even if it finds all files here"


@pytest.mark.feature("H11")
def test_a_local_version_with_other_content_is_not_believed(home: Host) -> None:
    home.build(None, version(1), some(0, 300))
    before = home.read(version(1))
    state, _ = home.upload(home.order(1, version(1)))
    victim = version_path(home.directory, version(1)) / max(state.files, key=lambda f: f.size_bytes).name
    victim.chmod(0o600)
    content = victim.read_bytes()
    victim.unlink()
    victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert home.restore(state) == version(1)
    assert home.read(version(1)) == before


def two_halves(tmp_path: Path, backend: StateBackend, storage: Storage) -> tuple[dict[bytes, bytes], list[TaskState]]:
    """The state of two old tasks, key groups 0–3 and 4–7, uploaded. The second is the larger one. Each also has entries that
    belong to no key, which are not in what is returned."""
    entries = some(0, 400) | some(0, 100, state=2)
    entries |= {k: v for k, v in some(1000, 400).items() if k[1] >= 4}
    own = {b"\x80\x00\x00\x07": b"list", b"\x80\x02\x00\x01": b"note"}
    states = []
    for slot, (first, last) in enumerate([(0, 3), (4, 7)]):
        host = Host(tmp_path / f"old-{slot}" / f"L1-S{slot}", backend, storage)
        host.build(None, version(3), {k: v for k, v in entries.items() if first <= k[1] <= last} | own)
        state, _ = host.upload(host.order(slot + 1, version(3)))
        states.append(
            TaskState(
                task=TaskId(1, Slot(slot)),
                key_groups=(first, last),
                backend=state.backend,
                version=state.version,
                files=state.files,
                inline=state.inline,
            )
        )
    return entries, states


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("target", [version(50, term=2), version(3)], ids=["new-name", "name-of-the-old"])
@pytest.mark.parametrize(("first", "last"), [(0, 7), (0, 1), (2, 5), (3, 6), (6, 7), (7, 7)])
@pytest.mark.feature("H13", "I3", "I36")
def test_state_is_assembled_by_key_group(
    tmp_path: Path, backend: StateBackend, storage: Storage, elsewhere: Host, first: int, last: int, target: VersionId,
    complete: bool,
) -> None:  # fmt: skip
    entries, states = two_halves(tmp_path, backend, storage)
    wanted = [s for s in states if s.key_groups[0] <= last and s.key_groups[1] >= first]
    made = elsewhere.restore(*wanted, groups=(first, last), target=target, complete=complete)
    assert made == target
    assert elsewhere.read(made) == {k: v for k, v in entries.items() if first <= k[1] <= last}
    assert not list(elsewhere.directory.glob(".restore-*"))
    origins = {file.origin for file in backend.manifest(elsewhere.directory, made).files}
    taken_over = backend.name == "rocksdb" and complete and target != version(3) and (first, last) != (7, 7)
    assert (version(3) in origins - {target}) == taken_over


class HereOnly(LocalStorage):
    """Storage that nothing may be read from."""

    def get_range(self, path: str, start: int, length: int) -> bytes:
        raise AssertionError(f"{path} was fetched")


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.feature("H12", "H13")
def test_state_is_assembled_from_versions_on_local_disk(
    tmp_path: Path, backend: StateBackend, storage: Storage, trusted: bool
) -> None:
    entries, states = two_halves(tmp_path, backend, storage)
    local = HostVersions(HostId("here"), lambda task: tmp_path / f"old-{task.slot}" / str(task))
    trusts = {state.task: HostId("here") for state in states} if trusted else {}
    host = Host(tmp_path / "new" / "L1-S0", backend, HereOnly(tmp_path / "storage"))
    made = host.restore(*states, groups=(0, 7), complete=True, local=local, trusted=trusts)
    assert made is not None
    assert host.read(made) == entries
    for state in states:
        backend.manifest(local.directory_of(state.task), state.version)  # still whole


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("damage", ["gone", "shorter", "on another host"])
@pytest.mark.feature("H11", "H12")
def test_a_version_that_is_not_whole_on_local_disk_is_fetched(
    tmp_path: Path, backend: StateBackend, storage: Storage, trusted: bool, damage: str
) -> None:
    entries, states = two_halves(tmp_path, backend, storage)
    local = HostVersions(HostId("here"), lambda task: tmp_path / f"old-{task.slot}" / str(task))
    place = version_path(local.directory_of(states[0].task), states[0].version)
    largest = place / max(states[0].files, key=lambda f: f.size_bytes).name
    if damage == "gone":
        shutil.rmtree(place)
    else:
        content = largest.read_bytes()
        largest.unlink()
        largest.write_bytes(content[:-1] if damage == "shorter" else content[:-1] + bytes([content[-1] ^ 1]))
    trusts = {state.task: HostId("here" if damage != "on another host" else "there") for state in states if trusted}
    host = Host(tmp_path / "new" / "L1-S0", backend, storage)
    made = host.restore(*states, groups=(0, 7), complete=True, local=local, trusted=trusts)
    assert made is not None
    assert host.read(made) == entries


@pytest.mark.parametrize("since", ["this boot", "an earlier boot", "an unknown boot", "no start"])
@pytest.mark.feature("H11", "H12")
def test_at_a_start_a_version_of_this_boot_is_used_without_checksums(
    tmp_path: Path, backend: StateBackend, storage: Storage, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    """A byte that was changed shows whether content was compared: storage is asked for the file, or not."""
    if since == "an unknown boot":
        monkeypatch.setattr("tidegate.state.disk.local_root._BOOT_ID", tmp_path / "none")
    root = LocalRoot.open(tmp_path)
    if since != "no start":
        note_start(root.path)
    _, states = two_halves(tmp_path, backend, storage)
    home = tmp_path / "old-0" / str(states[0].task)
    damage_largest(home, states[0])
    if since == "an earlier boot":
        (tmp_path / "boot").write_text("another")
        monkeypatch.setattr("tidegate.state.disk.local_root._BOOT_ID", tmp_path / "boot")
    host = Host(home, backend, HereOnly(tmp_path / "storage"))
    fetched = contextlib.nullcontext() if since == "this boot" else pytest.raises(AssertionError, match="was fetched")
    with fetched:
        host.restore(states[0], groups=states[0].key_groups, trusts_boot=True)


@pytest.mark.feature("H11", "H12")
def test_a_version_that_others_take_over_needs_its_checksums_at_a_start_too(
    tmp_path: Path, backend: StateBackend, storage: Storage
) -> None:
    """Their next checkpoint uploads what is on disk: a damaged file would replace the good one in storage."""
    entries, states = two_halves(tmp_path, backend, storage)
    local = HostVersions(HostId("here"), lambda task: tmp_path / f"old-{task.slot}" / str(task))
    damage_largest(local.directory_of(states[0].task), states[0])
    host = Host(tmp_path / "new" / "L1-S0", backend, storage)
    made = host.restore(*states, groups=(0, 7), complete=True, local=local, trusts_boot=True)
    assert made is not None
    assert host.read(made) == entries


def damage_largest(home: Path, state: TaskState) -> None:
    """Change a byte. The file is not that of versions that link it."""
    largest = version_path(home, state.version) / max(state.files, key=lambda f: f.size_bytes).name
    content = largest.read_bytes()
    largest.unlink()
    largest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.feature("F2", "I27")
def test_state_can_change_its_backend(tmp_path: Path, backend: StateBackend, storage: Storage) -> None:
    entries, states = two_halves(tmp_path, backend, storage)
    other = backend_named("hashmap" if backend.name == "rocksdb" else "rocksdb")
    host = Host(tmp_path / "new" / "L1-S0", other, storage)
    made = host.restore(*states)
    assert made is not None
    assert host.read(made) == entries


def test_a_download_that_fails_leaves_nothing_behind(
    tmp_path: Path, backend: StateBackend, storage: Storage, elsewhere: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, states = two_halves(tmp_path, backend, storage)

    def unreachable(*_: object) -> bytes:
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "get_range", unreachable)
        with pytest.raises(OSError, match="connection reset"):
            elsewhere.restore(*states, complete=True)
    assert not list(elsewhere.directory.glob(".restore-*"))
    assert elsewhere.restore(*states, complete=True) == version(50, term=2)


def test_a_restore_that_is_interrupted_while_it_cuts_files_closes_its_store(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of the store end it by themselves. An interrupt of the worker does not."""
    backend = backend_named("rocksdb")
    _, states = two_halves(tmp_path, backend, storage)
    stores: list[RocksDBStore] = []

    def interrupted(store: RocksDBStore, *_: bytes) -> None:
        stores.append(store)
        raise KeyboardInterrupt

    monkeypatch.setattr(RocksDBStore, "delete_range", interrupted)
    host = Host(tmp_path / "new" / "L1-S0", backend, storage)
    with pytest.raises(KeyboardInterrupt):
        host.restore(*states, complete=True)
    with pytest.raises(StateError, match="abandoned"):
        stores[0].get(key(0, "k"))


def test_what_a_dead_restore_left_is_tidied(elsewhere: Host, backend: StateBackend) -> None:
    left = elsewhere.directory / ".restore-0123456789ab"
    left.mkdir(parents=True)
    (left / "000012.sst").write_bytes(b"x")
    elsewhere.build(None, version(1), some(0, 10))
    backend.tidy(elsewhere.directory, version(1).epoch.term, [version(1)])
    assert not left.exists()
