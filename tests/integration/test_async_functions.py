"""Async functions on local Spark: before and after keyed state, through failures, and in workers that are used again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.metrics import catalog

SCHEMA = "k string, v int"
BATCHES = [[(f"k{n % 5}", n) for n in range(first, first + 30)] for first in range(0, 180, 30)]
ROWS = [row for batch in BATCHES for row in batch]
RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 3}


class Ask(tg.AsyncFunction):
    """Gives each row on, after a time that differs; some calls fail at first. Remembers its calls in a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = None if folder is None else str(folder)

    async def open(self, ctx: tg.RuntimeContext) -> None:
        self.failed: set[Any] = set()

    async def async_invoke(self, row: Any) -> Any:
        if self.folder is not None:
            Path(self.folder, f"{row.v}-{uuid.uuid4().hex}").touch()
        await asyncio.sleep(row.v % 7 / 1000)
        if row.v % 10 == 3 and row not in self.failed:
            self.failed.add(row)
            raise ConnectionError("try again")
        return row


class Number(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, row.v, self.n.value()


def asked(rows: Any, uid: str, function: tg.AsyncFunction, **options: Any) -> Any:
    retry = tg.FixedDelayRetry(3, "1 ms")
    return rows.async_map(uid, function, timeout="1 min", **({"capacity": 8, "retry": retry} | options))


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*.json") for line in path.read_text().splitlines()]


def check_numbers(rows: list[dict[str, Any]]) -> None:
    """Every row once, and every key counted without gap or repeat."""
    assert sorted((row["k"], row["v"]) for row in rows) == sorted(ROWS)
    counts = Counter(k for k, _ in ROWS)
    assert sorted((row["k"], row["n"]) for row in rows) == sorted(
        (k, n) for k in counts for n in range(1, counts[k] + 1)
    )


@pytest.mark.parametrize("ordered", [True, False])
def test_calls_before_and_after_keyed_state(spark, tmp_path, ordered):
    job = tg.Job("asked", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, BATCHES))
    before = asked(rows, "before", Ask(), ordered=ordered)
    numbered = before.key_by("k").process("number", Number(), schema="k string, v int, n bigint")
    after = asked(numbered, "after", Ask(), ordered=ordered)
    after.sink("out", tg.FileSink(str(tmp_path / "out")))
    totals = after.key_by("k").aggregate("totals", rows=tg.count())
    last = tg.CollectSink()
    asked(totals.map(lambda row: (row.k, row.rows), schema=SCHEMA), "last", Ask(), ordered=ordered).sink(
        "totals-out", last
    )
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "ckpt"), interval="200 ms")
    job.run(spark, trigger="available-now", checkpoint=checkpoint)

    out = written(tmp_path / "out")
    check_numbers(out)
    if ordered:
        for key in {k for k, _ in ROWS}:
            assert [row["v"] for row in sorted(out, key=lambda row: row["n"]) if row["k"] == key] == [
                v for k, v in ROWS if k == key
            ]
    assert {row[0]: max(n for k, n in last.rows if k == row[0]) for row in last.rows} == Counter(k for k, _ in ROWS)


class FailsAtHalf(Ask):
    """Fails at one row, if a checkpoint is there, until the epoch was given up once."""

    async def async_invoke(self, row: Any) -> Any:
        assert self.folder is not None
        folder = Path(self.folder)
        if row.v == 100 and any(folder.glob("ckpt/*/chk-*/_metadata")):
            tried = folder / "tried"
            tried.mkdir(exist_ok=True)
            if len(list(tried.iterdir())) < 2:
                (tried / uuid.uuid4().hex).touch()
                await asyncio.sleep(0.01)
                raise ConnectionError("at half of the input")
        return row


