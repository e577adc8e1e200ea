"""The calls of an async function, as they run in the event loop of a task.

The task's thread hands over the rows of a batch with `start` and gets their calls back from `take`, finished and in the order in
which their results are to be emitted. In between only the thread of the loop touches them: the next call begins as soon as
there is a place for it, and does not wait for the task's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

from tidegate.core.durations import show_ms
from tidegate.core.errors import GraphError
from tidegate.core.hooks import hook
from tidegate.graph.async_calls import AsyncCalls
from tidegate.runtime.task.operators.call_loop import CallLoop, CallLoopEnded

MOST_TOGETHER = 1000
"""Finished calls that are handed back together, at most."""


class RowCall:
    """The call for one row, with all its tries."""

    __slots__ = ("error", "is_finished", "result", "row", "timed_out", "took_ns", "tries")

    def __init__(self, row: Any) -> None:
        self.row = row
        self.result: Any = None
        self.error: BaseException | None = None
        self.tries = self.took_ns = 0
        self.timed_out = self.is_finished = False


class RowCalls:
    """Makes the calls of one function, at most `capacity` at a time. A call whose result waits for an earlier one has its place
    until then."""

    def __init__(self, function: Any, how: AsyncCalls, loop: CallLoop) -> None:
        self._function = function
        self._how = how
        self._loop = loop
        self._finished: queue.SimpleQueue[list[RowCall]] = queue.SimpleQueue()
        self._is_cancelled = False
        self.most_in_progress = 0
        self.finished = 0
        """Calls that have a result, or an error."""
        # Of the loop's thread:
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled: set[asyncio.Task[None]] = set()
        self._waiting: deque[RowCall] = deque()
        """Calls that have no place yet."""
        self._in_order: deque[RowCall] = deque()
        """Calls that have a place, oldest first. Empty unless results keep the order of rows."""
        self._in_progress = 0
        self._handed_back: list[RowCall] = []
        """Finished calls that are not handed back yet."""
        self._is_urgent = False
        self._together = min(how.capacity, MOST_TOGETHER)

    # -- in the task's thread ------------------------------------------------------------------------------------------

    def open(self, context: object) -> None:
        """Open the function and wait for it."""
        self._loop.run(self._open(context))

    def close(self) -> None:
        """Close the function and wait for it."""
        self._loop.run(self._close())

    def start(self, calls: Sequence[RowCall]) -> None:
        self._loop.soon(self._start, calls)

    def take(self) -> list[RowCall]:
        """Wait for finished calls. Raises CallLoopEnded if none will come."""
        return self._loop.take(self._finished)

    def take_now(self) -> list[RowCall]:
        """Return finished calls, if there are any."""
        try:
            return self._finished.get_nowait()
        except queue.Empty:
            return []

    def cancel(self) -> None:
        """Cancel what is in progress, and do not wait for it."""
        # In the task's thread, before the loop gets to `_cancel`: calls that are just starting see it.
        self._is_cancelled = True
        with suppress(CallLoopEnded):
            self._loop.soon(self._cancel)

    def end(self) -> None:
        """Cancel what is in progress, wait for it, and close the function."""
        self._is_cancelled = True
        self._loop.run(self._end(), CallLoop.GRACE_S)

    # -- in the loop's thread ------------------------------------------------------------------------------------------

    def _start(self, calls: Sequence[RowCall]) -> None:
        if not self._is_cancelled:
            self._waiting.extend(calls)
            self._fill()

    def _fill(self) -> None:
        """Begin calls for which there is a place."""
        while self._waiting and self._in_progress < self._how.capacity:
            call = self._waiting.popleft()
            self._in_progress += 1
            self.most_in_progress = max(self.most_in_progress, self._in_progress)
            if self._how.ordered:
                self._in_order.append(call)
            task = asyncio.get_running_loop().create_task(self._call(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _finish(self, call: RowCall) -> None:
        """Hand back a call, and those that waited for it: together with others while more wait for a place, but at once if there
        is an error, or no row left to begin, since the task then waits for them."""
        call.is_finished = True
        self.finished += 1
        if not self._how.ordered:
            self._hand_back(call)
        while self._in_order and self._in_order[0].is_finished:
            self._hand_back(self._in_order.popleft())
        self._fill()
        if self._handed_back and (self._is_urgent or not self._waiting or len(self._handed_back) >= self._together):
            self._finished.put(self._handed_back)
            self._handed_back = []
            self._is_urgent = False

    def _hand_back(self, call: RowCall) -> None:
        self._handed_back.append(call)
        # Only now: if a call that has ended gave up its place before, results behind a slow one would pile up without a bound.
        self._in_progress -= 1
        self._is_urgent |= call.error is not None

    async def _call(self, call: RowCall) -> None:
        started_ns = perf_counter_ns()
        limit = asyncio.timeout(self._how.timeout_ms / 1000)
        try:
            async with limit:
                call.result = await self._tried(call, limit)
        except asyncio.CancelledError as error:
            if self._is_cancelled:
                raise
            call.error = RuntimeError("async_invoke was cancelled by something that it called.")
            call.error.__cause__ = error
        except BaseException as error:
            # A client may turn its cancellation into an error of its own.
            if limit.expired() and isinstance(error, Exception):
                self._time_out(call)
            else:
                call.error = error
        call.took_ns = perf_counter_ns() - started_ns
        self._finish(call)

    async def _tried(self, call: RowCall, limit: asyncio.Timeout) -> Any:
        """The result of the first try that needs no other. Once the time is over, there is no other."""
        retry = self._how.retry
        while True:
            call.tries += 1
            try:
                result = await _awaitable(self._function.async_invoke, call.row)
            except Exception as error:
                if retry is None or limit.expired() or not retry.again_after_error(error, call.tries):
                    raise
            else:
                if retry is None or limit.expired() or not retry.again_after_result(result, call.tries):
                    return result
            await asyncio.sleep(retry.delay_ms(call.tries) / 1000)

    def _time_out(self, call: RowCall) -> None:
        call.timed_out = True
        try:
            call.result = self._function.timeout(call.row)
        except BaseException as error:
            if isinstance(error, TimeoutError) and not error.args:
                limit, tries = show_ms(self._how.timeout_ms), "try" if call.tries == 1 else "tries"
                error.args = (f"async_invoke gave no result within {limit}, in {call.tries} {tries}.",)
            call.error = error

    async def _open(self, context: object) -> None:
        """The function's own may be a coroutine or not."""
        if method := hook(self._function, "open"):
            made = method(context)
            if inspect.isawaitable(made):
                await made

    async def _close(self) -> None:
        if method := hook(self._function, "close"):
            made = method()
            if inspect.isawaitable(made):
                await made

    def _cancel(self) -> None:
        """Once: a second time would interrupt what calls do about the first."""
        self._waiting.clear()
        for task in self._tasks - self._cancelled:
            task.cancel()
        self._cancelled |= self._tasks

    async def _end(self) -> None:
        self._cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close()


def _awaitable(invoke: Callable[[Any], Any], row: Any) -> Any:
    made = invoke(row)
    if inspect.isawaitable(made):
        return made
    raise GraphError("async_invoke returned a value that cannot be awaited. Write async def async_invoke(self, row).")
