"""A driver that starts again on the host of the last one: how soon its first epoch ends, and what it fetches.

A job fills its state, completes a checkpoint and is killed. Each sample is then a new process that starts the job, and is killed
after its first epoch with rows. "empty" is the same job without state; "found" has its versions on local disk; "fetched" has lost
them. Times run from the call that starts the job, in a Spark session that is warm: a whole start of Python and Spark would hide
the difference.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.start import kill

EMPTY, FOUND, FETCHED = "empty", "found", "fetched"
TASKS, VALUE_BYTES, EPOCHS = 4, 1_000, 8
_LIMIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Size:
    repetitions: int = 3
    megabytes: int = 2_048


QUICK = Size(repetitions=1, megabytes=20)


def run(
    json_path: Path, quick: bool, *, repetitions: int | None = None, megabytes: int | None = None,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    chosen = QUICK if quick else Size()
    size = Size(repetitions or chosen.repetitions, megabytes or chosen.megabytes)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as scratch:
        bench = _Bench(Path(scratch), size)
        harness.say(f"filling {size.megabytes:,} MB of state")
        bench.fill()
        samples = {name: bench.sample(name) for name in (EMPTY, FOUND, FETCHED) if only is None or name in only}
        times = harness.interleave(samples, size.repetitions, what="first epoch", unit="ms")
    ratios = {
        "first epoch: found / empty": harness.ratio(times, FOUND, EMPTY, at_most=1.2),
        "first epoch: found / fetched": harness.ratio(times, FOUND, FETCHED),
        "fetched by a start that finds its state / state": harness.bounded(
            bench.fetched[FOUND] / max(1, bench.state_bytes), at_most=0.001
        ),
    }
    return {
        "size": asdict(size) | {"state_bytes": bench.state_bytes},
        "figures": {f"first epoch: {name}": figure.as_json() for name, figure in times.items()},
        "fetched_bytes": bench.fetched,
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
    }


class _Bench:
    def __init__(self, folder: Path, size: Size) -> None:
        self._folder, self._size, self._starts = folder, size, 0
        self.fetched = dict.fromkeys((EMPTY, FOUND, FETCHED), 0)
        """The most that a start has fetched."""
        self.state_bytes = 0

    def fill(self) -> None:
        rows = self._size.megabytes * 1_000_000 // VALUE_BYTES
        self._process(self._folder / "job", rows)

    def sample(self, name: str) -> Callable[[], float]:
        def measure() -> float:
            self._starts += 1
            folder = self._folder / (f"empty-{self._starts}" if name == EMPTY else "job")
            if name == FETCHED:
                shutil.rmtree(folder / "local", ignore_errors=True)
            told = self._process(folder, 0)
            self.fetched[name] = max(self.fetched[name], told["remote_bytes"])
            self.state_bytes = max(self.state_bytes, told["local_bytes"] + told["remote_bytes"])
            return float(told["ms"])

        return measure

    def _process(self, folder: Path, rows: int) -> dict[str, Any]:
        """Run a process until it tells what it was asked for, and kill it."""
        folder.mkdir(exist_ok=True)
        answer = folder / "answer"
        answer.unlink(missing_ok=True)
        command = [sys.executable, "-m", "benchmarks.local_recovery", str(folder), str(rows)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        try:
            latest = time.monotonic() + _LIMIT_S
            while not answer.exists():
                if process.poll() is not None or time.monotonic() > latest:
                    raise RuntimeError(f"The job did not start: {(folder / 'log').read_text()[-3000:]}")
                time.sleep(0.02)
        finally:
            kill(process)
        return json.loads(answer.read_text())


# The process


def _run_job(folder: Path, rows: int) -> None:
    """Fill the state with so many rows and take a checkpoint, or run one epoch on a single row. Tell, and wait for the end."""
    import tidegate as tg
    from benchmarks import streams
    from tidegate.events.event import JobInitializationEvent

    class Keep(tg.KeyedProcessFunction):
        value = tg.ValueState(bytes)

        def process_element(self, row: Any, ctx: Any) -> Any:
            self.value.update(row.v)
            yield (row.k,)

    class Restored(tg.JobListener):
        local = remote = 0

        def on_initialization(self, event: JobInitializationEvent) -> None:
            self.local += sum(task.local_bytes for task in event.tasks)
            self.remote += sum(task.remote_bytes for task in event.tasks)

    spark = streams.session(TASKS)
    spark.range(4).mapInArrow(lambda batches: batches, "id bigint").collect()  # Python workers start
    _write(folder / "in", rows)
    heard = Restored()
    job = tg.Job("back", parallelism=TASKS)
    source = spark.readStream.schema("k bigint, v binary").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    kept = job.source("rows", source).key_by("k").process("keep", Keep(), schema="k bigint")
    kept.sink("out", tg.DiscardSink())
    begun = time.monotonic()
    run = job.start(
        spark,
        checkpoint=tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 h", incremental=True),
        state_backend="rocksdb",
        options={"local_dir": str(folder / "local")},
        listeners=[heard],
        force=True,
    )
    wanted = max(1, rows)
    while sum(report.rows_in for report in run.reports) < wanted:
        time.sleep(0.01)
    took_ms = (time.monotonic() - begun) * 1000
    if rows:
        run.trigger_checkpoint().result(_LIMIT_S)
    told = {"ms": took_ms, "local_bytes": heard.local, "remote_bytes": heard.remote}
    (folder / "draft").write_text(json.dumps(told))
    (folder / "draft").rename(folder / "answer")
    run.await_termination()


def _write(folder: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    numbers = [range(first, min(rows, first + rows // EPOCHS + 1)) for first in range(0, rows, rows // EPOCHS + 1)]
    for keys in numbers or [range(1)]:
        values = [os.urandom(VALUE_BYTES) for _ in keys]
        table = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.binary())})
        draft = folder.parent / "rows"
        pq.write_table(table, draft, compression="none")
        draft.rename(folder / f"{time.time_ns()}.parquet")


if __name__ == "__main__":
    _run_job(Path(sys.argv[1]), int(sys.argv[2]))
