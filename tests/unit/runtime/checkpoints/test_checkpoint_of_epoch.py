"""A checkpoint of a running job: everything as of one epoch, and nothing before storage has confirmed it. No Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.checkpoints.test_loop import WAIT_S, Place
from tests.unit.runtime.driver.epoch_kit import epoch_report
from tidegate.checkpoint.files.task_part import encode_part
from tidegate.checkpoint.metadata import CheckpointMetadata, FileList, InlineFile, StateFile, TaskState, decode
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import AttemptId, EpochId, HostId, Slot, TaskId, Term, Uid
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.driver.running_job import Epochs
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.runtime.exchange.messages import Uploaded
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.monitoring.job_metrics import JobMetrics
from tidegate.runtime.sources.query_directory import Positions
from tidegate.state.version import VersionId, VersionRef
from tidegate.storage.handle import checksum_of
from tidegate.testing.storage import FaultyStorage, StorageFault, Strike

SOURCES = (Uid("rates"), Uid("orders"))
TASKS = (TaskId(1, Slot(0)), TaskId(1, Slot(1)))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def version(number: int) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(7))


def stored(task: TaskId, number: int, checkpoint_id: int) -> TaskState:
    """What a task has uploaded of its version of an epoch: one file, and a small one that goes into the metadata."""
    of = version(number)
    file = StateFile(
        name="data",
        path=f"shared/{task}-{number}",
        size_bytes=9,
        checksum=checksum_of(b"state"),
        origin=of,
        since=checkpoint_id,
    )
    files = FileList([file] if task == TASKS[0] else [])
    return TaskState(
        task=task, key_groups=(0, 63), backend="hashmap", version=of, files=files, inline=(InlineFile("s", of, b"x"),)
    )


def uploaded(task: TaskId, number: int, checkpoint_id: int) -> tuple[TaskId, Uploaded]:
    return task, Uploaded(checkpoint_id, encode_part(stored(task, number, checkpoint_id)), None)


def finish(
    place: Place, loop: CheckpointLoop, number: int, uploads: Sequence[tuple[TaskId, Uploaded]] = (),
    tasks: Sequence[TaskId] = TASKS,
) -> None:  # fmt: skip
    """Report epoch `number`, after which the sources are at 10 × and 100 × its number."""
    epoch = EpochId(Term(1), number)
    report = epoch_report(epoch, uploads=tuple(uploads))
    at = Positions((str(10 * number), str(100 * number)), "{}")
    versions = {task: version(number) for task in tasks}
    loop.epoch_finished(report, EpochSnapshot(epoch, versions, at, place.folder / "query", Clocks()), True)


def is_done(loop: CheckpointLoop, answer: Future[object]) -> bool:
    """Whether a request is complete once the loop has seen everything that was reported."""
    loop._thread.call(lambda: None)
    return answer.done()


def metadata(place: Place) -> CheckpointMetadata:
    return decode((Path(place.newest()) / "_metadata").read_bytes())


@pytest.mark.feature("C3", "C4", "C6", "C15")
def test_a_checkpoint_has_the_positions_of_all_sources_and_the_files_of_all_tasks_of_one_epoch(place: Place) -> None:
    with place.run(sources=SOURCES) as loop:
        finish(place, loop, 2)
        answer = loop.request(awaits_output=False)
        finish(place, loop, 3, [uploaded(TASKS[0], 2, 1)])
        finish(place, loop, 4, [uploaded(TASKS[1], 2, 1)])
        answer.result(WAIT_S)
        found = metadata(place)
        assert found.epoch == EpochId(Term(1), 2)
        assert {position.uid: position.lines for position in found.positions} == {"rates": ("20",), "orders": ("200",)}
        assert list(found.tasks) == [stored(task, 2, 1) for task in TASKS]


@pytest.mark.feature("C3")
def test_an_upload_of_another_epoch_is_not_taken_for_the_one_that_the_checkpoint_awaits(place: Place) -> None:
    with place.run(sources=SOURCES) as loop:
        finish(place, loop, 2)
        answer = loop.request(awaits_output=False)
        finish(place, loop, 3, [uploaded(TASKS[0], 2, 1), uploaded(TASKS[1], 3, 1)])
        assert not is_done(loop, answer)
        finish(place, loop, 4, [uploaded(TASKS[1], 2, 1)])
        answer.result(WAIT_S)
        assert {task.version for task in metadata(place).tasks} == {version(2)}


@pytest.mark.feature("C26")
def test_the_part_of_a_task_without_state_is_complete_at_once_and_others_are_awaited(place: Place) -> None:
    with place.run(sources=SOURCES) as loop:
        finish(place, loop, 2, tasks=TASKS[:1])
        answer = loop.request(awaits_output=False)
        assert not is_done(loop, answer)
        (shown,) = loop.statistics.under_way(SYSTEM_CLOCK.now())
        assert (shown.num_acknowledged_subtasks, shown.waiting) == (1, TASKS[:1])
        finish(place, loop, 3, [uploaded(TASKS[0], 2, 1)])
        assert answer.result(WAIT_S).id == 1


@pytest.mark.feature("C7")
def test_a_checkpoint_fails_if_storage_does_not_confirm_the_position_of_a_source(place: Place) -> None:
    storage = place.storage.home = FaultyStorage(place.storage.home)
    notes = place.folder / "query" / "sources" / "1"
    notes.mkdir(parents=True)
    (notes / "0").write_text("v1\n" + 20_000 * "x")
    with place.run(sources=SOURCES) as loop:
        finish(place, loop, 2, tasks=())
        storage.script(StorageFault(Strike.FAIL_BEFORE, "put", "job/chk-1/"))
        with pytest.raises(EpochFailed, match="Scripted fault: put of 'job/chk-1/"):
            loop.request(awaits_output=False).result(WAIT_S)
        assert loop.ownership.store.entry.base is None
        assert loop.request(awaits_output=False).result(WAIT_S).id == 2
        (orders,) = [position for position in metadata(place).positions if position.uid == "orders"]
        assert [place.storage.size(f"job/{path}") for path in orders.files.objects()] == [20_003]


@pytest.mark.feature("C10")
def test_as_many_checkpoints_are_in_progress_as_the_options_allow(place: Place) -> None:
    with place.run(sources=SOURCES, interval="20 ms", max_concurrent=2) as loop:
        latest = time.monotonic() + 5
        for number in range(2, 1_000):
            finish(place, loop, number)
            time.sleep(0.01)
            if loop.statistics.counts.in_progress == 2 or time.monotonic() > latest:
                break
        newer, older = loop.statistics.under_way(SYSTEM_CLOCK.now())
        assert newer.id == older.id + 1
        assert older.epoch <= newer.epoch  # Before the first one completes, a second may take the same epoch.


@pytest.mark.feature("C1", "C16")
def test_a_job_that_starts_again_returns_to_its_latest_checkpoint_and_the_positions_in_it(place: Place) -> None:
    with place.run(keep=2, sources=SOURCES) as loop:
        for number in (2, 3):
            finish(place, loop, number, tasks=())
            loop.request(awaits_output=False).result(WAIT_S)
        finish(place, loop, 4, tasks=())
    with place.run(keep=2, sources=SOURCES) as loop:
        found = loop.ownership.restore_point()
        assert found.checkpoint_id == 2
        notes, _ = found.sources(loop.checkpointer._job, False)
        assert [source.line for source in notes] == ["30", "300"]


class Tasks:
    """Stands for the tasks of a job: an epoch with rows makes new versions, and every epoch does the uploads it is asked for."""

    def __init__(self) -> None:
        self.number, self.clocks = 1, Clocks()
        self.versions: dict[TaskId, VersionRef] = {}

    @property
    def epoch(self) -> EpochId:
        return EpochId(Term(1), self.number)

    def run_epoch(self, batch: object, *, work: Mapping[int, CheckpointWork], **more: object) -> EpochReport:
        self.number += 1
        if batch is not None:
            self.versions = {task: VersionRef(version(self.number), HostId("host")) for task in TASKS}
        asked = [(task, order) for task in TASKS for order in work[1].uploads[task.slot]]
        return epoch_report(
            self.epoch,
            uploads=tuple(uploaded(task, order.version.epoch.number, order.checkpoint_id) for task, order in asked),
        )


def running(loop: CheckpointLoop) -> Any:
    return SimpleNamespace(
        loop=loop,
        runner=Tasks(),
        at_least_once=False,
        reports=[],
        metrics=JobMetrics(()),
        progress=SimpleNamespace(epoch=lambda *given: None),
        autoscaler=None,
        events=JobEvents("job"),
        name="job",
        timeout_s=WAIT_S,
    )


@pytest.mark.feature("C1", "D2")
def test_rows_make_the_next_checkpoint_worth_taking(place: Place) -> None:
    with place.run(sources=SOURCES, interval="20 ms") as loop:
        epochs, batch, latest = Epochs(running(loop), place.folder / "query", None), object(), time.monotonic() + 20
        while loop.statistics.counts.completed < 3:
            assert time.monotonic() < latest
            epochs.run(batch, Positions(("10", "100"), "{}"))  # type: ignore[arg-type]
            time.sleep(0.01)


@pytest.mark.feature("C3", "C6", "H4")
def test_the_state_of_an_epoch_is_stored_with_the_positions_at_which_its_batch_ended(place: Place) -> None:
    with place.run(sources=SOURCES) as loop:
        batch: Any = object()
        epochs = Epochs(running(loop), place.folder / "query", None)
        for number in (2, 3):
            epochs.run(batch, Positions((str(10 * number), str(100 * number)), "{}"))
        epochs.run_until(loop, loop.request(awaits_output=False))
        found = metadata(place)
        assert {task.version for task in found.tasks} == {version(3)}
        assert {position.uid: position.lines for position in found.positions} == {"rates": ("30",), "orders": ("300",)}
