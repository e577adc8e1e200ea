"""What an epoch costs when it is wide: 200 slots and 3 levels, that is 40,000 barriers in each of two exchanges.

Not a race: figures for planning (time to build and plan the job, its run, bytes of control rows at the driver, core seconds that
the driver and all tasks spend on assignments). The same graph with 8 slots stands beside it, so that the part that grows with the
square of the slots shows.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams
from tidegate.runtime.epochs.sent_assignments import SentAssignments
from tidegate.runtime.exchange.task_parts import PackedAssignment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.runtime.epochs.reports import EpochReport


class Count(tg.KeyedProcessFunction):
    """Counts, and hands on under another key."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield f"{row.key}'", row.value


_OPENED = 8
"""Tasks of a level whose part is opened. The others are taken to cost the same."""


@dataclass
class Assignments:
    """What the assignments of each epoch cost: the driver while it packs them, and the tasks, which are repeated here."""

    seconds: Counter[int] = field(default_factory=Counter)
    """By epoch: seconds of the processor."""

    @contextmanager
    def measured(self) -> Iterator[None]:
        send = SentAssignments.send

        def measuring(sent: SentAssignments, assignment: Any, placed: Any) -> PackedAssignment:
            begin = time.process_time()
            packed = send(sent, assignment, placed)
            data = pickle.dumps(packed)
            self.seconds[assignment.epoch.number] += time.process_time() - begin
            opened = range(min(_OPENED, len(packed.parts)))
            begin = time.process_time()
            for partition in opened:
                pickle.loads(data).open(partition, _not_stored)
            share = len(packed.parts) / max(1, len(opened))
            self.seconds[assignment.epoch.number] += (time.process_time() - begin) * share
            return packed

        SentAssignments.send = measuring  # type: ignore[method-assign]
        try:
            yield
        finally:
            SentAssignments.send = send  # type: ignore[method-assign]


def _not_stored(path: str, start: int, length: int) -> bytes:
    raise AssertionError("a job without checkpoints has no storage")


def run(json_path: Path, quick: bool) -> dict[str, Any]:
    epochs, wide = (2, 16) if quick else (4, 200)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        work = Path(scratch)
        data = streams.prepare(
            work / "data", rows_per_epoch=20_000, files_per_epoch=2, epochs=epochs, warm_up=1, keys=5_000
        )
        spark = streams.session(8)
        try:
            reports: dict[int, list[EpochReport]] = {}
            costs: dict[int, Assignments] = {}
            for p in (8, wide):
                costs[p] = Assignments()
                with costs[p].measured():
                    reports[p] = _reports(spark, data, work / str(p), p)
        finally:
            spark.stop()
    figures: dict[str, Any] = {}
    for parallelism, found in reports.items():
        measured, name = found[1:], f"{parallelism} slots, {parallelism**2:,} barriers an exchange"
        for what, unit, values in (
            ("plan", "ms", [r.plan_ms for r in measured]),
            ("job", "ms", [r.job_ms for r in measured]),
            ("control rows", "bytes", [r.control_bytes for r in measured]),
            ("assignments", "core s", [costs[parallelism].seconds[r.epoch.number] for r in measured]),
        ):
            figures[f"{name}: {what}"] = harness.Figure(unit, tuple(map(float, values))).as_json()
    return {"figures": figures, "ratios": {}}


def _reports(spark: SparkSession, data: streams.Dataset, work: Path, parallelism: int) -> list[EpochReport]:
    job = tg.Job("wide", parallelism=parallelism)
    stream = job.source("rows", data.stream(spark))
    for level in ("one", "two", "three"):
        stream = stream.key_by("key").process(level, Count(), schema=streams.COLUMNS)
    stream.sink("out", tg.DiscardSink())
    running = job.start(spark, trigger="available-now", options={"local_dir": str(work)})
    running.await_termination()
    return list(running.reports)
