"""Functions written for PyFlink run in tidegate once their import lines are changed."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tidegate as tg
from tests.unit.flink.moved import moved
from tidegate import flink
from tidegate.errors import GraphError
from tidegate.testing import frame, harness

written: Any = moved()
T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)
MINUTE_MS = 60_000


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_value_state_with_a_time_to_live(backend):
    with harness(
        written.RunningTotal(),
        key="user",
        schema="user string, amount double",
        output_schema="user string, total double",
        state_backend=backend,
    ) as h:
        h.process(("ann", 5.0), ("bob", 1.0), ("ann", 7.0))
        assert h.output() == [("ann", 5.0), ("bob", 1.0), ("ann", 12.0)]
        assert h.state("total-so-far", "ann") == 12.0
        h.set_processing_time(9_000)
        h.process(("ann", 0.0))
        h.set_processing_time(18_000)
        h.process(("ann", 0.0))
        h.set_processing_time(28_001)
        h.process(("ann", 1.0))
        assert h.output() == [("ann", 12.0), ("ann", 12.0), ("ann", 1.0)]


def test_event_time_timers_and_rows_in_state():
    schema = "user string, ts timestamp"
    with harness(
        written.Silence(), key="user", schema=schema, event_time="ts", output_schema="user string, events long"
    ) as h:
        h.process(("ann", at(0)), ("ann", at(30)), ("bob", at(10)))
        assert h.state("seen", "ann") == ("ann", 2, T0_MS + 30_000)
        h.advance_watermark(at(60))
        assert h.output() == []
        h.advance_watermark(at(90))
        assert sorted(h.output()) == [("ann", 2), ("bob", 1)]
        assert h.state("seen", "ann") is None


def test_side_outputs_and_processing_time_timers():
    job = tg.Job("payments")
    keyed = job.source("in", frame("account string, amount double")).key_by("account")
    seen = keyed.process(
        "fraud",
        written.SmallThenLarge(),
        schema="account string",
        side_outputs={written.suspicious: "account string, amount double"},
    )
    seen.side_output(written.suspicious).sink("alerts", tg.CollectSink())
    with harness(seen) as h:
        h.set_processing_time(1_000)
        h.process(("a", 0.5), ("a", 900.0), ("b", 0.5), ("b", 3.0), ("b", 900.0), ("c", 0.5))
        assert h.side_output("suspicious") == [("a", 900.0)]
        assert h.output() == [("a",), ("a",), ("b",), ("b",), ("b",), ("c",)]
        h.set_processing_time(61_000)
        h.process(("c", 900.0))
        assert h.side_output("suspicious") == []
        assert h.state("flag", "c") is None


def test_every_kind_of_state_is_restored_under_its_descriptor_name():
    schema = "list array<string>, counts map<string,int>, longest string, mean double, all array<string>, n int"
    chosen = {"key": "k", "schema": "k string, word string", "output_schema": schema}
    with harness(written.EveryKind(), parallelism=2, **chosen) as h:
        h.process(("x", "to"), ("x", "be"), ("x", "question"), ("x", "be"), ("y", "to"))
        assert tuple(h.output()[3]) == (
            ["question", "be"],
            {"to": 1, "be": 2, "question": 1},
            "question",
            3.5,
            ["be", "question", "to"],
            14,
        )
        snapshot = h.snapshot()
    with harness(written.EveryKind(), parallelism=3, restore=snapshot, **chosen) as h:
        assert h.state("last", "x") == ["question", "be"]
        assert h.state("counts", "x") == {"to": 1, "be": 2, "question": 1}
        assert h.state("longest", "x") == ("question",)
        assert h.state("mean", "x") == (14.0, 4)
        assert pickle.loads(h.state("anything", "x")) == {"to", "be", "question"}
        assert h.state("rows", "x")[0] == {"to": (2, None)}
        h.process(("x", "or"))
        assert h.output()[0].counts == {"to": 1, "be": 2, "question": 1, "or": 1}


def windowed(job="words"):
    source = tg.Job(job).source("in", frame("word string, ts timestamp"), event_time="ts")
    return source.key_by("word").window(flink.TumblingEventTimeWindows.of(flink.Time.seconds(5)))


def test_window_functions_with_state():
    counted = windowed().process("n", written.PerWindow(), schema="w string, start long, end long, n int, windows int")
    with harness(counted) as h:
        h.process(("to", at(1)), ("to", at(2)), ("to", at(6)))
        h.advance_watermark(at(5))
        assert h.output() == [("to", T0_MS, T0_MS + 5_000, 2, 1)]
        h.advance_watermark(at(10))
        assert h.output() == [("to", T0_MS + 5_000, T0_MS + 10_000, 1, 2)]
        assert h.state("windows", "to") == 2


def test_window_function_with_apply():
    with harness(windowed().process("n", written.Applied(), schema="line string")) as h:
        h.process(("to", at(1)), ("to", at(2)))
        h.advance_watermark(at(5))
        assert h.output() == [(f"to {T0_MS + 4_999} 2",)]


def test_windows_behind_an_aggregate():
    class Count(flink.AggregateFunction):
        def create_accumulator(self):
            return 0

        def add(self, value, accumulator):
            return accumulator + 1

        def get_result(self, accumulator):
            return accumulator

        def merge(self, a, b):
            return a + b

    class Label(flink.ProcessWindowFunction):
        def process(self, key, context, elements):
            yield f"{key} {next(iter(elements))}"

    made = windowed().aggregate("n", Count(), Label(), accumulator=int, schema="line string")
    with harness(made) as h:
        h.process(("to", at(1)), ("to", at(2)))
        h.advance_watermark(at(5))
        assert h.output() == [("to 2",)]


def ruled(*descriptors):
    job = tg.Job("ruled")
    changes = job.source("rules", frame("name string, kind string, limit int")).broadcast(*descriptors)
    events = job.source("events", frame("user string, kind string")).key_by("user")
    return events.connect(changes).process("ruled", written.Ruled(), schema="user string, rule string")


def test_broadcast_state():
    with harness(ruled(written.rules), parallelism=2) as h:
        h.process(("ann", "login"))
        h.process_broadcast(("often", "login", 2))
        h.process(("ann", "login"), ("bob", "login"), ("ann", "logout"))
        assert h.output() == [("ann", "often")]
        snapshot = h.snapshot()
    with harness(ruled(written.rules), parallelism=3, restore=snapshot) as h:
        h.process(("bob", "login"))
        assert h.output() == [("bob", "often")]


def test_broadcast_state_is_read_only_on_the_keyed_side():
    class Writes(written.Ruled):
        def process_element(self, value, ctx):
            ctx.get_broadcast_state(written.rules)["x"] = flink.Row("login", 1)
            return ()

    job = tg.Job("ruled")
    changes = job.source("rules", frame("name string, kind string, limit int")).broadcast(written.rules)
    events = job.source("events", frame("user string, kind string")).key_by("user")
    made = events.connect(changes).process("ruled", Writes(), schema="user string, rule string")
    with harness(made) as h, pytest.raises(tg.TidegateError, match="broadcast"):
        h.process(("ann", "login"))


def test_two_keyed_streams():
    job = tg.Job("pairs")
    orders = job.source("orders", frame("id string, item string, ts timestamp"), event_time="ts").key_by("id")
    payments = job.source("payments", frame("id string, amount double, ts timestamp"), event_time="ts").key_by("id")
    paired = orders.connect(payments).process("pair", written.Paired(), schema="id string, item string, amount double")
    with harness(paired) as h:
        h.process1(("1", "tea", at(0)), ("2", "oil", at(0)))
        h.process2(("1", 4.0, at(5)), ("3", 1.0, at(5)))
        assert h.output() == [("1", "tea", 4.0)]
        h.advance_watermark(at(60))
        assert h.output() == [("2", "oil", None)]


def test_functions_without_a_key():
    source = tg.Job("maps").source("in", frame("data string"))
    with harness(source.map(written.Parse(), schema="id int, tel int")) as h:
        h.process(('{"id": 1, "tel": 4930123456}',))
        assert h.output() == [(1, 3456)]
    lines = tg.Job("words").source("in", frame("line string"))
    with harness(lines.flat_map(written.Words(), schema="word string")) as h:
        h.process(("to be",))
        assert h.output() == [("to",), ("be",)]


def test_map_with_keyed_state_is_processed():
    with harness(written.Numbered(), key="k", schema="k string", output_schema="n int") as h:
        h.process(("a",), ("b",), ("a",))
        assert h.output() == [(1,), (1,), (2,)]


def test_keyed_state_without_a_key_is_refused():
    source = tg.Job("maps").source("in", frame("k string"))
    with pytest.raises(GraphError, match="has none: use key_by"):
        harness(source.map(written.Numbered(), schema="n int"))


def test_explain_shows_the_function_and_its_states():
    job = tg.Job("totals")
    keyed = job.source("in", frame("user string, amount double")).key_by("user")
    keyed.process("totals", written.RunningTotal(), schema="user string, total double").sink("out", tg.CollectSink())
    text = job.explain()
    assert "RunningTotal" in text
    assert "The sum of a user's amounts" in text
    assert "total-so-far" in text


class Asking(flink.KeyedProcessFunction):
    """Asks for what the test says."""

    def __init__(self, open):
        self.ask = open

    def open(self, runtime_context):
        self.kept = self.ask(runtime_context)

    def process_element(self, value, ctx):
        yield value


INT = flink.Types.INT()


def twice(context):
    context.get_state(flink.ValueStateDescriptor("n", INT))
    context.get_state(flink.ValueStateDescriptor("n", flink.Types.STRING()))


def fails(context):
    raise ConnectionError("no route")


@pytest.mark.parametrize(
    ("open", "says"),
    [
        (lambda c: c.get_state(flink.ValueStateDescriptor("n", INT)).value(), "open has no key"),
        (lambda c: c.get_state(flink.ListStateDescriptor("n", INT)), "takes a ValueStateDescriptor"),
        (lambda c: c.get_state(flink.ValueStateDescriptor("on_timer", INT)), "belongs to the timers"),
        (lambda c: c.get_state(flink.ValueStateDescriptor("n", int)), "Types.INT"),
        (lambda c: c.get_metrics_group().counter("n"), "metric group"),
        (lambda c: c.get_job_parameter("limit", "3"), "constructor"),
        (twice, "Rename one"),
        (fails, "no route.*state_descriptors"),
    ],
)
def test_what_open_cannot_do_is_refused_when_the_job_is_declared(open, says):
    with pytest.raises(GraphError, match=says):
        harness(Asking(open), key="k", schema="k string")


def test_a_function_whose_open_needs_a_task_lists_its_states():
    class Connected(flink.KeyedProcessFunction):
        state_descriptors = (flink.ValueStateDescriptor("n", INT),)
        opened = False

        def open(self, runtime_context):
            type(self).opened = True
            self.n = runtime_context.get_state(flink.ValueStateDescriptor("n", INT))

        def process_element(self, value, ctx):
            self.n.update((self.n.value() or 0) + 1)
            yield value.k, self.n.value()

    made = tg.Job("c").source("in", frame("k string")).key_by("k").process("n", Connected(), schema="k string, n int")
    assert not Connected.opened
    with harness(made) as h:
        h.process(("a",), ("a",))
        assert h.output() == [("a", 1), ("a", 2)]


def test_a_state_that_was_not_asked_for_at_the_declaration_is_refused():
    class Late(flink.KeyedProcessFunction):
        def open(self, runtime_context):
            self.context = runtime_context

        def process_element(self, value, ctx):
            self.context.get_state(flink.ValueStateDescriptor("n", INT))
            return ()

    with harness(Late(), key="k", schema="k string") as h, pytest.raises(GraphError, match="same states in open"):
        h.process(("a",))


def test_state_of_both_kinds_in_one_function():
    class Both(flink.KeyedProcessFunction):
        rows = tg.ValueState(int, default=0)

        def open(self, runtime_context):
            self.last = runtime_context.get_state(flink.ValueStateDescriptor("last", flink.Types.STRING()))

        def process_element(self, value, ctx):
            self.rows.update(self.rows.value() + 1)
            self.last.update(value.word)
            yield self.rows.value(), self.last.value()

    with harness(Both(), key="k", schema="k string, word string", output_schema="n int, last string") as h:
        h.process(("a", "x"), ("a", "y"))
        assert h.output() == [(1, "x"), (2, "y")]


def test_broadcast_without_its_descriptors_is_refused():
    with pytest.raises(GraphError, match="broadcast\\(descriptor\\)"):
        ruled()


def test_descriptors_for_a_function_of_tidegate_are_refused():
    class Own(tg.KeyedBroadcastProcessFunction):
        rules = tg.BroadcastState(str, int)

        def process_element(self, row, ctx):
            return ()

        def process_broadcast_element(self, row, ctx):
            return ()

    job = tg.Job("own")
    changes = job.source("rules", frame("name string")).broadcast(written.rules)
    events = job.source("events", frame("user string")).key_by("user")
    with pytest.raises(GraphError, match="on the class"):
        events.connect(changes).process("own", Own(), schema="user string")


def test_a_function_in_the_wrong_place_is_refused():
    with pytest.raises(GraphError, match="not a function for process"):
        tg.Job("w").source("in", frame("k string")).key_by("k").process("n", written.PerWindow(), schema="n int")


def test_errors_of_a_row_are_undone():
    class Fails(written.RunningTotal):
        def process_element(self, value, ctx):
            yield from super().process_element(value, ctx)
            if value.amount < 0:
                raise ValueError("negative")

    job = tg.Job("totals")
    keyed = job.source("in", frame("user string, amount double")).key_by("user")
    made = keyed.process("totals", Fails(), schema="user string, total double", on_error="skip")
    with harness(made) as h:
        h.process(("ann", 5.0), ("ann", -1.0), ("ann", 1.0))
        assert h.output() == [("ann", 5.0), ("ann", 6.0)]


def test_names_without_a_counterpart_say_what_to_write():
    with pytest.raises(ImportError, match="event_time='ts'"):
        from tidegate.flink import WatermarkStrategy  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from tidegate.flink import Nothing  # type: ignore[attr-defined]  # noqa: F401
