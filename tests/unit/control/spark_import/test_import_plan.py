"""What an import decides: which source and operator belong together, what is carried over, and why the rest is not."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming import StatefulProcessor

import tidegate as tg
from tidegate.control.spark_import import import_query
from tidegate.control.spark_import.carried_state import ImportRefused
from tidegate.control.spark_import.import_plan import plan_import
from tidegate.graph.states import TIMERS
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.runtime.sources.stopped_query import SparkOperator, StoppedQuery, source_text
from tidegate.savepoint.entries import StateLayout
from tidegate.state.keys.entry_keys import TimeWindow

PROCESSOR = "transformWithStateInPySparkExec"
ROWS = "user string, shop int, amount double, at timestamp, price double"


class Totals(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "amount double")

    def handleInputRows(self, key, rows, timerValues):
        yield from ()

    def close(self):
        pass


def variables(*named, time="EventTime"):
    """What Spark tells of a processor: names, kinds, and whether they have a time to live."""
    told = [{"stateName": name, "stateVariableType": kind, "ttlEnabled": ttl} for name, kind, ttl in named]
    return {"timeMode": time, "stateVariables": told}


def query(*operators, lines=('{"logOffset":3}',), clock_ms=1_000):
    return StoppedQuery(
        path="/checkpoint",
        batch=7,
        unfinished=False,
        sources=tuple(SourceNotes(line, {}) for line in lines),
        watermark_ms=None,
        next_watermark_ms=None,
        clock_ms=clock_ms,
        operators=tuple(
            SparkOperator(id=number, name=name, partitions=2, properties=properties)
            for number, (name, properties) in enumerate(operators)
        ),
        settings={},
    )


def job(declare, *sources):
    made = tg.Job("moved", parallelism=2)
    streams = [made.source(uid, tg.testing.frame(ROWS), event_time="at") for uid in sources or ("orders",)]
    declare(*streams)
    return made.graph()


def processor(*streams, uid="totals", key=("user",), time="EventTime"):
    made = tg.transform_with_state(
        streams[0].key_by(*key), Totals(), uid=uid, outputStructType="user string", outputMode="Append", timeMode=time
    )
    made.sink(f"out-{uid}", tg.CollectSink())


def planned(of, graph, fields=None, sources=None, operators=None):
    found = fields or {"key": [("user", "string")], "value": [("amount", "double")]}
    return plan_import(of, graph, lambda operator, options: found, sources=sources or {}, operators=operators or {})


TOTAL = ("total", "ValueState", False)


def test_one_source_and_one_operator_are_matched_without_flags():
    plan = planned(query((PROCESSOR, variables(TOTAL))), job(processor))
    assert [(match.place, str(match.source.uid)) for match in plan.sources] == [(0, "orders")]
    assert [(str(state.uid), state.spec.name) for state in plan.states] == [("totals", "total")]
    assert plan.left == ()


def test_timers_become_timers_by_time_and_by_key():
    told = variables(TOTAL, ("$eventTimers_keyToTimestamp", "TimerState", False))
    plan = planned(query((PROCESSOR, told)), job(processor))
    assert [state.spec.name for state in plan.states] == ["total", "on_timer", "timers_of_key"]


@pytest.mark.parametrize(
    ("told", "fields", "why"),
    [
        (variables(("other", "ValueState", False)), None, "does not declare a state of this name"),
        (variables(("total", "ListState", False)), None, "is a ListState in Spark"),
        (
            variables(TOTAL),
            {"key": [("user", "string")], "value": [("amount", "int")]},
            "its fields are (amount int) in Spark",
        ),
        (
            variables(TOTAL),
            {"key": [("user", "string")], "value": [("paid", "double")]},
            "its fields are (paid double) in Spark",
        ),
        (
            variables(TOTAL),
            {"key": [("user", "bigint")], "value": [("amount", "double")]},
            "its key is (user bigint) in Spark",
        ),
        (
            variables(("$procTimers_x", "TimerState", False), time="ProcessingTime"),
            None,
            "timeMode is 'ProcessingTime' in Spark",
        ),
    ],
)
def test_incompatible_state_is_left_with_a_reason(told, fields, why):
    plan = planned(query((PROCESSOR, told)), job(processor), fields)
    assert plan.states == ()
    [note] = plan.notes
    assert why in note


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("symmetricHashJoin", "Spark keeps the rows of both sides"),
        ("sessionWindowStateStoreSaveExec", "sessions without the gap"),
        ("dedupeWithinWatermark", "expire in event time"),
        ("somethingNew", "tidegate does not know how Spark stores it"),
        ("dedupe", "the job has no operator that does what dedupe does"),
    ],
)
def test_operators_without_a_counterpart_are_left_with_a_reason(name, why):
    plan = planned(query((name, {})), job(processor))
    assert why in plan.notes[0]


def test_several_sources_are_named_by_the_user():
    def both(first, second):
        processor(first.union(second))

    of, graph = query((PROCESSOR, variables(TOTAL)), lines=('{"a":{"0":1}}', "-")), job(both, "orders", "returns")
    with pytest.raises(ImportRefused, match="--source 0=UID"):
        planned(of, graph)
    plan = planned(of, graph, sources={0: "returns", 1: "orders"})
    assert [str(match.source.uid) for match in plan.sources] == ["returns", "orders"]
    for wrong in ({0: "returns", 1: "returns"}, {0: "orders"}, {0: "orders", 1: "nobody"}, {5: "orders"}):
        with pytest.raises(ImportRefused, match="--source"):
            planned(of, graph, sources=wrong)


def test_several_operators_are_named_by_the_user():
    def two(stream):
        processor(stream, uid="one")
        processor(stream, uid="two")

    of, graph = query((PROCESSOR, variables(TOTAL)), (PROCESSOR, variables(TOTAL))), job(two)
    with pytest.raises(ImportRefused, match="--operator 0=one"):
        planned(of, graph)
    plan = planned(of, graph, operators={0: "two", 1: "one"})
    assert [(state.operator, str(state.uid)) for state in plan.states] == [(0, "two"), (1, "one")]
    for wrong in ({0: "nobody"}, {7: "one"}):
        with pytest.raises(ImportRefused, match="--operator"):
            planned(of, graph, operators=wrong)


def test_keys_are_found_by_name_and_otherwise_by_position():
    graph = job(lambda stream: processor(stream, key=("user", "shop")))
    for key in ([("shop", "int"), ("user", "string")], [("a", "string"), ("b", "int")]):
        fields = {"key": key, "value": [("amount", "double")]}
        [state] = planned(query((PROCESSOR, variables(TOTAL))), graph, fields).states
        row = ((3, "ann") if key[0][0] == "shop" else ("ann", 3), (1.5,))
        [entry] = state.entries(layout_of(graph, state), [row])
        assert (entry.key, entry.value) == (("ann", 3), {"amount": 1.5})


def layout_of(graph, state):
    from tidegate.checkpoint.metadata import operators
    from tidegate.graph import state_ids
    from tidegate.graph.levels import plan

    numbers = state_ids.assign({}, operators.declared(graph))
    described = {o.uid: o for o in operators.describe(graph, plan(graph), 2, "", numbers)}[state.uid]
    return StateLayout(described, next(info for info in described.states if info.name == state.spec.name))


def test_the_write_time_of_an_entry_is_its_end_minus_its_lifetime():
    class Living(Totals):
        def init(self, handle):
            self.total = handle.getValueState("total", "amount double", 500)

    def declare(stream):
        tg.transform_with_state(
            stream.key_by("user"),
            Living(),
            uid="totals",
            outputStructType="user string",
            outputMode="Append",
            timeMode="ProcessingTime",
        ).sink("out", tg.CollectSink())

    graph = job(declare)
    fields = {
        "key": [("user", "string")],
        "value": [("value", "struct<amount:double>"), ("ttlExpirationMs", "bigint")],
        "value.value": [("amount", "double")],
    }
    [state] = planned(
        query((PROCESSOR, variables(("total", "ValueState", True), time="ProcessingTime"))), graph, fields
    ).states
    [entry] = state.entries(layout_of(graph, state), [(("ann",), ((2.0,), 1_500))])
    assert (entry.stamp.event_time, entry.stamp.time_ms) == (False, 1_000)


def counted(stream):
    stream.key_by("user").aggregate("op", n=tg.count(), spent=tg.sum("amount"), mean=tg.mean("shop")).sink(
        "out", tg.CollectSink()
    )


def test_aggregates_are_made_of_buffers_in_their_order():
    graph = job(counted)
    buffers = [("count", "bigint"), ("sum", "double"), ("sum", "double"), ("count", "bigint")]
    [state] = planned(query(("stateStoreSave", {})), graph, {"key": [("user", "string")], "value": buffers}).states
    rows = [(("ann",), (3, 4.5, 7.0, 2)), (("bob",), (1, None, 0.0, 0))]
    found = {entry.key: entry.value for entry in state.entries(layout_of(graph, state), rows)}
    assert found == {"ann": (3, 4.5, (7, 2)), "bob": (1, None, (None, 0))}


@pytest.mark.parametrize(
    "buffers",
    [
        [("sum", "double"), ("count", "bigint")],
        [("count", "bigint"), ("sum", "bigint"), ("sum", "double"), ("count", "bigint")],
    ],
)
def test_aggregates_in_another_order_or_of_another_type_are_left(buffers):
    plan = planned(query(("stateStoreSave", {})), job(counted), {"key": [("user", "string")], "value": buffers})
    assert "declare the same aggregates in the same order" in plan.notes[0]


@pytest.mark.parametrize(
    ("aggregates", "buffers", "asked"),
    [
        ((tg.sum("amount"), tg.sum("price")), "sum double, sum double", "sum(amount), sum(price)"),
        (
            (tg.count("user"), tg.sum("price"), tg.count()),
            "count bigint, sum double, count bigint",
            "count(user), count(*)",
        ),
        (
            (tg.max("amount"), tg.sum("shop"), tg.max("price")),
            "max double, sum bigint, max double",
            "max(amount), max(price)",
        ),
        (
            (tg.mean("shop"), tg.mean("price")),
            "sum double, count bigint, sum double, count bigint",
            "mean(shop), mean(price)",
        ),
        ((tg.sum("amount"), tg.sum("amount")), "sum double, sum double", None),
        ((tg.min("amount"), tg.max("price"), tg.sum("shop")), "min double, max double, sum bigint", None),
    ],
)
@pytest.mark.parametrize("windows", [False, True])
def test_aggregates_that_could_be_swapped_need_confirmation(tmp_path, monkeypatch, aggregates, buffers, asked, windows):
    """Spark's buffers have no columns: the totals of one column would continue as those of the other, without a word."""

    def declare(stream):
        keyed = stream.key_by("user")
        keyed = keyed.window(tg.TumblingEventTimeWindows.of("10 s")) if windows else keyed
        keyed.aggregate("op", **{f"a{n}": each for n, each in enumerate(aggregates)}).sink("out", tg.CollectSink())

    graph = job(declare)
    fields = {"key": [("user", "string")], "value": [tuple(each.split()) for each in buffers.split(", ")]}
    if windows:
        fields["key"] = [("window", "struct"), ("user", "string")]
        fields["key.window"] = [("start", "timestamp"), ("end", "timestamp")]
    plan = planned(query(("stateStoreSave", {})), graph, fields)
    assert plan.left == ()
    assert [asked in question for question in plan.questions] == ([] if asked is None else [True])

    monkeypatch.setattr(import_query, "write_import", lambda *given: "written")
    move = object.__new__(import_query.SparkMove)
    move.query = move.job = move.spark = None
    move.plan = plan
    assert move.write(tmp_path, False, same_order=True) == "written"
    if asked is not None:
        with pytest.raises(ImportRefused, match="--same-order"):
            move.write(tmp_path, False)


