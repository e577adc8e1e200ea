"""The second part of `benchmarks release`: a job on a cluster of two workers whose target is out of reach for a while."""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness
from benchmarks.release_setup import MessageCounter, Servers, Size, ask
from benchmarks.streams import ROOT
from chaos.counted import SPARK

if TYPE_CHECKING:
    from tidegate.runtime.driver.job_run import JobRun

KEYS = 1_000
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Away:
    """What was measured while the target was away and when it was back."""

    rows: int
    """That waited."""
    retry_s: float
    """From the return of the target until the job reached it."""
    published_s: float
    """From then until the last of these rows was seen."""
    normal_per_minute: float
    """Completed checkpoints."""
    away_per_minute: float

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 2) for name, value in asdict(self).items()}


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        n = self.n.value() + 1
        self.n.update(n)
        yield row.k, f"value-{row.i:09d} of a row with some text"


def as_record(row: Any) -> tuple[str, str]:
    return str(row.k), row.v


@dataclass
class Files:
    """Input, a file for each epoch. A file appears whole."""

    folder: Path
    rows_per_epoch: int
    files: int = field(default=0, init=False)

    def write(self) -> None:
        rows = range(self.files * self.rows_per_epoch, (self.files + 1) * self.rows_per_epoch)
        draft = self.folder / f".{self.files:06d}.json"
        draft.write_text("".join(json.dumps({"k": i % KEYS, "i": i}) + "\n" for i in rows))
        draft.rename(self.folder / draft.name[1:])
        self.files += 1

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_epoch


def released(target: str, servers: Servers, size: Size) -> Away:
    from tidegate.testing.cluster import StandaloneCluster

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    with ExitStack() as open:
        folder = Path(
            open.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-release-", ignore_cleanup_errors=True))
        )
        for name in ("in", "local"):
            (folder / name).mkdir()
        harness.say("starting a cluster")
        cluster = open.enter_context(
            StandaloneCluster(directory=folder / "cluster", environment={"PYTHONPATH": str(ROOT)}, cores=2)
        )
        spark = tg.session("release", master=cluster.url, config=SPARK)
        open.callback(spark.stop)
        job = tg.Job("release", parallelism=size.job_slots)
        rows = spark.readStream.schema("k bigint, i bigint").option("maxFilesPerTrigger", 1)
        counted = job.source("rows", rows.json(f"{folder}/in")).key_by("k")
        values = counted.process("count", Count(), schema="k bigint, v string")
        count = open.enter_context(_sink(target, servers, values))
        files = Files(folder / "in", size.rows_per_epoch)
        files.write()
        running = job.start(
            spark, options={"local_dir": f"{folder}/local"},
            checkpoint=tg.Checkpointing(dir=f"{folder}/checkpoints", interval=size.interval, incremental=True),
        )  # fmt: skip
        open.callback(running.stop)
        return _Measuring(running, files, count, servers, size).measure()


@contextmanager
def _sink(target: str, servers: Servers, values: Any) -> Iterator[Callable[[], int]]:
    """The sink is added to the stream. Gives how many rows readers see, by a way that is never cut."""
    if target == "postgres":
        table = f"t{uuid.uuid4().hex[:12]}"
        database = servers.database
        ask(database.conninfo, f"CREATE TABLE {table} (k bigint, v text)")
        values.sink("out", tg.PostgresSink(database.behind(servers.target_wire), table))
        yield lambda: int(ask(database.conninfo, f"SELECT count(*) FROM {table}")[0][0])
        return
    topic = servers.broker.topic(4)
    values.map(as_record, schema="key string, value string").sink(
        "out", tg.KafkaSink(servers.broker.second_servers, topic)
    )
    counter = MessageCounter(servers.broker.bootstrap_servers, topic)
    try:
        yield lambda: counter.count(0.05)
    finally:
        counter.close()


class _Measuring:
    def __init__(self, running: JobRun, files: Files, count: Callable[[], int], servers: Servers, size: Size) -> None:
        self._running, self._files, self._count, self._size = running, files, count, size
        self._wire = servers.target_wire

    def measure(self) -> Away:
        self._feed(lambda: self._epochs() >= 3)
        self._until(lambda: self._count() >= self._files.rows, "the first rows are seen")
        harness.say("the job runs")
        normal = self._checkpoints_per_minute(lambda begun: time.monotonic() - begun > self._size.normal_s)
        self._until(lambda: self._count() >= self._files.rows, "all rows are seen")
        seen, first = self._files.rows, self._epochs()
        with self._wire.cut():
            harness.say(f"the target goes away; {normal:.1f} checkpoints per minute")
            away = self._checkpoints_per_minute(
                lambda begun: (
                    self._epochs() - first >= self._size.epochs and time.monotonic() - begun > self._size.normal_s
                )
            )
            # Whatever waits is to wait in a completed checkpoint.
            self._until(lambda: self._epochs() >= self._files.files, "the input is read")
            done, latest = self._completed(), time.monotonic() + 10
            self._until(lambda: self._completed() >= done + 2 or time.monotonic() > latest, "a checkpoint completes")
            waiting = self._files.rows - seen
            harness.say(f"the target is back; {waiting} rows wait, {away:.1f} checkpoints per minute")
        back = time.monotonic()
        self._until(lambda: self._count() >= self._files.rows, "all rows are seen again")
        end = time.monotonic()
        reached = self._wire.reached_at or back
        return Away(waiting, max(0.0, reached - back), max(end - reached, 1e-3), normal, away)

    def _checkpoints_per_minute(self, enough: Callable[[float], bool]) -> float:
        begun, completed = time.monotonic(), self._completed()
        self._feed(lambda: enough(begun))
        return (self._completed() - completed) * 60 / (time.monotonic() - begun)

    def _feed(self, enough: Callable[[], bool]) -> None:
        latest = time.monotonic() + _LIMIT_S
        while not enough():
            if self._files.files - self._epochs() < 3:
                self._files.write()
            self._check(latest, "enough epochs have run")
            time.sleep(0.02)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        latest = time.monotonic() + _LIMIT_S
        while not holds():
            self._check(latest, what)
            time.sleep(0.01)

    def _check(self, latest: float, what: str) -> None:
        if self._running.await_termination(0):
            raise AssertionError("the job has ended by itself")
        if time.monotonic() > latest:
            raise AssertionError(f"not within {_LIMIT_S:g} s: {what}")

    def _epochs(self) -> int:
        progress = self._running.query.lastProgress
        return 0 if progress is None else int(progress["batchId"]) + 1

    def _completed(self) -> int:
        report = self._running.checkpoints
        assert report is not None
        return report.counts.completed
