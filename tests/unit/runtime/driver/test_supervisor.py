"""What follows a failure, without Spark: the query of an attempt fails at once, or ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.driver.test_output_release import WAIT_S, Target
from tests.unit.runtime.driver.test_running_job import running
from tidegate.config.choices import JobEnd
from tidegate.config.restart_strategy import FailureRate, FixedDelay, NoRestart
from tidegate.runtime.driver import supervisor
from tidegate.runtime.driver.job_events import JobEvents
from tidegate.runtime.driver.job_metrics import JobMetrics
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.driver.supervisor import Supervisor


class FailingAttempt:
    """Its query ends with an error."""

    def __init__(self, job, lock):
        self.query, self.error, self.retired = self, None, False
        self.rewinds_before = job.loop.rewinds
        job.attempts.append(self)

    def awaitTermination(self):
        raise ConnectionError("away")

    def bring_back(self):
        pass

    def retire(self):
        self.retired = True

    def discard_directory(self):
        pass


class Loop:
    """Counts how often the job went back to its latest checkpoint."""

    broken, rewinds = None, 0
    ownership = SimpleNamespace(restore_point=lambda: SimpleNamespace(checkpoint_id=7))

    def rewind(self):
        self.rewinds += 1

    def is_owner(self):
        return True

    def keeps_checkpoints(self, end):
        return end is not JobEnd.CANCELED

    def finish(self, end):
        self.end = end


def failing_job(strategy):
    nothing = SimpleNamespace(close=lambda **_: None, release=lambda: None, end=lambda: None)
    return SimpleNamespace(
        name="job", metrics=JobMetrics(()), loop=Loop(), durability=SimpleNamespace(restart=strategy), stop=StopRequest(),
        autoscaler=None, attempts=[], is_session_dead=lambda: False, runner=nothing, committers=nothing, progress=nothing,
        events=JobEvents("job"),
    )  # fmt: skip


@pytest.mark.feature("C1", "H1", "H2", "H7", "H9", "H10")
@pytest.mark.parametrize(
    ("strategy", "restarts", "delay_s"),
    [(NoRestart(), 0, 0), (FixedDelay(2, 300), 2, 0.3), (FailureRate(1, 60_000, 300), 1, 0.3)],
)
def test_a_job_goes_back_to_its_checkpoint_as_often_as_its_strategy_says(monkeypatch, strategy, restarts, delay_s):
    monkeypatch.setattr(supervisor, "Attempt", FailingAttempt)
    job, started = failing_job(strategy), time.monotonic()
    run = Supervisor(job, 10)
    run.start()
    assert run.ended.wait(10)
    assert isinstance(run.outcome, ConnectionError)
    assert job.loop.end is JobEnd.FAILED, "the end is recorded"
    assert [failure.restarted for failure in run.failures] == [True] * restarts + [False]
    assert [attempt.rewinds_before for attempt in job.attempts] == list(range(restarts + 1))
    assert all(attempt.retired for attempt in job.attempts)
    assert time.monotonic() - started >= restarts * delay_s


def test_the_time_until_a_job_runs_again_counts_as_restarting(monkeypatch):
    monkeypatch.setattr(supervisor, "Attempt", FailingAttempt)
    job = failing_job(FixedDelay(1, 300))
    run = Supervisor(job, 10)
    run.start()
    assert run.ended.wait(10)
    assert job.metrics.statuses.total_ms()["RESTARTING"] >= 300
    assert set(job.metrics.statuses.current_ms().values()) == {0}


def test_a_job_that_is_asked_to_stop_just_before_it_starts_again_does_not_start_again(monkeypatch):
    """Whoever asked holds the query of the attempt that failed, and would never stop the next one."""
    monkeypatch.setattr(supervisor, "Attempt", FailingAttempt)
    job = failing_job(FixedDelay(5, 0))
    run = Supervisor(job, 10)
    asked, begin = job.stop.asked, run._begin

    def begin_late(prepare):
        asked.set()
        return begin(prepare)

    monkeypatch.setattr(run, "_begin", begin_late)
    run.start()
    assert run.ended.wait(10)
    assert len(job.attempts) == 1
    assert isinstance(run.outcome, ConnectionError)


class Query:
    def __init__(self, failure: Exception | None) -> None:
        self.failure = failure

    def awaitTermination(self) -> None:
        if self.failure is not None:
            raise self.failure


class Attempted:
    """As much of an `Attempt` as its supervisor asks for."""

    error: BaseException | None = None

    def __init__(self, failure: Exception | None, epochs: Any) -> None:
        self.query, self.epochs = Query(failure), epochs

    def retire(self) -> None: ...

    def discard_directory(self) -> None: ...


class Supervised(Supervisor):
    """Only its first attempt fails."""

    def __init__(self, epochs: Any) -> None:
        self.begun, self._epochs = 0, epochs
        super().__init__(epochs._job, 10)

    def _begin(self, prepare: Callable[[], None]) -> Any:
        prepare()
        self.begun += 1
        failure = ConnectionError("not today") if self.begun == 1 else None
        self.attempt: Any = Attempted(failure, self._epochs)
        return self.attempt


@pytest.mark.feature("D1", "J3")
def test_without_checkpoints_a_failure_ends_the_job(tmp_path: Path) -> None:
    epochs, _ = running(tmp_path, Target(), None, None)
    run = Supervised(epochs)
    run.start()
    assert run.ended.wait(WAIT_S)
    assert isinstance(run.outcome, ConnectionError)
    assert [failure.restarted for failure in run.failures] == [False]
    assert run.begun == 1
