"""Latency, Kafka → count per key → Kafka: from the moment a row is sent to the moment a reader of committed rows sees the result.

tidegate is exactly once, with checkpoints at several intervals; plain Spark, its own stateful count with its own Kafka
connector, is at least once. All start an epoch as soon as the last one has ended. Contestants take turns within each rate, and
each has its own topics. For tidegate, the mean time that a row spends in each step is printed as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import harness, streams
from benchmarks.contestants.tidegate_jobs import by_row
from benchmarks.latency_breakdown import CheckpointTimes, CommitTimes, EpochTimes, breakdown
from benchmarks.latency_load import LoadOrder, Seen, match, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.servers.kafka import KafkaBroker
    from tidegate.events.event import CheckpointEvent
    from tidegate.runtime.driver.job_run import JobRun

PARTITIONS = 4
PLAIN = "plain at least once"
PERCENTILES = (50, 95, 99)
_LOOK_S = 0.02
_LOAD_S = 420.0


@dataclass(frozen=True, slots=True)
class Contestant:
    """tidegate with checkpoints at an interval; without one, plain Spark."""

    name: str
    interval: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    bounded: bool = False
    """Whether the goals apply to it."""


CONTESTANTS = (
    Contestant(PLAIN),
    Contestant("checkpoint every 10 s", "10 s"),
    Contestant("checkpoint every 1 s", "1 s"),
    Contestant("checkpoint every epoch", "10 ms"),
    Contestant("changelog every epoch", "10 ms", {"state.changelog.enabled": True}, bounded=True),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repetitions: int = 3
    rates: tuple[int, ...] = (1_000, 20_000)
    keys: int = 50_000
    warm_up_s: float = 15.0
    measured_s: float = 40.0


QUICK = Size(repetitions=1, rates=(500,), keys=1_000, warm_up_s=1.0, measured_s=4.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant at one rate."""

    latency_s: Any
    epoch_s: float
    """Median time from the start of an epoch to the start of the next."""
    steps: Mapping[str, float]
    """Mean milliseconds of a row in each step; empty for plain Spark."""

    def percentile(self, which: int) -> float:
        return float(np.percentile(self.latency_s, which))


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    from tests.servers.kafka import KafkaBroker, connector_jars

    size = QUICK if quick else Size()
    size = replace(size, repetitions=repetitions or size.repetitions)
    chosen = [each for each in CONTESTANTS if only is None or each.name in only]
    partitions = 2 * len(os.sched_getaffinity(0))
    found: dict[tuple[int, str], list[Run]] = {}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "kafka"
        folder.mkdir()
        broker = KafkaBroker(folder)
        try:
            settings = {
                "spark.jars": ",".join(map(str, connector_jars())),
                "spark.sql.streaming.numRecentProgressUpdates": "2000",
            }
            spark = streams.session(partitions, settings)
            try:
                bench = _Bench(spark, broker, Path(scratch), partitions, size)
                for turn in range(1, size.repetitions + 1):
                    for rate in size.rates:
                        for each in chosen:
                            measured = bench.measure(each, rate)
                            found.setdefault((rate, each.name), []).append(measured)
                            told = ", ".join(f"p{p} {measured.percentile(p):.2f}" for p in PERCENTILES)
                            harness.say(
                                f"{turn}/{size.repetitions} {rate} rows/s, {each.name}: {told} s, "
                                f"an epoch {measured.epoch_s:.2f} s"
                            )
            finally:
                spark.stop()
        finally:
            broker.stop()
    steps = {_named(rate, name): _mean_steps(runs) for (rate, name), runs in found.items() if runs[0].steps}
    print(_table_of_steps(steps))
    return {
        "size": asdict(size) | {"partitions": partitions, "kafka_partitions": PARTITIONS},
        "notes": [
            "Seconds from sending a row to seeing what was made of it, with read_committed.",
            "Broker, driver, tasks, sender and reader share the machine.",
        ],
        "figures": {name: figure.as_json() for name, figure in _figures(found).items()},
        "ratios": ratios(found, chosen, size.rates),
        "steps_ms": steps,
    }


def _named(rate: int, name: str) -> str:
    return f"{rate} rows/s, {name}"