def test_an_overflowed_sum_is_refused():
    def declare(stream):
        rows = stream.map(lambda row: (row.user, row.amount), schema="user string, d decimal(10,2)")
        rows.key_by("user").aggregate("op", d=tg.sum("d")).sink("out", tg.CollectSink())

    graph = job(declare)
    fields = {"key": [("user", "string")], "value": [("sum", "decimal(20,2)"), ("isEmpty", "boolean")]}
    [state] = planned(query(("stateStoreSave", {})), graph, fields).states
    [empty] = state.entries(layout_of(graph, state), [(("ann",), (None, True))])
    assert empty.value == (None,)
    with pytest.raises(ImportRefused, match="has overflown"):
        list(state.entries(layout_of(graph, state), [(("ann",), (None, False))]))


def test_a_key_whose_names_are_partly_in_other_places_is_left():
    graph = job(lambda stream: processor(stream, key=("user", "shop")))
    fields = {"key": [("shop", "string"), ("other", "int")], "value": [("amount", "double")]}
    assert "in other places" in planned(query((PROCESSOR, variables(TOTAL))), graph, fields).notes[0]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_windows_of_another_size_are_refused(kind):
    """Spark's rows have times without a zone: local ones for instants, and as they are for times of no zone."""
    from datetime import UTC, datetime

    def windows(stream):
        stream.key_by("user").window(tg.TumblingEventTimeWindows.of("10 s")).aggregate("op", n=tg.count()).sink(
            "out", tg.CollectSink()
        )

    graph = job(windows)
    fields = {
        "key": [("window", "struct"), ("user", "string")],
        "key.window": [("start", kind), ("end", kind)],
        "value": [("count", "bigint")],
    }
    contents, timers = planned(query(("stateStoreSave", {})), graph, fields).states
    start = datetime(2026, 1, 1)
    ms = int((start.astimezone(UTC) if kind == "timestamp" else start.replace(tzinfo=UTC)).timestamp() * 1000)
    row = (((start, start.replace(second=10)), "ann"), (5,))
    [entry] = contents.entries(layout_of(graph, contents), [row])
    assert (entry.key, entry.namespace, entry.value) == ("ann", TimeWindow(ms, ms + 10_000), (5,))
    [timer] = timers.entries(layout_of(graph, timers), [row])
    assert (timers.spec, timer.value, timer.map_key) == (TIMERS, ms + 9_999, "EVENT_TIME")
    longer = (((start, start.replace(second=20)), "ann"), (5,))
    with pytest.raises(ImportRefused, match="assigns no row"):
        list(contents.entries(layout_of(graph, contents), [longer]))


def test_seen_keys_with_a_time_to_live_end_that_long_after_the_last_batch():
    def declare(stream):
        stream.key_by("user").deduplicate("op", ttl="2 s").sink("out", tg.CollectSink())

    graph = job(declare)
    seen, timers = planned(query(("dedupe", {}), clock_ms=500), graph, {"key": [("user", "string")]}).states
    [entry] = seen.entries(layout_of(graph, seen), [(("ann",), (None,))])
    assert (entry.key, entry.value) == ("ann", True)
    [timer] = timers.entries(layout_of(graph, timers), [(("ann",), (None,))])
    assert (timer.value, timer.map_key) == (2_500, "PROCESSING_TIME")


@pytest.mark.parametrize(
    ("line", "notes", "text"),
    [
        ('{"orders":{"0":3,"1":5}}', {}, "Kafka topic orders (2 partitions)"),
        (
            '{"logOffset":3}',
            {"3": b'v1\n{"path":"file:///in/a.json"}'},
            "files, log entry 3, such as file:///in/a.json",
        ),
        ("42", {}, "42"),
        (None, {}, "not started"),
    ],
)
def test_the_position_of_a_source_is_described_in_text(line, notes, text):
    assert source_text(SourceNotes(line, notes)) == text
