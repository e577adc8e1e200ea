"""Versions that a run leaves on a host wait for the next one, and for a limited time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tidegate.core.ids import Lineage, Slot, TaskId
from tidegate.state import left_lineages
from tidegate.state.local_root import LocalRoot

JOB, LINEAGE, OTHER = "counts", Lineage("one"), Lineage("two")
TASK = TaskId(1, Slot(0))
DAY_S = 24 * 3600


@pytest.fixture
def root(tmp_path: Path) -> LocalRoot:
    made = LocalRoot.open(tmp_path)
    for lineage in (LINEAGE, OTHER):
        made.task_directory(JOB, lineage, TASK).mkdir(parents=True)
    return made


def left_ago(root: LocalRoot, lineage: Lineage, seconds: float) -> None:
    left_lineages.leave(root, JOB, lineage)
    (mark,) = (path for path in root.lineage_directory(JOB, lineage).iterdir() if path.is_file())
    then = time.time() - seconds
    os.utime(mark, (then, then))


def lineages(root: LocalRoot) -> list[str]:
    return sorted(path.name for path in root.path.glob("*/*"))


def test_what_was_left_longer_ago_is_removed(root: LocalRoot) -> None:
    left_ago(root, LINEAGE, DAY_S + 60)
    left_ago(root, OTHER, DAY_S - 60)
    left_lineages.sweep(root, DAY_S)
    assert lineages(root) == ["two"]


def test_what_no_run_has_left_stays_however_old_it_is(root: LocalRoot) -> None:
    """It may be in use: a run that waits for rows writes nothing."""
    past = time.time() - 100 * DAY_S
    for path in root.path.rglob("*"):
        os.utime(path, (past, past))
    left_lineages.sweep(root, DAY_S)
    assert lineages(root) == ["one", "two"]


def test_a_run_that_continues_takes_it_back(root: LocalRoot) -> None:
    left_ago(root, LINEAGE, 2 * DAY_S)
    left_lineages.take_back(root, JOB, LINEAGE)
    left_lineages.take_back(root, JOB, LINEAGE)
    left_lineages.sweep(root, DAY_S)
    assert lineages(root) == ["one", "two"]


def test_a_host_without_tasks_of_the_job_has_nothing_to_leave(tmp_path: Path) -> None:
    root = LocalRoot.open(tmp_path)
    left_lineages.leave(root, JOB, LINEAGE)
    left_lineages.take_back(root, JOB, LINEAGE)
    assert lineages(root) == []


def test_a_sweep_that_died_half_way_is_finished_by_the_next(root: LocalRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    left_ago(root, LINEAGE, 2 * DAY_S)
    with monkeypatch.context() as patched:
        patched.setattr(left_lineages.shutil, "rmtree", lambda *_, **__: None)
        left_lineages.sweep(root, DAY_S)
    assert not root.lineage_directory(JOB, LINEAGE).exists(), "nobody finds half of it"
    assert len(lineages(root)) == 2
    left_lineages.sweep(root, DAY_S)
    assert lineages(root) == ["two"]