def _figures(found: Mapping[tuple[int, str], Sequence[Run]]) -> dict[str, harness.Figure]:
    figures: dict[str, harness.Figure] = {}
    for (rate, name), runs in found.items():
        for which in PERCENTILES:
            samples = tuple(each.percentile(which) for each in runs)
            figures[f"{_named(rate, name)}: p{which}"] = harness.Figure("s", samples)
        figures[f"{_named(rate, name)}: epoch"] = harness.Figure("s", tuple(each.epoch_s for each in runs))
    return figures


def ratios(
    found: Mapping[tuple[int, str], Sequence[Run]], contestants: Sequence[Contestant], rates: Sequence[int]
) -> dict[str, Any]:
    """p99 of each tidegate contestant to that of plain Spark, and to the time of one of its own epochs."""
    figures = _figures(found)
    wanted: dict[str, Any] = {}
    for rate in rates:
        for each in contestants:
            if each.interval is None:
                continue
            own, plain = _named(rate, each.name), _named(rate, PLAIN)
            bounds = (1.5, 3.0) if each.bounded else (None, None)
            wanted[f"{own}: p99 / plain"] = harness.ratio(figures, f"{own}: p99", f"{plain}: p99", at_most=bounds[0])
            wanted[f"{own}: p99 / epoch"] = harness.ratio(figures, f"{own}: p99", f"{own}: epoch", at_most=bounds[1])
    return {name: ratio for name, ratio in wanted.items() if ratio is not None}


def _mean_steps(runs: Sequence[Run]) -> dict[str, float]:
    names = dict.fromkeys(name for each in runs for name in each.steps)
    return {name: sum(each.steps.get(name, 0.0) for each in runs) / len(runs) for name in names}


def _table_of_steps(steps: Mapping[str, Mapping[str, float]]) -> str:
    lines = []
    for who, parts in steps.items():
        lines.append(f"{who}: mean milliseconds of a row in each step")
        lines += [f"  {took:8.0f}  {name}" for name, took in parts.items()]
        lines.append(f"  {sum(parts.values()):8.0f}  together\n")
    return "\n".join(lines)


