"""async_map in a task: the order of results, the limit of calls, timeouts, retries, errors, and what a failed attempt leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.tiers.profiles import examples
from tidegate.core.errors import GraphError
from tidegate.graph.model import Transform
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.async_operator import AsyncOperator
from tidegate.runtime.task.operators.call_loop import CallLoop, CallLoopEnded
from tidegate.runtime.task.operators.function_context import FunctionContext


class Running:
    """One operator in a loop of its own, and what it emitted."""

    def __init__(self, function: tg.AsyncFunction, loop: CallLoop, **options: Any) -> None:
        job = tg.Job("by-hand")
        rows = job.source("rows", tg.testing.frame("n int"))
        made = rows.async_map("call", function, **({"timeout": "1 min", "schema": "n int"} | options)).node()
        assert isinstance(made, Transform)
        self.out: list[Any] = []
        self.batches: list[list[Any]] = []
        self.letters: list[Any] = []
        self.operator = AsyncOperator(
            made, FunctionContext("call", 0, 1), self._emitted, {tag: self.letters.extend for tag, _ in made.side_outputs}, loop
        )  # fmt: skip
        self.operator.open()

    def _emitted(self, rows: list[Any]) -> None:
        self.batches.append(rows)
        self.out += rows

    def process(self, *batches: list[int]) -> list[Any]:
        """All that is emitted in an epoch with these batches."""
        for batch in batches:
            self.operator.accept([(n,) for n in batch])
        self.operator.finish()
        self.operator.close()
        return self.out


@contextmanager
def running(function: tg.AsyncFunction, **options: Any) -> Iterator[Running]:
    """Whatever happens, nothing of it is left."""
    before = set(threading.enumerate())
    loop = CallLoop()
    made = Running(function, loop, **options)
    try:
        yield made
    finally:
        made.operator.abort()
        loop.close()
        # Threads that other tests have left may end meanwhile.
        assert set(threading.enumerate()) <= before


class Scripted(tg.AsyncFunction):
    """Each row takes as many turns of the loop as it is told, and gives as many rows as it is told; a failure is told as -1."""

    def __init__(self, turns: dict[int, int], gives: dict[int, int]) -> None:
        self.turns, self.gives = turns, gives
        self.running = self.most = 0
        self.called: Counter[int] = Counter()

    async def async_invoke(self, row: Any) -> Any:
        self.called[row.n] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(self.turns[row.n]):
            await asyncio.sleep(0)
        self.running -= 1
        gives = self.gives[row.n]
        if gives < 0:
            raise ValueError(row.n)
        return {0: None, 1: (row.n,)}.get(gives, [(row.n,)] * gives)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[list[int]], dict[int, int], dict[int, int]]:
    sizes = draw(st.lists(st.integers(0, 12), max_size=5))
    rows = iter(range(sum(sizes)))
    batches = [[next(rows) for _ in range(size)] for size in sizes]
    turns = {n: draw(st.integers(0, 20)) for n in range(sum(sizes))}
    gives = {n: draw(st.sampled_from([1, 1, 1, 0, 2, -1])) for n in range(sum(sizes))}
    return batches, turns, gives


@given(scripts(), st.integers(1, 7), st.booleans())
@settings(max_examples=examples(100))
def test_every_row_is_called_once_within_capacity_and_results_are_ordered_on_request(script, capacity, ordered):
    batches, turns, gives = script
    function = Scripted(turns, gives)
    with running(function, capacity=capacity, ordered=ordered, on_error="dead-letter") as made:
        out = made.process(*batches)
        rows = [n for batch in batches for n in batch]
        expected = [(n,) for n in rows for _ in range(gives[n])]
        assert (out if ordered else sorted(out)) == expected
        assert function.called == Counter(rows)
        assert function.most <= capacity
        assert sorted(letter[2] for letter in made.letters) == sorted(f'{{"n":{n}}}' for n in rows if gives[n] < 0)
        assert made.operator.rows_in == len(rows)
        assert made.operator.rows_out == len(out) + len(made.letters)
        assert made.operator.failed_rows == len(made.letters)


def test_capacity_limits_concurrent_calls():
    function = Scripted(dict.fromkeys(range(50), 5), dict.fromkeys(range(50), 1))
    with running(function, capacity=8) as made:
        made.process(list(range(50)))
        assert function.most == 8
        figures = made.operator.figures()
        assert figures is not None
        assert (figures.calls, figures.most_in_flight, figures.failures) == (50, 8, 0)
        assert figures.median_us <= figures.p99_us <= figures.most_us <= figures.total_us


class Gated(tg.AsyncFunction):
    """Row 0 waits until a row of another number has been called."""

    async def open(self, ctx: Any) -> None:
        self.gate = asyncio.Event()

    async def async_invoke(self, row: Any) -> Any:
        if row.n == 0:
            await self.gate.wait()
        else:
            self.gate.set()
        return row


def test_calls_of_one_batch_continue_while_the_next_is_read():
    """The first call only ends because the second batch is read meanwhile: with a wait at the end of a batch this would hang."""
    with running(Gated(), capacity=2, timeout="20 s") as made:
        assert made.process([0], [1]) == [(0,), (1,)]


def test_unordered_results_overtake_each_other_and_ordered_ones_do_not():
    with running(Gated(), ordered=False) as made:
        assert made.process([0, 1, 2]) == [(1,), (2,), (0,)]
    with running(Gated(), ordered=True) as made:
        assert made.process([0, 1, 2]) == [(0,), (1,), (2,)]


def test_results_are_emitted_while_later_rows_wait_for_a_place():
    function = Scripted(dict.fromkeys(range(40), 1), dict.fromkeys(range(40), 1))
    with running(function, capacity=4) as made:
        made.process(list(range(40)))
        assert len(made.batches) > 5
        assert max(map(len, made.batches)) <= 8


class Hangs(tg.AsyncFunction):
    """Never answers, and remembers what became of its calls."""

    def __init__(self, answer: Any = None) -> None:
        self.events: list[str] = []
        self.answer = answer

    async def async_invoke(self, row: Any) -> Any:
        self.events.append("called")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # Giving up takes a moment, too.
            self.events.append("ended")

    async def close(self) -> None:
        self.events.append("closed")


class HangsWithAnswer(Hangs):
    def timeout(self, row: Any) -> Any:
        return self.answer


def test_a_call_that_takes_too_long_is_cancelled_and_fails_its_row():
    function = Hangs()
    with (
        running(function, timeout="20 ms") as made,
        pytest.raises(FunctionFailed, match="no result within 20 ms, in 1 try"),
    ):
        made.process([7])
    assert function.events == ["called", "ended", "closed"]


def test_the_timeout_function_may_supply_the_result():
    with running(HangsWithAnswer((-1,)), timeout="10 ms") as made:
        assert made.process([1, 2]) == [(-1,), (-1,)]
        figures = made.operator.figures()
        assert figures is not None
        assert (figures.timeouts, figures.failures) == (2, 0)


class FailsAtFirst(tg.AsyncFunction):
    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.failures, self.error = failures, error
        self.tries: Counter[int] = Counter()

    async def async_invoke(self, row: Any) -> Any:
        self.tries[row.n] += 1
        if self.tries[row.n] <= self.failures:
            raise self.error("not yet")
        return row.n, self.tries[row.n]


TRIES = "n int, tries int"


def test_a_call_is_tried_again_as_often_as_its_strategy_allows():
    with running(FailsAtFirst(3), schema=TRIES, retry=tg.FixedDelayRetry(3, "1 ms")) as made:
        assert made.process([1, 2]) == [(1, 4), (2, 4)]
        figures = made.operator.figures()
        assert figures is not None
        assert (figures.calls, figures.retries) == (2, 6)
    retry = tg.FixedDelayRetry(2, "1 ms")
    with running(FailsAtFirst(3), schema=TRIES, retry=retry) as made, pytest.raises(FunctionFailed, match="not yet"):
        made.process([1])


def test_only_the_exceptions_that_the_strategy_names_are_tried_again():
    retry = tg.FixedDelayRetry(3, "1 ms", if_exception=(OSError,))
    with running(FailsAtFirst(1), schema=TRIES, retry=retry) as made:
        assert made.process([1]) == [(1, 2)]
    function = FailsAtFirst(1, ValueError)
    with running(function, schema=TRIES, retry=retry) as made, pytest.raises(FunctionFailed, match="ValueError"):
        made.process([1])
    assert function.tries[1] == 1


class GrowsUp(FailsAtFirst):
    async def async_invoke(self, row: Any) -> Any:
        self.tries[row.n] += 1
        return row.n, self.tries[row.n]


def test_a_result_can_be_a_reason_to_try_again_and_the_last_one_counts():
    retry = tg.FixedDelayRetry(2, "1 ms", if_result=lambda row: row[1] < 9)
    with running(GrowsUp(0), schema=TRIES, retry=retry) as made:
        assert made.process([1]) == [(1, 3)]


def test_the_timeout_counts_all_tries_and_the_delays_between_them():
    function = FailsAtFirst(1000)
    retry = tg.ExponentialBackoffDelayRetry(1000, "5 ms", "10 ms")
    options: dict[str, Any] = {"schema": TRIES, "retry": retry, "timeout": "60 ms", "on_error": "skip"}
    with running(function, **options) as made:
        assert made.process([1]) == []
        figures = made.operator.figures()
        assert figures is not None
        assert (figures.timeouts, figures.failures) == (1, 1)
        assert figures.most_us < 1_000_000
    assert 2 <= function.tries[1] <= 13


class TurnsCancellationIntoAnError(Hangs):
    async def async_invoke(self, row: Any) -> Any:
        try:
            return await super().async_invoke(row)
        except asyncio.CancelledError:
            raise ConnectionResetError("closed") from None


def test_a_timed_out_call_is_not_retried_even_if_it_ignores_its_cancellation():
    function = TurnsCancellationIntoAnError()
    options: dict[str, Any] = {"timeout": "20 ms", "retry": tg.FixedDelayRetry(50, "1 ms")}
    with running(function, **options) as made, pytest.raises(FunctionFailed, match="no result within 20 ms, in 1 try"):
        made.process([1])
    assert function.events == ["called", "ended", "closed"]


class FailsAmongHanging(Hangs):
    async def async_invoke(self, row: Any) -> Any:
        if row.n == 3:
            raise ValueError("a bad row")
        return await super().async_invoke(row)


def test_a_failure_cancels_the_other_calls_and_waits_for_them_before_it_closes_the_function():
    function = FailsAmongHanging()
    with running(function, ordered=False) as made, pytest.raises(FunctionFailed, match="a bad row") as failed:
        made.process([1, 2, 3])
    assert failed.value.report.row == "(n=3)"
    assert function.events == ["called", "called", "ended", "ended", "closed"]


@pytest.mark.parametrize("started", [0, 1, 5])
def test_an_attempt_that_is_abandoned_leaves_no_call_behind(started):
    function = Hangs()
    with running(function) as made:
        made.operator.accept([(n,) for n in range(started)])
    assert function.events[-1] == "closed"
    assert function.events.count("called") == function.events.count("ended")


def test_skipped_rows_are_counted_and_leave_no_dead_letter():
    function = Scripted(dict.fromkeys(range(4), 0), {0: 1, 1: -1, 2: 1, 3: -1})
    with running(function, on_error="skip") as made:
        assert made.process([0, 1, 2, 3]) == [(0,), (2,)]
        assert (made.operator.failed_rows, made.letters) == (2, [])


class Raises(tg.AsyncFunction):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def async_invoke(self, row: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GraphError("a mistake")]
)
def test_errors_that_no_row_can_cause_fail_the_task_even_if_rows_may_be_skipped(error):
    fatal = not isinstance(error, asyncio.CancelledError)
    with running(Raises(error), on_error="skip") as made:
        if fatal:
            with pytest.raises(FunctionFailed):
                made.process([1])
        else:
            assert made.process([1]) == []


class LeavesTheLoop(tg.AsyncFunction):
    """Ends the loop from a callback of its own, during a call or after it."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits

    async def async_invoke(self, row: Any) -> Any:
        asyncio.get_running_loop().call_soon(self.leave)
        if self.waits:
            await asyncio.Event().wait()
        return row

    def leave(self) -> None:
        raise SystemExit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
