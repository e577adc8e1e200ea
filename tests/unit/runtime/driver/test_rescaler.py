"""A running job gets another parallelism, without Spark: what it refuses, what it leaves behind, what survives a failure."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.checkpoints.test_output import WAIT_S, Place, Target
from tests.unit.runtime.driver.test_running_job import running
from tests.waiting import eventually
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.config.restart_strategy import FixedDelay
from tidegate.core import faults
from tidegate.core.ids import Slot, TaskId, ordinal
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.driver import supervisor
from tidegate.runtime.driver.attempt import Attempt, Stopping
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.driver.rescaler import RescaleFailed, Rescaler, RescaleRefused
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.epochs.settings import Settings
from tidegate.runtime.epochs.streaming_time import StreamingTime
from tidegate.runtime.monitoring.rescale_history import (
    RescaleHistory,
    RescalePhase,
    RescaleReason,
    RescaleRequester,
    RescaleState,
)
from tidegate.testing.clock import ManualClock

STEPS = (
    "rescale.1-asked",
    "rescale.2-saved",
    "rescale.3-ended",
    "claim-again.1-read",
    "claim-again.2-won",
    "rescale.4-claimed",
    "rescale.5-restored",
)


class Query:
    lastProgress = None

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.batches: list[threading.Thread] = []

    @property
    def isActive(self) -> bool:
        return not self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()

    def awaitTermination(self) -> None:
        """As Spark's, it waits for batches that are being run."""
        assert self._stopped.wait(WAIT_S)
        for batch in self.batches:
            batch.join(WAIT_S)


class Begun(Attempt):
    """An attempt whose query waits for batches."""

    def __init__(self, job: Any, lock: Any) -> None:
        self._job, self._lock, self.error, self._retired, self._pinned = job, lock, None, False, True
        self._ends, self._streaming, self.query = deque(maxlen=2), StreamingTime(), Query()  # type: ignore[assignment]
        self.epochs, self._input_ended = job.make_epochs(), False

    def restore(self) -> None:
        job: Any = self._job
        job.began.append(job.settings.parallelism)
        refuse = job.refuses.pop(0) if job.refuses else None
        if refuse is not None:
            raise refuse
        if self._job.loop is not None:
            self._job.loop.begin_at(self.epochs.snapshot())

    def discard_directory(self) -> None: ...


class Rescaled:
    """A supervised job, whose epochs are run by the test. `refuses`: what the attempts after the first cannot start for."""

    def __init__(self, folder: Path, loop: CheckpointLoop | None, target: Target) -> None:
        epochs, self.runner = running(folder, target, loop, None if loop is None else "EXACTLY_ONCE")
        job: Any = epochs._job
        job.settings = Settings(parallelism=2, max_parallelism=128)
        job.description = SimpleNamespace(at=self._described, tasks=[])
        if loop is not None:
            job.description = loop.checkpointer._job
            job.durability = SimpleNamespace(
                restart=FixedDelay(1, 0), checkpoints=job.durability.checkpoints, recovery=job.durability.recovery
            )
        job.make_epochs = lambda: type(epochs)(job, folder / "query", None)
        job.began, job.refuses, job.is_session_dead = [], [], lambda: False
        runner: Any = self.runner
        runner.change_parallelism = lambda n: None
        runner.continue_under = lambda term, history=None: setattr(
            runner, "epoch", type(runner.epoch)(term, runner.epoch.number)
        )
        self.job, self.supervisor = job, Supervisor(job, 9)
        self.rescaler = self.supervisor.rescaler
        self.supervisor.start()

    def _described(self, parallelism: int) -> Any:
        return self.job.description

    def epoch(self) -> Any:
        return self.supervisor.attempt.run_empty_epoch().epoch

    def end(self) -> None:
        self.job.stop.cancelled = True
        self.job.stop.asked.set()
        self.supervisor.attempt.query.stop()
        assert self.supervisor.ended.wait(WAIT_S)


