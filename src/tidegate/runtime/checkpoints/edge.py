"""Where the steps of a term meet storage, the clock and the threads of sinks: carries out what they yield."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from typing import Any, TypeVar

from tidegate.checkpoint.coordination.coordinator import WakeAt
from tidegate.checkpoint.effects import do, run
from tidegate.runtime.checkpoints.loop_thread import LoopThread
from tidegate.runtime.checkpoints.sink_threads import CommitResult, SinkThreads
from tidegate.runtime.checkpoints.term import RunningTerm
from tidegate.runtime.checkpoints.term_effects import StartCommit, StartSweep, TermEffect, TermSteps, Uncounted

T = TypeVar("T")


class TermEdge:
    """That of one term."""

    def __init__(self, term: RunningTerm, thread: LoopThread, sinks: SinkThreads) -> None:
        self._term = term
        self._thread = thread
        self._sinks = sinks
        self._results: queue.SimpleQueue[CommitResult] = queue.SimpleQueue()
        """Of commits that have ended, until the thread receives them."""

    def post(self, message: Callable[[], TermSteps[None]]) -> None:
        """Have the thread run these steps, and return immediately."""
        self._thread.post(lambda: self.run(message()))

    def run(self, steps: TermSteps[T]) -> T:
        """Run steps of the term to their end. Only on the thread, or after it has ended."""
        return run(steps, self._do)

    def _do(self, effect: TermEffect) -> Any:
        match effect:
            case WakeAt(at_ms):
                return self._thread.wake_at(at_ms)
            case StartCommit(batch):
                return self._sinks.commit(batch, self._post_result)
            case StartSweep(upto):
                return self._sinks.sweep(upto)
            case Uncounted(inner):
                return do(inner, self._term.owned.history.storage)
            case _:
                # Through the meter: these requests are the cost of a checkpoint.
                return do(effect, self._term.calls.storage)

    def _post_result(self, result: CommitResult) -> None:
        """Called by the thread of a sink."""
        self._results.put(result)
        # The queue, not the closure, holds the result: if the thread stops before the message, `record_last_results` finds it.
        self.post(lambda: self._term.output.on_result(self._results.get_nowait()))

    def record_last_results(self) -> None:
        """Record what sinks committed while the thread was stopping. It must have ended."""
        left: list[CommitResult] = []
        with contextlib.suppress(queue.Empty):
            while True:
                left.append(self._results.get_nowait())
        self.run(self._term.output.record_last(left))