# A loop that ends in the middle leaves calls that nobody can end any more, and Python says so when it collects them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("waits", [True, False])
def test_a_loop_that_ends_on_its_own_fails_the_task_instead_of_hanging_it(waits):
    with running(LeavesTheLoop(waits=waits), capacity=1, on_error="skip") as made:
        with pytest.raises(FunctionFailed) as failed:
            made.process([1], [2], [3])
        assert isinstance(failed.value.__cause__, CallLoopEnded)


class NotAsync(tg.AsyncFunction):
    def async_invoke(self, row: Any) -> Any:  # type: ignore[override]
        return row


def test_error_names_an_async_function_that_is_no_coroutine():
    with running(NotAsync()) as made, pytest.raises(FunctionFailed, match="Write async def async_invoke"):
        made.process([1])


class PlainHooks(tg.AsyncFunction):
    """As in PyFlink, `open` and `close` need not be coroutines."""

    events: list[str]

    def open(self, ctx: Any) -> None:  # type: ignore[override]
        self.events = [ctx.get_task_name()]

    async def async_invoke(self, row: Any) -> Any:
        return row._replace(n=row.n + 1)

    def close(self) -> None:  # type: ignore[override]
        self.events.append("closed")


def test_plain_hooks_work_as_well():
    function = PlainHooks()
    with running(function) as made:
        assert made.process([1]) == [(2,)]
    assert function.events == ["call", "closed"]


