"""A bounded job with a two-phase-commit sink ends in order: last timers, last checkpoint, commit, exit.

    python examples/bounded_two_phase.py [--conninfo 'host=127.0.0.1 dbname=shop']

Tasks write rows into prepared transactions of PostgreSQL, which are durable and invisible. By the interval, the next checkpoint
is due in an hour. The job does not wait for it: when its input ends, its timers fire, it takes a last checkpoint, commits what is
prepared, and exits.

Without `--conninfo`, the program starts a database as the tests of this project do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import psycopg

import tidegate as tg

ROWS = 50
EPOCH = 10


class Count(tg.KeyedProcessFunction):
    """Number the rows of each key, and say goodbye to each key at the end of time."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        ctx.timer_service().register_event_time_timer(10**12)
        yield row.k, row.i, self.n.value()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), -1, self.n.value()


def build(rows, sink) -> tg.Job:
    job = tg.Job("bounded-two-phase", parallelism=2)
    source = job.source("rows", rows, event_time="ts")
    source.key_by("k").process("count", Count(), schema="k int, i bigint, n bigint").sink("out", sink)
    return job


def write_input(folder: Path) -> None:
    folder.mkdir()
    for number, first in enumerate(range(0, ROWS, EPOCH)):
        path = folder / f"{number}.json"
        path.write_text("\n".join(json.dumps({"k": i % 5, "i": i}) for i in range(first, first + EPOCH)))
        os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their modification times


def run(spark, folder: Path, conninfo: str, table: str, listeners=()) -> None:
    """Run the job to the end of its files, and of event time."""
    write_input(folder / "in")
    files = spark.readStream.schema("k int, i bigint").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    sink = tg.PostgresSink(conninfo, table, two_phase=True)
    checkpoint = tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 h")
    job = build(files.selectExpr("k", "i", "timestamp_seconds(i) AS ts"), sink)
    job.run(spark, trigger="available-now", drain=True, checkpoint=checkpoint, listeners=list(listeners))


class Watch(tg.JobListener):
    """Tell what readers of the table see after each epoch."""

    def __init__(self, conninfo: str, table: str) -> None:
        self.conninfo, self.table = conninfo, table

    def on_epoch(self, event) -> None:
        seen, prepared = look(self.conninfo, self.table)
        print(f"epoch {event.epoch}: {seen} rows visible, {prepared} transactions prepared")


def look(conninfo: str, table: str) -> tuple[int, int]:
    """How many rows readers see, and how many transactions wait for their commit."""
    with psycopg.connect(conninfo, autocommit=True) as db:
        [seen] = db.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or (0,)
        [prepared] = db.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() or (0,)
    return seen, prepared


def started_database(stack: ExitStack) -> str:
    from tests.servers.postgres import Postgres

    directory = Path(tempfile.mkdtemp(prefix="bounded-postgres-"))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    database = Postgres(directory)
    stack.callback(database.stop)
    return database.conninfo


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--conninfo", help="of a database that runs already, with max_prepared_transactions above 0")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        conninfo = options.conninfo or started_database(stack)
        table = f"counted_{uuid.uuid4().hex[:6]}"
        with psycopg.connect(conninfo, autocommit=True) as db:
            db.execute(f"CREATE TABLE {table} (k int, i bigint, n bigint)".encode())
        spark = tg.session("bounded-two-phase")
        begun = time.monotonic()
        run(spark, folder, conninfo, table, [Watch(conninfo, table)])
        seen, prepared = look(conninfo, table)
        print(f"after the job: {seen} rows visible, {prepared} transactions prepared")
        print(f"the interval is an hour; the job took {time.monotonic() - begun:.0f} s")
        spark.stop()


if __name__ == "__main__":
    main()
