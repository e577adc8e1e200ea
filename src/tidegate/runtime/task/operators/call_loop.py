"""The event loop of a task attempt, for async functions. Independent of Spark.

It runs in a thread of its own, so that calls make progress while the task reads its input, runs other operators, or waits for
Spark to take its output. The task's thread alone touches operators, state and output.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_log = logging.getLogger("tidegate")
_LOOK_S = 1.0
"""How often a task that waits for the loop looks whether it still runs."""
_ENDED = "The event loop of the task has ended. A function must not raise SystemExit or KeyboardInterrupt in it, nor stop it."

Out = TypeVar("Out")


class CallLoopEnded(RuntimeError):
    """The event loop stopped on its own: something that a function left in it raised SystemExit, or stopped it."""


class CallLoop:
    """An event loop in a thread. It ends with `close`, which must be called: it belongs to one attempt, not to the worker."""

    GRACE_S = 30.0
    """How long a failed attempt waits for calls that do not react to being cancelled."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="tidegate-async", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        # As `asyncio.Runner` does, except that it waits for the threads of `asyncio.to_thread`: a call there that was given up
        # cannot be cancelled, and would hold up the end of the epoch.
        loop = self._loop
        try:
            loop.run_until_complete(self._stopped())
        finally:
            try:
                loop.run_until_complete(_end_all())
                loop.run_until_complete(loop.shutdown_asyncgens())
            finally:
                loop.close()

    async def _stopped(self) -> None:
        await self._stop.wait()

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call a function in the loop, and do not wait for it."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            raise CallLoopEnded(_ENDED) from None

    def run(self, work: Coroutine[Any, Any, Out], within_s: float | None = None) -> Out:
        """Run a coroutine in the loop and return its result. Raises CallLoopEnded if the loop ends before, and TimeoutError if it
        takes longer than `within_s`."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # A coroutine that never ran would warn that it was not awaited.
            work.close()
            raise CallLoopEnded(_ENDED) from None
        waited_s = 0.0
        # In slices, because a loop that ended leaves its futures open for ever.
        while not concurrent.futures.wait([future], timeout=_LOOK_S).done:
            waited_s += _LOOK_S
            if not self._thread.is_alive():
                work.close()
                raise CallLoopEnded(_ENDED)
            if within_s is not None and waited_s >= within_s:
                future.cancel()
                raise TimeoutError
        return future.result()

    def take(self, finished: queue.SimpleQueue[Out]) -> Out:
        """Wait for what a coroutine in the loop puts into a queue."""
        while True:
            try:
                return finished.get(timeout=_LOOK_S)
            except queue.Empty:
                if not self._thread.is_alive():
                    raise CallLoopEnded(_ENDED) from None

    def close(self) -> None:
        """End the loop and its thread."""
        with suppress(CallLoopEnded):
            self.soon(self._stop.set)
        self._thread.join(self.GRACE_S)
        if self._thread.is_alive():
            _log.error(
                "an async function blocks the event loop of its task, or ignores that it is cancelled; its thread is left behind"
            )


async def _end_all() -> None:
    """Cancel what is left in the loop, and wait for it."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
