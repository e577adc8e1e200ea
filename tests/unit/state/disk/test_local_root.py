"""The root of a host's local state: where it is, whose it is, and the id it gives."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidegate.core.errors import StateError
from tidegate.core.ids import Lineage, Slot, TaskId
from tidegate.state.disk import local_root
from tidegate.state.disk.local_root import LocalRoot, local_directory


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(local_root.VARIABLE, raising=False)


@pytest.mark.feature("D31")
def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert local_directory() == Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}"
    assert local_directory("/data/state") == Path("/data/state")
    assert local_directory("~/state") == Path.home() / "state"
    monkeypatch.chdir(tmp_path)
    assert local_directory("state") == tmp_path / "state"
    monkeypatch.setenv(local_root.VARIABLE, str(tmp_path))
    assert local_directory() == local_directory("/data/state") == tmp_path


def test_the_host_id_stays_with_root_and_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = LocalRoot.open(tmp_path / "a")
    assert LocalRoot.open(tmp_path / "a") == first
    assert LocalRoot.open(tmp_path / "b").host != first.host
    monkeypatch.setattr(local_root, "boot_id", lambda: "another boot")
    assert LocalRoot.open(tmp_path / "a").host != first.host


def test_concurrent_callers_agree(tmp_path: Path) -> None:
    for turn in range(20):
        root = tmp_path / str(turn)
        with ThreadPoolExecutor(8) as pool:
            hosts = {found.host for found in pool.map(lambda _, root=root: LocalRoot.open(root), range(8))}
        assert len(hosts) == 1
        assert [path.name for path in root.iterdir()] == [".host-uuid"]


def test_a_late_writer_takes_the_existing_uuid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other process writes its UUID between our look and our link."""
    theirs = "11111111-2222-3333-4444-555555555555"
    link = os.link

    def link_too_late(source: Path, target: Path) -> None:
        target.write_text(theirs)
        link(source, target)

    monkeypatch.setattr(os, "link", link_too_late)
    assert LocalRoot.open(tmp_path).host.startswith(theirs)


def test_damage_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".host-uuid").write_text("")
    with pytest.raises(StateError, match="host-uuid should hold a UUID"):
        LocalRoot.open(tmp_path)


@pytest.mark.feature("D31")
def test_an_unusable_root_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot be used.*TIDEGATE_LOCAL_DIR"):
        LocalRoot.open(tmp_path / "file" / "below")


@pytest.mark.feature("D31")
def test_another_users_root_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(StateError, match="belongs to another user"):
        LocalRoot.open(tmp_path)


@pytest.mark.feature("A12", "F10")
def test_task_directories_never_meet(tmp_path: Path) -> None:
    root = LocalRoot.open(tmp_path)
    task = TaskId(2, Slot(7))
    assert root.task_directory("orders", Lineage("l1"), task) == tmp_path / "orders" / "l1" / "L2-S7"
    jobs = ["a/b", "a", "..", ".", "%2E%2E", "a%2Fb", "A b", ".a", "ä", ".host-uuid"]
    places = [root.task_directory(job, Lineage("l"), task) for job in jobs]
    for place in places:
        place.mkdir(parents=True)
    assert len(set(places)) == len(jobs)
    assert all(place.resolve() == place and len(place.parts) == len(tmp_path.parts) + 3 for place in places)
