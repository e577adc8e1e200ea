"""A version has the token of its disk only where it was written, in the memory in which it was written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tidegate.core import faults
from tidegate.state.disk import disk_token, local_root
from tidegate.state.disk.disk_token import NOTHING, note_start, token_of
from tidegate.state.disk.local_root import LocalRoot


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_memory(tmp_path / "memory", monkeypatch)


def use_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir(exist_ok=True)
    monkeypatch.setattr(disk_token, "_MEMORY", place)
    monkeypatch.setattr(disk_token, "_is_memory", lambda _: True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return LocalRoot.open(tmp_path / "disk").path


def task(root: Path) -> Path:
    return root / "job" / "lineage" / "L1-S0"


def test_without_a_start_there_is_none(root: Path) -> None:
    assert token_of(task(root)) == NOTHING
    assert token_of(root.parent / "elsewhere") == NOTHING


def test_it_stays_from_start_to_start(root: Path) -> None:
    note_start(root)
    first = token_of(task(root))
    assert first != NOTHING
    for _ in range(3):
        note_start(root)
        assert token_of(task(root)) == first


def test_every_disk_has_its_own(root: Path, tmp_path: Path) -> None:
    other = LocalRoot.open(tmp_path / "other").path
    note_start(root)
    note_start(other)
    assert token_of(task(root)) != token_of(task(other)) != NOTHING


def test_a_container_with_a_shared_volume_has_another(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers of one machine have one boot id, and each its own memory."""
    note_start(root)
    ours = token_of(task(root))
    use_memory(tmp_path / "memory of the other", monkeypatch)
    assert token_of(task(root)) == NOTHING
    note_start(root)
    assert token_of(task(root)) not in (ours, NOTHING)
    use_memory(tmp_path / "memory", monkeypatch)
    note_start(root)
    assert token_of(task(root)) != ours, "the other one has written meanwhile"


def test_a_cloned_machine_with_a_shared_volume_is_detected(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a copy of its memory, too."""
    note_start(root)
    ours = token_of(task(root))
    shutil.copytree(tmp_path / "memory", tmp_path / "clone")
    use_memory(tmp_path / "clone", monkeypatch)
    note_start(root)
    use_memory(tmp_path / "memory", monkeypatch)
    note_start(root)
    assert token_of(task(root)) not in (ours, NOTHING)


@pytest.mark.parametrize("beside", [True, False])
def test_a_copy_of_the_disk_has_none(root: Path, tmp_path: Path, beside: bool) -> None:
    note_start(root)
    shutil.copytree(root, tmp_path / "copy")  # With the times of files.
    if not beside:
        shutil.rmtree(root)
        os.rename(tmp_path / "copy", root)
    copy = tmp_path / "copy" if beside else root
    assert token_of(task(copy)) == NOTHING


def test_a_disk_that_is_rolled_back_in_place_is_detected(root: Path) -> None:
    """A snapshot of the device: every file has its inode and its times."""
    note_start(root)
    ours = token_of(task(root))
    snapshot = (root / ".last-start").read_text()
    note_start(root)
    assert token_of(task(root)) == ours
    (root / ".last-start").write_text(snapshot)
    note_start(root)
    assert token_of(task(root)) not in (ours, NOTHING)


def test_after_a_boot_there_is_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if something has kept the memory."""
    note_start(root)
    ours = token_of(task(root))
    monkeypatch.setattr(disk_token, "boot_id", lambda: "another")
    assert token_of(task(root)) == NOTHING
    note_start(root)
    assert token_of(task(root)) not in (ours, NOTHING)


@pytest.mark.parametrize("missing", ["memory", "boot id"])
def test_without_memory_or_boot_ids_nothing_is_trusted(
    root: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "memory":
        monkeypatch.setattr(disk_token, "_is_memory", lambda _: False)
    else:
        monkeypatch.setattr(disk_token, "boot_id", lambda: local_root.UNKNOWN_BOOT)
    note_start(root)
    assert token_of(task(root)) == NOTHING


def test_a_start_that_dies_before_it_has_written_to_disk_trusts_nothing_afterwards(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_start(root)
    ours = token_of(task(root))

    def die(reached: str, **_: object) -> None:
        if reached == "disk.1-in-memory":
            raise KeyboardInterrupt

    faults.arm(die)
    try:
        with pytest.raises(KeyboardInterrupt):
            note_start(root)
    finally:
        faults.arm(None)
    note_start(root)
    assert token_of(task(root)) not in (ours, NOTHING)


def test_folders_of_other_users_are_not_trusted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note_start(root)
    us = os.geteuid()
    folder = disk_token._folder()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    folder.rename(folder.with_name(f"tidegate-{us + 1}"))
    assert token_of(task(root)) == NOTHING
