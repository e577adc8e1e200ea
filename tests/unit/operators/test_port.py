"""What a task may ask of an operator, and what it gets from a function that knows nothing of it."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import tidegate as tg
from tests.sparks import ROOT
from tidegate.core.times import moment
from tidegate.graph.listening import notified_by
from tidegate.operators.attached_function import AttachedFunction
from tidegate.operators.port import AttachedOperator, Capability, StatefulOperator
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.keys.entry_keys import KeyCodec

ROWS = "user string, amount int, ts timestamp"


def keyed(name="port"):
    return tg.Job(name).source("rows", tg.testing.frame(ROWS), event_time="ts").key_by("user")


def without_states():
    return KeyedStates(store=None, specs=(), ids=lambda _: 0, keys=KeyCodec.of_python(str), epoch=None)


class Bare:
    """It has what a row needs, and nothing else."""

    def process_element(self, row, ctx):
        yield row


class Opened(Bare):
    is_open = False

    def open(self, ctx):
        self.is_open = True

    def close(self):
        self.is_open = False

    def on_timer(self, timestamp, ctx):
        return [timestamp]


def test_a_function_needs_no_hooks():
    attached = AttachedFunction(Bare(), without_states())
    attached.open(None)
    attached.bind()
    attached.check()
    attached.close()
    assert attached.timer_call()(1, None) is None
    assert attached.capabilities is Capability.NONE


def test_the_hooks_of_a_function_are_called_whatever_it_derives_from():
    function = Opened()
    attached = AttachedFunction(function, without_states())
    attached.open(None)
    assert function.is_open
    assert attached.timer_call()(7, None) == [7]
    attached.close()
    assert not function.is_open


def test_rows_reach_the_methods_of_a_function_directly():
    function = Bare()
    assert AttachedFunction(function, without_states()).row_calls(1) == (function.process_element,)


class Candle(tg.KeyedProcessFunction):
    """A function of stock prices."""

    close = tg.ValueState(float, default=0.0)

    def __init__(self):
        self.open = 1.0

    def process_element(self, row, ctx):
        self.close.update(self.close.value() + row.amount)
        yield row.user, self.close.value()


def test_a_state_or_a_variable_with_the_name_of_a_hook_is_not_called():
    stream = keyed().process("op", Candle(), schema="user string, total double")
    with tg.testing.harness(stream) as h:
        h.process(("a", 2, moment(0)), ("a", 3, moment(0)))
        assert [tuple(row) for row in h.output()] == [("a", 2.0), ("a", 5.0)]


class PassesOn:
    """Has the methods of another object, and none of its own."""

    def __init__(self, other):
        self._other = other

    def __getattr__(self, name):
        return getattr(self._other, name)


def test_an_object_that_passes_calls_on_has_the_hooks_of_the_other_one():
    function = Opened()
    attached = AttachedFunction(PassesOn(function), without_states())
    attached.open(None)
    assert function.is_open
    attached.close()
    assert not function.is_open


HOUR = tg.TumblingEventTimeWindows.of("1 h")
GAP = tg.EventTimeSessionWindows.with_gap("1 min")


@pytest.mark.parametrize(
    ("declared", "can"),
    [
        (lambda: keyed().aggregate("op", n=tg.count()), Capability.TAKES_COMBINED | Capability.HOLDS_COMBINED),
        (
            lambda: keyed().window(HOUR).aggregate("op", n=tg.count()),
            Capability.TAKES_COMBINED | Capability.FIRES_TOGETHER,
        ),
        (
            lambda: keyed().window(GAP).aggregate("op", n=tg.count()),
            Capability.TAKES_COMBINED | Capability.HOLDS_COMBINED | Capability.FIRES_TOGETHER,
        ),
        (lambda: keyed().window(HOUR).allowed_lateness("1 min").aggregate("op", n=tg.count()), Capability.NONE),
        (lambda: keyed().window(HOUR).trigger(tg.CountTrigger.of(2)).aggregate("op", n=tg.count()), Capability.NONE),
        (lambda: keyed().deduplicate("op"), Capability.NONE),
    ],
)
def test_an_operator_processes_batches_unless_another_feature_forbids_it(declared, can):
    with tg.testing.harness(declared()) as h:
        assert h._subtasks[0].operator._attached.capabilities == can


def test_a_row_that_may_fail_is_processed_alone():
    stream = keyed().window(HOUR).on_error("skip").aggregate("op", n=tg.count())
    with tg.testing.harness(stream) as h:
        assert h._subtasks[0].operator._can is Capability.NONE


def test_what_was_declared_does_not_change_when_it_is_attached():
    stream = keyed().window(HOUR).aggregate("op", n=tg.count())
    operator = stream.node().function
    assert isinstance(operator, StatefulOperator)
    assert is_dataclass(operator)
    before = {field.name: getattr(operator, field.name) for field in fields(operator)}
    with tg.testing.harness(stream) as h:
        h.process(("a", 1, moment(0)))
    assert {field.name: getattr(operator, field.name) for field in fields(operator)} == before


def test_the_window_function_is_notified_of_checkpoints_instead_of_the_operator():
    class Windowed(tg.ProcessWindowFunction):
        def process(self, key, context, elements):
            return None

    function = Windowed()
    node = keyed().window(HOUR).process("op", function, schema="user string").node()
    assert notified_by(node.function) is function


def test_every_method_of_the_port_says_what_it_is_for():
    silent = [
        name
        for name, method in inspect.getmembers(AttachedOperator, inspect.isfunction)
        if not name.startswith("_") and not method.__doc__
    ]
    assert silent == []


FOREIGN = {
    "processor_output.py",  # rows of pyspark, frames of pandas
    "stateful_processor_operator.py",  # rows of pyspark
}


@pytest.mark.parametrize("folder", ["operators", "runtime/task"])
def test_nothing_that_runs_in_a_task_is_found_by_its_name(folder):
    files = [path for path in (ROOT / "src/tidegate" / folder).rglob("*.py") if path.name not in FOREIGN]
    found = [path for path in files if {"getattr(", "hasattr("} & _calls(path)]
    assert found == []


def _calls(path: Path) -> set[str]:
    return {call for call in ("getattr(", "hasattr(") if call in path.read_text()}
