"""Sampled accesses to state: what is measured, and that measuring changes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.errors import WrongValue
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.core.measuring import Measuring, StateTracking
from tidegate.graph.states import StateKind, StateSpec
from tidegate.metrics.state_access import STATE_ACCESS
from tidegate.schema.schema import DataType
from tidegate.state.accessors.access_meter import ACCESSES, SIZED, AccessMeter, AccessReading
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.value_accessor import ValueAccessor
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.version import VersionId

EVERY = StateTracking(sample_interval=1)


class Longest:
    """An aggregate function: the length of the longest text."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: str, accumulator: int) -> int:
        return max(accumulator, len(value))

    def get_result(self, accumulator: int) -> str:
        return "x" * accumulator


SPECS = (
    StateSpec(name="value", kind=StateKind.VALUE, value=int, default=7),
    StateSpec(name="items", kind=StateKind.LIST, value=int),
    StateSpec(name="map", kind=StateKind.MAP, value=int, map_key=str),
    StateSpec(name="sorted", kind=StateKind.SORTED_MAP, value=int, map_key=int),
    StateSpec(name="sum", kind=StateKind.REDUCING, value=int, function=lambda a, b: a + b),
    StateSpec(name="longest", kind=StateKind.AGGREGATING, value=int, function=Longest()),
)
TARGET = VersionId(EpochId(Term(1), 1), AttemptId(1))


class Operator:
    """The states of one operator in an attempt."""

    def __init__(self, directory: Path, measuring: Measuring, guarded: bool = False) -> None:
        self.meter = AccessMeter.wanted(measuring)
        self.store = backend_named("hashmap").begin(directory, None, TARGET, (0, 127))
        ids = {spec.name: place for place, spec in enumerate(SPECS, 1)}
        self.states = KeyedStates(
            self.store, SPECS, ids.__getitem__, KeyCodec([DataType("string")]), TARGET.epoch, guarded=guarded,
            meter=self.meter,
        )  # fmt: skip

    def at(self, key: str, state: str) -> Any:
        self.states.scope.key, self.states.scope.key_group = key, len(key)
        return self.states.accessors[state]

    def readings(self) -> dict[str, AccessReading]:
        assert self.meter is not None
        return {f"{each.state} {each.name}": each for each in self.meter.readings()}

    def entries(self) -> list[tuple[bytes, bytes]]:
        self.states.flush()
        return list(self.store.scan(b"", b"\xff" * 8))


def use_every_access(operator: Operator) -> None:
    value, items, map_ = (operator.at("k", name) for name in ("value", "items", "map"))
    value.update(value.value() + 1)
    items.add(1)
    items.add_all([2, 3])
    assert list(items) == list(items.get()) == [1, 2, 3]
    items.update([4])
    map_.put("a", 1)
    map_["b"] = 2
    map_.put_all({"c": 3})
    assert (map_.get("a"), map_["b"], "c" in map_, map_.contains("d")) == (1, 2, True, False)
    del map_["c"]
    map_.remove("b")
    assert (list(map_), list(map_.keys()), list(map_.values()), list(map_.items())) == (["a"], ["a"], [1], [("a", 1)])
    assert not map_.is_empty()
    for name, element in (("sum", 5), ("longest", "abc")):
        operator.at("k", name).add(element)
        assert operator.at("k", name).get() in (5, "xxx")
    value.clear()


@pytest.mark.parametrize("guarded", [False, True])
def test_every_kind_of_access_is_measured_under_flinks_name(tmp_path: Path, guarded: bool) -> None:
    operator = Operator(tmp_path, Measuring(latencies=EVERY, sizes=EVERY), guarded)
    use_every_access(operator)
    found = {name.split()[1] for name in operator.readings()}
    assert found == {f"{access}Latency" for access in ACCESSES} | {
        f"{a}{of}Size" for a in SIZED for of in ("Key", "Value")
    }
    assert found == set(STATE_ACCESS)


def test_accessors_are_bound_as_they_are_unless_something_is_measured(tmp_path: Path) -> None:
    assert AccessMeter.wanted(Measuring()) is None
    assert type(Operator(tmp_path, Measuring()).at("k", "value")) is ValueAccessor


def test_one_access_in_the_interval_is_measured_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    operator = Operator(tmp_path, Measuring(latencies=StateTracking(sample_interval=10, history_size=3)))
    for _ in range(95):
        operator.at("k", "value").value()
    found = operator.readings()["value valueStateGetLatency"]
    assert found.count == 9
    assert 0 < found.median <= found.p99 <= found.most <= found.total


