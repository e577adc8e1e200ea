"""Jobs on local Spark that end in files and in a database: every row once, restarts included, and nothing left behind."""

from __future__ import annotations

import json
import uuid
from collections import Counter

import psycopg
import pytest

import tidegate as tg
from tests.integration.inputs import stream, write_batches
from tests.servers.fixtures import postgres_server
from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.write_ahead import CommitToken
from tidegate.runtime.checkpoints.sink_threads import OutputStopped
from tidegate.testing.table_sink import TableSink, table_named

__all__ = ["postgres_server"]

BATCHES = [[(n, f"k{n % 3}") for n in range(first, first + 5)] for first in range(0, 30, 5)]


class Numbered(tg.KeyedProcessFunction):
    """Each row with how many of its key came before: right only if state and output agree."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.v, row.k, self.n.value()


def run_in_two_parts(spark, tmp_path, *sinks, mode="EXACTLY_ONCE"):
    """Half of the input, an end, and the other half by a new run from the checkpoint."""
    folder, half = tmp_path / "in", len(BATCHES) // 2
    for first, batches in ((0, BATCHES[:half]), (half, BATCHES[half:])):
        write_batches(folder, "v int, k string", batches, first)
        job = tg.Job("sinks", parallelism=2)
        frame = spark.readStream.schema("v int, k string").option("maxFilesPerTrigger", 1).parquet(str(folder))
        rows = job.source("in", frame).key_by("k").process("n", Numbered(), schema="v int, k string, n bigint")
        for number, sink in enumerate(sinks):
            rows.sink(f"out{number}", sink)
        checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="300 ms", mode=mode)
        job.run(spark, trigger="available-now", checkpoint=checkpoint)


def expected():
    seen = Counter()
    for batch in BATCHES:
        for v, k in batch:
            seen[k] += 1
            yield v, k, seen[k]


def test_files_a_database_and_a_function_get_every_row_once(spark, tmp_path, postgres_server):
    table = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as db:
        db.execute(f"CREATE TABLE {table} (v integer, k text, n bigint)")
        db.execute(f"CREATE TABLE {table}_last (k text PRIMARY KEY, v integer, n bigint)")
        db.execute(f"CREATE TABLE {table}_two (v integer, k text, n bigint)")
        taken: dict[CommitToken, list] = {}
        run_in_two_parts(
            spark,
            tmp_path,
            tg.FileSink(str(tmp_path / "files"), partition_by=["k"]),
            tg.PostgresSink(postgres_server.conninfo, table),
            tg.PostgresSink(postgres_server.conninfo, f"{table}_last", mode="upsert", key=["k"]),
            tg.PostgresSink(postgres_server.conninfo, f"{table}_two", two_phase=True),
            tg.WriteAheadSink(
                lambda rows, token: taken.__setitem__(token, rows), idempotent=True, publishes_in="driver"
            ),
        )
        wanted = sorted(expected())
        assert sorted(db.execute(f"SELECT * FROM {table}").fetchall()) == wanted
        assert sorted(db.execute(f"SELECT * FROM {table}_two").fetchall()) == wanted
        last = {k: (v, n) for v, k, n in wanted}
        assert {k: (v, n) for k, v, n in db.execute(f"SELECT k, v, n FROM {table}_last")} == last
        assert db.execute("SELECT gid FROM pg_prepared_xacts").fetchall() == []
    found = [
        (row["v"], path.parent.name.removeprefix("k="), row["n"])
        for path in (tmp_path / "files").rglob("k=*/part-*")
        for row in map(json.loads, path.read_text().splitlines())
    ]
    assert sorted(found) == wanted
    assert sorted(row for rows in taken.values() for row in rows) == wanted


def test_marks_of_commits_are_swept_while_the_job_runs(spark, tmp_path):
    folder = tmp_path / "files"
    job = tg.Job("swept", parallelism=2)
    rows = job.source("in", stream(spark, tmp_path / "in", "v int, k string", BATCHES))
    rows.key_by("k").process("n", Numbered(), schema="v int, k string, n bigint").sink("out", tg.FileSink(str(folder)))
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="100 ms")
    job.run(spark, trigger="available-now", checkpoint=checkpoint)

    def epochs(paths):
        return {path.name.split("~")[2] for path in paths}

    committed, marked = epochs(folder.glob("part-*")), epochs((folder / ".tidegate-staged").glob("part-*"))
    assert len(committed) == len(BATCHES)
    assert marked < committed


def test_a_job_whose_table_is_missing_does_not_start(spark, tmp_path, postgres_server):
    with pytest.raises(tg.errors.SchemaError, match="There is no table nowhere"):
        run_in_two_parts(spark, tmp_path, tg.PostgresSink(postgres_server.conninfo, "nowhere"))


@pytest.mark.feature("J26")
def test_output_that_is_refused_stops_the_job_and_is_kept(spark, tmp_path):
    """A repeat would end the same, so nobody waits for it; when the reason is gone, the next start publishes every row."""
    sink = TableSink(uuid.uuid4().hex)
    table = table_named(sink.name)
    table.refusal = CommitRefused("The table is closed for the year.")
    with pytest.raises(OutputStopped, match=r"'out0'.*nothing was committed. The table is closed.*offered again"):
        run_in_two_parts(spark, tmp_path, sink)
    assert table.rows == []
    table.refusal = None
    run_in_two_parts(spark, tmp_path, sink)
    assert sorted(table.rows) == sorted(expected())


def test_output_that_is_refused_stops_an_at_least_once_job_too(spark, tmp_path):
    """It has no copy of the rows to offer again, so the epoch is repeated by the next start, and by no restart."""
    sink = TableSink(uuid.uuid4().hex)
    table = table_named(sink.name)
    table.refusal = CommitRefused("The table is closed for the year.")
    with pytest.raises(OutputStopped, match=r"nothing was committed. The table is closed.*reads its rows again"):
        run_in_two_parts(spark, tmp_path, sink, mode="AT_LEAST_ONCE")
    table.refusal = None
    run_in_two_parts(spark, tmp_path, sink, mode="AT_LEAST_ONCE")
    assert sorted(table.rows) == sorted(expected())
