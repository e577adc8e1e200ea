"""The job under test: two keyed levels, fed file by file, whose results and state can be checked to the last row.

Level 1 counts the rows of each key and puts a mark on each; level 2 adds values up by another key. Both keep the marks
in their state. With `unique` marks, which are made anew by each attempt, rows of one attempt and state of another show.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.waiting import eventually, while_running
from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.runtime.driver.job_run import JobRun
    from tidegate.runtime.epochs.reports import EpochReport

SCHEMA = "k int, i bigint, v bigint"
KEYS = 24
BUCKETS = 16
READ_STATE = -1
"""As the number of a row: asks both levels what they hold for its keys."""


class Mark(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)
    marks = tg.MapState(int, str)

    def __init__(self, unique: bool) -> None:
        self.unique = unique
        self.opened = 0

    def open(self, ctx):
        self.opened += 1

    def process_element(self, row, ctx):
        if row.i == READ_STATE:
            for i, mark in self.marks.items():
                ctx.output("held-1", (i, mark))
            yield row.v, READ_STATE, 0, 0, 0, ""
            return
        self.n.update(self.n.value() + 1)
        # A function is made afresh for each attempt. To raise here would hide that it was not: Spark would try again.
        mark = uuid.uuid4().hex if self.unique else plain_mark(row.k, row.i, self.opened)
        self.marks.put(row.i, mark)
        yield row.i % BUCKETS, row.i, row.v, row.k, self.n.value(), mark


class Add(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)
    total = tg.ValueState(int, default=0)
    marks = tg.MapState(int, str)

    def process_element(self, row, ctx):
        if row.i == READ_STATE:
            for i, mark in self.marks.items():
                ctx.output("held-2", (i, mark))
            return
        self.n.update(self.n.value() + 1)
        self.total.update(self.total.value() + row.v)
        self.marks.put(row.i, row.mark)
        yield row.b, row.i, row.k, row.n, self.n.value(), self.total.value(), row.mark


def plain_mark(k: int, i: int, opened: int = 1) -> str:
    return f"{k}/{i}" if opened == 1 else f"{k}/{i} by a function that was opened {opened} times"


def rows(first: int, count: int = 60) -> list[tuple[int, int, int]]:
    """Rows that reach every slot of both levels. Numbers are never used twice."""
    return [(i * 7 % KEYS, i, i * i % 101) for i in range(first, first + count)]


class Trial:
    """One run of the job. Feed it, wait until it settles, then let `verify` say whether anything was lost or doubled."""

    def __init__(
        self, spark: SparkSession, folder: Path, *, unique: bool = False, backend: str = "rocksdb", **options: Any
    ) -> None:
        self.spark, self.folder = spark, folder
        self._backend = backend
        self._options = {"epoch_timeout_ms": 60_000, "host_timeout_ms": 60_000, **options}
        self._unique = unique
        self.fed: list[tuple[int, int, int]] = []
        self.files = 0
        self.out, self.held_1, self.held_2 = tg.CollectSink(), tg.CollectSink(), tg.CollectSink()
        self._run: JobRun | None = None
        self._ended = False

    @property
    def run(self) -> JobRun:
        assert self._run is not None
        return self._run

    @property
    def epochs(self) -> list[EpochReport]:
        """Epochs with rows."""
        return [report for report in self.run.reports if report.rows_in]

    @property
    def discarded(self) -> int:
        counters = self.run.counters
        return counters.repeats + counters.replacements + counters.rewinds

    def start(self) -> Trial:
        (self.folder / "in").mkdir(parents=True)
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        job = tg.Job("trial", parallelism=4, max_parallelism=128)
        one = (
            job.source("rows", source)
            .key_by("k")
            .process(
                "mark",
                Mark(self._unique),
                schema="b bigint, i bigint, v bigint, k int, n bigint, mark string",
                side_outputs={"held-1": "i bigint, mark string"},
            )
        )
        two = one.key_by("b").process(
            "add",
            Add(),
            schema="b bigint, i bigint, k int, n bigint, m bigint, total bigint, mark string",
            side_outputs={"held-2": "i bigint, mark string"},
        )
        two.sink("out", self.out)
        one.side_output("held-1").sink("held-1", self.held_1)
        two.side_output("held-2").sink("held-2", self.held_2)
        self._run = job.start(self.spark, state_backend=self._backend, options=self._options)
        return self

    def hurry(self, **timeouts: int) -> Trial:
        """From now on these timeouts hold. Before, while Python workers start up, they would be too short."""
        driver = self.run._job.runner
        driver.settings = replace(driver.settings, **timeouts)
        return self

    def feed(self, epochs: int = 1) -> Trial:
        """One file, so one epoch, after the other; returns before they are run."""
        for _ in range(epochs):
            new = rows(len(self.fed))
            self.fed += new
            self._write(new)
        return self

    def _write(self, new: list[tuple[int, int, int]]) -> None:
        # A file appears whole, or the stream might read half of it.
        write_batches(self.folder / "drafts", SCHEMA, [new], self.files)
        name = f"{self.files:06d}.parquet"
        (self.folder / "drafts" / name).rename(self.folder / "in" / name)
        self.files += 1

    def settle(self, timeout_s: float = 120.0) -> Trial:
        """Return when every file was run; raise what ended the job, if it ended."""
        eventually(while_running(self.run, lambda: len(self.epochs) >= self.files), f"{self.files} epochs", timeout_s)
        return self

    def failure(self, timeout_s: float = 120.0) -> BaseException:
        """What ended the job, which must be about to fail."""
        self._ended = True
        try:
            self.settle(timeout_s)
        except TidegateError as error:
            return error
        raise AssertionError("the job did not fail")

    def verify(self) -> None:
        """Every row once, counts and sums without a gap, and one mark per row in the results and in both levels' state."""
        self._write([(k, READ_STATE, b) for k, b in _covering()])
        self.settle()
        values = {i: v for _, i, v in self.fed}
        assert sorted(row.i for row in self.out.rows) == sorted(values)
        for counts in _grouped((row.k, row.n) for row in self.out.rows).values():
            assert sorted(counts) == list(range(1, len(counts) + 1))
        for bucket in _grouped((row.b, (row.m, row.total, row.i)) for row in self.out.rows).values():
            total = 0
            for place, (m, reported, i) in enumerate(sorted(bucket), 1):
                total += values[i]
                assert (m, reported) == (place, total)
        marks = {row.i: row.mark for row in self.out.rows}
        assert self._unique or marks == {i: plain_mark(k, i) for k, i, _ in self.fed}
        assert dict(self.held_1.rows) == marks
        assert dict(self.held_2.rows) == marks

    def stop(self) -> None:
        if self._run is not None and not self._ended:
            self._ended = True
            self._run.stop()


def _covering() -> Iterable[tuple[int, int]]:
    return ((n % KEYS, n % BUCKETS) for n in range(max(KEYS, BUCKETS)))


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found
