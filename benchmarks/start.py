"""How long it takes until something comes out: after a cold start, and after SIGKILL.

Every sample is a process of its own. `start` runs from the call that begins the process until the first row of output is seen,
with input waiting; `recovery` from SIGKILL until the first row that was not there before, with input that keeps coming. The
killed process has completed a few checkpoints, and holds the counts of 1,000 keys.

All read the same files. "plain foreachBatch" writes the rows as they are: no state, and no Python on the workers, which alone
takes a cold Spark several seconds. "plain with Python" passes them through a Python function that does nothing, in
`mapInArrow`. "Spark SQL count" and tidegate count.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import harness

PLAIN, PYTHON, COUNTED = "plain foreachBatch", "plain with Python", "Spark SQL count"
NONE, KEPT = "tidegate", "tidegate with checkpoints"
_CONTESTANTS = (PLAIN, PYTHON, COUNTED, NONE, KEPT)
_KEYS, _ROWS = 1_000, 2_000
_ROWS_BEFORE_KILL = 10 * _ROWS
_LIMIT_S = 300.0
_QUIET = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
_COLUMNS = "k bigint, i bigint"


def run(json_path: Path, quick: bool, repetitions: int | None = None, only: list[str] | None = None) -> dict[str, Any]:
    times = repetitions or (1 if quick else 5)
    chosen = [name for name in _CONTESTANTS if only is None or name in only]
    starts = harness.interleave({name: _start(name) for name in chosen}, times, what="start", unit="ms")
    durable = {name: _recovery(name) for name in chosen if name != NONE}
    recoveries = harness.interleave(durable, times, what="recovery", unit="ms")
    ratios = {
        f"start: {NONE} / plain": harness.ratio(starts, NONE, PLAIN, at_most=1.2),
        f"start: {KEPT} / plain": harness.ratio(starts, KEPT, PLAIN, at_most=1.2),
        f"start: {NONE} / {PYTHON}": harness.ratio(starts, NONE, PYTHON),
        f"start: {KEPT} / {PYTHON}": harness.ratio(starts, KEPT, PYTHON),
        f"start: {KEPT} / {COUNTED}": harness.ratio(starts, KEPT, COUNTED),
        f"recovery: {KEPT} / plain": harness.ratio(recoveries, KEPT, PLAIN, at_most=1.5),
        f"recovery: {KEPT} / {PYTHON}": harness.ratio(recoveries, KEPT, PYTHON),
        f"recovery: {KEPT} / {COUNTED}": harness.ratio(recoveries, KEPT, COUNTED),
    }
    figures = {f"start: {name}": figure for name, figure in starts.items()}
    figures |= {f"recovery: {name}": figure for name, figure in recoveries.items()}
    return {
        "figures": {name: figure.as_json() for name, figure in figures.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
    }


def _start(name: str) -> Callable[[], float]:
    def sample() -> float:
        with _folder() as folder:
            feeder = Feeder(folder)
            feeder.feed()
            begin = time.monotonic()
            with _process(name, folder, 1) as process:
                seen_at = _await_rows(folder, 1, feeder, process)
            return (seen_at - begin) * 1000

    return sample


def _recovery(name: str) -> Callable[[], float]:
    def sample() -> float:
        with _folder() as folder:
            feeder = Feeder(folder)
            with _process(name, folder, 1) as first:
                _await_rows(folder, _ROWS_BEFORE_KILL, feeder, first)
                begin = time.monotonic()
                kill(first)
            shown = _rows_out(folder)
            with _process(name, folder, 2) as second:
                seen_at = _await_rows(folder, shown + 1, feeder, second)
            return (seen_at - begin) * 1000

    return sample


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tidegate-start-", ignore_cleanup_errors=True) as scratch:
        for name in ("in", "out"):
            (Path(scratch) / name).mkdir()
        yield Path(scratch)


@contextmanager
def _process(name: str, folder: Path, turn: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "benchmarks.start", name, str(folder)]
    with (folder / f"run-{turn}.log").open("wb") as log:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        yield process
    except Exception:
        harness.say((folder / f"run-{turn}.log").read_text()[-3000:])
        raise
    finally:
        kill(process)
        if keep := os.environ.get("TIDEGATE_START_LOGS"):
            target = Path(keep) / f"{name.replace(' ', '-')}-{turn}.log"
            target.write_bytes((folder / f"run-{turn}.log").read_bytes())


def kill(process: subprocess.Popen[bytes]) -> None:
    """The process and its JVM, as when a host dies."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Feeder:
    """Writes a file of rows whenever it is asked to, each whole at once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._rows = folder, 0

    def feed(self) -> None:
        rows = range(self._rows, self._rows + _ROWS)
        draft = self._folder / "draft"
        draft.write_text("".join(f'{{"k":{i % _KEYS},"i":{i}}}\n' for i in rows))
        draft.rename(self._folder / "in" / f"{self._rows:09d}.json")
        self._rows += _ROWS


def _await_rows(folder: Path, count: int, feeder: Feeder, process: subprocess.Popen[bytes]) -> float:
    """When so many rows had been seen. Feeds a file every half second."""
    latest = time.monotonic() + _LIMIT_S
    fed_at = time.monotonic()
    while (now := time.monotonic()) < latest:
        if _rows_out(folder) >= count:
            return now
        if process.poll() is not None:
            raise RuntimeError("The process ended.")
        if now - fed_at > 0.5:
            feeder.feed()
            fed_at = now
        time.sleep(0.02)
    raise TimeoutError(f"There were fewer than {count} rows after {_LIMIT_S:g} s.")


def _rows_out(folder: Path) -> int:
    """Rows that a reader sees. Those that wait to be published lie in hidden folders."""
    files = [path for path in (folder / "out").glob("*.json") if not path.name.startswith((".", "_"))]
    return sum(path.read_bytes().count(b"\n") for path in files)


# The processes


def _plain(folder: Path) -> None:
    _query(folder, _source(_session(), folder).writeStream.foreachBatch(_writer(folder)))


def _python(folder: Path) -> None:
    def same(batches: Any) -> Any:
        yield from batches

    rows = _source(_session(), folder).mapInArrow(same, _COLUMNS)
    _query(folder, rows.writeStream.foreachBatch(_writer(folder)))


def _spark_count(folder: Path) -> None:
    counts = _source(_session(), folder).groupBy("k").count()
    _query(folder, counts.writeStream.outputMode("update").foreachBatch(_writer(folder)))


def _writer(folder: Path) -> Callable[[Any, int], None]:
    def write(batch: Any, number: int) -> None:
        batch.write.mode("append").json(str(folder / "out"))

    return write


def _query(folder: Path, writer: Any) -> None:
    writer.option("checkpointLocation", str(folder / "checkpoints")).start().awaitTermination()


def _session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in {**_QUIET, "spark.log.level": "ERROR"}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _source(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 5).json(str(folder / "in"))


def _tidegate(folder: Path, kept: bool) -> None:
    import tidegate as tg

    class Count(tg.KeyedProcessFunction):
        n = tg.ValueState(int, default=0)

        def process_element(self, row: Any, ctx: Any) -> Any:
            self.n.update(self.n.value() + 1)
            yield row.k, self.n.value()

    job = tg.Job("start", parallelism=2)
    rows = job.source("rows", _source(tg.session("start", master="local[2]", config=_QUIET), folder))
    rows.key_by("k").process("count", Count(), schema="k bigint, n bigint").sink(
        "out", tg.FileSink(str(folder / "out"))
    )
    checkpoint = tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 s") if kept else None
    job.run(checkpoint=checkpoint, options={"local_dir": str(folder / "local")})


_PROGRAMS: dict[str, Callable[[Path], None]] = {
    PLAIN: _plain,
    PYTHON: _python,
    COUNTED: _spark_count,
    NONE: lambda folder: _tidegate(folder, False),
    KEPT: lambda folder: _tidegate(folder, True),
}


if __name__ == "__main__":
    _PROGRAMS[sys.argv[1]](Path(sys.argv[2]))
