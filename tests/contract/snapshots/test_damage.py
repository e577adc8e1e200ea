"""Damage on a local disk never spreads: what is read is what was written, or storage is asked; nothing damaged is uploaded."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.snapshots.hosts import GROUPS, TERM, Entries, Host, some, version
from tests.contract.state.versions import forget
from tidegate.checkpoint.metadata import TaskState
from tidegate.checkpoint.task.version_restore import HostVersions
from tidegate.checkpoint.task.version_upload import UploadOrder
from tidegate.core.errors import CorruptState
from tidegate.core.ids import HostId
from tidegate.state.backends import backend_named
from tidegate.state.changelog.chain import changes_path
from tidegate.state.disk.disk_token import note_start
from tidegate.state.disk.local_root import LocalRoot
from tidegate.state.disk.version_directory import version_path
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage, StorageError
from tidegate.testing.storage import FaultyStorage

NEWEST = version(3)
HERE = HostId("here")
HALF = (0, 3)
"""The key groups of a task of twice the parallelism."""


@dataclass
class Scene:
    """A host whose task has stored version 1, and a checkpoint of version 3: its changes, or its new files."""

    root: Path
    host: Host
    state: TaskState
    order: UploadOrder
    entries: Entries

    @property
    def local(self) -> HostVersions:
        return HostVersions(HERE, lambda _: self.host.directory)

    def files(self, of: VersionId = NEWEST) -> list[Path]:
        """Everything that the version has on disk. Its new table is first."""
        changes = changes_path(self.host.directory, of)
        found = sorted(
            version_path(self.host.directory, of).iterdir(), key=lambda file: (-file.stat().st_mtime_ns, file.name)
        )
        tables = [file for file in found if file.suffix == ".sst"]
        return [*tables, *(file for file in found if file not in tables), *([changes] if changes.exists() else [])]

    def elsewhere(self, name: str = "elsewhere") -> Host:
        return Host(self.root / name, backend_named(self.host.backend.name), self.host.storage)

    def half(self) -> Entries:
        return {key: value for key, value in self.entries.items() if HALF[0] <= key[1] <= HALF[1]}


def scene(root: Path, name: str, changelog: bool) -> Scene:
    forget()
    LocalRoot.open(root)
    note_start(root)
    backend = backend_named(f"{name}+changelog" if changelog else name)
    host = Host(root / "job" / "lineage" / "L1-S0", backend, LocalStorage(root / "storage"))
    host.build(None, version(1), some(0, 400))
    first, _ = host.upload(host.order(1, version(1)))
    host.build(version(1), version(2), some(100, 60, size=60))
    host.build(version(2), NEWEST, some(130, 300, size=70))
    order = replace(host.order(2, NEWEST, first, 1), changelog=changelog)
    state, _ = host.upload(order)
    # Not read here: blocks that are in memory hide what is on disk.
    entries = {**some(0, 400), **some(100, 60, size=60), **some(130, 300, size=70)}
    forget()
    return Scene(root, host, state, order, entries)


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[Scene]:
    """RocksDB with a changelog: the tables of version 3 are on this disk only."""
    yield scene(tmp_path, "rocksdb", changelog=True)
    forget()


def flip(path: Path, at: int | None = None, mask: int = 0x40) -> None:
    """Change one byte where the file is, as a disk does: all links show it."""
    body = bytearray(path.read_bytes())
    body[20 if at is None else at % len(body)] ^= mask
    with path.open("r+b") as file:
        file.write(body)


def lose_newest_table(path: Path) -> None:
    """Zero the header of the record in RocksDB's MANIFEST that adds the newest table: a reader takes it for the end."""
    body, at, records = path.read_bytes(), 0, []
    while at + 7 <= len(body) and (size := int.from_bytes(body[at + 4 : at + 6], "little")):
        records += [at] if size > 60 else []  # Others only count.
        at += 7 + size
    with path.open("r+b") as file:
        file.seek(records[-1])
        file.write(bytes(7))


def test_a_damaged_table_that_was_never_stored_does_not_reach_another_parallelism(changed: Scene) -> None:
    flip(changed.files()[0])
    half = changed.elsewhere("half")
    made = half.restore(changed.state, groups=HALF, complete=True, local=changed.local, target=version(4))
    assert made is not None
    half.upload(half.order(3, made))
    assert half.read(made) == changed.half()


def test_a_rescale_in_place_uploads_no_damaged_table(changed: Scene) -> None:
    flip(changed.files()[0])
    half, trusted = changed.elsewhere("half"), {changed.state.task: HERE}
    made = half.restore(
        changed.state, groups=HALF, complete=True, local=changed.local, trusted=trusted, target=version(4)
    )
    assert made is not None
    with pytest.raises(CorruptState, match=r"\.sst"):
        half.upload(half.order(3, made))
    with pytest.raises(CorruptState):
        half.backend.manifest(half.directory, made)  # The next epoch finds it, and the job returns to its checkpoint.
    again = half.restore(changed.state, groups=HALF, complete=True, local=changed.local, target=version(5))
    assert again is not None
    assert half.read(again) == changed.half()


