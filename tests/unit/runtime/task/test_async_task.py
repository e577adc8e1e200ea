"""Tasks with async functions: results stay in their epoch, and nothing outlives an attempt. No Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.unit.runtime.exchange.rows_kit import flat_rows
from tests.unit.runtime.task.test_sending import EPOCH, Echo, Sender, barriers, channels
from tests.unit.runtime.task.test_task_time import Remind
from tidegate.core.times import EpochTime
from tidegate.runtime.exchange.messages import FaultKind, TaskAck, decode_ack
from tidegate.runtime.exchange.program import exchange
from tidegate.runtime.exchange.user_code import decoded
from tidegate.runtime.task import run_level as task

HANGING = threading.Event()
CLOSED: list[str] = []
"""Rows that had been called when a function was closed: functions of a task are copies."""


class Slow(tg.AsyncFunction):
    """Answers after some turns of the loop, the first row last."""

    async def open(self, ctx: Any) -> None:
        self.called: list[str] = []

    async def async_invoke(self, row: Any) -> Any:
        turns = 30 - len(self.called)
        self.called.append(row.k)
        if row.k == "trap":
            raise ConnectionError("the service is away")
        for _ in range(turns):
            await asyncio.sleep(0)
        if row.k == "hang":
            HANGING.set()
            await asyncio.Event().wait()
        return row

    async def close(self) -> None:
        CLOSED.append(",".join(self.called))


class AsyncSender(Sender):
    """A task whose rows pass one or two async functions: before the shuffle, or behind the keyed operator."""

    def __init__(self, directory: Any, function: Any = None, *, before: bool = False, **options: Any) -> None:
        self.before, self.options = before, {"timeout": "1 min", "capacity": 3} | options
        job = tg.Job("by-hand", parallelism=2)
        rows = job.source("rows", tg.testing.frame("k string, ts timestamp"), event_time="ts")
        if before:
            rows = rows.async_map("call", Slow(), **self.options)
        one = rows.key_by("k").process("one", function or Echo(), schema="k string, n bigint")
        if not before:
            one = one.async_map("call", Slow(), **self.options).async_map("again", Slow(), **self.options)
        one.key_by("k").process("two", Echo(), schema="k string, n bigint").sink("out", tg.CollectSink())
        self._build(job, directory)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    CLOSED.clear()
    before = set(threading.enumerate())
    yield
    assert [thread for thread in threading.enumerate() if thread not in before] == []


def ack_of(sent: list[list[Any]]) -> TaskAck:
    (raw,) = [raw for barrier in barriers(sent) for raw in barrier.acks]
    return decode_ack(raw)


def test_results_are_sent_in_order_before_the_barriers(tmp_path):
    sent = AsyncSender(tmp_path).run([("a", 1)] * 7)
    rows = [row["n"] for channel in sent for row in channel[:-1]]
    assert rows == [1, 2, 3, 4, 5, 6, 7]
    assert sum(barrier.rows for barrier in barriers(sent)) == 7
    ack = ack_of(sent)
    assert ack.fault is None
    assert ack.operators == {"one": (7, 7), "call": (7, 7), "again": (7, 7)}
    assert [(figures.operator, figures.calls, figures.most_in_flight) for figures in ack.metrics.calls] == [
        ("again", 7, 3), ("call", 7, 3),
    ]  # fmt: skip
    assert sorted(CLOSED) == ["a,a,a,a,a,a,a"] * 2


def test_what_timers_emit_at_the_end_of_the_epoch_passes_the_function_before_the_barriers(tmp_path):
    sent = AsyncSender(tmp_path, Remind()).run([("a", 1), ("b", 2), ("c", 3)], time=EpochTime(0, 0, 2_500))
    assert sorted(row["k"] for channel in sent for row in channel[:-1]) == ["a", "b"]
    assert [channel[-1].rows for channel in sent] == [len(channel) - 1 for channel in sent]


def test_calls_before_the_shuffle_end_within_their_task(tmp_path):
    sent = AsyncSender(tmp_path, before=True).run_source([("a", 1), ("b", 1), ("c", 1), ("a", 2)])
    assert sum(end.rows for end in barriers(sent)) == 4
    ack = ack_of(sent)
    assert (ack.fault, ack.epoch, ack.operators["call"]) == (None, EPOCH, (4, 4))


@pytest.mark.parametrize("before", [True, False])
def test_a_call_that_fails_is_reported_with_its_row_and_leaves_nothing(tmp_path, before):
    sender = AsyncSender(tmp_path, before=before, ordered=False)
    rows = [("hang", 1), ("trap", 1), ("a", 1)]
    ack = ack_of(sender.run_source(rows) if before else sender.run(rows))
    assert ack.fault is not None
    assert ack.fault.kind is FaultKind.USER
    report = decoded(ack.fault.text)
    assert (report.operator, report.transient) == ("call", True)
    assert "'trap'" in (report.row or "")
    assert "the service is away" in report.error
    assert len(CLOSED) == (1 if before else 2)
    assert list(tmp_path.rglob("v*-*")) == []


@pytest.mark.parametrize("before", [True, False])
def test_failed_rows_are_skipped_and_counted(tmp_path, before):
    sender = AsyncSender(tmp_path, before=before, on_error="skip")
    rows = [("a", 1), ("trap", 1), ("b", 1)]
    ack = ack_of(sender.run_source(rows) if before else sender.run(rows))
    assert (ack.fault, ack.metrics.failed_rows, ack.operators["call"]) == (None, 1, (3, 2))
    assert next(each for each in ack.metrics.calls if each.operator == "call").failures == 1


@pytest.mark.parametrize("before", [True, False])
def test_an_attempt_that_spark_abandons_ends_its_calls(tmp_path, before):
    """Spark closes the generator of a task that it kills, here between two batches of its input."""
    sender = AsyncSender(tmp_path, before=before)

    def input() -> Iterator[pa.RecordBatch]:
        edge = exchange(sender.plan, 1)[0]
        own = pa.struct(list(sender.graph.sources[0].schema.to_arrow()))
        row = {"k": "hang", "ts": None}
        flat = flat_rows(edge, [row], 5)
        HANGING.clear()
        yield pa.RecordBatch.from_arrays([pa.array([row], own)], names=["s0"]) if before else flat
        assert HANGING.wait(60)
        raise GeneratorExit

    run = task.run_source_stage if before else task.run_level
    with pytest.raises(GeneratorExit):
        channels(run(sender.assignment(0 if before else 1), 0, 7, input()), exchange(sender.plan, 1))
    assert CLOSED[0 if before else -1] == "hang"


@pytest.mark.parametrize("ordered", [True, False])
def test_a_task_without_rows_starts_no_loop(tmp_path, ordered):
    ack = ack_of(AsyncSender(tmp_path, ordered=ordered).run([]))
    assert (ack.fault, ack.operators, ack.metrics.calls, CLOSED) == (None, {}, (), [])
