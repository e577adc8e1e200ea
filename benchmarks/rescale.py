"""How long a running job pauses for a rescale from 4 to 8 slots, against a stop with a savepoint and a start from it.

State is a text of 1,000 characters for each key, in RocksDB. Each contestant begins with 4 slots and the same state, of which
an epoch has changed a part since the latest checkpoint:

- *rescale*: `run.rescale(8)`. The pause is the time in which no batch is read.
- *stop and start*: `run.stop_with_savepoint(format="NATIVE")`, then a start with 8 slots in the same session. The pause is from
  the request to the moment when the new run has its state.

`restore share` is the part of the rescale's pause in which the new tasks restore their state.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from benchmarks import harness, streams
from tidegate.runtime.driver.job_run import JobRun
from tidegate.runtime.monitoring.rescale_history import RescalePhase

VALUE = 1_000
ROWS_PER_FILE = 100_000
BEFORE, AFTER = 4, 8
WAIT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class RescaleSize:
    repetitions: int = 3
    megabytes: int = 2048


QUICK = RescaleSize(repetitions=1, megabytes=4)


class Keep(tg.KeyedProcessFunction):
    """Keeps a text for each key, which differs from key to key."""

    text = tg.ValueState(str, default="")

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.text.update(Random(row.k).randbytes(VALUE // 2).hex())
        if row.k < 0:
            yield (row.k,)


class _Job:
    """One job in a folder of its own, with all its keys in state and 4 slots."""

    def __init__(self, spark: Any, folder: Path, keys: int) -> None:
        self._spark, self._folder, self._files = spark, folder, 0
        for first in range(0, keys, ROWS_PER_FILE):
            self.feed(range(first, min(first + ROWS_PER_FILE, keys)))
        self.run = self.start(BEFORE)
        self.await_rows(keys)
        self.run.trigger_checkpoint().result(WAIT_S)

    def feed(self, keys: range) -> None:
        (self._folder / "in").mkdir(exist_ok=True, parents=True)
        hidden = self._folder / "in" / f".{self._files}.parquet"
        pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), hidden)
        hidden.rename(hidden.with_name(f"{self._files:06d}.parquet"))
        self._files += 1

    def start(self, parallelism: int) -> JobRun:
        job = tg.Job("rescaled", parallelism=parallelism, max_parallelism=128)
        rows = (
            self._spark.readStream.schema("k bigint").option("maxFilesPerTrigger", 1).parquet(str(self._folder / "in"))
        )
        job.source("rows", rows).key_by("k").process("keep", Keep(), schema="k bigint").sink("out", tg.CollectSink())
        return job.start(
            self._spark, state_backend="rocksdb", options={"local_dir": str(self._folder / "local")},
            checkpoint=tg.Checkpointing(dir=str(self._folder / "checkpoints"), interval="1 h", incremental=True),
        )  # fmt: skip

    def await_rows(self, count: int) -> None:
        latest = time.monotonic() + WAIT_S
        while sum(report.rows_in for report in list(self.run.reports)) < count:
            if self.run.has_ended or time.monotonic() > latest:
                raise RuntimeError(f"the job does not read its rows: {self.run.status}")
            time.sleep(0.02)

    def change_some(self) -> None:
        """Let an epoch change a few keys, so that the state is not that of the latest checkpoint."""
        before = sum(report.rows_in for report in list(self.run.reports))
        self.feed(range(1_000))
        self.await_rows(before + 1_000)


def run(
    json_path: Path, quick: bool, *, repetitions: int | None = None, megabytes: int | None = None
) -> dict[str, Any]:
    size = QUICK if quick else RescaleSize()
    size = replace(size, megabytes=megabytes or size.megabytes, repetitions=repetitions or size.repetitions)
    keys = size.megabytes * 1_000_000 // VALUE
    spark = streams.session(AFTER)
    shares: list[float] = []

    def rescale() -> float:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
            job = _Job(spark, Path(scratch), keys)
            job.change_some()
            done = job.run.rescale(AFTER).result(WAIT_S)
            restoring = sum(span.duration_ms for span in done.phases if span.phase is RescalePhase.RESTORING)
            shares.append(restoring / done.pause_ms)
            job.run.cancel()
            return done.pause_ms

    def stop_and_start() -> float:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
            job = _Job(spark, Path(scratch), keys)
            job.change_some()
            began = time.monotonic()
            job.run.stop_with_savepoint(str(Path(scratch) / "savepoints"), format="NATIVE")
            job.run = job.start(AFTER)
            took_ms = (time.monotonic() - began) * 1000
            job.run.cancel()
            return took_ms

    contestants = {"rescale": rescale, "stop and start": stop_and_start}
    figures = harness.interleave(contestants, size.repetitions, what="rescale", unit="ms")
    return {
        "size": asdict(size) | {"keys": keys, "slots": f"{BEFORE} to {AFTER}"},
        "figures": {name: figure.as_json() for name, figure in figures.items()},
        "restore_share": harness.Figure("", tuple(shares)).as_json(),
        "ratios": {"rescale / stop and start": harness.ratio(figures, "rescale", "stop and start", at_most=0.3)},
    }
