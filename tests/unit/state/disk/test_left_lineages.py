"""Versions that a run leaves on a host wait for the next one, and for a limited time."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tidegate.core import processes
from tidegate.core.ids import Lineage, Slot, TaskId
from tidegate.state.disk import left_lineages
from tidegate.state.disk.local_root import LocalRoot

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


def used_ago(
    root: LocalRoot, lineage: Lineage, seconds: float, task: TaskId = TASK, *, checkpointed: bool = True
) -> Path:
    directory = root.task_directory(JOB, lineage, task)
    directory.mkdir(parents=True, exist_ok=True)
    left_lineages.note_use(directory, checkpointed=checkpointed)
    then = time.time() - seconds
    os.utime(directory / ".used", (then, then))
    return directory


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that has noted its use is gone."""
    with subprocess.Popen(["sleep", "60"]) as child:
        process = f"{processes._machine()}/{child.pid}/{processes._begun(child.pid)}"
        child.kill()
    monkeypatch.setattr(left_lineages, "parent_process", lambda: process)


@pytest.mark.usefixtures("killed")
@pytest.mark.parametrize("checkpointed", [True, False])
def test_versions_of_a_killed_run_are_removed_after_a_time(root: LocalRoot, checkpointed: bool) -> None:
    used_ago(root, LINEAGE, DAY_S + 60, checkpointed=checkpointed)
    used_ago(root, OTHER, DAY_S - 60, checkpointed=checkpointed)
    left_lineages.sweep(root, DAY_S)
    assert lineages(root) == ["two"]


@pytest.mark.usefixtures("killed")
@pytest.mark.parametrize("retention_s", [1, 3600, DAY_S, 9 * DAY_S])
@pytest.mark.parametrize("moved", [True, False])
def test_state_without_checkpoints_whose_use_is_noted_several_times_a_day_is_never_removed(
    root: LocalRoot, retention_s: float, moved: bool
) -> None:
    """Its executor was replaced, and the job waits for rows. Other jobs may tidy as soon as their options allow."""
    used = used_ago(root, LINEAGE, left_lineages.REFRESH_S + 3600, checkpointed=False)
    if moved:
        used_ago(root, LINEAGE, 10, TaskId(1, Slot(1)), checkpointed=False)
    left_lineages.sweep(root, retention_s)
    assert used.exists()


@pytest.mark.usefixtures("killed")
def test_a_run_that_is_placed_keeps_its_versions_however_old_they_are(root: LocalRoot) -> None:
    used_ago(root, LINEAGE, 9 * DAY_S)
    used_ago(root, OTHER, 9 * DAY_S)
    left_lineages.sweep_if_due(root, DAY_S, root.lineage_directory(JOB, LINEAGE))
    assert lineages(root) == ["one"]


def test_a_run_that_waits_for_rows_keeps_its_versions(root: LocalRoot) -> None:
    """Its executor lives."""
    used_ago(root, LINEAGE, 9 * DAY_S)
    left_lineages.sweep(root, DAY_S)
    assert lineages(root) == ["one", "two"]


@pytest.mark.parametrize(("checkpointed", "stays"), [(True, False), (False, True)])
def test_an_unreachable_lineage_stays_while_its_process_may_live(
    root: LocalRoot, monkeypatch: pytest.MonkeyPatch, checkpointed: bool, stays: bool
) -> None:
    """In another container, or on another machine with the same volume."""
    monkeypatch.setattr(left_lineages, "parent_process", lambda: "boot/pid:[1]/17/4711")
    used_ago(root, LINEAGE, 9 * DAY_S, checkpointed=checkpointed)
    left_lineages.sweep(root, DAY_S)
    assert root.lineage_directory(JOB, LINEAGE).exists() == stays


@pytest.mark.parametrize(("checkpointed", "stays"), [(True, False), (False, True)])
def test_versions_of_a_slot_that_moved_away_are_removed_after_a_time(
    root: LocalRoot, checkpointed: bool, stays: bool
) -> None:
    used = used_ago(root, LINEAGE, 10)
    recent = used_ago(root, LINEAGE, DAY_S - 60, TaskId(1, Slot(1)))
    moved = used_ago(root, LINEAGE, DAY_S + 60, TaskId(1, Slot(2)), checkpointed=checkpointed)
    left_lineages.sweep(root, DAY_S, root.lineage_directory(JOB, LINEAGE))
    assert (used.exists(), recent.exists(), moved.exists()) == (True, True, stays)


def test_after_a_long_wait_for_rows_no_slot_counts_as_moved_away(root: LocalRoot) -> None:
    directories = [used_ago(root, LINEAGE, 9 * DAY_S + slot, TaskId(1, Slot(slot))) for slot in range(3)]
    left_lineages.sweep(root, DAY_S, root.lineage_directory(JOB, LINEAGE))
    assert all(directory.exists() for directory in directories)


def test_after_the_clock_was_set_back_slots_in_use_do_not_count_as_moved_away(root: LocalRoot) -> None:
    """A slot that moved away before has left a note of a time that has not come yet."""
    moved = used_ago(root, LINEAGE, -2 * DAY_S, TaskId(1, Slot(3)))
    used = [used_ago(root, LINEAGE, 10 + slot, TaskId(1, Slot(slot))) for slot in range(3)]
    left_lineages.sweep(root, DAY_S, root.lineage_directory(JOB, LINEAGE))
    assert all(directory.exists() for directory in (moved, *used))


@pytest.mark.usefixtures("killed")
def test_one_task_of_a_placement_looks_for_the_others(root: LocalRoot) -> None:
    own = root.lineage_directory(JOB, OTHER)
    left_lineages.sweep_if_due(root, DAY_S, own)
    used_ago(root, LINEAGE, 9 * DAY_S)
    left_lineages.sweep_if_due(root, DAY_S, own)
    assert lineages(root) == ["one", "two"]
    os.utime(root.path / ".swept", (0, 0))
    left_lineages.sweep_if_due(root, DAY_S, own)
    assert lineages(root) == ["two"]


def test_a_sweep_that_died_half_way_is_finished_by_the_next(root: LocalRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    left_ago(root, LINEAGE, 2 * DAY_S)
    with monkeypatch.context() as patched:
        patched.setattr(left_lineages.shutil, "rmtree", lambda *_, **__: None)
        left_lineages.sweep(root, DAY_S)
    assert not root.lineage_directory(JOB, LINEAGE).exists(), "nobody finds half of it"
    assert len(lineages(root)) == 2
    left_lineages.sweep(root, DAY_S)
    assert lineages(root) == ["two"]
