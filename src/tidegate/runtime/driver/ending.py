"""How a job ends when a signal asks for it, in `tidegate run` and in `job.run()`, and the exit code that reports it.

| code | the job |
|---|---|
| 0 | finished; or was stopped gracefully, by a command or a signal: everything it did is in a checkpoint or savepoint |
| 1 | failed, and its restart strategy gave up |
| 3 | could not be started |
| 4 | was cancelled: the next start continues from the last completed checkpoint |
| 5 | was asked to stop by a signal and did not finish in time: like 4 |
| 6 | lost its name to another driver, which continues it |
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.core.errors import EpochFailed, PreconditionFailed, TidegateError, with_help
from tidegate.runtime.epochs.failover import without_java

log = logging.getLogger("tidegate")


STOP_WITHIN = "25 s"
"""How long a signal waits for a graceful stop by default: a little less than the 30 s that Kubernetes grants."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FOR_OUTPUT = 0.5
"""The fraction of the time for a graceful stop during which the job waits for targets."""


class ExitCode(IntEnum):
    ENDED = 0
    FAILED = 1
    NOT_STARTED = 3
    CANCELLED = 4
    TOO_LATE = 5
    TAKEN_OVER = 6


class Endable(Protocol):
    """The part of a `JobRun` that its ending uses."""

    @property
    def status(self) -> str: ...
    @property
    def left_behind(self) -> str: ...
    def stop_within(self, seconds: float) -> None: ...
    def stop(self) -> None: ...
    def stop_with_savepoint(self) -> str: ...
    def await_termination(self) -> bool: ...


@dataclass
class Ending:
    """Waits for the end of a run, and stops the run when a signal asks for it.

    1. The first signal lets the current epoch finish, and takes a last checkpoint or a savepoint. A crash meanwhile leaves
       the job as any crash does: the next start recovers it. For targets that do not accept their output it waits only for
       a part of the time, so that there is time to end gracefully and to report what waits.
    2. If that takes longer than `within_s`, the process ends immediately with TOO_LATE, and names
       the savepoint, if there is one.
    3. A second signal ends the process as signals do; a second SIGINT as `second_sigint` says.
    """

    run: Endable
    within_s: float
    _: KW_ONLY
    savepoint: bool = False
    give_up: Callable[[int], Any] = os._exit
    """Ends the process without waiting for its threads."""
    second_sigint: Any = signal.SIG_DFL
    path: str | None = None
    """The path of the savepoint that ended the job."""
    problem: str | None = None
    """Why the job failed, with the code of the error."""
    _asked: threading.Event = field(default_factory=threading.Event)
    _stopper: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block, SIGTERM and SIGINT stop the job gracefully. Python delivers signals to the main thread, and
        only that thread may install handlers: elsewhere this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, lambda number, frame: self.on_signal(number)) for one in _SIGNALS}
        try:
            yield
        finally:
            self._ended.set()  # The time limit does not apply to what the program does after the job.
            for one, handler in before.items():
                signal.signal(one, handler or signal.SIG_DFL)

    def on_signal(self, number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            # From now on a second signal acts at once: whoever sends it does not want to wait.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, self.second_sigint)
        log.info("%s: the job stops, within %g s", signal.Signals(number).name, self.within_s)

        self._asked.set()
        # If the signal has ended the JVM as well, every call of it fails. `wait` says so once; the gateway would print a
        # traceback for each.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)

        # Before the stop is requested, which reads the limit.
        self.run.stop_within(self.within_s * _FOR_OUTPUT)
        self._stopper = threading.Thread(target=self._stop, name="tidegate-stop", daemon=True)
        self._stopper.start()
        threading.Thread(target=self._watch, name="tidegate-deadline", daemon=True).start()

    def wait(self) -> ExitCode:
        """Wait until the job has ended. `problem` says what ended it."""
        try:
            self.run.await_termination()
        except ClaimLost as error:
            self.problem = f"{error.code}: {with_help(error)}"
            return ExitCode.TAKEN_OVER
        except Exception as error:
            if self._asked.is_set() and _is_of_gateway(error):
                self.problem = (
                    "The signal has also ended Spark's JVM, so the job could not take its last checkpoint. Its next start "
                    "continues from the last completed one. Send the signal to the driver alone."
                )
                return ExitCode.TOO_LATE
            if isinstance(error, TidegateError):
                self.problem = f"{error.code}: {with_help(error)}"
                return ExitCode.FAILED
            log.debug("the job failed", exc_info=error)
            self.problem = f"{type(error).__name__}: {without_java(str(error))}"
            return ExitCode.FAILED
        finally:
            self._ended.set()
        if self._stopper is not None:
            self._stopper.join()  # It only has its result left to record.
        cancelled = self.run.status == "CANCELED" and not self._asked.is_set()
        return ExitCode.CANCELLED if cancelled else ExitCode.ENDED

    def _stop(self) -> None:
        try:
            if self.savepoint:
                self.path = self.run.stop_with_savepoint()
            else:
                self.run.stop()
        except PreconditionFailed as error:
            # A run that closes its windows at the end of its input ends with its last checkpoint, and soon.
            log.warning("the job ends without a savepoint: %s", error)
            self.run.stop()
        except Exception:
            pass  # `wait` reports the same

    def _watch(self) -> None:
        if not self._ended.wait(self.within_s):
            left = self.run.left_behind or "its next start continues from the last completed checkpoint"
            log.error("the job did not stop within %g s; %s", self.within_s, left)
            self.give_up(ExitCode.TOO_LATE)


def _is_of_gateway(error: BaseException) -> bool:
    """Whether the JVM of Spark is gone."""
    if isinstance(error, TidegateError):
        return isinstance(error, EpochFailed) and error.session_ended
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__module__.startswith("py4j."):
            return True
        seen = seen.__cause__ or seen.__context__
    return isinstance(error, ConnectionError)
