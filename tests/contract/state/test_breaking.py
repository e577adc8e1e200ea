"""A full disk, a refused write or a death harms no version that is there and completes none that is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.state import breaking
from tests.contract.state.versions import NAMES, in_fresh_process

FAILURES = {"STATE", "STATE_DISK_FULL", "CORRUPT_STATE"}


def agree(outcomes: list[tuple[int, str, str]]) -> None:
    """An attempt that says sealed left a whole version; one that failed left none."""
    for _, outcome, found in outcomes:
        assert (outcome == "sealed" and found == "whole") or (outcome in FAILURES and found == "absent"), outcomes


@pytest.mark.parametrize("name", NAMES)
def test_writes_refused_at_every_size(name: str, task: Path) -> None:
    sizes = [
        0,
        1,
        10,
        30,
        60,
        100,
        150,
        200,
        250,
        300,
        400,
        500,
        700,
        *range(1000, 10_000, 900),
        *range(10_000, 150_000, 9_000),
    ]
    outcomes = in_fresh_process(breaking.limited_file_sizes, name, task, [*sizes, 100 << 20])
    agree(outcomes)
    results = [outcome for _, outcome, _ in outcomes]
    assert results[0] in FAILURES
    assert results[-1] == "sealed"
    assert "STATE_DISK_FULL" in results


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root; test_writes_refused_at_every_size stands in")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs is not permitted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk(name: str, small_disk: Path) -> None:
    free = [*range(0, 64 << 10, 4 << 10), *range(64 << 10, 512 << 10, 32 << 10), 2 << 20]
    outcomes = in_fresh_process(breaking.full_disk, name, small_disk / "task", free)
    agree(outcomes)
    results = [outcome for _, outcome, _ in outcomes]
    assert (results[0], results[-1]) == ("STATE_DISK_FULL", "sealed")


@pytest.mark.parametrize("name", NAMES)
def test_death_at_every_step(name: str, task: Path) -> None:
    outcomes = in_fresh_process(breaking.killed_at_points, name, task)
    found = [found for _, _, found in outcomes]
    assert [outcome for _, outcome, _ in outcomes] == ["killed"] * (len(outcomes) - 1) + ["sealed"]
    assert len(outcomes) >= 4
    assert found == ["absent"] * (len(outcomes) - 2) + ["whole", "whole"], "the rename is the last step but one"