def test_a_materialization_uploads_no_damaged_table(changed: Scene) -> None:
    flip(changed.files()[0])
    with pytest.raises(CorruptState, match=r"\.sst"):
        changed.host.upload(replace(changed.order, checkpoint_id=3, changelog=False))
    made = changed.host.restore(changed.state, target=version(4), stored=(TERM, 2))
    assert made is not None
    assert changed.host.read(made) == changed.entries


def test_a_version_that_was_never_stored_is_checked_in_a_return(changed: Scene) -> None:
    """Otherwise the job would return to it again and again."""
    flip(changed.files()[0])
    made = changed.host.restore(changed.state, target=version(4), stored=(TERM, 2))
    assert made is not None
    assert changed.host.read(made) == changed.entries


@pytest.mark.parametrize("inline", [0, 1 << 20])
def test_damaged_changes_of_one_version_are_not_stored(changed: Scene, inline: int) -> None:
    host = changed.host
    host.build(NEWEST, version(4), some(900, 5))
    flip(changes_path(host.directory, version(4)), at=-30)
    order = replace(host.order(3, version(4), changed.state, 2, inline=inline), changelog=True)
    state, _ = host.upload(order)
    made = changed.elsewhere().restore(state, target=version(5))
    assert made is not None
    assert changed.elsewhere().read(made) == {**changed.entries, **some(900, 5)}


@pytest.mark.parametrize("changelog", [True, False])
def test_a_list_of_tables_that_lost_its_end_is_found_when_it_is_opened(tmp_path: Path, changelog: bool) -> None:
    """RocksDB opens it with the list of an earlier version, and says nothing."""
    place = scene(tmp_path, "rocksdb", changelog)
    (listed,) = (path for path in place.files() if path.name.startswith("MANIFEST"))
    lose_newest_table(listed)
    with pytest.raises(CorruptState, match="MANIFEST"):
        place.host.read(NEWEST)


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("trusts_boot", [True, False])
def test_a_list_of_tables_that_lost_its_end_is_fetched_at_a_start(
    tmp_path: Path, changelog: bool, trusts_boot: bool
) -> None:
    place = scene(tmp_path, "rocksdb", changelog)
    (listed,) = (path for path in place.files() if path.name.startswith("MANIFEST"))
    lose_newest_table(listed)
    made = place.host.restore(place.state, target=version(4), stored=(TERM, 2), trusts_boot=trusts_boot)
    assert made is not None
    assert place.host.read(made) == place.entries


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("name", ["rocksdb", "hashmap"])
@pytest.mark.parametrize("groups", [GROUPS, HALF])
@pytest.mark.parametrize("release", ["this", "an earlier one"])
def test_a_damaged_name_of_the_backend_is_answered_by_fetching(
    tmp_path: Path, name: str, changelog: bool, groups: tuple[int, int], release: str
) -> None:
    place = scene(tmp_path, name, changelog)
    if release != "this":
        downgrade(place)  # No checksum tells that the manifest is damaged.
    manifest = version_path(place.host.directory, NEWEST) / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"{name}"', f'"{name[:-1]}z"'))
    target = place.host if groups == GROUPS else place.elsewhere("half")
    made = target.restore(
        place.state, groups=groups, complete=True, target=version(4), stored=(TERM, 2), local=place.local
    )
    assert made is not None
    assert target.read(made) == (place.entries if groups == GROUPS else place.half())


def test_a_damaged_origin_in_a_manifest_is_found(changed: Scene) -> None:
    """A checkpoint would refer to the file of another version."""
    manifest = version_path(changed.host.directory, NEWEST) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"origin": "1/v3-1"', '"origin": "1/v1-1"'))
    with pytest.raises(CorruptState, match=r"manifest\.json"):
        changed.host.backend.manifest(changed.host.directory, NEWEST)


@pytest.mark.parametrize("inline", [0, 1 << 20])
@pytest.mark.parametrize("name", ["rocksdb", "hashmap"])
def test_a_file_that_was_damaged_before_its_first_upload_is_not_stored(tmp_path: Path, name: str, inline: int) -> None:
    place = scene(tmp_path, name, changelog=False)
    place.host.build(NEWEST, version(4), some(500, 200))
    manifest = place.host.backend.manifest(place.host.directory, version(4))
    new = max((file for file in manifest.files if file.origin == version(4)), key=lambda file: file.size_bytes)
    flip(version_path(place.host.directory, version(4)) / new.name)
    with pytest.raises(CorruptState, match=new.name.replace(".", r"\.")):
        place.host.upload(place.host.order(3, version(4), place.state, 2, inline=inline))


def downgrade(place: Scene) -> None:
    """Give all manifests the form that releases without checksums wrote."""
    for path in place.host.directory.glob("*/v*/manifest.json"):
        body = json.loads(path.read_text())
        body["format"] = 1
        del body["checksum"]
        for file in body["files"]:
            del file["checksum"]
        path.write_text(json.dumps(body, indent=1) + "\n")


