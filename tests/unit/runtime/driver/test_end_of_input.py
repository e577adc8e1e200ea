"""A job whose sources are exhausted takes a last checkpoint and waits for its output. No Spark."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.checkpoints.test_loop import Death, dies_at
from tests.unit.runtime.checkpoints.test_output import WAIT_S, Job, Place, Target
from tests.unit.runtime.driver.test_running_job import Runner, running
from tests.waiting import eventually
from tidegate.checkpoint.job_log.start import StartRefused
from tidegate.config.choices import JobEnd
from tidegate.core import faults
from tidegate.core.errors import EpochFailed, GraphError, PreconditionFailed
from tidegate.core.ids import Slot
from tidegate.core.times import MAX_WATERMARK
from tidegate.runtime.driver.epoch_lock import EpochLock
from tidegate.runtime.driver.running_job import Epochs, RunningJob
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.epochs.trigger import EpochTrigger
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
        loop=job.loop, runner=NoTimers(), stop=StopRequest(), timeout_s=WAIT_S, autoscaler=None, trigger=EpochTrigger()
    )
    supervisor: Any = object.__new__(Supervisor)
    supervisor._job, supervisor.lock = running, EpochLock()
    supervisor.attempt = SimpleNamespace(epochs=Epochs(running, Path(), None))
    return supervisor


@pytest.mark.feature("C52", "N33")
def test_a_job_ends_when_the_output_of_its_last_checkpoint_is_committed_and_not_before(tmp_path: Path) -> None:
    """The next checkpoint would be due in an hour."""
    target = Target()
    target.open.clear()
    with Place(tmp_path).run(out=target) as job:
        epochs = [job.epoch("out"), job.epoch("out")]
        ending = threading.Thread(target=supervisor_of(job)._conclude)
        ending.start()
        eventually(lambda: target.calls, "a commit is tried")
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
def test_functions_are_notified_of_the_snapshot_that_the_job_ends_with(tmp_path: Path, savepoint: bool) -> None:
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


class Windows(Runner):
    """Runs epochs that leave nothing, except that the end of event time closes the window that is open."""

    is_open = True

    def run_epoch(self, batch: Any, *, final: bool = False, **more: Any) -> EpochReport:
        report = super().run_epoch(batch)
        emitted = report.committables if final and self.is_open else ()
        if final:
            self.is_open, self.clocks = False, Clocks(watermark_ms=MAX_WATERMARK)
        return replace(report, committables=emitted)


class Drained:
    """A bounded run that drains, from the latest checkpoint to its end or to a crash."""

    runner: Any

    def __init__(self, folder: Path, job: Job, target: Target) -> None:
        epochs, self.runner = running(folder, target, job.loop, "EXACTLY_ONCE")
        self.runner.__class__ = Windows
        base = job.loop.ownership.restore_point().snapshot
        if base is not None and base.watermark_ms == MAX_WATERMARK:
            self.runner.is_open, self.runner.clocks = False, Clocks(watermark_ms=MAX_WATERMARK)
        epochs._job.trigger = EpochTrigger(available_now=True, drain=True)
        epochs.run(None, None)
        job.loop.request(awaits_output=False).result(WAIT_S)
        supervisor: Any = object.__new__(Supervisor)
        supervisor._job, supervisor.lock = epochs._job, EpochLock()
        supervisor.attempt = SimpleNamespace(epochs=epochs, discard_directory=lambda: None)
        supervisor.last_savepoint, supervisor.outcome = None, None
        self.supervisor = supervisor

    def end(self) -> None:
        self.supervisor._conclude()
        self.supervisor._close()


class DueTimers(Runner):
    """Runs epochs that fire the timer that is due, which emits a row. Another one is due after it, `left` in all."""

    left = 0

    def timers_due(self) -> bool:
        return self.left > 0

    timers_pending = timers_due

    def run_epoch(self, batch: Any, *, time_stands: bool = False, **more: Any) -> EpochReport:
        report = super().run_epoch(batch)
        fires = self.left > 0 and not time_stands
        self.left -= fires
        return report if fires else replace(report, committables=())


def with_due_timers(folder: Path, job: Job, target: Target, left: int) -> tuple[Supervisor, Any]:
    """Return the supervisor of a run without drain whose query has ended, and its runner."""
    epochs, runner = running(folder, target, job.loop, "EXACTLY_ONCE")
    runner.__class__ = DueTimers
    runner.left = left  # type: ignore[attr-defined]
    supervisor: Any = object.__new__(Supervisor)
    supervisor._job, supervisor.lock = epochs._job, EpochLock()
    supervisor.attempt = SimpleNamespace(epochs=epochs)
    return supervisor, runner


@pytest.mark.feature("C52", "N33")
def test_timers_that_are_due_when_the_input_ends_fire_one_after_the_other_before_the_last_checkpoint(
    tmp_path: Path,
) -> None:
    """The next checkpoint would be due in an hour. A timer of one operator may make one of the next operator due."""
    target = Target()
    with Place(tmp_path).run(out=target) as job:
        supervisor, runner = with_due_timers(tmp_path, job, target, left=3)
        supervisor._conclude()
        assert (runner.left, len(target.published)) == (0, 3)
        last = job.loop.statistics.latest_completed
        assert last is not None
        assert last.epoch >= target.published[-1][0]


@pytest.mark.feature("N33")
def test_no_timer_fires_while_the_job_waits_for_its_last_output(tmp_path: Path) -> None:
    """Its rows would belong to no checkpoint. Functions that listen, and tasks that publish, still need epochs."""
    target = Target()
    target.open.clear()
    with Place(tmp_path).run(listening=frozenset({1}), out=target) as job:
        supervisor, runner = with_due_timers(tmp_path, job, target, left=1)
        epochs = supervisor.attempt.epochs
        epochs.run_out()
        job.checkpoint()
        runner.left = 1
        run_epoch = runner.run_epoch

        def runs_and_opens(batch: Any, **more: Any) -> EpochReport:
            target.open.set()
            report: EpochReport = run_epoch(batch, **more)
            return report

        runner.run_epoch = runs_and_opens
        epochs.await_output(job.loop, "checkpoint 1")
        assert (runner.left, len(target.published)) == (1, 1)


@pytest.mark.feature("C50", "C51", "N33")
@pytest.mark.parametrize(
    ("point", "is_drained"),
    [
        ("drain.1-begun", False),
        ("drain.2-passed", False),
        ("publish.1-metadata", False),
        ("publish.2-entry", True),
        ("release.1-commit", True),
        ("end.1-entry", True),
    ],
)
def test_a_crash_during_a_drain_closes_each_window_once(tmp_path: Path, point: str, is_drained: bool) -> None:
    """Before the last checkpoint is in the log, a crash leaves one whose event time goes on; from then on, a drained one."""
    target, place = Target(), Place(tmp_path)
    with suppress(Death), place.run(out=target) as job:
        run = Drained(tmp_path, job, target)
        with dies_at(point):
            run.end()
    with ExitStack() as runs:
        if point == "end.1-entry":
            with pytest.raises(StartRefused, match="has finished"):
                runs.enter_context(place.run(out=target))
        else:
            job = runs.enter_context(place.run(out=target))
            found = job.loop.ownership.restore_point().snapshot
            assert found is not None
            assert (found.watermark_ms == MAX_WATERMARK) is is_drained
            Drained(tmp_path, job, target).end()
    assert len(target.published) == 1


@pytest.mark.feature("C50")
def test_a_stop_that_comes_after_the_drain_does_not_make_a_finished_job_a_cancelled_one(tmp_path: Path) -> None:
    """The log has the checkpoint at the end of event time. A start that continued from it would find every row late."""
    target, place = Target(), Place(tmp_path)
    with place.run(out=target) as job:
        run = Drained(tmp_path, job, target)
        target.open.clear()
        ending = threading.Thread(target=run.end)
        ending.start()
        eventually(lambda: bool(target.calls), "output of the drain")
        run.supervisor._job.stop.asked.set()
        target.open.set()
        ending.join(WAIT_S)
        assert run.supervisor._job.loop.ownership.store.entry.outcome == "FINISHED"


@pytest.mark.feature("C50", "C51")
def test_a_plain_start_of_a_drained_job_reports_that_it_has_finished(tmp_path: Path) -> None:
    target, place = Target(), Place(tmp_path)
    with place.run(out=target) as job:
        run = Drained(tmp_path, job, target)
        run.end()
        assert run.supervisor._job.loop.ownership.store.entry.outcome == "FINISHED"
    assert len(target.published) == 1
    with pytest.raises(StartRefused, match=r"has finished.*--fresh"), place.run(out=target):
        pass


@pytest.mark.feature("C50")
def test_a_stop_of_a_run_that_drains_leaves_its_windows_open(tmp_path: Path) -> None:
    """The input has not ended."""
    target, place = Target(), Place(tmp_path)
    with place.run(out=target) as job:
        run = Drained(tmp_path, job, target)
        run.supervisor._job.stop.asked.set()
        run.end()
        assert (target.published, run.runner.is_open) == ([], True)
    with place.run(out=target) as job:
        Drained(tmp_path, job, target).end()
    assert len(target.published) == 1


@pytest.mark.feature("C50")
def test_a_function_whose_timers_never_end_is_named_as_the_reason_why_the_drain_fails(tmp_path: Path) -> None:
    target = Target()
    with Place(tmp_path).run(out=target) as job:
        run = Drained(tmp_path, job, target)
        checkpoints = run.supervisor._job.durability.checkpoints
        run.supervisor._job.durability = SimpleNamespace(checkpoints=replace(checkpoints, timeout_ms=50))
        run.runner.timers_pending = lambda: True
        with pytest.raises(EpochFailed, match="sets a new one whenever one fires"):
            run.supervisor._conclude()


@pytest.mark.feature("C50")
@pytest.mark.parametrize("trigger", [None, "5 s"])
def test_a_job_without_an_end_of_its_input_cannot_be_drained_at_that_end(trigger: str | None) -> None:
    with pytest.raises(GraphError, match=r"Add trigger='available-now', or drain the running job when you stop it"):
        EpochTrigger.parse(trigger, drain=True)
    assert EpochTrigger.parse("available-now", drain=True) == EpochTrigger(available_now=True, drain=True)


@pytest.mark.parametrize(("has_drained", "ends"), [(False, JobEnd.CANCELED), (True, JobEnd.FINISHED)])
def test_a_stop_after_the_last_checkpoint_of_a_drain_does_not_let_the_next_run_continue(has_drained, ends):
    """All its rows would be late."""
    stop = StopRequest()
    stop.asked.set()
    job: Any = SimpleNamespace(stop=stop, has_drained=has_drained, trigger=SimpleNamespace(drain=True))
    assert RunningJob.graceful_end.fget(job) is ends  # type: ignore[attr-defined]


@pytest.mark.feature("C50")
@pytest.mark.parametrize("drain", [False, True])
def test_a_stop_with_a_savepoint_while_a_bounded_run_drains_is_refused_unless_it_drains_too(
    tmp_path: Path, drain: bool
) -> None:
    """A savepoint of before the drain can no longer be taken, and one after it has only late rows."""
    target, place = Target(), Place(tmp_path)
    refusals: list[str] = []
    with place.run(out=target) as job:
        run = Drained(tmp_path, job, target)
        stop = run.supervisor._job.stop

        def ask(point: str, **context: object) -> None:
            if point == "drain.1-begun":
                try:
                    stop.end_with_savepoint(str(tmp_path / "savepoints"), "CANONICAL", drain=drain)
                except PreconditionFailed as error:
                    refusals.append(str(error))

        faults.arm(ask)
        try:
            run.end()
        finally:
            faults.arm(None)
        entry = run.supervisor._job.loop.ownership.store.entry
    assert len(target.published) == 1
    if drain:
        assert refusals == []
        taken = StoredSnapshot.open(run.supervisor.last_savepoint)
        assert taken.metadata.watermark_ms == MAX_WATERMARK
    else:
        assert "The job finishes by itself" in refusals[0]
        assert (run.supervisor.last_savepoint, entry.outcome) == (None, "FINISHED")


def test_a_stop_with_a_savepoint_that_comes_before_the_drain_leaves_windows_open() -> None:
    stop = StopRequest()
    stop.end_with_savepoint(None, "CANONICAL", drain=False)
    assert not stop.begin_drain(at_end_of_input=True)
    assert stop.savepoint == (None, "CANONICAL")