def test_sizes_are_those_of_the_stored_entry(tmp_path: Path) -> None:
    operator = Operator(tmp_path, Measuring(sizes=EVERY))
    operator.at("k", "map").put("user", 1_000)
    found = operator.readings()
    ((key, value),) = operator.entries()
    assert found["map mapStatePutKeySize"].most == len(key)
    assert found["map mapStatePutValueSize"].most == len(value)


def test_states_of_an_operator_can_be_measured_together(tmp_path: Path) -> None:
    operator = Operator(tmp_path, Measuring(latencies=StateTracking(1, 128, by_state=False)))
    operator.at("k", "map").get("a")
    operator.at("k", "sorted").get(1)
    assert {name: reading.count for name, reading in operator.readings().items()} == {" mapStateGetLatency": 2}


def test_a_value_of_another_type_is_reported_when_it_is_written_and_not_by_the_meter(tmp_path: Path) -> None:
    operator = Operator(tmp_path, Measuring(sizes=EVERY))
    operator.at("k", "value").update("no number")
    with pytest.raises(Exception, match="'value' was given a value of another type"):
        operator.states.flush()


class Writes:
    """A user's function, as far as its source code is read."""

    items: Any
    value: Any

    def process_element(self) -> None:
        self.items.add("no number")

    def on_timer(self) -> None:
        self.value.update("no number")


@pytest.mark.parametrize("measuring", [Measuring(), Measuring(sizes=EVERY)], ids=["plain", "measured"])
@pytest.mark.parametrize(
    ("state", "write", "line"),
    [
        ("value", lambda value: value.update("no number"), 'self.value.update("no number")'),
        ("items", lambda items: items.add("no number"), 'self.items.add("no number")'),
        ("map", lambda entries: entries.put("user", "no number"), None),
    ],
)
def test_a_value_of_another_type_is_reported_with_its_key_and_the_line_that_writes_the_state(
    tmp_path: Path, measuring: Measuring, state: str, write: Any, line: str | None
) -> None:
    operator = Operator(tmp_path, measuring)
    function = Writes()
    operator.states.bind(function)
    operator.at("fine", "value").update(1)
    accessor = operator.at("k", state)
    write(accessor)
    with pytest.raises(WrongValue, match=f"State '{state}' was given a value of another type") as wrong:
        operator.states.flush()
    assert wrong.value.key == "k"
    assert [(Path(file).name, text.strip()) for file, _, _, text in wrong.value.writes] == (
        [] if line is None else [("test_access_meter.py", line)]
    )


KEYS = st.sampled_from(["a", "b", ""])
NUMBERS = st.integers(-3, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(KEYS, st.just("value"), st.sampled_from(["value", "clear"])),
        st.tuples(KEYS, st.just("value"), st.just("update"), st.none()),
        st.tuples(KEYS, st.sampled_from(["value", "items", "sum"]), st.sampled_from(["update", "add"]), NUMBERS),
        st.tuples(
            KEYS, st.sampled_from(["items", "map", "sorted", "longest"]), st.sampled_from(["get", "keys", "clear"])
        ),
        st.tuples(KEYS, st.just("sorted"), st.sampled_from(["get", "remove", "contains", "__getitem__"]), NUMBERS),
        st.tuples(KEYS, st.just("sorted"), st.sampled_from(["put", "__setitem__", "items"]), NUMBERS, NUMBERS),
        st.tuples(KEYS, st.just("longest"), st.just("add"), st.text(max_size=3)),
    ),
    max_size=30,
)


def outcome(operator: Operator, step: tuple[Any, ...]) -> Any:
    """What a function sees: a result, or an error."""
    key, state, call, *args = step
    try:
        found = getattr(operator.at(key, state), call)(*args)
        return list(found) if isinstance(found, Iterator) else found
    except Exception as error:
        return type(error)


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, interval=st.integers(1, 3), guarded=st.booleans())
def test_measuring_changes_neither_what_a_function_reads_nor_what_is_stored(
    steps: list[tuple[Any, ...]], interval: int, guarded: bool
) -> None:
    tracking = StateTracking(sample_interval=interval)
    with tempfile.TemporaryDirectory() as folder:
        plain = Operator(Path(folder) / "plain", Measuring(), guarded)
        measured = Operator(Path(folder) / "measured", Measuring(latencies=tracking, sizes=tracking), guarded)
        assert [outcome(plain, step) for step in steps] == [outcome(measured, step) for step in steps]
        assert plain.entries() == measured.entries()
