"""Declaring a job builds a graph, and mistakes are told on the line that makes them."""

from __future__ import annotations

import sys
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame, NullSink, Totals, shop
from tidegate.core.errors import GraphError, SchemaError
from tidegate.graph.model import StreamRef
from tidegate.graph.validate import DuplicateUid
from tidegate.runtime.epochs.run_options import RunOptions

COLUMNS = "user string,amount double,ts timestamp"


def job_and_stream() -> tuple[tg.Job, Any]:
    job = tg.Job("orders")
    return job, job.source("orders", Frame(COLUMNS))


def test_a_job_becomes_a_graph() -> None:
    graph = shop().graph()
    orders, refunds, negated, kept, totals, regions, alerts, board, archive = graph.nodes
    assert graph.sources == (orders, refunds)
    assert (orders.event_time, orders.out_of_orderness_ms, orders.bounded) == ("ts", 5000, False)
    assert kept.input.streams == (StreamRef(orders.id), StreamRef(negated.id))
    assert totals.input.key == ("user",)
    assert [state.name for state in totals.states] == ["total", "orders_seen"]
    assert alerts.input.streams == (StreamRef(totals.id, "large"),)
    assert graph.sinks == (alerts, board, archive)
    assert regions.input.schema.ddl() == "user string, region string, amount double, ts timestamp"


def test_a_function_object_is_called_by_its_method_and_a_callable_as_it_is() -> None:
    class Doubled(tg.MapFunction):
        def map(self, row: Any) -> Any:
            return row * 2

    job, orders = job_and_stream()
    orders.map(Doubled()).flat_map(lambda row: [row], schema="a int", name="one each")
    _, doubled, each = job.graph().nodes
    assert doubled.call(4) == 8
    assert each.call(4) == [4]
    assert (doubled.name, each.name, each.schema.ddl()) == ("Doubled", "one each", "a int")


def test_one_function_object_may_serve_two_operators() -> None:
    job, orders = job_and_stream()
    shared = Totals()
    for uid in ("a", "b"):
        orders.key_by("user").process(uid, shared, schema="user string")
    assert [process.states for process in job.graph().processes] == [job.graph().processes[0].states] * 2


@pytest.mark.parametrize(
    ("late", "expected_ms"), [("5 s", 5000), (timedelta(minutes=1), 60_000), ("250 ms", 250), (None, 0)]
)
def test_out_of_orderness(late: Any, expected_ms: int) -> None:
    job = tg.Job("orders")
    job.source("orders", Frame(COLUMNS, isStreaming=False), event_time="ts", out_of_orderness=late)
    (source,) = job.graph().sources
    assert (source.out_of_orderness_ms, source.bounded) == (expected_ms, True)


@pytest.mark.feature("A13")
def test_parallelism_has_flinks_default() -> None:
    assert tg.Job("a", parallelism=100).max_parallelism == 256
    assert tg.Job("a").max_parallelism is None
    with pytest.raises(GraphError, match="between 1 and 4"):
        tg.Job("a", parallelism=5, max_parallelism=4)


class Stateful(tg.MapFunction):
    n = tg.ValueState(int)

    def map(self, row: Any) -> Any: ...


