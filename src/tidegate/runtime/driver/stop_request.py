"""How a run ends, once a stop is requested. Set by the requesting thread, read by those that run epochs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.core.errors import PreconditionFailed

_LOOK_S = 0.1


@dataclass(slots=True)
class StopRequest:
    """Empty until the job is stopped."""

    asked: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    """End without a last checkpoint."""
    savepoint: tuple[str | None, str] | None = None
    """The target and the format of the savepoint that ends the job, if there is one."""
    drain: bool = False
    """Let all event time pass before that savepoint."""
    interrupted: Callable[[], bool] = lambda: False
    """Whether the user has interrupted the start of the job: it is not tried again."""
    _output_latest: float | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _draining: bool = field(default=False, init=False)

    def is_asked(self) -> bool:
        return self.asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait before the job is started again. Return True at once if it is not to be."""
        latest = time.monotonic() + seconds
        # A handler of signals must not set an event that its own thread waits for: it would wait for itself. So look.
        while not (self.is_asked() or self.interrupted()):
            left_s = latest - time.monotonic()
            if left_s <= 0:
                return False
            self.asked.wait(min(left_s, _LOOK_S))
        return True

    def end_with_savepoint(self, target: str | None, format: str, *, drain: bool) -> None:
        """Request a stop with a savepoint. Raises `PreconditionFailed` if it would have to be of a moment that has passed: a run
        whose input has ended drains, and cannot end with a savepoint of before."""
        with self._lock:
            if self._draining and not drain:
                raise PreconditionFailed(
                    "The input of the job has ended and its windows are closing (--drain), so a savepoint would be drained, "
                    "after which every row is late. The job finishes by itself; to end it with a drained savepoint, stop it with "
                    "drain=True (`tidegate stop --drain`)."
                )
            # Before `asked`, which other threads wait for and then read the rest.
            self.savepoint = (target, format)
            self.drain = drain
            self.asked.set()

    def begin_drain(self, at_end_of_input: bool) -> bool:
        """The last batch has run. Return whether all event time passes now: as the stop says, if there is one, else as the run
        does at the end of its input."""
        with self._lock:
            self._draining = self.drain if self.is_asked() else at_end_of_input
            return self._draining

    def limit_output_wait(self, seconds: float) -> None:
        """Limit the wait for targets, whatever the options say."""
        self._output_latest = time.monotonic() + seconds

    def output_timeout_s(self, configured_s: float) -> float:
        """How long the end of the job may wait for its output."""
        if self._output_latest is None:
            return configured_s
        return max(0.0, min(configured_s, self._output_latest - time.monotonic()))
