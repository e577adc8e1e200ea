"""A snapshot's folder may hold symbolic links. Nothing that they lead to outside of it is read or deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tidegate as tg
from tests.unit.control.cli.test_cli import run as tidegate
from tidegate.checkpoint.completed.retained import SnapshotNotFound
from tidegate.savepoint.dispose import dispose
from tidegate.savepoint.snapshot import StoredSnapshot, location
from tidegate.storage import open_storage
from tidegate.storage.errors import InvalidPath
from tidegate.storage.routed import RoutedStorage


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A savepoint whose folder of files is a link to one of mine, which has a file of that very name and content."""
    saved = tmp_path / "sp"
    tg.SavepointWriter.new("orders").with_state("op", "s", {"k": 1}, key="user string", value=int).write(saved)
    os.rename(saved / "op", tmp_path / "mine")
    (saved / "op").symlink_to(tmp_path / "mine")
    return saved


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.feature("I21")
def test_dispose_deletes_nothing_outside_the_savepoint(trap: Path) -> None:
    mine = trap.parent / "mine"
    assert files(mine)
    with pytest.raises(InvalidPath, match="symbolic link"):
        dispose(StoredSnapshot.open(trap))
    assert tidegate("savepoint", "dispose", trap, "--yes").exit_code == 3
    assert files(mine)
    assert (trap / "_metadata").exists()


def test_state_is_not_read_from_outside_the_savepoint(trap: Path) -> None:
    told = tidegate("state", "get", trap, "op", "s", "k")
    assert (told.exit_code, "symbolic link" in told.output) == (3, True)


def test_a_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "sp").mkdir()
    (tmp_path / "sp" / "file").symlink_to(tmp_path / "outside")
    (tmp_path / "sp" / "own").write_text("its")
    (tmp_path / "sp" / "inside").symlink_to(tmp_path / "sp" / "own")
    storage = open_storage(tmp_path / "sp", confined=True)
    for read in (lambda: storage.get("file"), lambda: storage.get_range("file", 0, 1), lambda: storage.size("file")):
        with pytest.raises(InvalidPath):
            read()
    assert storage.get("inside") == b"its"
    storage.delete(["file"])
    assert (tmp_path / "outside").read_text() == "mine"


def test_a_claimed_savepoint_is_not_followed_out_of_its_folder(trap: Path, tmp_path: Path) -> None:
    """As a job deletes it that has claimed it: by absolute names, after a look at its metadata."""
    storage = RoutedStorage(open_storage(tmp_path / "ckpt"))
    storage.get(f"{trap}/_metadata")
    (name,) = [f"{trap}/{path.relative_to(trap)}" for path in (trap / "op").rglob("*") if path.is_file()]
    with pytest.raises(InvalidPath):
        storage.delete([name])
    assert files(tmp_path / "mine")


def test_a_savepoint_may_be_reached_by_a_link(tmp_path: Path) -> None:
    saved = tmp_path / "sp"
    tg.SavepointWriter.new("orders").with_state("op", "s", {"k": 1}, key="user string", value=int).write(saved)
    (tmp_path / "newest").symlink_to(saved)
    assert tidegate("state", "get", tmp_path / "newest", "op", "s", "k").exit_code == 0


@pytest.mark.parametrize("path", ["/", "//", "file:///", ""])
def test_the_root_is_not_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    saved = tmp_path / "sp"
    tg.SavepointWriter.new("orders").write(saved)
    monkeypatch.chdir(saved)
    assert tidegate("savepoint", "dispose", path, "--yes").exit_code == 3
    assert (saved / "_metadata").exists()


def test_locations_are_written_in_one_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert location("/") == "/"
    assert location("/_metadata") == "/"
    assert location(".") == location("_metadata") == location("./_metadata/") == str(tmp_path)
    assert location("s3://b/x//") == location("s3://b/x/_metadata") == "s3://b/x"
    assert location("file:///a%20b/_metadata") == "/a b"
    for nowhere in ("", "s3://", "s3:///", "file://"):
        with pytest.raises(SnapshotNotFound):
            location(nowhere)
