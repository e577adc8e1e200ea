"""Typical mistakes, and what a person reads. Each message says what is wrong, and what to write instead.

Those that need a running job are in `tests/integration/test_user_errors.py`.
"""

from __future__ import annotations

import ast
import re
import threading
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.program import programs
from tidegate.storage import open_storage, probe
from tidegate.testing.declared_frame import DeclaredFrame
from tidegate.testing.harness import harness

COLUMNS = "user string, amount double"


class Totals(tg.KeyedProcessFunction):
    total = tg.ValueState(float, default=0.0)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.amount)
        yield row.user, self.total.value()


def rows():
    return tg.Job("orders").source("orders", DeclaredFrame(COLUMNS))


def keyed():
    return rows().key_by("user")


def tried(function, *given):
    with harness(function, key="user", schema=COLUMNS) as h:
        for row in given or (("ann", 5.0),):
            h.process(row)
        return h.output()


class InOpen(Totals):
    def open(self, ctx):
        self.total.update(1.0)


class Assigns(Totals):
    def process_element(self, row, ctx):
        self.total += row.amount
        yield row.user, 1.0


class AssignsUnseen(Totals):
    def process_element(self, row, ctx):
        setattr(self, "total", 5)  # noqa: B010
        yield row.user, 1.0


class MadeInInit(tg.KeyedProcessFunction):
    def __init__(self):
        self.total = tg.ValueState(float)

    def process_element(self, row, ctx):
        yield row.user, 1.0


class ReturnsOneRow(Totals):
    def process_element(self, row, ctx):
        return row.user, row.amount


class ReturnsOneRowUnseen(Totals):
    def process_element(self, row, ctx):
        return tuple(row)


class ReturnsANumber(Totals):
    def process_element(self, row, ctx):
        return 5


class Misspells(Totals):
    def process_element(self, row, ctx):
        yield row.user, row.amonut


class WithoutContext(Totals):
    def process_element(self, row):
        yield row.user, 1.0


class NoSuchSide(Totals):
    def process_element(self, row, ctx):
        ctx.output("late", (row.user,))
        yield row.user, 1.0


class TimerWithoutMethod(Totals):
    def process_element(self, row, ctx):
        ctx.timer_service().register_event_time_timer(5)
        yield row.user, 1.0


class WrongList(tg.KeyedProcessFunction):
    last = tg.ValueState(list[int], default=[])

    def process_element(self, row, ctx):
        self.last.update(["text"] if row.amount < 0 else "text")
        yield row.user, 1.0


class HoldsALock(Totals):
    def __init__(self):
        self.lock = threading.Lock()


def travel(function):
    job = tg.Job("orders")
    job.source("orders", DeclaredFrame(COLUMNS)).key_by("user").process("totals", function, schema="user string").sink(
        "out", tg.CollectSink()
    )
    graph = job.graph()
    return [pickled(p) for p in programs(graph, plan(graph), {("totals", "total"): 1})]


def stored(place):
    probe(open_storage(place))


def a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("")
    return tmp_path / "file"