class _Bench:
    """Every run has topics and a directory of its own."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, work: Path, partitions: int, size: Size) -> None:
        self._spark, self._broker, self._work = spark, broker, work
        self._partitions, self._size = partitions, size

    def measure(self, contestant: Contestant, rate: int) -> Run:
        work = self._work / uuid.uuid4().hex
        work.mkdir()
        order = LoadOrder(
            servers=self._broker.bootstrap_servers,
            source=self._broker.topic(PARTITIONS),
            target=self._broker.topic(PARTITIONS),
            partitions=PARTITIONS,
            rows_per_s=rate,
            keys=self._size.keys,
            warm_up_s=self._size.warm_up_s,
            measured_s=self._size.measured_s,
        )
        return self._plain(order, work) if contestant.interval is None else self._tidegate(contestant, order, work)

    def _plain(self, order: LoadOrder, work: Path) -> Run:
        reader = self._spark.readStream.format("kafka").option("subscribe", order.source)
        reader = reader.option("kafka.bootstrap.servers", order.servers).option("startingOffsets", "earliest")
        counts = reader.load().selectExpr("cast(key as string) as key").groupBy("key").count()
        writer = counts.selectExpr("key", "cast(count as string) as value").writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", order.servers).option("topic", order.target)
        query = writer.option("checkpointLocation", str(work / "query")).outputMode("update").start()
        try:
            seen, begin_s, end_s = self._load(order, work)
            return Run(seen.between(begin_s, end_s).latency_s, _epoch_s(query, begin_s, end_s), {})
        finally:
            query.stop()

    def _tidegate(self, contestant: Contestant, order: LoadOrder, work: Path) -> Run:
        import tidegate as tg

        job = tg.Job(f"latency-{uuid.uuid4().hex[:8]}", parallelism=self._partitions)
        source = tg.kafka_source(self._spark, order.servers, order.source).selectExpr("cast(key as string) as key")
        counts = by_row(job.source("rows", source))
        records = counts.map(lambda row: (row.key, str(row.n)), schema="key string, value string")
        records.sink("out", tg.KafkaSink(order.servers, order.target))
        listener = _checkpoint_listener()
        running = job.start(
            self._spark,
            checkpoint=tg.Checkpointing(dir=str(work / "checkpoints"), interval=contestant.interval),
            options={"local_dir": str(work / "local"), "state.backend.type": "rocksdb", **contestant.options},
            listeners=[listener],
        )
        watch = _CommitWatch(running)
        try:
            seen, begin_s, end_s = self._load(order, work)
            epoch_s = _epoch_s(running.query, begin_s, end_s)
            epochs = _epochs(running)
        finally:
            watch.stop()
            running.cancel()
        if seen.duplicates:
            raise AssertionError(f"{contestant.name}: {seen.duplicates} output rows were seen twice")
        if running.restarts:
            raise AssertionError(f"{contestant.name}: the job was restarted {running.restarts} times")
        steps = breakdown(seen, begin_s, end_s, epochs, listener.completed, watch.commits())
        return Run(seen.between(begin_s, end_s).latency_s, epoch_s, steps)

    def _load(self, order: LoadOrder, work: Path) -> tuple[Seen, float, float]:
        result = work / "seen.npz"
        command = [sys.executable, "-m", "benchmarks.latency_load", str(written(order, work)), str(result)]
        done = subprocess.run(command, cwd=streams.ROOT, capture_output=True, text=True, timeout=_LOAD_S)
        if done.returncode != 0:
            raise AssertionError(f"The load failed: {done.stderr[-2000:]}")
        with np.load(result) as found:
            seen = match(found["sent_keys"], found["sent_s"], found["keys"], found["counts"], found["times_s"])
            begin_s, end_s, late_s = (float(found[name]) for name in ("begin_s", "end_s", "latest_s"))
            if not found["drained"]:
                raise AssertionError(f"{int(np.isnan(seen.seen_s).sum())} rows were never seen")
        if late_s > 0.2:
            harness.say(f"the sender was late by {late_s:.2f} s")
        return seen, begin_s, end_s


def _epoch_s(query: StreamingQuery, begin_s: float, end_s: float) -> float:
    """The median time between the starts of epochs."""
    starts = [_wall_s(progress.timestamp) for progress in query.recentProgress if progress.numInputRows]
    starts = [each for each in starts if begin_s <= each < end_s]
    return float(np.median(np.diff(starts))) if len(starts) > 1 else end_s - begin_s


def _wall_s(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def _epochs(running: JobRun) -> list[EpochTimes]:
    """All epochs of a run, each with the moment at which Spark fixed its offsets."""
    fixed = sorted(
        1000 * _wall_s(each.timestamp) + each.durationMs.get("latestOffset", 0)
        for each in running.query.recentProgress
        if each.numInputRows
    )
    epochs = []
    for report in list(running.reports):
        started_ms = float(report.ended_ms - report.duration_ms)
        before = [at for at in fixed if at <= started_ms + 5]
        epochs.append(
            EpochTimes(
                number=report.epoch.number,
                rows=report.rows_in,
                fixed_ms=min(before[-1], started_ms) if before and report.rows_in else started_ms,
                started_ms=started_ms,
                ended_ms=float(report.ended_ms),
                phases=report.phases,
            )
        )
    return epochs


def _checkpoint_listener() -> Any:
    import tidegate as tg

    class Listener(tg.JobListener):
        """Notes completed checkpoints."""

        def __init__(self) -> None:
            self.completed: list[CheckpointTimes] = []

        def on_checkpoint(self, event: CheckpointEvent) -> None:
            if event.completed and event.last_ack_ms is not None:
                self.completed.append(
                    CheckpointTimes(
                        number=int(event.epoch.partition(".")[2]),
                        triggered_ms=event.triggered_ms,
                        acked_ms=event.last_ack_ms,
                        completed_ms=event.triggered_ms + event.duration_ms,
                    )
                )

    return Listener()


class _CommitWatch:
    """Notes the commits of the sink: those of the driver as they end, those of tasks from the reports of epochs."""

    def __init__(self, running: JobRun) -> None:
        self._running = running
        self._seen: dict[int, CommitTimes] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="commits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def commits(self) -> list[CommitTimes]:
        return sorted(self._seen.values(), key=lambda each: each.started_ms)

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            statistics = self._running.checkpoints
            last = None if statistics is None else next(iter(statistics.sinks.last.values()), None)
            if last is not None:
                self._seen[last.ended_ms] = CommitTimes(
                    started_ms=last.ended_ms - last.duration_ms, ended_ms=last.ended_ms
                )
