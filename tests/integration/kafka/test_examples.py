"""Examples that need a broker or a database, on those of the tests."""

from __future__ import annotations

import runpy
import uuid
from typing import Any

import psycopg
import pytest

import tidegate as tg
from tests.integration.kafka.topics import fill, values
from tests.servers.fixtures import postgres_server
from tests.sparks import ROOT

__all__ = ["postgres_server"]


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / name))


@pytest.mark.feature("N2")
def test_words_from_kafka_are_counted_in_windows(spark, kafka):
    program, topic, out = example("network_word_count.py"), kafka.topic(), tg.CollectSink()
    fill(kafka, topic, [{"value": line} for line in program["LINES"]])
    job = program["build"](program["from_kafka"](spark, kafka.bootstrap_servers, topic), out)
    job.run(spark, trigger="available-now")
    assert sorted(tuple(row) for row in out.rows) == [
        ("be", 1), ("be", 1), ("not", 1), ("or", 1), ("question", 1), ("to", 1), ("to", 2),
    ]  # fmt: skip


@pytest.mark.feature("N27", "N28")
@pytest.mark.parametrize(("guarantee", "doubled"), [("at-least-once", 30), ("exactly-once", 0)])
def test_rows_between_two_checkpoints_are_sent_twice_without_transactions_and_once_with_them(
    spark, kafka, tmp_path, guarantee, doubled
):
    program, source, target = example("kafka_to_kafka.py"), kafka.topic(), kafka.topic()
    program["send"](kafka.bootstrap_servers, source)
    program["run"](spark, kafka.bootstrap_servers, source, target, tmp_path, guarantee)
    rows = program["read"](kafka.bootstrap_servers, target)
    assert set(rows) == {f"{i} is number {i // 3 + 1} of k{i % 3}" for i in range(program["ROWS"])}
    assert rows.total() - len(rows) == doubled
    # Who reads without isolation sees no more: nothing was sent before its checkpoint.
    assert len(values(kafka, target, "read_uncommitted")) == rows.total()


@pytest.mark.feature("N33")
def test_a_bounded_job_commits_what_its_last_timers_emit_and_ends(spark, tmp_path, postgres_server):
    program, table = example("bounded_two_phase.py"), f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as db:
        db.execute(f"CREATE TABLE {table} (k int, i bigint, n bigint)")
        program["run"](spark, tmp_path, postgres_server.conninfo, table)
        assert program["look"](postgres_server.conninfo, table) == (55, 0)
        found = db.execute(f"SELECT k, i, n FROM {table} ORDER BY i, k").fetchall()
    assert found == [*((k, -1, 10) for k in range(5)), *((i % 5, i, i // 5 + 1) for i in range(50))]