def fetched(storage: FaultyStorage) -> list[str]:
    """The files of tasks that were read from storage."""
    return [path for operation, path in storage.seen if operation.startswith("get") and "/shared/" in path]


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("name", ["rocksdb", "hashmap"])
@pytest.mark.parametrize("groups", [GROUPS, HALF])
def test_files_of_an_earlier_release_are_used_if_they_are_what_was_stored(
    tmp_path: Path, name: str, changelog: bool, groups: tuple[int, int]
) -> None:
    """Its versions have no checksums of their own, and the first start after an upgrade need not fetch all state."""
    place = scene(tmp_path, name, changelog)
    downgrade(place)
    storage = place.host.storage = FaultyStorage(place.host.storage)
    host = place.host if groups == GROUPS else place.elsewhere("half")
    made = host.restore(
        place.state, groups=groups, complete=True, target=version(4), stored=(TERM, 2), local=place.local
    )
    assert made is not None
    assert fetched(storage) == []
    assert host.read(made) == (place.entries if groups == GROUPS else place.half())
    assert host.backend.manifest(host.directory, made).is_checked
    host.upload(host.order(3, made))


@pytest.mark.parametrize("changelog", [True, False])
def test_only_a_damaged_file_is_fetched(tmp_path: Path, changelog: bool) -> None:
    place = scene(tmp_path, "rocksdb", changelog)
    tables = [file for file in place.state.files if file.name.endswith(".sst")]  # type: ignore[union-attr]
    stored = max(tables, key=lambda file: file.size_bytes)
    flip(version_path(place.host.directory, NEWEST) / stored.name)
    storage = place.host.storage = FaultyStorage(place.host.storage)
    made = place.host.restore(place.state, target=version(4), stored=(TERM, 2))
    assert made is not None
    assert fetched(storage) == [f"job/{stored.path}"]
    assert place.host.read(made) == place.entries


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, int, int]:
    return draw(st.sampled_from(["flip", "zeros", "cut"])), draw(st.integers(0, 1 << 20)), draw(st.integers(1, 255))


def damage(path: Path, how: tuple[str, int, int]) -> None:
    kind, at, mask = how
    size = path.stat().st_size
    if kind == "flip":
        flip(path, at, mask)
    elif kind == "zeros":
        with path.open("r+b") as file:
            file.seek(at % size)
            file.write(bytes(min(mask, size - at % size)))
    else:
        with path.open("r+b") as file:
            file.truncate(at % size)


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("name", ["rocksdb", "hashmap"])
@pytest.mark.parametrize("move", ["return", "start", "upgrade", "another parallelism", "in place", "materialization"])
def test_whatever_is_damaged_other_values_are_never_read_or_stored(name: str, changelog: bool, move: str) -> None:
    """Of any file of a version, its manifest and its changes, any bytes."""
    root = Path(tempfile.mkdtemp())
    original = scene(root / "original", name, changelog)
    turns = iter(range(1 << 30))

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 99), damages())
    def holds(which: int, how: tuple[str, int, int]) -> None:
        forget()
        place = replace(original, root=root / str(next(turns)))
        shutil.copytree(original.root, place.root)
        home = place.root / original.host.directory.relative_to(original.root)
        place.host = Host(home, original.host.backend, LocalStorage(place.root / "storage"))
        if move == "upgrade":
            downgrade(place)
        files = place.files()
        damage(files[which % len(files)], how)
        try:
            _live_on(place, move)
        finally:
            forget()
            shutil.rmtree(place.root)

    try:
        holds()
    finally:
        shutil.rmtree(root)


def _live_on(place: Scene, move: str) -> None:
    host, groups, expected, trusted = place.host, GROUPS, place.entries, {}
    if move == "materialization":
        try:
            state, _ = host.upload(replace(place.order, checkpoint_id=3, base=None, changelog=False))
        except CorruptState:
            return
        made = place.elsewhere().restore(state, target=version(9, term=3))
        assert made is not None
        assert place.elsewhere().read(made) == expected
        return
    if move in ("another parallelism", "in place"):
        host, groups, expected = place.elsewhere("half"), HALF, place.half()
        trusted = {place.state.task: HERE} if move == "in place" else {}
    once = host.restore(
        place.state, groups=groups, complete=True, target=version(4), stored=(TERM, 2), local=place.local,
        trusted=trusted, trusts_boot=move == "start",
    )  # fmt: skip
    assert once is not None
    try:
        assert host.read(once) == expected
    except CorruptState:
        assert move in ("start", "in place"), "checksums were compared"
    try:
        stored, _ = host.upload(host.order(4, once))
        made = place.elsewhere().restore(stored, target=version(9, term=3), groups=groups)
        assert made is not None
        assert place.elsewhere().read(made) == expected
    except StorageError as error:
        raise AssertionError("damage reached storage") from error
    except CorruptState as error:
        if "elsewhere" in str(error):
            raise AssertionError("damage reached storage") from error
        assert move in ("start", "in place"), "checksums were compared"
    forget()
    again = host.restore(
        place.state, groups=groups, complete=True, target=version(5), stored=(TERM, 2), local=place.local
    )
    assert again is not None
    assert host.read(again) == expected
