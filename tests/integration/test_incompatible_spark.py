"""A job on a Spark that does other things than tidegate relies on is refused, and no row is processed.

Where Spark has a setting for it, it is Spark that differs. The check of settings, which comes first, is then off: a fork may take
a setting and ignore it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.runtime.driver import attempt
from tidegate.runtime.placement import anchor
from tidegate.state.keys.key_groups import salts

UNION = "spark.sql.unionOutputPartitioning"
CHECKSUMS = "spark.sql.shuffle.orderIndependentChecksum.enabled"


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield ctx.get_current_key(), self.n.value()


class Started:
    """A job that counts words, and what came of it."""

    def __init__(self, spark, folder: Path) -> None:
        self.sink = tg.CollectSink()
        self._checkpoint = tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 min")
        self._spark = spark
        self._job = tg.Job("words", parallelism=2)
        words = stream(spark, folder / "in", "w string", [[("a",)], [("a",)], [("a",)]])
        keyed = self._job.source("words", words).key_by("w")
        keyed.process("count", Count(), schema="w string, n bigint").sink("out", self.sink)

    def run(self) -> None:
        self._job.run(self._spark, trigger="available-now", checkpoint=self._checkpoint)

    def refused(self, kind: type[Exception] = tg.errors.IncompatibleSpark) -> str:
        """Return why the start was refused."""
        with pytest.raises(kind) as error:
            self.run()
        return str(error.value)


@pytest.fixture
def started(spark, tmp_path) -> Started:
    return Started(spark, tmp_path)


@pytest.fixture
def switched_off(spark):
    """Switch settings of Spark off until the end of the test."""
    changed = {}

    def switch_off(key: str) -> None:
        changed[key] = spark.conf.get(key)
        spark.conf.set(key, "false")

    yield switch_off
    for key, value in changed.items():
        spark.conf.set(key, value)


def test_a_job_runs_on_apache_spark(started):
    started.run()
    assert sorted(started.sink.rows) == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("key", "why"), [(UNION, "would not share partitions"), (CHECKSUMS, "nothing detects that a source task ran again")]
)
def test_a_setting_that_is_off_is_refused_with_the_reason(started, switched_off, key, why):
    switched_off(key)
    message = started.refused(tg.errors.PreconditionFailed)
    assert f'spark.conf.set("{key}", "true")' in message
    assert why in message


def test_a_job_is_refused_where_a_union_does_not_keep_partitions(started, switched_off, monkeypatch):
    """It is `INCOMPATIBLE_SPARK`: the setting of the session says that all is well."""
    switched_off(UNION)
    monkeypatch.setattr("tidegate.runtime.driver.launch.check_running", lambda spark: None)
    message = started.refused()
    assert (
        "a union of two inputs with 2 partitions each has 4 partitions, not 2: it does not keep the partitions"
        in message
    )
    assert started.sink.rows == []


def test_a_job_is_refused_where_spark_sends_rows_to_other_partitions(started, monkeypatch):
    """Of Spark, nothing can be changed for this: a function `hash` of the user's own does not replace Spark's. So tidegate is
    wrong about the partitions, and the difference is the same."""
    monkeypatch.setattr(anchor, "salts", lambda partitions: salts(partitions)[::-1])
    message = started.refused()
    assert "a repartition sends 16 of 16 rows to other partitions than Murmur3 with seed 42 does" in message
    assert started.sink.rows == []


def test_a_function_of_the_users_own_does_not_replace_the_hash_of_keys(spark, tmp_path):
    """Keys would belong to other tasks than those that have their state."""
    session = spark.newSession()
    session.udf.register("hash", lambda *keys: 7, "int")
    started = Started(session, tmp_path)
    started.run()
    assert sorted(started.sink.rows) == [("a", 1), ("a", 2), ("a", 3)]


def test_a_job_is_refused_where_the_offset_log_has_another_format(started, monkeypatch):
    """Spark's own file, changed after Spark has written it."""
    read_positions = attempt.read_positions

    def read_changed(directory: Path, batch_id: int) -> object:
        file = directory / "offsets" / str(batch_id)
        if file.exists():
            file.write_text(file.read_text().replace("v1\n", "v3\n", 1))
        return read_positions(directory, batch_id)

    monkeypatch.setattr(attempt, "read_positions", read_changed)
    message = started.refused()
    assert "offset log" in message
    assert "begins with 'v3" in message
    assert started.sink.rows == []


def test_a_job_ends_with_its_first_batch_where_the_commit_log_has_another_format(started, monkeypatch):
    check_commit_log = attempt.check_commit_log

    def check_changed(directory: Path, batch_id: int) -> None:
        file = directory / "commits" / str(batch_id)
        file.write_text(file.read_text().replace("v1\n", "v7\n", 1))
        check_commit_log(directory, batch_id)

    monkeypatch.setattr(attempt, "check_commit_log", check_changed)
    message = started.refused()
    assert "commit log" in message
    assert "begins with 'v7" in message
    assert started.sink.rows == []