MISTAKES = {
    "process without a uid": (
        lambda _: keyed().process(Totals(), schema="user string"),
        r"process\(\) needs a uid first: process\('totals', Totals\(\), ",
    ),
    "process without a schema": (
        lambda _: keyed().process("totals", Totals()),
        r"needs schema=, the columns of the rows.*process\('totals'",
    ),
    "process with a class": (
        lambda _: keyed().process("t", Totals, schema="a string"),
        r"process 't' takes an instance, not the class Totals. Write Totals\(\)",
    ),
    "process before key_by": (
        lambda _: rows().process,
        r"stream\.key_by\('column'\)\.process\(…\); the columns are user",
    ),
    "window before key_by": (lambda _: rows().window, r"stream\.key_by\('column'\)\.window"),
    "sink without a uid": (lambda _: rows().sink(tg.PrintSink()), r"sink\(\) needs a uid first: sink\('totals-out'"),
    "sink as a class": (
        lambda _: rows().sink("out", tg.PrintSink),
        r"takes an instance, not the class PrintSink. Write PrintSink\(…\)",
    ),
    "source without a uid": (lambda _: tg.Job("j").source(DeclaredFrame(COLUMNS)), r"source\(\) needs a uid first"),  # type: ignore[call-arg]
    "source of a list": (
        lambda _: tg.Job("j").source("s", [1]),
        r"takes a Spark DataFrame.*got list.*spark\.createDataFrame",
    ),
    "key that is no column": (
        lambda _: rows().key_by("usr"),
        r"no column 'usr' to key by. Did you mean 'user'\? The columns are user, amount",
    ),
    "unknown type in a schema": (
        lambda _: keyed().process("t", Totals(), schema="a strng"),
        r"Unknown type 'strng'. Did you mean 'string'\?",
    ),
    "uid given twice": (
        lambda _: [s := rows(), s.sink("orders", tg.PrintSink())],
        r"'orders' is given twice.*rename one",
    ),
    "event time that is none": (
        lambda _: tg.Job("j").source("s", DeclaredFrame(COLUMNS), event_time="amount"),
        r"'amount' is a double, not a timestamp. No other column.*F\.timestamp_seconds\('amount'\)",
    ),
    "on_error that is none": (
        lambda _: keyed().process("t", Totals(), schema="a string", on_error="skp"),
        r"on_error='skp' is not known. Use 'fail', 'skip'",
    ),
    "parallelism of nothing": (lambda _: tg.Job("j", parallelism=0), r"parallelism is 0; it must be between 1"),
    "state of any type": (lambda _: tg.ValueState(object), r"does not say how its values are stored.*Use bool, int"),
    "default of another type": (lambda _: tg.ValueState(int, default="0"), r"cannot have this default"),
    "ttl without a unit": (lambda _: tg.ValueState(int, ttl=30), r"ttl=30 has no unit. Write '30 s'"),
    "state made in __init__": (
        lambda _: tried(MadeInInit()),
        r"'total' in __init__.*known before the job runs.*body of the class: total = ValueState",
    ),
    "state used in open": (
        lambda _: tried(InOpen()),
        r"'total' of InOpen.*every key has its own.*process_element or on_timer, not in __init__ or open",
    ),
    "state assigned over": (
        lambda _: keyed().process("t", Assigns(), schema="a string"),
        r"assigns to its state 'total' in test_mistakes\.py:\d+: self\.total \+= row\.amount\..*self\.total\.update",
    ),
    "state assigned over, unseen": (
        lambda _: tried(AssignsUnseen()),
        r"assigned to its state 'total'.*self\.total\.update",
    ),
    "one row returned": (
        lambda _: keyed().process("t", ReturnsOneRow(), schema="user string, amount double"),
        r"ReturnsOneRow\.process_element returns one row in test_mistakes\.py:\d+: return row\.user, row\.amount.*Write yield",
    ),
    "one row returned, unseen": (
        lambda _: tried(ReturnsOneRowUnseen()),
        r"emitted 'ann', which is not a row.*yield it instead.*\('ann',\)",
    ),
    "a number returned": (
        lambda _: tried(ReturnsANumber()),
        r"ReturnsANumber\.process_element returned 5, which is not a list of rows. Yield rows",
    ),
    "column misspelt": (
        lambda _: tried(Misspells()),
        r"no column 'amonut'. Did you mean 'amount'\? The columns are user, amount",
    ),
    "method without a context": (lambda _: tried(WithoutContext()), r"Write def process_element\(self, row, ctx\)"),
    "side output not declared": (lambda _: tried(NoSuchSide()), r"no side output 'late'.*side_outputs=\{'late'"),
    "timer without a method": (lambda _: tried(TimerWithoutMethod()), r"Add def on_timer\(self, timestamp, ctx\)"),
    "value of another type": (lambda _: tried(WrongList()), r"Cannot store 'text' \(str\) as list\[int\]. Convert it"),
    "function that cannot travel": (
        lambda _: travel(HoldsALock()),
        r"'totals'.*its attribute 'lock' cannot be pickled.*Create connections, locks.*in open\(\)",
    ),
    "interval with an odd unit": (
        lambda _: tg.Checkpointing(interval="10 sek"),
        r"interval='10 sek'.*not a duration such as '500 ms', '10 s'",
    ),
    "interval without a unit": (
        lambda _: tg.Checkpointing(interval=30),
        r"interval=30\): 30 has no unit. Write '30 s' or '30 ms'\.",
    ),
    "interval that is too short as milliseconds": (
        lambda _: tg.Checkpointing(interval=5),
        r"Checkpointing\(interval=5\): 5 has no unit. Write '5 s'\.",
    ),
    "interval as a number in text": (
        lambda _: tg.Checkpointing(interval="30"),
        r"'30' has no unit. Write '30 s' or '30 ms'\.",
    ),
    "windows without a unit": (
        lambda _: tg.TumblingEventTimeWindows.of(10),
        r"^TumblingEventTimeWindows\.of\(size=10\): 10 has no unit. Write '10 s' or '10 ms'\.",
    ),
    "retries without a unit": (
        lambda _: tg.FixedDelayRetry(3, 0.5),
        r"^FixedDelayRetry\(delay=0\.5\): 0\.5 has no unit. Write '0\.5 s'\.",
    ),
    "transactions without a unit": (
        lambda _: tg.KafkaSink("b:9092", "t", transaction_timeout=900),
        r"'t': transaction_timeout=900 has no unit. Write '900 s'\.",
    ),
    "argument misspelt": (
        lambda _: tg.Checkpointing(intervall="10 s"),  # type: ignore[call-arg]
        r"no argument 'intervall'. Did you mean interval\?",
    ),
    "option misspelt": (
        lambda _: tg.Checkpointing(options={"execution.checkpointing.intervall": "1 s"}),
        r"is not an option. Did you mean execution\.checkpointing\.interval\?",
    ),
    "mode that is none": (lambda _: tg.Checkpointing(mode="EXACTLY_TWICE"), r"mode='EXACTLY_TWICE'.*EXACTLY_ONCE"),
    "checkpoints in a file": (
        lambda tmp: stored(a_file(tmp)),
        r"cannot be kept in .*/file: .*/file is a file. Choose a path",
    ),
    "checkpoints below a file": (
        lambda tmp: stored(a_file(tmp) / "x"),
        r"file is a file. Choose a path whose parts are all folders",
    ),
    "checkpoints in an impossible place": (lambda _: stored("/proc/checkpoints"), r"cannot be created.*Choose one"),
    "a slash missing": (lambda _: stored("s3:/bucket/jobs"), r"a slash missing. Write s3://bucket/jobs"),
    "a store that is none": (lambda _: stored("ftp://host/x"), r"ftp:// is not supported. Use a path, file://, s3://"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_a_sentence_that_says_what_to_do(mistake, tmp_path):
    make, wanted = MISTAKES[mistake]
    with pytest.raises((tg.errors.TidegateError, AttributeError)) as caught:
        make(tmp_path)
    text = str(caught.value)
    assert re.search(wanted, text, re.DOTALL), text
    assert len(text) < 600


def test_a_function_of_a_base_class_that_assigns_nothing_is_left_alone():
    class Named(Totals):
        def __init__(self, name):
            self.name, self.totals = name, 0

    assert keyed().process("t", Named("a"), schema="user string, total double") is not None


def test_a_function_that_returns_rows_is_left_alone():
    class Twice(Totals):
        def process_element(self, row, ctx):
            if row.amount < 0:
                return ()
            return (row, row) if row.amount else [(row.user, 1.0)]

    assert keyed().process("t", Twice(), schema=COLUMNS) is not None


class Silent(tg.JobListener): ...


@pytest.mark.parametrize(("listener", "said"), [(Silent, r"Write Silent\(\)"), (print, "JobListener")])
def test_a_listener_is_an_instance_of_its_class(listener, said):
    job = tg.Job("heard")
    job.source("in", tg.testing.frame("a int")).sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.GraphError, match=said):
        job.start(listeners=[listener])


@pytest.mark.parametrize("error", [SystemError("AST constructor recursion depth"), RecursionError(), MemoryError()])
def test_source_code_that_cannot_be_parsed_is_not_checked(monkeypatch, error):
    """Python's parser gives up on deeply nested code that the interpreter has no trouble with."""

    def fails(*given):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", fails)
        found = tried(Totals())
    assert found == [("ann", 5.0)]
