"""What a supervisor is told about the end of a job: signals, the deadline, exit codes."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.core.errors import EpochFailed, PreconditionFailed, TidegateError
from tidegate.runtime.driver.ending import Ending, ExitCode


class Pretended:
    """A run that ends when it is told to, unless it hangs."""

    def __init__(self, error: BaseException | None = None, hangs: bool = False) -> None:
        self.status, self._error, self._hangs = "RUNNING", error, hangs
        self.end, self.told = threading.Event(), threading.Event()
        self.left_behind, self.within_s = "", 0.0

    def stop_within(self, seconds: float) -> None:
        self.within_s = seconds

    def stop(self) -> None:
        self.told.set()
        if not self._hangs:
            self.finish("CANCELED")

    def stop_with_savepoint(self) -> str:
        self.told.set()
        self.finish("FINISHED")
        return "/savepoints/sp-1"

    def finish(self, status: str) -> None:
        self.status = status
        self.end.set()

    def await_termination(self) -> bool:
        self.end.wait(60)
        if self._error is not None:
            raise self._error
        return True


@pytest.fixture(autouse=True)
def gateway_log() -> Iterator[None]:
    """A signal silences the gateway, for the rest of the process."""
    level = logging.getLogger("py4j").level
    yield
    logging.getLogger("py4j").setLevel(level)


def tell(ending: Ending) -> None:
    """A signal, by another thread: the handlers of the test's own process stay as they are."""
    teller = threading.Thread(target=ending.on_signal, args=(signal.SIGTERM,))
    teller.start()
    teller.join()


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        ("FINISHED", None, ExitCode.ENDED),
        ("CANCELED", None, ExitCode.CANCELLED),
        ("FAILED", EpochFailed("no"), ExitCode.FAILED),
        ("FAILED", RuntimeError("no"), ExitCode.FAILED),
        ("FAILED", ClaimLost.__new__(ClaimLost), ExitCode.TAKEN_OVER),
    ],
)
def test_the_exit_code_says_how_it_ended(status: str, error: BaseException | None, code: ExitCode) -> None:
    run = Pretended(error)
    run.finish(status)
    ending = Ending(run, 60)
    assert ending.wait() is code
    assert (ending.problem is None) == (error is None)


def test_a_signal_stops_the_job_gracefully() -> None:
    run = Pretended()
    ending = Ending(run, 60)
    tell(ending)
    assert ending.wait() is ExitCode.ENDED
    assert run.status == "CANCELED"


def test_a_signal_may_take_a_savepoint() -> None:
    ending = Ending(Pretended(), 60, savepoint=True)
    tell(ending)
    assert ending.wait() is ExitCode.ENDED
    assert ending.path == "/savepoints/sp-1"


def test_past_the_deadline_the_process_ends() -> None:
    codes: list[int] = []
    given_up = threading.Event()
    run = Pretended(hangs=True)
    ending = Ending(run, 0.01, give_up=lambda code: (codes.append(code), given_up.set()))
    tell(ending)
    assert given_up.wait(60)
    assert codes == [ExitCode.TOO_LATE]
    run.finish("CANCELED")


def test_every_failure_of_ours_has_a_code_in_its_message() -> None:
    run = Pretended(EpochFailed("the deadline passed"))
    run.finish("FAILED")
    ending = Ending(run, 60)
    ending.wait()
    assert ending.problem == "EPOCH_FAILED: the deadline passed\nHelp: tidegate explain EPOCH_FAILED"
    assert issubclass(EpochFailed, TidegateError)


def test_targets_are_waited_for_no_longer_than_the_signal_allows() -> None:
    run = Pretended()
    ending = Ending(run, 20)
    tell(ending)
    ending.wait()
    assert 0 < run.within_s < 20


def test_a_stop_that_is_cut_off_names_its_savepoint(caplog: pytest.LogCaptureFixture) -> None:
    run, codes = Pretended(hangs=True), list[int]()
    run.left_behind = "it resumes from the savepoint /savepoints/sp-1"
    gave_up = threading.Event()
    ending = Ending(run, 0.01, give_up=lambda code: (codes.append(code), gave_up.set()))
    tell(ending)
    assert gave_up.wait(30)
    assert codes == [ExitCode.TOO_LATE]
    assert "savepoint /savepoints/sp-1" in caplog.text
    run.finish("CANCELED")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_it_listens_a_signal_stops_the_job_and_afterwards_signals_do_what_they_did(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidegate")
    run, before = Pretended(), [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    with Ending(run, 60).listening():
        os.kill(os.getpid(), number)
        assert run.await_termination()
    assert run.told.is_set()
    assert f"{number.name}: the job stops, within 60 s" in caplog.text
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_sigint_interrupts_python_where_that_is_asked_for() -> None:
    run = Pretended(hangs=True)
    with Ending(run, 60, second_sigint=signal.default_int_handler).listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert run.told.wait(30)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    run.finish("CANCELED")


def test_in_another_thread_it_leaves_signals_alone() -> None:
    seen = []

    def listen() -> None:
        with Ending(Pretended(), 60).listening():
            seen.append(signal.getsignal(signal.SIGTERM))

    other = threading.Thread(target=listen)
    other.start()
    other.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_what_a_program_does_after_the_job_is_not_cut_off() -> None:
    given_up = threading.Event()
    with Ending(run := Pretended(), 0.2, give_up=lambda code: given_up.set()).listening():
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.await_termination()
    assert not given_up.wait(0.5)


class Draining(Pretended):
    """A run that has read all its input."""

    def stop_with_savepoint(self) -> str:
        raise PreconditionFailed("its windows are closing")


def test_a_signal_that_asks_for_a_savepoint_while_the_run_drains_stops_it_without_one() -> None:
    run = Draining()
    ending = Ending(run, 30, savepoint=True)
    tell(ending)
    assert ending.wait() is ExitCode.ENDED
    assert (ending.path, run.told.is_set()) == (None, True)


class GatewayGone(Exception):
    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    "error",
    [GatewayGone("Answer from Java side is empty"), EpochFailed("The Spark session has ended.", session_ended=True)],
    ids=["a call fails", "tasks are placed"],
)
def test_a_signal_that_also_ends_the_jvm_is_reported_in_one_sentence_and_not_as_a_failure(error: Exception) -> None:
    run = Pretended(error=error)
    ending = Ending(run, 30)
    tell(ending)
    assert ending.wait() is ExitCode.TOO_LATE
    assert "continues from the last completed one" in str(ending.problem)
    assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.ERROR)


@pytest.mark.parametrize(
    "error",
    [GatewayGone("Answer from Java side is empty"), EpochFailed("The Spark session has ended.", session_ended=True)],
)
def test_a_jvm_that_crashes_is_a_failure(error: Exception) -> None:
    run = Pretended(error=error)
    run.end.set()
    assert Ending(run, 30).wait() is ExitCode.FAILED
