"""Repeatedly kill a counting job with SIGKILL, and show that its counts are exact.

    python examples/kill_me.py [--kills 2]

A job reads numbered events from a folder, counts them per user, and writes each new count to files. This script sends
events, kills the job while it works, restarts it, and finally compares the files with the events. Then it does the same to
plain Spark: a streaming query with Spark's own checkpoint, whose `foreachBatch` callback writes row by row.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

USERS = 5
ROWS_PER_FILE = 20
EVENTS = "id bigint, user int"


def tidegate_job(folder: Path) -> None:
    """The job that is killed. Each start finds the latest checkpoint by the job's name and folder."""
    import tidegate as tg

    class Count(tg.KeyedProcessFunction):
        n = tg.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.n.update(self.n.value() + 1)
            yield row.id, row.user, self.n.value()

    spark = tg.session("kill-me", master="local[2]", config={"spark.ui.enabled": "false", "spark.log.level": "OFF"})
    events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 2).json(str(folder / "in"))
    job = tg.Job("kill-me", parallelism=2)
    counts = (
        job.source("events", events).key_by("user").process("count", Count(), schema="id bigint, user int, n bigint")
    )
    counts.sink("out", tg.FileSink(str(folder / "out")))
    job.run(
        checkpoint=tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 s"),
        options={"local_dir": str(folder / "local")},
    )


def plain_job(folder: Path) -> None:
    """The same without tidegate: Spark's own checkpoint, and a callback that writes row by row."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    )
    events = builder.getOrCreate().readStream.schema(EVENTS).option("maxFilesPerTrigger", 2).json(str(folder / "in"))

    def append(batch, batch_id):
        with (folder / "out" / "rows.json").open("a", buffering=1) as file:
            for row in batch.collect():
                file.write(json.dumps(row.asDict()) + "\n")
                time.sleep(0.02)  # as long as a call to some service takes

    query = events.writeStream.option("checkpointLocation", str(folder / "checkpoints")).foreachBatch(append).start()
    query.awaitTermination()


JOBS = {"tidegate": tidegate_job, "plain": plain_job}


def rows_out(folder: Path) -> list[dict]:
    lines = [line for path in (folder / "out").glob("*.json") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


class Feeder:
    """Writes a file of events on each call to `feed`. Files appear atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events = folder, 0

    def feed(self) -> None:
        ids = range(self.events, self.events + ROWS_PER_FILE)
        draft = self.folder / "draft"
        draft.write_text("".join(json.dumps({"id": i, "user": i % USERS}) + "\n" for i in ids))
        draft.rename(self.folder / "in" / f"{self.events:08d}.json")
        self.events += ROWS_PER_FILE


def watch(job: subprocess.Popen[bytes], folder: Path, feeder: Feeder, before: int, last: bool) -> int:
    """Wait for new rows, or in the last run for all rows. Return the number of visible rows."""
    latest = time.monotonic() + 300
    while True:
        shown = len(rows_out(folder))
        if not last and shown > before:
            return shown
        if last and shown >= feeder.events:
            time.sleep(2)  # leave time for doubled rows to appear
            return shown
        if job.poll() is not None or time.monotonic() > latest:
            raise TimeoutError("it ended" if job.poll() is not None else "no new rows for five minutes")
        if not last and feeder.events - shown < 10 * ROWS_PER_FILE:
            feeder.feed()
        time.sleep(0.1)


def torment(kind: str, folder: Path, kills: int) -> tuple[int, list[dict]]:
    """Run one job, kill it `kills` times, each time after it has shown new rows, then let it finish."""
    for name in ("in", "out"):
        (folder / name).mkdir(parents=True)
    feeder = Feeder(folder)
    for kill in range(kills + 1):
        before = len(rows_out(folder))
        command = [sys.executable, __file__, "--job", kind, str(folder)]
        log = folder / f"run-{kill}.log"
        with log.open("wb") as said:
            # In a new process group, so that Spark's JVM dies with the job.
            job = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            shown = watch(job, folder, feeder, before, last=kill == kills)
        except TimeoutError as problem:
            raise SystemExit(f"The {kind} job made no progress: {problem}\n{log.read_text()[-2000:]}") from None
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        if kill < kills:
            print(f"  {kind}: {shown:4d} rows shown, killed", flush=True)
    return feeder.events, rows_out(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=2, help="how often each job is killed (default: 2)")
    parser.add_argument("--job", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        JOBS[options.job[0]](Path(options.job[1]))
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for kind in JOBS:
            print(f"{kind}:", flush=True)
            sent, rows = torment(kind, Path(scratch) / kind, options.kills)
            times = Counter(row["id"] for row in rows)
            lost, doubled = sent - len(times), sum(times.values()) - len(times)
            print(f"  {sent} events sent, {len(rows)} rows seen: {lost} lost, {doubled} doubled", flush=True)
            if kind == "tidegate":
                counts = defaultdict(list)
                for row in rows:
                    counts[row["user"]].append(row["n"])
                exact = all(sorted(c) == list(range(1, len(c) + 1)) for c in counts.values())
                print(f"  the count of every user goes up by one at a time: {'yes' if exact else 'NO'}", flush=True)
                wrong = lost + doubled + (not exact)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
