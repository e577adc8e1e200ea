"""How a job comes to its end when a signal asks for it, in `tidegate run` and in `job.run()`, and the exit code that tells it.

| code | the job |
|---|---|
| 0 | finished; or was stopped in order, by a command or a signal: everything it did is in a checkpoint or savepoint |
| 1 | failed, and its restart strategy gave up |
| 3 | could not be started |
| 4 | was cancelled: the next start goes on from the last completed checkpoint |
| 5 | was told to stop by a signal and did not manage in time: like 4 |
| 6 | lost its name to another driver, which goes on with it |
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

from tidegate.checkpoint.log import ClaimLost
from tidegate.core.errors import TidegateError

log = logging.getLogger("tidegate")


STOP_WITHIN = "25 s"
"""How long a signal waits for an orderly end unless told otherwise: a little less than the 30 s that Kubernetes grants."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FOR_OUTPUT = 0.5
"""The part of the time for an orderly end in which targets are waited for."""


class ExitCode(IntEnum):
    ENDED = 0
    FAILED = 1
    NOT_STARTED = 3
    CANCELLED = 4
    TOO_LATE = 5
    TAKEN_OVER = 6


class Endable(Protocol):
    """As much of a `JobRun` as its ending asks for."""

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
    """Waits for the end of a run, and brings it about when a signal asks for it.

    1. The first signal lets the epoch that runs finish, and takes a last checkpoint or a savepoint. A crash meanwhile leaves
       the job as any crash does: the next start recovers it. For targets that do not take their output it waits for a part
       of the time only, so that there is time to end in order and to say what waits.
    2. If that takes longer than `within_s`, the process ends at once with TOO_LATE, and names the savepoint, if there is one.
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
    """Of the savepoint that ended the job."""
    problem: str | None = None
    """Why the job failed, with the code of the error."""
    _asked: threading.Event = field(default_factory=threading.Event)
    _stopper: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Meanwhile SIGTERM and SIGINT end the job in order. Python gives signals to the main thread, and lets no other thread
        ask for them: elsewhere this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, lambda number, frame: self.on_signal(number)) for one in _SIGNALS}
        try:
            yield
        finally:
            self._ended.set()  # Nobody snapshots off what the program does after the job.
            for one, handler in before.items():
                signal.signal(one, handler or signal.SIG_DFL)

    def on_signal(self, number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, self.second_sigint)
        log.info("%s: the job stops, within %g s", signal.Signals(number).name, self.within_s)
        self._asked.set()
        self.run.stop_within(self.within_s * _FOR_OUTPUT)
        self._stopper = threading.Thread(target=self._stop, name="tidegate-stop", daemon=True)
        self._stopper.start()
        threading.Thread(target=self._watch, name="tidegate-deadline", daemon=True).start()

    def wait(self) -> ExitCode:
        """Until the job has ended. What ended it is told by `problem`."""
        try:
            self.run.await_termination()
        except ClaimLost as error:
            self.problem = f"{error.code}: {error}"
            return ExitCode.TAKEN_OVER
        except TidegateError as error:
            self.problem = f"{error.code}: {error}"
            return ExitCode.FAILED
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
            return ExitCode.FAILED
        finally:
            self._ended.set()
        if self._stopper is not None:
            self._stopper.join()  # It has only its answer left to note.
        cancelled = self.run.status == "CANCELED" and not self._asked.is_set()
        return ExitCode.CANCELLED if cancelled else ExitCode.ENDED

    def _stop(self) -> None:
        try:
            if self.savepoint:
                self.path = self.run.stop_with_savepoint()
            else:
                self.run.stop()
        except Exception:
            pass  # `wait` is told the same

    def _watch(self) -> None:
        if not self._ended.wait(self.within_s):
            left = self.run.left_behind or "its next start goes on from the last completed checkpoint"
            log.error("the job did not stop within %g s; %s", self.within_s, left)
            self.give_up(ExitCode.TOO_LATE)