PROCESS: Any = {"schema": "user string"}


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda job, s: job.source("x", "not a frame"), "takes a Spark DataFrame.*got str"),
        (lambda job, s: job.source("x", Frame(COLUMNS), out_of_orderness="1 s"), "Add event_time"),
        (lambda job, s: job.source("x", Frame(COLUMNS), event_time="user"), "not a timestamp"),
        (lambda job, s: s.map(3), "takes a MapFunction or a callable; got 3"),
        (lambda job, s: s.map(Stateful), r"Pass Stateful\(\)"),
        (lambda job, s: s.map(Stateful()), "declares keyed state, but map has no key"),
        (lambda job, s: s.filter(Totals()), "takes a FilterFunction"),
        (lambda job, s: s.key_by(), "at least one column"),
        (lambda job, s: s.key_by("who"), "The columns are user, amount, ts"),
        (lambda job, s: s.key_by("user").process("p", Totals, **PROCESS), r"Write Totals\(\)"),
        (lambda job, s: s.key_by("user").process("p", print, **PROCESS), "has no process_element"),
        (lambda job, s: s.union(tg.Job("b").source("x", Frame(COLUMNS))), "Streams of two jobs"),
        (lambda job, s: s.union(job.source("x", Frame("a int"))), "source 'orders' has .* and source 'x' has"),
        (lambda job, s: s.sink("out", NullSink), r"takes an instance, not the class NullSink. Write NullSink\(…\)"),
        (lambda job, s: s.sink("out", "file"), "cannot write to .file., which has no create_writer"),
        (lambda job, s: s.side_output("late"), "used but not declared"),
        (lambda job, s: s.union(s).side_output("late"), "A union has no side output"),
        (lambda job, s: job.side_output("late"), "No operator declares a side output 'late'"),
        (lambda job, s: job.run(), "has no sink"),
    ],
)
def test_a_mistake_is_reported_with_its_line(mistake: Any, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        mistake(*job_and_stream())


def test_a_uid_and_a_schema_are_checked_at_once_too() -> None:
    job, orders = job_and_stream()
    with pytest.raises(DuplicateUid, match="to source 'orders' and to sink 'orders'"):
        orders.sink("orders", NullSink())
    with pytest.raises(SchemaError, match="Did you mean 'double'"):
        orders.map(len, schema="total doubel")
    assert len(job.graph().nodes) == 1


def test_a_side_output_is_found_by_its_tag_if_only_one_operator_has_it() -> None:
    job, orders = job_and_stream()
    by_user = orders.key_by("user")
    first = by_user.process("first", Totals(), schema="a int", side_outputs={"late": "b int"})
    assert job.side_output("late").schema == first.side_output("late").schema
    second = by_user.process("second", Totals(), schema="a int", side_outputs={"late": "c int"})
    with pytest.raises(GraphError, match="declared by process 'first' and process 'second'"):
        job.side_output("late")
    assert second.side_output("late").schema.ddl() == "c int"


@pytest.mark.feature("A13")
def test_run_hands_the_graph_to_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runtime:
        @staticmethod
        def run_job(graph: Any, options: RunOptions, spark: Any) -> Any:
            return graph, options, spark

    monkeypatch.setitem(sys.modules, "tidegate.runtime.driver.launch", Runtime)  # type: ignore[arg-type]
    job = shop()
    graph, options, spark = job.run("a session", trigger="1 s", options={"a": 1})
    assert graph == job.graph()
    assert spark == "a session"
    assert options == RunOptions(
        parallelism=4,
        max_parallelism=128,
        checkpoint=None,
        trigger="1 s",
        drain=False,
        state_backend=None,
        fresh=False,
        force=False,
        options={"a": 1},
        listeners=(),
        restart=False,
    )


@pytest.mark.feature("A13", "B4", "D2", "D31", "F2", "F20", "F22", "F23")
@pytest.mark.parametrize("way", ["run", "start"])
def test_every_choice_of_a_start_reaches_the_runtime(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    class Runtime:
        @staticmethod
        def run_job(graph: Any, options: RunOptions, spark: Any) -> Any:
            return options, spark

        start_job = run_job

    monkeypatch.setitem(sys.modules, "tidegate.runtime.driver.launch", Runtime)  # type: ignore[arg-type]
    job = tg.Job("orders", parallelism=3, max_parallelism=40)
    job.source("in", Frame("a int")).sink("out", NullSink())
    chosen: dict[str, Any] = {
        "checkpoint": tg.Checkpointing(dir="d", interval="1 s"),
        "trigger": "1 s",
        "drain": True,
        "state_backend": "rocksdb",
        "options": {"a": 1},
        "fresh": True,
        "force": True,
        "listeners": [tg.JobListener()],
    }
    if way == "start":
        chosen["restart"] = True
    options, spark = getattr(job, way)("a session", **chosen)
    assert options == RunOptions(**chosen, parallelism=3, max_parallelism=40)
    assert spark == "a session"
    assert {field.name for field in fields(RunOptions)} - {"parallelism", "max_parallelism", "restart"} <= {*chosen}


def test_watermarks_of_ones_own_are_checked_where_they_are_declared():
    def source(**choices):
        return tg.Job("marks").source("rows", tg.testing.frame("k string, n map<string, int>, ts timestamp"), **choices)

    with pytest.raises(GraphError, match="names no event time"):
        source(split="k")
    with pytest.raises(GraphError, match="no column 'partition'"):
        source(event_time="ts", split="partition")
    with pytest.raises(GraphError, match="must be a string or an integer"):
        source(event_time="ts", split="n")
    with pytest.raises(GraphError, match="not a timestamp"):
        source(event_time="ts", watermark="k")
    with pytest.raises(GraphError, match="leave out out_of_orderness"):
        source(event_time="ts", out_of_orderness="1 s", watermark=lambda greatest, clock: greatest)
    declared = source(event_time="ts", split="k", watermark=lambda greatest, clock: greatest)
    assert "watermarks by a function, for each k" in declared._job.explain()
