"""What killed drivers leave in the directory for temporary files, and what the next start removes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tidegate.runtime.driver.attempt_directory import create_directory, remove_left_behind
from tidegate.state.disk.local_root import LocalRoot

DRIVER = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from tidegate.runtime.driver.attempt_directory import create_directory
directory = create_directory("orders") / "query" / "offsets"
directory.mkdir(parents=True)
(directory / "0").write_text("v1")
print(directory, flush=True)
time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def driver(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with an attempt's directory, and this directory."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip()).parents[1]


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_the_directory_of_a_killed_driver_is_removed_by_the_next_start_and_that_of_a_living_one_is_not(
    temporary: Path,
) -> None:
    dead, left = driver(temporary)
    living, used = driver(temporary)
    own = create_directory("orders")
    try:
        kill(dead)
        assert left.exists()
        assert remove_left_behind() == 1
        assert sorted(temporary.iterdir()) == sorted([used, own])
    finally:
        kill(living)
    assert remove_left_behind() == 1
    assert list(temporary.iterdir()) == [own]


def test_nothing_is_removed_of_which_the_owner_is_not_known(temporary: Path) -> None:
    (temporary / "tidegate-of-an-older-version").mkdir()
    (temporary / "tidegate-a-file").write_text("x")
    (temporary / "tidegate-nonsense").mkdir()
    (temporary / "tidegate-nonsense" / ".driver").write_text("what/is/this")
    before = sorted(temporary.iterdir())
    assert remove_left_behind() == 0
    assert sorted(temporary.iterdir()) == before


def test_the_state_of_all_jobs_is_not_removed_though_its_directory_has_the_same_prefix(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEGATE_LOCAL_DIR", raising=False)
    dead, left = driver(temporary)
    kill(dead)
    root = LocalRoot.open()
    assert root.path.name.startswith("tidegate-")
    (root.path / ".driver").write_text((left / ".driver").read_text())
    assert remove_left_behind() == 1
    assert (root.path / ".driver").exists()


def test_a_link_to_a_directory_is_not_followed(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    dead, left = driver(temporary)
    kill(dead)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "kept"
    left.rename(elsewhere)
    (temporary / "tidegate-link").symlink_to(elsewhere)
    assert remove_left_behind() == 0
    assert (elsewhere / "query").exists()
