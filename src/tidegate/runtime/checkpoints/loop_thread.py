"""One thread that runs the work that other threads hand to it, one piece after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from tidegate.core.clock import Clock, MonotonicMs
from tidegate.core.log_setup import in_this_context

T = TypeVar("T")


class LoopThread:
    """A queue of work and an alarm. Work that raises ends the thread."""

    def __init__(
        self, name: str, clock: Clock, on_wake: Callable[[], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        """`on_wake` runs on the thread at a time given to `wake_at`, `on_failure` with the error that ended the thread."""
        self._clock = clock
        self._on_wake = on_wake
        self._on_failure = on_failure
        self._inbox: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._wake_ms: MonotonicMs | None = None
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=in_this_context(self._run), name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def post(self, work: Callable[[], None]) -> None:
        """Hand over work and return immediately."""
        self._inbox.put(work)

    def call(self, work: Callable[[], T]) -> T:
        """Run the work on the thread, and wait for the result. Raises what the work raises, or what ended the thread."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)
                # The caller has the error, and the loop must end with it, too: a step that was interrupted leaves its state
                # unknown.
                raise

        self.post(run)
        while True:
            try:
                # In slices: a thread that has ended answers nothing, and the caller would wait for ever.
                return answer.result(timeout=1)
            except TimeoutError:
                if self.is_alive or answer.done():
                    continue
                if self._error is not None:
                    raise self._error  # noqa: B904 what ended the thread has a cause of its own
                raise RuntimeError("The thread that takes checkpoints has stopped.") from None

    def wake_at(self, at_ms: MonotonicMs | None) -> None:
        """Wake up at this time at the latest. Called by work that runs on the thread."""
        if at_ms is not None:
            self._wake_ms = at_ms if self._wake_ms is None else min(self._wake_ms, at_ms)

    def stop(self, timeout_s: float) -> None:
        """Start no further work, and wait for work in progress unless the caller is part of it. May be repeated."""
        self._stopped.set()
        # Wakes a thread that waits for work; `_stopped` decides, so work that is still queued is not begun.
        self._inbox.put(None)
        if not self.is_current and self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._process_next()
        except BaseException as error:
            self._error = error
            self._on_failure(error)

    def _process_next(self) -> None:
        now_ms = self._clock.now().monotonic_ms
        timeout_s: float | None = None  # Without an alarm, only work wakes the thread.
        if self._wake_ms is not None:
            timeout_s = max(0.0, (self._wake_ms - now_ms) / 1000)
        try:
            work = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            # Before the work, which sets the next alarm.
            self._wake_ms = None
            self._on_wake()
            return
        if work is not None:
            work()
