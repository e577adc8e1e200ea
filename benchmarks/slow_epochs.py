"""Checkpoints while every epoch takes 30 s: how long one takes compared with its upload, and whether any expires.

Each epoch has one row that takes 30 s and 400 keys whose state of 100 kB changes, so a checkpoint stores about 40 MB. Interval
and timeout are 10 s. The upload is that of the slowest task, as the task measures it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.checkpoint.coordination.statistics import CheckpointStats

PARALLELISM = 4
SLOW = -1
"""The key of the row that takes long."""


@dataclass(frozen=True, slots=True)
class Size:
    epochs: int = 5
    epoch_s: float = 30.0
    timeout_s: float = 10.0
    keys: int = 400
    value_bytes: int = 100_000


QUICK = Size(epochs=4, epoch_s=5.0, timeout_s=5.0, keys=40, value_bytes=10_000)


class Hold(tg.KeyedProcessFunction):
    """Keeps a value for each key, and takes its time for one row."""

    value = tg.ValueState(bytes)

    def process_element(self, row, ctx):
        if row.k == SLOW:
            time.sleep(row.seconds)
        else:
            self.value.update(os.urandom(row.size))
        yield (row.k,)


def run(json_path: Path, quick: bool, *, only: Sequence[str] | None = None) -> dict[str, Any]:
    size = QUICK if quick else Size()
    chosen = {"incremental": False, "changelog": True}
    found: dict[str, list[CheckpointStats]] = {}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        spark = streams.session(PARALLELISM)
        try:
            for name, changelog in chosen.items():
                if only is None or name in only:
                    harness.say(f"{size.epochs} epochs of {size.epoch_s:g} s, {name}")
                    found[name] = _checkpoints(spark, Path(scratch) / name, size, changelog)
        finally:
            spark.stop()
    result: dict[str, Any] = {"size": asdict(size), "figures": {}, "ratios": {}}
    for name, checkpoints in found.items():
        changed = size.keys * size.value_bytes
        done = [each for each in checkpoints if each.failure is None and each.checkpointed_size_bytes > changed / 2]
        ratios = tuple(each.end_to_end_ms / _upload_ms(each) for each in done)
        figures = {
            f"{name}: a checkpoint": harness.Figure("ms", tuple(float(each.end_to_end_ms) for each in done)),
            f"{name}: its upload": harness.Figure("ms", tuple(float(_upload_ms(each)) for each in done)),
            f"{name}: stored": harness.Figure("MB", tuple(each.checkpointed_size_bytes / 1e6 for each in done)),
            f"{name}: checkpoint / upload": harness.Figure("", ratios),
        }
        result["figures"] |= {key: figure.as_json() for key, figure in figures.items()}
        result["ratios"] |= {
            f"{name}: checkpoint / upload": harness.bounded(harness.Figure("", ratios).median, at_most=1.5),
            f"{name}: checkpoints that failed": harness.bounded(
                float(sum(each.failure is not None for each in checkpoints)), at_most=0
            ),
        }
    return result


def _upload_ms(checkpoint: CheckpointStats) -> int:
    return max(1, *(task.async_ms for task in checkpoint.tasks))


def _checkpoints(spark: SparkSession, work: Path, size: Size, changelog: bool) -> list[CheckpointStats]:
    """Return all checkpoints, failed ones included."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = work / "in"
    folder.mkdir(parents=True)
    for number in range(size.epochs):
        rows = {
            "k": [SLOW, *range(size.keys)],
            "seconds": [size.epoch_s] * (size.keys + 1),
            "size": [size.value_bytes] * (size.keys + 1),
        }
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.table(rows), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    job = tg.Job("hold", parallelism=PARALLELISM)
    stream = spark.readStream.schema("k bigint, seconds double, size bigint").option("maxFilesPerTrigger", 1)
    held = job.source("rows", stream.parquet(str(folder))).key_by("k")
    held.process("hold", Hold(), schema="k bigint").sink("out", tg.DiscardSink())
    checkpoint = tg.Checkpointing(
        dir=str(work / "checkpoints"), interval="10 s" if size.timeout_s >= 10 else "1 s",
        timeout=f"{size.timeout_s:g} s", incremental=True,
    )  # fmt: skip
    running = job.start(
        spark, trigger="available-now", state_backend="rocksdb", checkpoint=checkpoint,
        options={"local_dir": str(work / "local"), "state.changelog.enabled": changelog},
    )  # fmt: skip
    running.await_termination()
    assert running.checkpoints is not None
    taken = list(running.checkpoints.history())
    shutil.rmtree(work, ignore_errors=True)
    return taken
