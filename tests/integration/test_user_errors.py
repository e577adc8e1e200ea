"""What a person sees when their function, their types or their session is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import stream, write_batches


class Divide(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row.k, 10 // row.v


class Liar(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row.k, "not a number"


def run(spark, df, function, sink=None):
    job = tg.Job("errors", parallelism=2)
    job.source("rows", df).key_by("k").process("divide", function, schema="k string, n bigint").sink(
        "out", sink or tg.CollectSink()
    )
    job.run(spark, trigger="available-now")


def test_an_error_of_the_function_names_operator_error_and_line(spark, tmp_path):
    df = stream(spark, tmp_path, "k string, v int", [[("a", 5)], [("a", 0)]])
    with pytest.raises(tg.errors.UserCodeError, match="operator 'divide' raised ZeroDivisionError") as caught:
        run(spark, df, Divide())
    assert "10 // row.v" in str(caught.value)
    assert caught.value.operator == "divide"


class Tried(tg.KeyedProcessFunction):
    """Notes each call, then raises."""

    def __init__(self, folder, error):
        self.folder, self.error = str(folder), error

    def process_element(self, row, ctx):
        Path(self.folder, uuid.uuid4().hex).touch()
        raise self.error


@pytest.mark.parametrize(("error", "calls"), [(AttributeError("no such thing"), 1), (ValueError("bad row"), 2)])
def test_a_mistake_ends_the_job_at_once_and_a_bad_row_at_its_second_try(spark, tmp_path, error, calls):
    """Whatever the restart strategy says; Spark, which would try each task four times, is not asked."""
    (tmp_path / "calls").mkdir()
    df = stream(spark, tmp_path / "in", "k string, v int", [[("a", 5)]])
    job = tg.Job("errors", parallelism=2)
    job.source("rows", df).key_by("k").process("tried", Tried(tmp_path / "calls", error), schema="k string").sink(
        "out", tg.CollectSink()
    )
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
    options = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100"}
    with pytest.raises(tg.errors.UserCodeError, match=r"row:  \(k='a', v=5\), key 'a'") as caught:
        job.run(spark, trigger="available-now", checkpoint=checkpoint, options=options)
    assert caught.value.fatal
    assert len(list((tmp_path / "calls").iterdir())) == calls


def test_an_error_before_the_first_shuffle_is_reported_like_any_other(spark, tmp_path):
    job = tg.Job("errors", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path, "k string, v int", [[("a", 5), ("b", 0)]]))
    rows.map(lambda row: (row.k, 10 // row.v), schema="k string, n int", name="divided").sink("out", tg.CollectSink())
    with pytest.raises(tg.errors.UserCodeError, match=r"'divided' raised ZeroDivisionError[^$]*row:  \(k='b', v=0\)"):
        job.run(spark, trigger="available-now")


def test_the_same_in_a_bounded_run(spark, tmp_path):
    df = spark.read.parquet(write_batches(tmp_path, "k string, v int", [[("a", 0)]]))
    with pytest.raises(tg.errors.UserCodeError, match="ZeroDivisionError"):
        run(spark, df, Divide())


def test_rows_that_do_not_fit_their_schema_are_refused_with_column_value_and_type(spark, tmp_path):
    df = stream(spark, tmp_path, "k string, v int", [[("a", 5)]])
    with pytest.raises(tg.errors.UserCodeError) as caught:
        run(spark, df, Liar())
    assert all(word in str(caught.value) for word in ("'n'", "not a number", "bigint"))
    assert caught.value.operator == "divide"


def test_a_state_of_the_wrong_type_is_the_functions_fault_and_is_named(spark, tmp_path):
    class Wrong(tg.KeyedProcessFunction):
        last = tg.ValueState(int)

        def process_element(self, row, ctx):
            self.last.update("text")
            yield row.k, 1

    df = stream(spark, tmp_path, "k string, v int", [[("a", 5)]])
    with pytest.raises(tg.errors.UserCodeError, match="State 'last'") as caught:
        run(spark, df, Wrong())
    assert caught.value.operator == "divide"


def test_a_trigger_without_a_unit_is_refused(spark, tmp_path):
    job = tg.Job("trigger", parallelism=2)
    df = stream(spark, tmp_path, "k string, v int", [[("a", 5)]])
    job.source("rows", df).key_by("k").process("divide", Divide(), schema="k string, n bigint").sink(
        "out", tg.CollectSink()
    )
    with pytest.raises(tg.errors.GraphError, match="no unit"):
        job.run(spark, trigger=5)


def test_a_session_without_the_settings_is_refused_with_the_lines_to_add(spark):
    from tidegate.runtime.driver.session import check_session

    check_session(spark.conf.get, spark.version)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        with pytest.raises(tg.errors.PreconditionFailed, match=r'\.config\("spark.sql.adaptive.enabled", "false"\)'):
            check_session(spark.conf.get, spark.version)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")


RULES = """
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import tidegate as tg


@dataclass
class Visit:
    at: datetime
    page: str


class Visits(tg.KeyedProcessFunction):
    seen = tg.ListState(Visit)

    def process_element(self, row, ctx):
        self.seen.add(Visit(datetime(2026, 1, 2), row.page))
        yield row.user, len(list(self.seen.get()))
"""
SCRIPT = """
import tidegate as tg
from rules import Visits

spark = tg.session("visits", master="local[2]")
rows = spark.createDataFrame([("ann", "home"), ("ann", "shop")], "user string, page string")
job = tg.Job("visits", parallelism=2)
job.source("rows", rows).key_by("user").process("visits", Visits(), schema="user string, n int").sink("out", tg.PrintSink())
job.run()
"""


@pytest.mark.budget(150)
def test_a_module_next_to_a_script_reaches_the_workers(tmp_path):
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True, text=True, cwd="/", env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"}, timeout=140,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-3000:]
    assert told.stdout.splitlines() == ["user='ann' n=1", "user='ann' n=2"]
