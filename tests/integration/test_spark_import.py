"""A Spark query that is stopped, imported and continued gives the output of one that never stopped."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.integration.moved_queries import MOVED, SCHEMA
from tidegate.control.cli.main import main

STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(spark):
    """Spark with the state store that transformWithState needs."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORE)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    spark.conf.set("spark.sql.shuffle.partitions", "4")


def batches():
    def row(key, value, second):
        return key, value, START + timedelta(seconds=second)

    return [
        [row("a", 1, 0), row("b", 2, 1), row("a", 1, 2)],
        [row("a", 3, 8), row("c", 5, 9), row(None, 1, 9)],
        [row("c", 5, 14), row("b", 2, 3)],
        [row("d", 1, 16), row("a", 4, 17), row("c", None, 17)],
        [row("b", 7, 30), row("a", 9, 2)],
        [row("e", 1, 60)],
        [row("e", 1, 61)],
    ]


def imported(tmp_path, *options):
    """Call the command. The job file is what a user would write, except that it takes the job from a table."""
    done = CliRunner().invoke(
        main, ["import", "spark", str(tmp_path / "spark"), "--job", str(tmp_path / "job.py"), *options, "-o", "json"]
    )
    assert done.exit_code in (0, 3), done.output
    return done.exit_code, json.loads(done.output)


def job_file(tmp_path, name):
    (tmp_path / "job.py").write_text(
        "from tests.integration.moved_queries import MOVED\n"
        f"def build(spark): return MOVED[{name!r}].job(spark, {str(tmp_path / 'in')!r})\n"
    )


@pytest.mark.parametrize("name", MOVED)
def test_a_query_that_was_stopped_and_imported_gives_the_output_of_one_that_was_not(store, tmp_path, name):
    moved, stop = MOVED[name], 4
    write_batches(tmp_path / "all", SCHEMA, batches())
    whole = []
    moved.query(store, str(tmp_path / "all"), str(tmp_path / "uninterrupted"), whole)

    write_batches(tmp_path / "in", SCHEMA, batches()[:stop])
    before = []
    moved.query(store, str(tmp_path / "in"), str(tmp_path / "spark"), before)
    job_file(tmp_path, name)
    code, plan = imported(tmp_path, "--dry-run")
    assert code == 0, plan
    assert not plan["left"]
    assert not (tmp_path / "savepoint").exists()
    code, done = imported(tmp_path, "--to", str(tmp_path / "savepoint"))
    assert (code, done["entries"]) == (0, sum(state["entries"] for state in plan["states"]))

    write_batches(tmp_path / "in", SCHEMA, batches()[stop:], first=stop)
    after = tg.CollectSink()
    moved.job(store, str(tmp_path / "in"), after).run(
        store,
        trigger="available-now",
        checkpoint=tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h"),
        options={"local_dir": str(tmp_path / "local"), "execution.state-recovery.path": done["external_path"]},
    )
    assert sorted(map(plain, [*before, *after.rows])) == sorted(map(plain, whole))


def plain(row):
    """A row as text, with times in UTC: Spark's come without a zone."""
    return repr([value.astimezone(UTC) if isinstance(value, datetime) else value for value in row])
