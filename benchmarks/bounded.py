"""The same input as a batch program and as a stream that ends: what a run costs, and what a failure costs.

The input is ten files, the job counts rows by key. "batch" reads them with `spark.read`: one epoch, and nothing is stored.
"stream" reads one file in each epoch (`trigger="available-now"`) and takes checkpoints every second. If the driver dies when nine
tenths are read, a batch program reads everything again; the stream continues from its latest checkpoint. `recovery` is the run
that follows. All runs share a session.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from benchmarks import harness

BATCH, STREAM = "batch", "stream with checkpoints"
_FILES = 10
_COLUMNS = "k bigint"
_QUIET = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.n.update(self.n.value() + 1)
        return ()


def run(json_path: Path, quick: bool, repetitions: int | None = None, only: list[str] | None = None) -> dict[str, Any]:
    times, rows = repetitions or (1 if quick else 5), 1_000 if quick else 500_000
    spark = tg.session("bounded", master="local[2]", config=_QUIET)
    makers = {BATCH: _batch, STREAM: _stream}
    chosen = {name: maker for name, maker in makers.items() if only is None or name in only}
    for maker in chosen.values():
        maker(spark, rows, recovers=False)()  # Python workers, and what the JVM compiles.
    runs = {name: maker(spark, rows, recovers=False) for name, maker in chosen.items()}
    recoveries = {name: maker(spark, rows, recovers=True) for name, maker in chosen.items()}
    figures = harness.interleave(runs, times, what="run", unit="s")
    after = harness.interleave(recoveries, times, what="recovery", unit="s")
    ratios = {
        f"run: {STREAM} / {BATCH}": harness.ratio(figures, STREAM, BATCH),
        f"recovery: {BATCH} / {STREAM}": harness.ratio(after, BATCH, STREAM),
    }
    shown = {f"run: {name}": figure for name, figure in figures.items()}
    shown |= {f"recovery: {name}": figure for name, figure in after.items()}
    return {
        "figures": {name: figure.as_json() for name, figure in shown.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
    }


def _batch(spark: Any, rows: int, recovers: bool) -> Callable[[], float]:
    """A run after a failure is a run like any other."""

    def sample() -> float:
        with _folder() as folder:
            _write(folder, rows, 0, _FILES)
            job = _job(spark.read.schema(_COLUMNS).parquet(str(folder / "in")))
            return _timed(lambda: job.run(spark, state_backend="rocksdb"))

    return sample


def _stream(spark: Any, rows: int, recovers: bool) -> Callable[[], float]:
    def sample() -> float:
        with _folder() as folder:
            source = spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1)
            chosen: dict[str, Any] = {
                "trigger": "available-now",
                "state_backend": "rocksdb",
                "checkpoint": tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 s", incremental=True),
                "options": {"local_dir": str(folder / "local")},
            }

            def once() -> None:
                _job(source.parquet(str(folder / "in"))).run(spark, **chosen)

            read = _FILES - 1 if recovers else 0
            if read:
                _write(folder, rows, 0, read)
                once()
            _write(folder, rows, read, _FILES)
            return _timed(once)

    return sample


def _job(frame: Any) -> tg.Job:
    job = tg.Job("bounded", parallelism=2)
    counted = job.source("rows", frame).key_by("k").process("count", Count(), schema="k bigint")
    counted.sink("out", tg.DiscardSink())
    return job


def _write(folder: Path, rows: int, first: int, end: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for number in range(first, end):
        keys = np.random.default_rng(number).integers(0, rows, rows)
        pq.write_table(pa.table({"k": keys}), folder / "in" / f"{number:02d}.parquet")


def _timed(work: Callable[[], Any]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bounded-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)