@pytest.fixture
def rescaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rescaled]:
    monkeypatch.setattr(supervisor, "Attempt", Begun)
    target = Target()
    with Place(tmp_path).run(out=target) as job:
        found = Rescaled(tmp_path, job.loop, target)
        found.target = target  # type: ignore[attr-defined]
        yield found
        faults.arm(None)
        found.end()


def test_a_rescale_continues_from_a_checkpoint_of_the_last_epoch_under_a_new_term(rescaled: Rescaled) -> None:
    last = rescaled.epoch()
    done = rescaled.rescaler.ask(4).result(WAIT_S)
    loop = rescaled.job.loop
    base = loop.ownership.store.entry.base
    assert (base.epoch, ordinal(loop.ownership.store.term)) == (last, ordinal(last.term) + 1)
    assert (rescaled.job.settings.parallelism, rescaled.job.description.parallelism) == (4, 4)
    assert len(loop.checkpointer._job.tasks) == 4
    assert rescaled.epoch().term == loop.ownership.store.term
    assert [span.phase for span in done.phases] == list(RescalePhase)
    assert done.state is RescaleState.COMPLETED
    assert (rescaled.supervisor.restarts, rescaled.supervisor.status) == (0, "RUNNING")


def test_an_epoch_that_ends_after_the_first_checkpoint_is_part_of_the_second(rescaled: Rescaled) -> None:
    rescaled.epoch()
    last: list[Any] = []
    rescaled.job.rescale_waits = SimpleNamespace(set=lambda: last.append(rescaled.epoch()), clear=lambda: None)
    rescaled.rescaler.ask(4).result(WAIT_S)
    assert rescaled.job.loop.ownership.store.entry.base.epoch == last[0]


def test_no_epoch_runs_between_the_checkpoint_and_the_next_attempt(rescaled: Rescaled) -> None:
    rescaled.epoch()
    takes_epochs: list[bool] = []

    def reached(point: str, **context: Any) -> None:
        if point == "rescale.3-ended":
            takes_epochs.append(rescaled.supervisor.attempt._is_running())

    faults.arm(reached)
    rescaled.rescaler.ask(4).result(WAIT_S)
    assert takes_epochs == [False]


def test_a_checkpoint_that_contains_everything_is_used_as_it_is(rescaled: Rescaled) -> None:
    rescaled.epoch()
    rescaled.rescaler.ask(4).result(WAIT_S)
    published = rescaled.job.loop.statistics.counts.completed
    rescaled.rescaler.ask(1).result(WAIT_S)
    assert rescaled.job.loop.statistics.counts.completed == published + 1, "the one before the pause"


def test_output_that_waits_for_a_sink_is_committed_once_and_in_order(rescaled: Rescaled) -> None:
    target: Target = rescaled.target  # type: ignore[attr-defined]
    target.error = OSError("away")
    epochs = [rescaled.epoch()]
    for parallelism in (4, 1, 3):
        rescaled.rescaler.ask(parallelism).result(WAIT_S)
        epochs.append(rescaled.epoch())
    target.error = None
    rescaled.job.loop.request().result(WAIT_S)
    assert target.published == [(epoch, Slot(0)) for epoch in epochs]


@pytest.mark.parametrize(
    ("parallelism", "why"),
    [(0, "at least one slot"), (-3, "at least one slot"), (129, "above max parallelism 128"), (4, "Another rescale")],
)
def test_what_is_impossible_is_refused_with_a_reason(rescaled: Rescaled, parallelism: int, why: str) -> None:
    go = threading.Event()
    faults.arm(lambda point, **context: go.wait(WAIT_S) if point == "rescale.1-asked" else None)
    first = rescaled.rescaler.ask(3) if "Another" in why else None
    with pytest.raises(RescaleRefused, match=why):
        rescaled.rescaler.ask(parallelism)
    go.set()
    assert first is None or first.result(WAIT_S).new_parallelism == 3


