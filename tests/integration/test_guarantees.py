"""What a job promises end to end: modes, sources that forget, and the last checkpoint of a job that comes to its end."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.servers.fixtures import postgres_server
from tests.waiting import eventually
from tidegate.runtime.sources.kept_files import FilesVanish
from tidegate.runtime.sources.source_checks import check_sources

__all__ = ["postgres_server"]

SCHEMA = "k int, i bigint"
ROWS = [(i % 5, i) for i in range(50)]
RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


def fails_at_both_tries(folder: str) -> None:
    """Raises as often as an epoch is tried, and then never again: the job has to go back to its checkpoint once."""
    tried = Path(folder)
    tried.mkdir(exist_ok=True)
    if len(list(tried.iterdir())) < 2:
        (tried / uuid.uuid4().hex).touch()
        raise ConnectionError("not today")


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        if row.i == 35:
            fails_at_both_tries(self.folder)
        yield row.i, self.n.value()


class Numbered(tg.MapFunction, tg.CheckpointedFunction):
    """A map with state of its own: how many rows it has seen."""

    kept = tg.ListState(int, operator=True)

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def initialize_state(self, ctx):
        self.n = sum(self.kept.get())

    def snapshot_state(self, ctx):
        self.kept.update([self.n])

    def map(self, row):
        self.n += 1
        if row.i == 35:
            fails_at_both_tries(self.folder)
        return row.i, self.n


def rows_of(spark, job, folder):
    write_batches(folder, SCHEMA, [ROWS[at : at + 10] for at in range(0, 50, 10)])
    return job.source("in", spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder)))


def seen_after_a_failure(spark, tmp_path, mode, build, parallelism=2):
    """Run a job that fails in its fourth epoch, with no checkpoint but the first. Answer: rows seen, with their counts."""
    job = tg.Job("modes", parallelism=parallelism)
    build(rows_of(spark, job, tmp_path / "in")).sink("out", tg.FileSink(str(tmp_path / "out")))
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h", mode=mode)
    job.run(spark, trigger="available-now", checkpoint=checkpoint, options=RESTARTS)
    lines = [line for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    return Counter((row["i"], row["n"]) for row in map(json.loads, lines))


@pytest.mark.feature("D4", "J1", "J2", "N30")
@pytest.mark.parametrize(("mode", "again"), [("AT_LEAST_ONCE", 30), ("EXACTLY_ONCE", 0)])
def test_what_a_failure_repeats(spark, tmp_path, mode, again):
    """Three epochs were shown at once, in the one mode, and after the return to the checkpoint they are shown again.
    In both, no row is missing, and state has counted each once."""

    def counted(rows):
        return rows.key_by("k").process("count", Count(tmp_path / "raised"), schema="i bigint, n bigint")

    seen = seen_after_a_failure(spark, tmp_path, mode, counted)
    assert set(seen) == {(i, i // 5 + 1) for _, i in ROWS}
    assert sum(seen.values()) == len(ROWS) + again


@pytest.mark.feature("J6", "N31")
def test_a_pipeline_of_maps_and_filters_counts_every_row_once_in_either_mode(spark, tmp_path):
    """At least once: rows may be shown again, but whatever a function remembers has seen each once."""

    def mapped(rows):
        kept = rows.filter(lambda row: row.k != 4)
        return kept.map(Numbered(tmp_path / "raised"), schema="i bigint, n bigint", uid="numbered")

    seen = seen_after_a_failure(spark, tmp_path, "AT_LEAST_ONCE", mapped, parallelism=1)
    kept = [i for k, i in ROWS if k != 4]
    assert set(seen) == {(i, n) for n, i in enumerate(kept, 1)}


@pytest.mark.feature("C52", "N33")
def test_a_bounded_job_with_two_phases_commits_everything_before_it_ends(spark, tmp_path, postgres_server):
    """The next checkpoint would be due in an hour. The last one is taken at the end, whatever the interval."""
    table = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as db:
        db.execute(f"CREATE TABLE {table} (i bigint, n bigint)")
        job = tg.Job("bounded", parallelism=2)
        (tmp_path / "raised").mkdir()
        for _ in range(2):
            (tmp_path / "raised" / uuid.uuid4().hex).touch()
        rows = rows_of(spark, job, tmp_path / "in").key_by("k")
        counted = rows.process("count", Count(tmp_path / "raised"), schema="i bigint, n bigint")
        counted.sink("out", tg.PostgresSink(postgres_server.conninfo, table, two_phase=True))
        checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
        job.run(spark, trigger="available-now", checkpoint=checkpoint)
        found = db.execute(f"SELECT i, n FROM {table}").fetchall()
        assert sorted(found) == [(i, i // 5 + 1) for _, i in ROWS]
        assert db.execute("SELECT gid FROM pg_prepared_xacts").fetchall() == []


def test_a_session_that_ends_while_output_waits_ends_the_job(spark, tmp_path):
    """The batch that is held back would wait as long as the target is away; nobody would come to fetch it."""

    def away(rows, token):
        raise ConnectionError("nobody answers")

    job = tg.Job("held", parallelism=1)
    rows_of(spark, job, tmp_path / "in").sink("out", tg.WriteAheadSink(away, idempotent=True, publishes_in="driver"))
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="100 ms")
    run = job.start(spark, checkpoint=checkpoint, options={"execution.output.max-waiting-epochs": "1"})
    eventually(lambda: run.held_by is not None, "a batch that is held back")
    spark.stop()
    with pytest.raises(tg.errors.EpochFailed, match="session has ended while the job waited for a sink") as failed:
        run.await_termination(60)
    assert failed.value.session_ended


@pytest.mark.feature("J3")
def test_without_checkpoints_a_failure_ends_the_job_and_the_next_start_begins_without_state(spark, tmp_path):
    def run() -> list[tuple[int, int]]:
        shown = tg.CollectSink()
        job = tg.Job("forgets", parallelism=2)
        rows = rows_of(spark, job, tmp_path / "in").key_by("k")
        rows.process("count", Count(tmp_path / "raised"), schema="i bigint, n bigint").sink("out", shown)
        try:
            job.run(spark, trigger="available-now", options=RESTARTS)
        except tg.errors.UserCodeError:
            assert len(shown.rows) == 30
            raise
        return sorted(shown.rows)

    with pytest.raises(tg.errors.UserCodeError, match="not today"):
        run()
    assert run() == [(i, i // 5 + 1) for _, i in ROWS]


@pytest.mark.feature("J11", "J14", "D33")
def test_a_source_that_forgets_is_refused_unless_the_loss_is_accepted(spark, tmp_path):
    frame = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 9).load()
    job = tg.Job("forgets")
    job.source("in", frame).sink("out", tg.FileSink(str(tmp_path / "out")))
    with pytest.raises(tg.errors.PreconditionFailed, match=r"source 'in' reads a socket.*at_most_once=True"):
        job.start(spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 s"))
    check_sources(job.graph().sources, durable=False)
    assert "at most once with checkpoints, for source 'in'" in job.explain()
    accepting = tg.Job("accepts")
    accepting.source("in", frame, at_most_once=True)
    accepting.source("rate", spark.readStream.format("rate").load())
    check_sources(accepting.draft().sources)


@pytest.mark.feature("J11")
@pytest.mark.parametrize("accepted", [False, True])
def test_files_that_are_deleted_once_they_were_read_end_the_job_unless_that_is_accepted(spark, tmp_path, accepted):
    write_batches(tmp_path / "in", SCHEMA, [ROWS[at : at + 10] for at in range(0, 50, 10)])
    reading = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).option("cleanSource", "delete")
    job = tg.Job("vanishing", parallelism=2)
    rows = job.source("in", reading.parquet(str(tmp_path / "in")), at_most_once=accepted)
    rows.sink("out", tg.FileSink(str(tmp_path / "out")))
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
    refused = nullcontext() if accepted else pytest.raises(FilesVanish, match=r"source 'in'.*at_most_once=True")
    with refused:
        job.run(spark, trigger="available-now", checkpoint=checkpoint)
