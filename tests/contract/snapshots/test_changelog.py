"""With a changelog, a checkpoint stores what changed. Whatever happened before, a restore gives back what the task had."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.contract.snapshots.hosts import GROUPS, TERM, Entries, Host, key, some, version
from tests.contract.state.versions import forget
from tidegate.checkpoint.files.task_part import digest_of
from tidegate.checkpoint.metadata import FileList, TaskState
from tidegate.checkpoint.task import version_fetch
from tidegate.checkpoint.task.version_upload import Stored, UploadOrder
from tidegate.state.backends import backend_named
from tidegate.state.changelog.chain import changes_path, truncate
from tidegate.state.disk.version_directory import version_path
from tidegate.state.keys.entry_keys import key_group_range
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage, Storage

BACKENDS = ("hashmap", "rocksdb")
NAMES = st.sampled_from([key(group, f"k{n}") for group in (0, 3, 7) for n in range(4)])
VALUES = st.binary(max_size=8) | st.binary(min_size=200, max_size=200)


class Life(RuleBasedStateMachine):
    """One task: epochs, checkpoints with and without the changelog, materializations, lost hosts, returns."""

    name = "hashmap"

    @initialize()
    def begin(self) -> None:
        forget()
        self.root = Path(tempfile.mkdtemp())
        self.storage: Storage = LocalStorage(self.root / "storage")
        self.backend = backend_named(f"{self.name}+changelog")
        self.hosts = self.number = self.id = 0
        self.now: Entries = {}
        self.current: VersionId | None = None
        self.last: tuple[int, TaskState, Entries] | None = None
        self.storing: tuple[int, TaskState] | None = None
        self.ready: tuple[int, TaskState] | None = None
        self.move_away()

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def move_away(self) -> None:
        self.hosts += 1
        self.host = Host(self.root / f"host-{self.hosts}", self.backend, self.storage)

    @rule(puts=st.dictionaries(NAMES, VALUES, max_size=4), deletes=st.sets(NAMES, max_size=2), cut=st.booleans())
    def epoch(self, puts: Entries, deletes: set[bytes], cut: bool) -> None:
        self.number += 1
        target = version(self.number)
        store = self.host.backend.begin(self.host.directory, self.current, target, GROUPS)
        if cut:
            store.delete_range(*key_group_range(3, 3))
            self.now = {k: v for k, v in self.now.items() if not k.startswith(key(3, "")[:2])}
        store.write(puts.items(), deletes)
        store.seal()
        self.now = {k: v for k, v in {**self.now, **puts}.items() if k not in deletes}
        self.current = target

    @rule()
    def loses_an_attempt(self) -> None:
        """An attempt that is not accepted leaves its version and its changes."""
        self.number += 1
        store = self.host.backend.begin(self.host.directory, self.current, version(self.number, attempt=9), GROUPS)
        store.write([(key(0, "k0"), b"of nobody")])
        store.seal()

    def order(self, changelog: bool) -> UploadOrder:
        self.id += 1
        assert self.current is not None
        return UploadOrder(
            checkpoint_id=self.id,
            version=self.current,
            base=None if self.last is None else Stored(TERM, self.last[0], digest_of(self.last[1])),
            inline_threshold=100,
            inline_total=250,
            changelog=changelog,
            materialized=None if self.ready is None else Stored(TERM, self.ready[0], digest_of(self.ready[1])),
        )

    @precondition(lambda self: self.current is not None)
    @rule(changelog=st.booleans())
    def checkpoint(self, changelog: bool) -> None:
        order = self.order(changelog)
        state, _ = self.host.upload(order)
        if changelog and self.ready is not None:
            truncate(self.host.directory, self.ready[1].version)
        self.last, self.ready = (order.checkpoint_id, state, dict(self.now)), None

    @precondition(lambda self: self.current is not None)
    @rule()
    def materialize(self) -> None:
        order = replace(self.order(False), materialized=None)
        self.storing = order.checkpoint_id, self.host.upload(order)[0]

    @precondition(lambda self: self.storing is not None)
    @rule()
    def materialization_is_known(self) -> None:
        """Checkpoints may have been taken since it began."""
        self.ready, self.storing = self.storing, None

    @precondition(lambda self: self.last is not None)
    @rule(lost=st.booleans())
    def go_back(self, lost: bool) -> None:
        """To the last checkpoint: on this host, or on another."""
        assert self.last is not None
        if lost:
            self.move_away()
        forget()
        self.number += 1
        id, state, self.now = self.last[0], self.last[1], dict(self.last[2])
        target = version(self.number)
        self.current = self.host.restore(state, target=target, stored=(TERM, id))
        self.ready = self.storing = None

    @invariant()
    def the_version_holds_what_was_written(self) -> None:
        if self.current is not None:
            assert self.host.read(self.current) == self.now

    @precondition(lambda self: self.last is not None)
    @rule(cut=st.integers(1, 6))
    def any_host_can_restore_it(self, cut: int) -> None:
        assert self.last is not None
        _, state, wanted = self.last
        forget()
        found: Entries = {}
        for groups in ((0, cut), (cut + 1, 7)):
            place = Host(Path(tempfile.mkdtemp(dir=self.root)), backend_named(self.name), self.storage)
            made = place.restore(state, groups=groups, target=version(1, term=3), complete=True)
            found |= {} if made is None else place.read(made)
        assert found == wanted
        forget()


def first_checkpoint(name: str, folder: Path, keys: int = 500) -> tuple[Host, TaskState]:
    """A host whose task has stored its first version, and what it stored."""
    forget()
    host = Host(folder / "host", backend_named(f"{name}+changelog"), LocalStorage(folder / "storage"))
    host.build(None, version(1), some(0, keys))
    return host, host.upload(host.order(1, version(1)))[0]


@pytest.mark.feature("G8")
@pytest.mark.parametrize("name", BACKENDS)
def test_a_restore_gives_back_what_was_there(name: str) -> None:
    Life.name = name
    few = settings(max_examples=40 if name == "hashmap" else 12, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(Life, settings=few)


@pytest.mark.feature("G2", "G4", "G8")
@pytest.mark.parametrize("name", BACKENDS)
def test_a_checkpoint_uploads_what_changed_and_nothing_else(name: str, tmp_path: Path) -> None:
    host, before = first_checkpoint(name, tmp_path, keys=5_000)
    for number in range(2, 40):  # enough for compactions
        changed = some(number * 100, 100, size=60)
        host.build(version(number - 1), version(number), changed)
        order = replace(host.order(number, version(number), before, number - 1), changelog=True)
        before, new = host.upload(order)
        size = sum(len(k) + len(v) for k, v in changed.items())
        assert len(new) == 1
        assert before.delta_bytes(number) <= 1.2 * size + 200
    assert host.read(version(39)) == {**some(0, 5_000), **some(200, 3_800, size=60)}
    other = Host(tmp_path / "other", host.backend, host.storage)
    made = other.restore(before, target=version(40), stored=(TERM, 39))
    assert made is not None
    assert other.read(made) == host.read(version(39))
    other.build(made, version(41), some(9_000, 1))
    after, new = other.upload(replace(other.order(41, version(41), before, 39), changelog=True))
    assert (len(new), len(after.files)) == (1, len(before.files) + 1), "the restored files were uploaded again"


@pytest.mark.feature("I27")
@pytest.mark.parametrize("with_changelog", [False, True])
@pytest.mark.parametrize(("name", "now"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
def test_a_checkpoint_with_changes_is_restored_into_the_other_backend(
    name: str, now: str, with_changelog: bool, tmp_path: Path
) -> None:
    host, before = first_checkpoint(name, tmp_path)
    host.build(version(1), version(2), some(400, 200, size=60), deletes=(key(3, "k00003"),))
    state, _ = host.upload(replace(host.order(2, version(2), before, 1), changelog=True))
    wanted = host.read(version(2))
    assert (state.backend, len(wanted)) == (f"{name}+changelog", 599)

    backend = backend_named(f"{now}+changelog" if with_changelog else now)
    same = Host(tmp_path / "same", backend, host.storage)
    made = same.restore(state, target=version(3))
    assert made is not None
    assert same.read(made) == wanted

    half = Host(tmp_path / "half", backend, host.storage)
    cut = half.restore(state, groups=(4, 7), target=version(4), complete=True)
    assert cut is not None
    assert half.read(cut) == {k: v for k, v in wanted.items() if k >= key(4, "")[:2]}


@pytest.mark.feature("G3")
@pytest.mark.parametrize("name", BACKENDS)
def test_a_checkpoint_starts_from_the_version_that_was_stored_last(name: str, tmp_path: Path) -> None:
    host, before = first_checkpoint(name, tmp_path)
    for number in range(2, 6):
        host.build(version(number - 1), version(number), some(number, 10, size=60))
        before, _ = host.upload(replace(host.order(number, version(number), before, number - 1), changelog=True))
    whole, _ = host.upload(host.order(6, version(4), before, 5))
    host.build(version(5), version(6), some(900, 10))
    order = replace(host.order(7, version(6), before, 5), changelog=True)
    after, new = host.upload(replace(order, materialized=Stored(TERM, 6, digest_of(whole))))
    changes = [file.origin for file in after.files if file.name.endswith(".changes")]
    assert (changes, len(new)) == ([version(5), version(6)], 1), "one of the two changes since is stored already"
    truncate(host.directory, version(4))
    assert sorted(path.name for path in (host.directory / "changes").iterdir()) == ["1-v5-1.changes", "1-v6-1.changes"]
    other = Host(tmp_path / "other", host.backend, host.storage)
    made = other.restore(after, target=version(8))
    assert made is not None
    assert other.read(made) == host.read(version(6))


@pytest.mark.parametrize("name", BACKENDS)
def test_changes_of_several_epochs_are_stored_as_one_object(name: str, tmp_path: Path) -> None:
    host, before = first_checkpoint(name, tmp_path)
    for number in range(2, 12):
        host.build(version(number - 1), version(number), some(number, 10, size=60))
        if number == 4:
            whole, _ = host.upload(host.order(2, version(4), before, 1))
        if number in (6, 11):
            before, new = host.upload(replace(host.order(number, version(number), before, number - 5), changelog=True))
            assert len(new) == 1
    names = {file.name for file in before.files if file.name.endswith(".changes")}
    assert names == {"1-v6-1+5.changes", "1-v11-1+5.changes"}

    host.build(version(11), version(12), some(900, 10))
    order = replace(host.order(12, version(12), before, 11), changelog=True)
    after, new = host.upload(replace(order, materialized=Stored(TERM, 2, digest_of(whole))))
    assert len(new) == 1, "changes that are stored already were stored again"
    other = Host(tmp_path / "other", host.backend, host.storage)
    made = other.restore(after, target=version(13))
    assert made is not None
    assert other.read(made) == host.read(version(12))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_version_whose_changes_were_merged_is_used_where_it_is(name: str, tmp_path: Path) -> None:
    host, before = first_checkpoint(name, tmp_path)
    for number in (2, 3):
        host.build(version(number - 1), version(number), some(number, 10, size=60))
    after, _ = host.upload(replace(host.order(2, version(3), before, 1), changelog=True))
    forget()

    assert host.restore(after, target=version(4)) == version(3)


@pytest.mark.parametrize("name", BACKENDS)
def test_damaged_changes_are_not_merged_and_the_whole_version_is_stored(name: str, tmp_path: Path) -> None:
    host, before = first_checkpoint(name, tmp_path)
    for number in (2, 3):
        host.build(version(number - 1), version(number), some(number, 10, size=60))
    path = changes_path(host.directory, version(2))
    path.write_bytes(path.read_bytes()[:-10])

    after, _ = host.upload(replace(host.order(2, version(3), before, 1), changelog=True))

    assert not any(file.name.endswith(".changes") for file in (*after.files, *after.inline))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("damage", ["a file", "another boot"])
def test_a_version_on_local_disk_is_used_only_if_it_is_what_was_stored(
    name: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, before = first_checkpoint(name, tmp_path)
    host.build(version(1), version(2), some(900, 10))
    state, _ = host.upload(replace(host.order(2, version(2), before, 1), changelog=True))
    assert host.restore(state, target=version(3)) == version(2), "it is here and sound"
    if damage == "a file":
        first = before.files
        assert isinstance(first, FileList)
        largest = max(first, key=lambda file: file.size_bytes).name
        path = version_path(host.directory, version(2)) / largest
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[:-50] + bytes(50))
    else:
        monkeypatch.setattr(version_fetch, "boot_id", lambda: "another")
    forget()
    made = host.restore(state, target=version(4))
    assert made == version(4)
    assert host.read(made) == {**some(0, 500), **some(900, 10)}


def test_what_another_attempt_has_recorded_is_not_built_upon(tmp_path: Path) -> None:
    """Two attempts of one epoch both store their version early. No file tells them apart: all is in the metadata."""
    forget()
    host = Host(tmp_path / "host", backend_named("hashmap+changelog"), LocalStorage(tmp_path / "storage"))
    host.build(None, version(1), {key(0, "a"): b"1"})
    accepted, _ = host.upload(host.order(1, version(1), inline=1000))
    host.build(None, version(1, attempt=2), {key(0, "a"): b"2"})
    host.upload(host.order(1, version(1, attempt=2), inline=1000))
    host.build(version(1), version(2), {key(0, "b"): b"3"})
    order = replace(host.order(2, version(2), accepted, 1, inline=1000), changelog=True)
    state, _ = host.upload(order)
    other = Host(tmp_path / "other", host.backend, host.storage)
    made = other.restore(state, target=version(3))
    assert made is not None
    assert other.read(made) == {key(0, "a"): b"1", key(0, "b"): b"3"}