def test_a_job_that_stops_has_failed_or_has_no_checkpoints_is_not_rescaled(
    rescaled: Rescaled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescaled.supervisor.attempt.error = OSError("disk full")
    with pytest.raises(RescaleRefused, match="after a failure"):
        rescaled.rescaler.ask(3)
    rescaled.supervisor.attempt.error = None
    rescaled.end()
    with pytest.raises(RescaleRefused, match="not running"):
        rescaled.rescaler.ask(3)
    without = Rescaled(tmp_path, None, Target())
    with pytest.raises(RescaleRefused, match="without checkpoints"):
        without.rescaler.ask(3)
    without.end()


def test_the_parallelism_that_a_job_has_is_no_rescale(rescaled: Rescaled) -> None:
    term = rescaled.epoch().term
    ignored = rescaled.rescaler.ask(2).result(WAIT_S)
    assert (ignored.state, ignored.reason) == (RescaleState.IGNORED, RescaleReason.NO_CHANGE)
    assert rescaled.epoch().term == term


def _once(point: str, error: Exception) -> Callable[..., None]:
    left = [error]

    def reached(at: str, **context: Any) -> None:
        if at == point and left:
            raise left.pop()

    return reached


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_at_any_step_leaves_the_job_running_with_all_its_output(rescaled: Rescaled, step: str) -> None:
    """Before the attempt has ended, at its old parallelism as if nothing had been asked; after it, at the old one again."""
    epochs = [rescaled.epoch()]
    faults.arm(_once(step, ConnectionError("not today")))
    with pytest.raises(RescaleFailed, match="keeps parallelism 2"):
        rescaled.rescaler.ask(4).result(WAIT_S)
    faults.arm(None)
    restarts = int(
        step in ("rescale.2-saved", "rescale.3-ended")
    )  # The driver itself fails: the restart strategy decides.
    eventually(
        lambda: (rescaled.supervisor.status, rescaled.supervisor.restarts) == ("RUNNING", restarts), timeout_s=WAIT_S
    )
    assert (rescaled.job.settings.parallelism, rescaled.job.description.parallelism) == (2, 2)
    epochs.append(rescaled.epoch())
    assert rescaled.rescaler.ask(3).result(WAIT_S).state is RescaleState.COMPLETED
    epochs.append(rescaled.epoch())
    rescaled.job.loop.request().result(WAIT_S)
    assert rescaled.target.published == [(epoch, Slot(0)) for epoch in epochs]  # type: ignore[attr-defined]


def test_if_the_new_tasks_cannot_start_the_job_continues_with_the_old_parallelism(rescaled: Rescaled) -> None:
    last = rescaled.epoch()
    rescaled.job.refuses += [ConnectionError("no place")]
    with pytest.raises(RescaleFailed, match="no place"):
        rescaled.rescaler.ask(4).result(WAIT_S)
    assert rescaled.job.began == [2, 4, 2]
    assert rescaled.job.settings.parallelism == 2
    assert rescaled.job.loop.ownership.store.entry.base.epoch == last
    assert [each.state for each in rescaled.rescaler.history.rescales] == [RescaleState.FAILED]


def test_if_no_tasks_can_start_the_restart_strategy_decides(rescaled: Rescaled) -> None:
    rescaled.epoch()
    rescaled.job.refuses += [ConnectionError("no place"), ConnectionError("still none")]
    with pytest.raises(RescaleFailed, match="no place"):
        rescaled.rescaler.ask(4).result(WAIT_S)
    eventually(lambda: rescaled.supervisor.restarts == 1)
    assert rescaled.job.began == [2, 4, 2, 2]
    assert [failure.message for failure in rescaled.supervisor.failures] == ["still none"]


def test_a_checkpoint_that_fails_lets_the_job_continue_as_it_was(rescaled: Rescaled) -> None:
    rescaled.epoch()
    attempt = rescaled.supervisor.attempt
    rescaled.job.rescale_waits = SimpleNamespace(set=rescaled.epoch, clear=lambda: None)
    attempt.epochs.take_last_checkpoint = lambda loop: OSError("no storage")  # type: ignore[method-assign]
    with pytest.raises(RescaleFailed, match="no storage"):
        rescaled.rescaler.ask(4).result(WAIT_S)
    assert rescaled.supervisor.attempt is attempt
    rescaled.epoch()


def test_a_stop_takes_precedence_over_a_rescale(rescaled: Rescaled) -> None:
    rescaled.epoch()
    stop = rescaled.job.stop
    faults.arm(lambda point, **context: stop.asked.set() if point == "rescale.2-saved" else None)
    with pytest.raises(RescaleFailed, match="the job stops"):
        rescaled.rescaler.ask(4).result(WAIT_S)
    assert rescaled.supervisor.ended.wait(WAIT_S)
    assert rescaled.supervisor.outcome is None
    assert rescaled.job.began == [2]


def test_a_rescale_interrupts_a_batch_that_waits_for_a_sink(rescaled: Rescaled) -> None:
    attempt, loop = rescaled.supervisor.attempt, rescaled.job.loop
    rescaled.epoch()
    held: Any = SimpleNamespace(sink="out")
    loop.held_by = lambda: held

    def batch() -> None:
        with contextlib.suppress(Stopping), attempt._epoch():
            attempt._hold_for_output(loop)

    waiting = threading.Thread(target=batch)
    attempt.query.batches.append(waiting)  # type: ignore[attr-defined]
    waiting.start()
    eventually(lambda: rescaled.job.held_by is held)
    assert rescaled.rescaler.ask(4).result(WAIT_S).state is RescaleState.COMPLETED
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_metrics_forget_the_tasks_of_slots_that_are_gone(rescaled: Rescaled) -> None:
    metrics = rescaled.job.metrics
    metrics._tasks = {TaskId(level, Slot(slot)): object() for level in (0, 1) for slot in range(3)}
    rescaled.job.change_parallelism(1)
    assert [str(task) for task in metrics._tasks] == ["L0-S0", "L0-S1", "L0-S2", "L1-S0"]


def test_a_rescale_history_has_the_pause_without_batches() -> None:
    clock = ManualClock()
    history = RescaleHistory(clock=clock)
    history.begin(2, 4)
    for phase, ms in zip(RescalePhase, (500, 70, 30)):
        history.enter(phase)
        clock.advance(ms)
    done = history.end(RescaleReason.SUCCEEDED)
    assert (done.duration_ms, done.pause_ms, done.number) == (600, 100, 1)
    assert history.rescales == (done,)
    assert history.begin(4, 2).number == 2
    assert history.rescales[0].state is RescaleState.IN_PROGRESS


def test_a_rescale_that_the_autoscaler_asked_for_is_recorded_as_its_own(rescaled: Rescaled) -> None:
    scaler = Autoscaler("job", AutoscalerConfig(enabled=True, scaling_enabled=True), 128)
    rescaled.job.autoscaler = scaler
    rescaler = Rescaler(rescaled.job, rescaled.supervisor.lock, lambda: rescaled.supervisor.attempt)
    rescaled.supervisor.rescaler = rescaler
    assert scaler._rescale is not None
    done = scaler._rescale(4).result(WAIT_S)
    assert (done.requested_by, done.state) == (RescaleRequester.AUTOSCALER, RescaleState.COMPLETED)
    assert rescaler.ask(2).result(WAIT_S).requested_by is RescaleRequester.USER


def test_an_autoscaler_cannot_act_on_a_job_without_checkpoints() -> None:
    scaler = Autoscaler("job", AutoscalerConfig(enabled=True, scaling_enabled=True), 128)
    job: Any = SimpleNamespace(autoscaler=scaler, loop=None)
    nobody: Any = None
    Rescaler(job, nobody, nobody)
    assert scaler._rescale is None
