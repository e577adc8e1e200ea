"""What a worker process reports about a long epoch, and what the driver sees of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest

import tidegate as tg
from tests.unit.runtime.task.test_task import Level, barrier
from tidegate.checkpoint.files.shared import Boundary
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.ids import EpochId, Lineage, Term
from tidegate.runtime.exchange.assignment import Archive
from tidegate.runtime.exchange.progress_marks import LocalMarks, StoredMarks
from tidegate.runtime.task import run_level
from tidegate.runtime.task.progress_reporter import EpochProgress, ProgressReporter
from tidegate.state.disk.local_root import LocalRoot
from tidegate.storage import open_storage

EPOCH = EpochId(Term(3), 7)
LINEAGE = Lineage("line")


class Assigned:
    """As much of an assignment as the reporter reads."""

    job, lineage, epoch, mark_every_ms = "counts", LINEAGE, EPOCH, 10_000

    def __init__(self, local_dir: Path, archive: Archive | None = None) -> None:
        self.local_dir, self.archive = str(local_dir), archive


def marks_after(*positions: object, every_s: float = 10.0) -> list[int]:
    """Look once in every interval; return at which looks a mark was left."""
    marks: list[int] = []
    looks = iter(enumerate(positions, start=1))
    current = [(0, None)]
    progress = EpochProgress(epoch=EPOCH, every_s=every_s, leave=lambda: marks.append(current[0][0]), since_s=0.0)
    progress.running[1] = lambda: current[0][1]
    for current[0] in looks:
        progress.look(current[0][0] * every_s)
    return marks


def test_a_task_that_moves_leaves_a_mark_in_every_interval_and_one_that_waits_leaves_none():
    assert marks_after(10, 20, 20, 20, 30) == [1, 2, 5]


def test_an_epoch_that_is_shorter_than_the_interval_leaves_no_mark():
    left: list[int] = []
    progress = EpochProgress(epoch=EPOCH, every_s=10.0, leave=lambda: left.append(1), since_s=0.0)
    progress.running[1] = lambda: 5
    progress.look(9.9)
    assert left == []


def test_tasks_that_are_each_shorter_than_the_interval_leave_marks_together(tmp_path):
    clock = [0.0]
    reporter = ProgressReporter(now=lambda: clock[0])
    marks = LocalMarks.of(LocalRoot.open(tmp_path), "counts", LINEAGE, EPOCH)
    taken = []
    for attempt in range(5):
        with reporter.reporting(Assigned(tmp_path), attempt, lambda: 0):
            clock[0] += 3.0
            reporter.look()
            taken.append(marks.take())
            reporter.look()
            assert not marks.take(), "nothing has moved since"
    assert taken == [False, False, False, True, True]


@pytest.mark.parametrize("epoch_s", [1.0, 100.0])
def test_no_mark_is_left_when_the_last_task_of_an_epoch_has_ended(tmp_path, epoch_s):
    """The job may have ended, too. A mark would then change a directory that a user backs up, restores or deletes."""
    clock = [0.0]
    reporter = ProgressReporter(now=lambda: clock[0])
    with reporter.reporting(Assigned(tmp_path / "local", Archive(str(tmp_path / "store"))), 1, lambda: 0):
        clock[0] += epoch_s
    for _ in range(5):
        clock[0] += 10.0
        reporter.look()
    assert open_storage(str(tmp_path / "store")).list("") == []


@pytest.mark.parametrize("stored", [False, True])
def test_the_driver_takes_the_marks_of_the_epoch_that_it_runs_and_of_no_other(tmp_path, stored):
    storage = open_storage(f"{tmp_path}/store")
    root = LocalRoot.open(tmp_path / "local")

    def of(epoch):
        if stored:
            return StoredMarks(storage, JobLayout("counts"), epoch)
        return LocalMarks.of(root, "counts", LINEAGE, epoch)

    of(EPOCH).leave()
    assert not of(EPOCH.next()).take()
    assert of(EPOCH).take()
    assert not of(EPOCH).take(), "it is new only once"


def test_one_task_of_a_host_reports_for_all_of_them(tmp_path):
    url = str(tmp_path / "store")
    clock = [0.0]
    reporters = [ProgressReporter(now=lambda: clock[0]) for _ in range(4)]
    assigned = Assigned(tmp_path / "local", Archive(url))
    with ExitStack() as running:
        for attempt, reporter in enumerate(reporters):
            running.enter_context(reporter.reporting(assigned, attempt, lambda: 0))
        clock[0] = 60.0
        for reporter in reporters:
            reporter.look()
    assert len(open_storage(url).list("")) == 1


def test_an_unread_mark_is_swept_with_the_staged_files_of_its_epoch():
    layout = JobLayout("counts")
    path = f"{layout.progress(EPOCH)}/abc"
    boundary = Boundary(Term(3), last_id=9, pending_id=10, epoch=EPOCH)
    assert boundary.has_passed(layout, path)
    assert not Boundary(Term(3), last_id=9, pending_id=10, epoch=EpochId(Term(3), 6)).has_passed(layout, path)


class Steps(tg.KeyedProcessFunction):
    """Says at every row where its task is, as the thread that reports it would see it."""

    seen: ClassVar[list[tuple[object, object]]] = []

    def process_element(self, row, ctx):
        (progress,) = run_level.REPORTER._epochs.values()
        (position,) = progress.running.values()
        self.seen.append((position(), position()))
        yield row.k, 1


def test_every_row_is_progress_also_within_a_batch_of_one_key(tmp_path, monkeypatch):
    """A function that takes a second for a row takes hours for a batch."""
    monkeypatch.setattr(run_level, "REPORTER", ProgressReporter())
    Steps.seen.clear()
    level = Level(tmp_path, function=Steps())
    level.run(["a"] * 4, [barrier(0, 4), barrier(1, 0)], mark_every_ms=60_000)
    assert all(first == second for first, second in Steps.seen), "nothing has moved in between"
    assert len({repr(first) for first, _ in Steps.seen}) == 4