class KillsItsWorker(Ask):
    """Kills the Python worker while calls are in progress, once."""

    async def async_invoke(self, row: Any) -> Any:
        assert self.folder is not None
        Path(self.folder, "calls", f"{row.v}-{uuid.uuid4().hex}").touch()
        await asyncio.sleep(0.005)
        if row.v == 100:
            try:
                Path(self.folder, "killed").touch(exist_ok=False)
            except FileExistsError:
                return row
            os.kill(os.getpid(), signal.SIGKILL)
        return row


@pytest.mark.feature("H1")
@pytest.mark.parametrize("function", [FailsAtHalf, KillsItsWorker])
@pytest.mark.parametrize("before", [True, False])
def test_results_are_exact_although_calls_are_repeated(spark, tmp_path, function, before):
    (tmp_path / "calls").mkdir()
    job = tg.Job("half", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, BATCHES))
    if before:
        rows = asked(rows, "ask", function(tmp_path), ordered=False, retry=None)
    out = rows.key_by("k").process("number", Number(), schema="k string, v int, n bigint")
    if not before:
        out = asked(out, "ask", function(tmp_path), ordered=False, retry=None)
    out.sink("out", tg.FileSink(str(tmp_path / "out")))
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "ckpt"), interval="100 ms")
    job.run(spark, trigger="available-now", checkpoint=checkpoint, options=RESTARTS)

    check_numbers(written(tmp_path / "out"))
    if function is KillsItsWorker:
        calls = Counter(int(path.name.partition("-")[0]) for path in (tmp_path / "calls").iterdir())
        assert calls[100] == 2
        assert set(calls) == {v for _, v in ROWS}
    else:
        assert len(list((tmp_path / "tried").iterdir())) == 2


class Bad(tg.AsyncFunction):
    async def async_invoke(self, row: Any) -> Any:
        if row.v % 50 == 0:
            raise LookupError(f"nobody knows {row.v}")
        if row.v % 50 == 1:
            await asyncio.Event().wait()
        return row


def test_failures_and_timeouts_become_dead_letters_and_metrics(spark, tmp_path):
    job = tg.Job("letters", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, BATCHES))
    good, bad = tg.CollectSink(), tg.CollectSink()
    rows.async_map("ask", Bad(), timeout="50 ms", on_error=tg.dead_letter("bad")).sink("good", good)
    job.side_output("bad").sink("bad", bad)
    run = job.start(spark, trigger="available-now")
    run.await_termination()

    assert sorted(good.rows) == sorted(row for row in ROWS if row[1] % 50 > 1)
    letters = sorted((json.loads(row[2])["v"], row[0], row[3].partition(":")[0]) for row in bad.rows)
    wanted = {0: "LookupError", 1: "TimeoutError"}
    assert letters == [(v, "ask", wanted[v % 50]) for _, v in ROWS if v % 50 < 2]
    metrics = {each.metric: each.value for each in run.samples() if each.labels.get("operator") == "ask"}
    assert metrics[catalog.ASYNC_CALLS] == len(ROWS)
    assert (metrics[catalog.ASYNC_TIMEOUTS], metrics[catalog.ASYNC_FAILURES]) == (4, 8)
    assert metrics[catalog.ASYNC_IN_FLIGHT] > 1
    failed = sum(each.value for each in run.samples() if each.metric is catalog.RECORDS_IN_ERRORS)
    assert failed == 8


class Threads(tg.AsyncFunction):
    async def async_invoke(self, row: Any) -> Any:
        return os.getpid(), sum(thread.name == "tidegate-async" for thread in threading.enumerate())


def test_a_worker_that_is_used_again_keeps_no_loop_of_an_earlier_epoch(spark, tmp_path):
    job = tg.Job("threads", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, BATCHES))
    out = tg.CollectSink()
    rows.async_map("threads", Threads(), schema="pid int, loops int", timeout="10 s").sink("out", out)
    job.run(spark, trigger="available-now")

    assert len(out.rows) == len(ROWS)
    assert {loops for _, loops in out.rows} == {1}
    assert len({pid for pid, _ in out.rows}) < len(BATCHES)
