"""A job whose sources are exhausted takes a last checkpoint and waits for its output. No Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.driver.test_output_release import WAIT_S, Job, Place, Target
from tidegate.core.ids import Slot
from tidegate.runtime.driver.epoch_lock import EpochLock
from tidegate.runtime.driver.running_job import Epochs
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.savepoint.snapshot import StoredSnapshot


class NoTimers:
    """The part of an epoch runner that the end of the input uses."""

    def timers_due(self) -> bool:
        return False

    def timers_pending(self) -> bool:
        return False


def supervisor_of(job: Job) -> Supervisor:
    """The supervisor of a run whose query has ended."""
    running: Any = SimpleNamespace(
        loop=job.loop, runner=NoTimers(), stop=StopRequest(), timeout_s=WAIT_S, autoscaler=None
    )
    supervisor: Any = object.__new__(Supervisor)
    supervisor._job, supervisor.lock = running, EpochLock()
    supervisor.attempt = SimpleNamespace(epochs=Epochs(running, Path(), None))
    return supervisor


@pytest.mark.feature("C52")
def test_a_job_ends_when_the_output_of_its_last_checkpoint_is_committed_and_not_before(tmp_path: Path) -> None:
    """The next checkpoint would be due in an hour."""
    target = Target()
    target.open.clear()
    with Place(tmp_path).run(out=target) as job:
        epochs = [job.epoch("out"), job.epoch("out")]
        ending = threading.Thread(target=supervisor_of(job)._conclude)
        ending.start()
        latest = time.monotonic() + 10
        while not target.calls and time.monotonic() < latest:
            time.sleep(0.01)
        ending.join(0.3)
        assert (ending.is_alive(), target.published) == (True, [])
        target.open.set()
        ending.join(WAIT_S)
        assert (ending.is_alive(), target.published) == (False, [(epoch, Slot(0)) for epoch in epochs])
        assert job.loop.statistics.latest_completed is not None
        assert job.loop.statistics.latest_completed.epoch == epochs[-1]


@pytest.mark.feature("I3", "I14")
@pytest.mark.parametrize("format", ["CANONICAL", "NATIVE"])
def test_a_job_that_is_stopped_ends_with_the_savepoint_that_was_asked_for_and_resumes_from_it(
    tmp_path: Path, format: str
) -> None:
    target, place = Target(), Place(tmp_path)
    with place.run(out=target) as job:
        epoch = job.epoch("out")
        supervisor = supervisor_of(job)
        stop = supervisor._job.stop
        stop.savepoint = (str(tmp_path / "savepoints"), format)
        stop.asked.set()
        supervisor._conclude()
        assert target.published == [(epoch, Slot(0))]
    assert supervisor.last_savepoint is not None
    assert Path(supervisor.last_savepoint).parent == tmp_path / "savepoints"
    taken = StoredSnapshot.open(supervisor.last_savepoint)
    assert (taken.format, taken.metadata.epoch) == (format, epoch)
    with place.run(out=target) as job:
        assert job.loop.ownership.restore_point().snapshot == taken.metadata


@pytest.mark.feature("J27")
@pytest.mark.parametrize("savepoint", [False, True])
def test_functions_are_told_of_the_snapshot_that_the_job_ends_with(tmp_path: Path, savepoint: bool) -> None:
    """No batch follows, so an empty epoch in which no timer fires tells them. Here the job ends without others, which uploads
    and output may need."""
    with Place(tmp_path).run(listening=frozenset({1}), out=Target()) as job:
        last, told = job.epoch("out"), []
        supervisor = supervisor_of(job)
        if savepoint:
            supervisor._job.stop.savepoint = (str(tmp_path / "savepoints"), "CANONICAL")
            supervisor._job.stop.asked.set()

        def run_empty(*, time_stands: bool) -> None:
            assert time_stands
            told.extend(job.loop.uploads.work(empty=True)[1].notices)

        def wait(loop: Any, answer: Any, timeout_s: float, time_stands: bool = False) -> bool:
            answer.result(timeout_s)
            return True

        epochs: Any = supervisor.attempt.epochs
        epochs.run_empty, epochs._run_for = run_empty, wait
        supervisor._conclude()
    assert told == [CheckpointNotice(last.as_checkpoint_id, True)]
