"""What follows a failure, without Spark: the query of an attempt fails at once, or ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.checkpoints.test_output import WAIT_S, Place, Target
from tests.unit.runtime.driver.test_running_job import Runner, running
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.config.choices import JobEnd
from tidegate.config.restart_strategy import FailureRate, FixedDelay, NoRestart
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.errors import EpochFailed, GraphError, RestoreError
from tidegate.core.ids import EpochId, Term, ordinal
from tidegate.runtime.driver import failure_response, supervisor
from tidegate.runtime.driver.failure_response import FailureResponse
from tidegate.runtime.driver.interrupts import interrupts_wait
from tidegate.runtime.driver.running_job import Epochs
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.monitoring.job_metrics import JobMetrics


class FailingAttempt:
    """Its query ends with an error."""

    def __init__(self, job, lock):
        self.query, self.error, self.retired = self, None, False
        self.rewinds_before = job.loop.rewinds
        job.attempts.append(self)

    def awaitTermination(self):
        raise ConnectionError("away")

    def restore(self):
        pass

    def retire(self):
        self.retired = True

    def discard_directory(self):
        pass


class Loop:
    """Counts how often the job went back to its latest checkpoint."""

    broken, rewinds = None, 0
    ownership = SimpleNamespace(restore_point=lambda: SimpleNamespace(checkpoint_id=7), claim_lost=lambda: None)

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
    assert run.ended.wait(60)
    assert isinstance(run.outcome, ConnectionError)
    assert job.loop.end is JobEnd.FAILED, "the end is recorded"
    assert [failure.restarted for failure in run.failures] == [True] * restarts + [False]
    assert [attempt.rewinds_before for attempt in job.attempts] == list(range(restarts + 1))
    assert all(attempt.retired for attempt in job.attempts)
    assert time.monotonic() - started >= restarts * delay_s


@pytest.mark.feature("H10")
def test_failures_count_together_only_within_the_interval_whatever_the_wall_clock_says(monkeypatch):
    now = Instant(MonotonicMs(0), WallMs(0))
    monkeypatch.setattr(failure_response, "SYSTEM_CLOCK", SimpleNamespace(now=lambda: now))
    response = FailureResponse(failing_job(FailureRate(1, 60_000, 0)), 10)
    for at_ms in (5_000, 66_000, 127_000):
        now = replace(now, monotonic_ms=MonotonicMs(at_ms))
        response.await_restart(ConnectionError("away"))
    now = Instant(MonotonicMs(130_000), WallMs(10_000_000))
    with pytest.raises(ConnectionError):
        response.await_restart(ConnectionError("away"))
    assert [failure.restarted for failure in response.failures] == [True, True, True, False]


def test_the_time_until_a_job_runs_again_counts_as_restarting(monkeypatch):
    monkeypatch.setattr(supervisor, "Attempt", FailingAttempt)
    job = failing_job(FixedDelay(1, 300))
    run = Supervisor(job, 10)
    run.start()
    assert run.ended.wait(60)
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
    assert run.ended.wait(60)
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


class ReclaimedRunner(Runner):
    def continue_under(self, term: Term, *more: object) -> None:
        self.epoch = EpochId(term, 1)


class Reclaimed(Supervised):
    """Its first attempt ends because no checkpoint can be written any more; each attempt has epochs of its own."""

    def _begin(self, prepare: Callable[[], None]) -> Any:
        prepare()
        self.begun += 1
        failure = ConnectionError("not today") if self.begun == 1 else None
        epochs = Epochs(self._epochs._job, self._epochs.directory, None)
        if self.begun > 1:
            assert epochs.loop is not None
            epochs.loop.begin_at(epochs.snapshot())
        self.attempt = Attempted(failure, epochs)
        return self.attempt


@pytest.mark.feature("H1")
def test_a_job_whose_term_broke_is_claimed_again_and_ends_with_a_checkpoint(tmp_path: Path) -> None:
    """The thread that writes checkpoints is gone. Without a new claim, the job would run on and never take another one."""
    target = Target()
    with Place(tmp_path).run(out=target) as first:
        epochs, runner = running(tmp_path, target, first.loop, "EXACTLY_ONCE")
        job = epochs._job
        runner.__class__ = ReclaimedRunner
        job.is_session_dead = lambda: False  # type: ignore[method-assign]
        job.description = first.loop.checkpointer._job
        durability = job.durability
        assert durability is not None
        job.durability = replace(durability, restart=FixedDelay(3, 0))
        epochs.run(None, None)
        first.loop.ownership.fail(OSError("the outcome of a write is unknown"))

        run = Reclaimed(epochs)
        run.start()
        assert run.ended.wait(WAIT_S)

        assert run.outcome is None
        assert [failure.restarted for failure in run.failures] == [True]
        assert job.loop is not first.loop
        assert job.loop is not None
        assert job.loop.ownership.store.entry.base is not None, "the job has ended with a checkpoint of the new term"
        assert ordinal(job.loop.ownership.store.entry.base.term) == 2


class SlowToStart(FailingAttempt):
    """Spark provides what it needs at the third time."""

    def restore(self):
        if len(self.job.attempts) < 3:
            raise EpochFailed("Spark has not started the tasks of the job")

    def __init__(self, job, lock):
        super().__init__(job, lock)
        self.job = job

    def stop(self):
        pass


def test_a_first_start_that_spark_does_not_serve_is_tried_again_as_the_restart_strategy_says(monkeypatch):
    monkeypatch.setattr(supervisor, "Attempt", SlowToStart)
    job = failing_job(FixedDelay(2, 10))
    run = Supervisor(job, 10)
    assert [failure.restarted for failure in run.failures] == [True, True]
    assert [attempt.retired for attempt in job.attempts] == [True, True, False]


@pytest.mark.parametrize("strategy", [NoRestart(), FixedDelay(1, 10)])
def test_a_failed_first_start_without_restarts_raises_its_cause(monkeypatch, strategy):
    monkeypatch.setattr(supervisor, "Attempt", SlowToStart)
    with pytest.raises(EpochFailed, match="has not started the tasks"):
        Supervisor(failing_job(strategy), 10)


@pytest.mark.parametrize("delay_ms", [0, 20_000])
def test_an_interrupt_ends_a_first_start_that_is_tried_again(monkeypatch, delay_ms):
    """Before the next try, and during the pause before it."""
    monkeypatch.setattr(supervisor, "Attempt", SlowToStart)
    job = failing_job(FixedDelay(1_000, delay_ms))
    with interrupts_wait() as interrupt:
        job.stop = StopRequest(interrupted=lambda: interrupt.has_come)
        if delay_ms:
            threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        else:
            interrupt.has_come = True
        with pytest.raises(EpochFailed):
            Supervisor(job, 10)
    assert len(job.attempts) == 1


class Misdeclared(FailingAttempt):
    def restore(self):
        raise GraphError("a column that does not exist")

    def stop(self):
        pass


def test_an_error_of_the_job_itself_is_not_tried_again_at_the_first_start(monkeypatch):
    monkeypatch.setattr(supervisor, "Attempt", Misdeclared)
    job = failing_job(FixedDelay(5, 10))
    with pytest.raises(GraphError):
        Supervisor(job, 10)
    assert len(job.attempts) == 1


LATE = (
    "[STREAM_FAILED] Query [id = 4f] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
)


class LateReader(FailingAttempt):
    """Spark gives up on the reader of its source three times."""

    late, restarts_query = 3, True

    def awaitTermination(self):
        if self.late:
            raise RuntimeError(LATE)

    def start_query_again(self):
        self.late -= 1
        return self.restarts_query

    @property
    def epochs(self):
        return SimpleNamespace(run_out=lambda: None)


def test_a_reader_that_is_late_costs_neither_a_restart_of_the_job_nor_a_failure(monkeypatch):
    monkeypatch.setattr(supervisor, "Attempt", LateReader)
    monkeypatch.setattr(Supervisor, "_conclude", lambda self: None)
    job = failing_job(NoRestart())
    job.graceful_end = JobEnd.SUSPENDED
    run = Supervisor(job, 10)
    run.start()
    assert run.ended.wait(60)
    assert (run.outcome, list(run.failures), len(job.attempts), job.loop.rewinds) == (None, [], 1, 0)


def test_a_reader_that_is_late_for_too_long_is_a_failure_that_names_the_option(monkeypatch):
    monkeypatch.setattr(supervisor, "Attempt", LateReader)
    monkeypatch.setattr(LateReader, "restarts_query", False)
    job = failing_job(NoRestart())
    job.settings = SimpleNamespace(slot_timeout_ms=300_000)
    run = Supervisor(job, 10)
    run.start()
    assert run.ended.wait(60)
    assert isinstance(run.outcome, EpochFailed)
    assert "For 5 min (slot.request.timeout)" in str(run.outcome)
    assert [failure.kind for failure in run.failures] == ["epoch_failed"]


class Woken(FailingAttempt):
    """Its successor has deleted the files that it needs."""

    def awaitTermination(self):
        raise RestoreError("chk-7 is missing from its storage")


@pytest.mark.parametrize("attempt", [Woken, FailingAttempt])
def test_a_woken_driver_reports_its_lost_claim_whichever_operation_fails_first(monkeypatch, attempt):
    monkeypatch.setattr(supervisor, "Attempt", attempt)
    job = failing_job(FixedDelay(5, 0))
    lost = ClaimLost(3, SimpleNamespace(owner="host b", term=4))
    job.loop.ownership = SimpleNamespace(claim_lost=lambda: lost)
    job.loop.leave = lambda: None
    run = Supervisor(job, 10)
    run.start()
    assert run.ended.wait(60)
    assert run.outcome is lost
    assert [(failure.kind, failure.restarted) for failure in run.failures] == [("claim_lost", False)]


def test_a_claim_of_this_driver_after_its_term_broke_does_not_count_as_lost(monkeypatch):
    """If a restart fails after the new claim, the log has an entry that is newer than the term that broke, and its own."""
    monkeypatch.setattr(supervisor, "Attempt", FailingAttempt)
    job = failing_job(NoRestart())
    job.loop.broken = OSError("the outcome of a write is unknown")
    job.loop.ownership = SimpleNamespace(claim_lost=lambda: ClaimLost(1, SimpleNamespace(owner="me", term=2)))
    run = Supervisor(job, 10)
    run.start()
    assert run.ended.wait(60)
    assert isinstance(run.outcome, ConnectionError)
