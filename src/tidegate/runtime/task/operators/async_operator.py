"""async_map: an async function, called for many rows at a time. Independent of Spark.

1. `accept` hands its rows to the loop and emits results until the call of the last one has begun. At most `capacity` calls are in
   progress, so no more rows are taken from the input before there is a place for them.
2. Calls of one batch may still be in progress when `accept` returns, and go on while the next batch is read.
3. `finish` waits for all calls. It runs after the last row of the epoch and before the task seals its state and sends barriers,
   so a result never leaves its epoch, and no watermark overtakes it.
4. `close`, or `abort` after a failure, ends the function. Calls that are in progress then are cancelled and awaited.

Everything here runs in the task's thread; the calls themselves run in the loop's thread, in `RowCalls`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidegate.graph.model import Transform
from tidegate.graph.on_error import ErrorAction
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.messages import AsyncCallFigures
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.call_loop import CallLoop
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.operator import Emit
from tidegate.runtime.task.operators.row_calls import MOST_TOGETHER, RowCall, RowCalls
from tidegate.runtime.task.operators.row_errors import RowErrors
from tidegate.runtime.task.operators.transform_operator import RowOperator
from tidegate.schema.columns import struct_class

_log = logging.getLogger("tidegate")
_LATENCIES = 1000
"""The last calls of an attempt, from which its quantiles are computed."""


Out = TypeVar("Out")


class AsyncOperator(RowOperator):
    """One async function in one attempt of a task."""

    def __init__(
        self, node: Transform, context: FunctionContext, emit: Emit, side_emits: dict[str, Emit], loop: CallLoop
    ) -> None:
        assert node.calls is not None
        self.name = str(node.uid or node.name)
        self.rows_in = self.rows_out = 0
        self._capacity = node.calls.capacity
        self._calls = RowCalls(node.function, node.calls, loop)
        self._schema = node.input.schema
        self._row = struct_class(self._schema.fields)
        self._context = context
        self.spans = context.spans
        self._emit = emit
        self._side_emits = side_emits
        self._sides: dict[str, list[Any]] = {tag: [] for tag, _ in node.side_outputs}
        self._fails = node.on_error.action is ErrorAction.FAIL
        self._errors = RowErrors(self.name, node.on_error, self._sides, context.epoch)
        self._awaited = 0
        """Rows whose results have not come back yet."""
        self._out: list[Any] = []
        self._is_open = False
        self._figures = _Figures()

    def position(self) -> object:
        return self.rows_in, self.rows_out, self._awaited, self._calls.finished

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        """An async function is not notified of checkpoints."""
        self._is_open = True
        self._own(lambda: self._calls.open(self._context))

    def _run(self, rows: list[Any]) -> None:
        self.rows_in += len(rows)
        self._awaited += len(rows)
        self._own(lambda: self._calls.start([RowCall(row) for row in rows]))
        # Back-pressure: reading on would queue rows without a bound while a slow service answers.
        while self._awaited > self._capacity:
            self._take_results(self._own(self._calls.take))
        # Also if there is room: results that are there already need not wait for the next batch.
        while calls := self._calls.take_now():
            self._take_results(calls)
        self._deliver()

    def finish(self) -> None:
        """After the last row and timer of the epoch: wait for all calls."""
        while self._awaited:
            self._take_results(self._own(self._calls.take))
        self._deliver()

    def snapshot(self) -> None: ...

    def close(self) -> None:
        assert self._awaited == 0, "all calls finish within their epoch"
        self._own(lambda: self._calls.close())
        self._is_open = False

    def abort(self) -> None:
        """Cancel the calls that are in progress, wait for them, and close the function. It runs after a failure, and raises
        nothing."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._calls.end()
        except Exception as error:
            _log.warning("operator %r: its function could not be closed after a failure (%r)", self.name, error)

    @property
    def failed_rows(self) -> int:
        """Rows whose call failed, and that were passed over."""
        return self._errors.failed

    def figures(self) -> AsyncCallFigures | None:
        """What was measured of the calls; None if there were none."""
        return self._figures.report(self.name, self._calls.most_in_progress)

    def _take_results(self, calls: Sequence[RowCall]) -> None:
        """Take the results of finished calls."""
        for call in calls:
            self._awaited -= 1
            self._figures.add(call)
            if call.error is not None:
                self._on_error(call, call.error)
            elif isinstance(call.result, list):
                self._out += call.result
            elif call.result is not None:
                self._out.append(call.result)
        # No later: an async function that reads these rows could make its calls meanwhile.
        if len(self._out) >= min(self._capacity, MOST_TOGETHER):
            self._deliver()

    def _on_error(self, call: RowCall, error: BaseException) -> None:
        if self._fails or not self._errors.may_skip(error):
            # The other calls are for rows of an epoch that is discarded.
            self._calls.cancel()
            raise FunctionFailed(self.name, error, call.row) from error
        assert isinstance(error, Exception)
        self._errors.note(call.row, error)

    def _deliver(self) -> None:
        if self._out:
            out = self._out
            self._out = []
            self.rows_out += len(out)
            self._emit(out)
        for tag, rows in self._sides.items():
            if rows:
                self.rows_out += len(rows)
                self._side_emits[tag](rows.copy())
                rows.clear()

    def _own(self, call: Callable[[], Out]) -> Out:
        """Whatever goes wrong, the function is at fault."""
        try:
            return call()
        except Exception as error:
            raise FunctionFailed(self.name, error) from error


class _Figures:
    """What the calls of an attempt took."""

    def __init__(self) -> None:
        self.calls = self.retries = self.timeouts = self.failures = self.total_us = 0
        self._last_us: deque[int] = deque(maxlen=_LATENCIES)

    def add(self, call: RowCall) -> None:
        took_us = call.took_ns // 1000
        self.calls += 1
        self.retries += call.tries - 1
        self.timeouts += call.timed_out
        self.failures += call.error is not None
        self.total_us += took_us
        self._last_us.append(took_us)

    def report(self, operator: str, most_in_flight: int) -> AsyncCallFigures | None:
        if not self.calls:
            return None
        ordered = sorted(self._last_us)
        return AsyncCallFigures(
            operator=operator,
            calls=self.calls,
            retries=self.retries,
            timeouts=self.timeouts,
            failures=self.failures,
            most_in_flight=most_in_flight,
            total_us=self.total_us,
            median_us=ordered[(len(ordered) - 1) // 2],
            p99_us=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
            most_us=ordered[-1],
        )
