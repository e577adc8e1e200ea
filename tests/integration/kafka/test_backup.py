"""What `docs/operations/backup.md` says, with a target of each kind: run, back up, run on, restore or copy, and start."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter

import psycopg
import pytest
from deltalake import DeltaTable

import tidegate as tg
from tests.contract.lakehouse.targets import IcebergTarget
from tests.integration.inputs import write_batches
from tests.integration.kafka.topics import read
from tests.servers.fixtures import postgres_server
from tests.waiting import remove
from tidegate.checkpoint.job_log.start import DirectoryMoved
from tidegate.checkpoint.layout import JobLayout
from tidegate.connectors.outcome import ForeignOutput
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.storage import open_storage

__all__ = ["postgres_server"]


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, f"{row.k}={self.n.value()}"


class Week:
    """One job that writes the same rows to five targets."""

    def __init__(self, spark, folder, kafka, postgres):
        self.spark, self.folder, self.kafka, self.postgres = spark, folder, kafka, postgres
        self.table = f"t{uuid.uuid4().hex}"
        self.topic = kafka.topic()
        self.iceberg = IcebergTarget(folder / "iceberg")
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {self.table} (key text, value text)")
        self.files = 0

    def job(self):
        job = tg.Job("week", parallelism=2)
        source = self.spark.readStream.schema("k string").parquet(str(self.folder / "in"))
        counted = job.source("rows", source).key_by("k").process("count", Count(), schema="key string, value string")
        counted.sink("files", tg.FileSink(str(self.folder / "out")))
        counted.sink("delta", tg.DeltaSink(str(self.folder / "delta"), create=True))
        counted.sink("iceberg", self.iceberg.sink)
        counted.sink("postgres", tg.PostgresSink(self.postgres.conninfo, self.table))
        counted.sink("kafka", tg.KafkaSink(self.kafka.bootstrap_servers, self.topic))
        return job

    def feed(self, *keys):
        write_batches(self.folder / "in", "k string", [[(key,) for key in keys]], self.files)
        self.files += 1

    def run(self, directory="checkpoints", *, fresh=False, **options):
        where = tg.Checkpointing(dir=str(self.folder / directory), interval="1 s")
        options = {"local_dir": str(self.folder / "local"), **options}
        self.job().run(self.spark, trigger="available-now", checkpoint=where, options=options, fresh=fresh)

    def run_fresh_from_checkpoint(self, directory="checkpoints"):
        """As `tidegate run --fresh -s CHECKPOINT`."""
        (metadata,) = (self.folder / directory / "week").glob("chk-*/_metadata")
        self.run(directory, fresh=True, **{"execution.state-recovery.path": str(metadata.parent)})

    def back_up(self):
        shutil.copytree(self.folder / "checkpoints", self.folder / "backup")

    def restore(self):
        remove(self.folder / "checkpoints")
        # A worker may still acknowledge a checkpoint after the end of its run, also between these two lines.
        shutil.copytree(self.folder / "backup", self.folder / "checkpoints", dirs_exist_ok=True)

    def copy(self):
        shutil.copytree(self.folder / "checkpoints", self.folder / "copy")

    def foreign(self):
        """The sinks whose targets have output that the checkpoint directory does not know."""
        storage = open_storage(str(self.folder / "checkpoints"))
        committers = Committers(self.job().graph(), storage)
        try:
            return set(JobHistory(storage, JobLayout("week"), None).foreign_output(committers.markers))
        finally:
            committers.close()

    def rows(self):
        """What readers find in each target."""
        lines = [line for path in (self.folder / "out").glob("*.json") for line in path.read_text().splitlines()]
        with psycopg.connect(self.postgres.conninfo) as connection:
            table = [value for (value,) in connection.execute(f"SELECT value FROM {self.table}").fetchall()]
        lake = self.iceberg.catalog().load_table("db.events").scan().to_arrow()
        return {
            "files": Counter(json.loads(line)["value"] for line in lines),
            "delta": Counter(DeltaTable(str(self.folder / "delta")).to_pyarrow_table()["value"].to_pylist()),
            "iceberg": Counter(lake["value"].to_pylist()),
            "postgres": Counter(table),
            "kafka": Counter(message.value().decode() for message in read(self.kafka, self.topic)),
        }


MONDAY, TUESDAY, WEDNESDAY = ["a=1", "b=1", "a=2"], ["a=3", "c=1"], ["b=2", "c=2"]
EVERY_TARGET = {"files", "delta", "iceberg", "postgres", "kafka"}


@pytest.mark.budget(600)
def test_a_restored_or_copied_job_is_refused_and_exact_in_every_way_on(spark, tmp_path, kafka, postgres_server):
    """One story, because a start of five sinks takes long: restored and accepted, restored and begun anew, copied and forked."""
    week = Week(spark, tmp_path, kafka, postgres_server)
    week.feed("a", "b", "a")
    week.run()
    assert week.foreign() == set()
    week.back_up()
    week.feed("a", "c")
    week.run()
    assert all(rows == Counter(MONDAY + TUESDAY) for rows in week.rows().values())
    assert week.foreign() == set()
    expected = check_restored_and_accepted(week)
    expected = check_restored_and_fresh(week, expected)
    check_copied_and_forked(week, expected)


def check_restored_and_accepted(week):
    week.restore()
    week.feed("b", "c")
    assert week.foreign() == EVERY_TARGET
    with pytest.raises(ForeignOutput, match="restored from an older backup"):
        week.run()
    assert all(rows == Counter(MONDAY + TUESDAY) for rows in week.rows().values())
    week.run(**{"execution.state-recovery.accept-foreign-output": True})
    expected = Counter(MONDAY + TUESDAY + TUESDAY + WEDNESDAY)
    assert week.rows() == dict.fromkeys(EVERY_TARGET, expected)
    week.feed("d")
    week.run()
    expected += Counter(["d=1"])
    assert week.rows() == dict.fromkeys(EVERY_TARGET, expected)
    return expected


def check_restored_and_fresh(week, expected):
    """Monday's backup again. A new line of history writes all rows since then, next to those of both lost ones."""
    week.restore()
    assert week.foreign() == EVERY_TARGET
    week.run_fresh_from_checkpoint()
    expected += Counter([*TUESDAY, *WEDNESDAY, "d=1"])
    assert week.rows() == dict.fromkeys(EVERY_TARGET, expected)
    assert week.foreign() == set()
    return expected


def check_copied_and_forked(week, expected):
    """A copy beside the original is refused, and becomes a fork. Both write what follows, each under its own markers."""
    week.copy()
    week.feed("a", "e")
    with pytest.raises(DirectoryMoved, match="--fresh -s CHECKPOINT"):
        week.run("copy")
    assert week.rows() == dict.fromkeys(EVERY_TARGET, expected)
    week.run_fresh_from_checkpoint("copy")
    expected += Counter(["a=4", "e=1"])
    assert week.rows() == dict.fromkeys(EVERY_TARGET, expected)
    week.run()
    expected += Counter(["a=4", "e=1"])
    assert week.rows() == dict.fromkeys(EVERY_TARGET, expected)