class CannotOpen(Hangs):
    async def open(self, ctx: Any) -> None:
        raise ConnectionError("refused")


def test_a_function_that_cannot_open_fails_the_task_and_is_closed():
    before, loop, function = set(threading.enumerate()), CallLoop(), CannotOpen()
    with pytest.raises(FunctionFailed, match="refused"):
        Running(function, loop)
    loop.close()
    assert set(threading.enumerate()) == before


class Blocks(tg.AsyncFunction):
    """Ignores that it is cancelled, until the test is over."""

    begun, gate = threading.Event(), threading.Event()

    async def async_invoke(self, row: Any) -> Any:
        self.begun.set()
        self.gate.wait()
        return row


def test_a_call_that_blocks_the_loop_does_not_block_the_end_of_a_failed_attempt(monkeypatch, caplog):
    monkeypatch.setattr(CallLoop, "GRACE_S", 0.5)
    loop = CallLoop()
    made = Running(Blocks(), loop)
    made.operator.accept([(1,)])
    assert Blocks.begun.wait(60)
    made.operator.abort()
    loop.close()
    assert "blocks the event loop" in caplog.text
    Blocks.gate.set()
    loop._thread.join(60)
    assert not loop._thread.is_alive(), "it ends when the call lets it"


def test_a_loop_does_not_wait_for_a_blocking_call_that_was_given_up() -> None:
    """`asyncio.to_thread` cannot be cancelled; the epoch must not take as long as the slowest call that timed out."""
    let_go = threading.Event()

    async def give_up() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(let_go.wait, 30), 0.05)

    loop = CallLoop()
    loop.run(give_up())
    began = time.monotonic()
    loop.close()
    took_s = time.monotonic() - began
    let_go.set()
    assert took_s < 20
