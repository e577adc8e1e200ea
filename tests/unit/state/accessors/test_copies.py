"""What a function does to a list after it got it from a state, or gave it to one, does not reach the state."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.copies import copier_of, detached
from tidegate.core.errors import WrongValue
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.graph.states import Distribution, StateKind, StateSpec
from tidegate.schema.schema import DataType, Field
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.version import VersionId


class Collect:
    """Collects numbers, or lists of numbers, in a list that it changes in place and also returns as its result."""

    def create_accumulator(self) -> list:
        return []

    def add(self, value, accumulator: list) -> list:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list) -> list:
        return accumulator


SPECS = (
    StateSpec(name="value", kind=StateKind.VALUE, value=list[int], default=[]),
    StateSpec(name="items", kind=StateKind.LIST, value=list[int]),
    StateSpec(name="map", kind=StateKind.MAP, value=list[int], map_key=int),
    StateSpec(name="reduced", kind=StateKind.REDUCING, value=list[int], function=max),
    StateSpec(name="collected", kind=StateKind.AGGREGATING, value=list[int], function=Collect()),
    StateSpec(name="nested", kind=StateKind.AGGREGATING, value=list[list[int]], function=Collect()),
)
IDS = {"value": 1, "items": 2, "map": 3, "reduced": 4, "collected": 5, "nested": 6}


class Task:
    def __init__(self, backend: str, guarded: bool, specs: tuple[StateSpec, ...] = SPECS) -> None:
        self.backend, self.directory, self.guarded = backend_named(backend), Path(tempfile.mkdtemp()), guarded
        self.specs = specs
        self.version: VersionId | None = None
        self.number = 0
        self.begin()

    def begin(self) -> None:
        self.number += 1
        target = VersionId(EpochId(Term(1), self.number), AttemptId(self.number))
        self.store = self.backend.begin(self.directory, self.version, target, (0, 127))
        keys = KeyCodec([DataType("string")])
        self.states = KeyedStates(
            self.store, self.specs, IDS.__getitem__, keys, target.epoch, (0, 127), guarded=self.guarded
        )

    def at(self, key: str, state: str):
        self.states.scope.key, self.states.scope.key_group = key, ord(key) % 32
        if self.guarded:
            self.states.mark()
        return self.states.accessors[state]

    def seal(self) -> None:
        self.states.flush()
        self.version = self.store.seal().version
        self.begin()


STEP = st.tuples(
    st.sampled_from(["read", "give", "spoil", "seal"]),
    st.sampled_from("ab"),
    st.sampled_from(["value", "items", "map"]),
)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@given(steps=st.lists(STEP, max_size=30))
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.feature("F7", "F15")
def test_a_state_holds_what_it_was_given_and_nothing_that_was_done_to_it_later(backend, guarded, steps):
    """One list is given to every key, and all lists that were given or got are changed again and again."""
    task = Task(backend, guarded)
    shared: list[int] = []
    got: list[list[int]] = [shared]
    model: dict[tuple[str, str], list[list[int]]] = {}
    for number, (step, key, state) in enumerate(steps):
        accessor, held = task.at(key, state), model.setdefault((key, state), [])
        match step, state:
            case "give", "value":
                accessor.update(shared)
                held[:] = [copy.copy(shared)]
            case "give", "items":
                accessor.add(shared)
                held.append(copy.copy(shared))
            case "give", _:
                accessor.put(1, shared)
                held[:] = [copy.copy(shared)]
            case "read", "value":
                got.append(accessor.value())
                assert got[-1] == (held[0] if held else [])
            case "read", "items":
                found = list(accessor.get())
                assert found == held
                got.extend(found)
            case "read", _:
                found = accessor.get(1)
                assert found == (held[0] if held else None)
                got.extend([found] if found is not None else [])
            case "spoil", _:
                for each in got:
                    each.append(number)
            case _:
                task.seal()


GIVE = {
    "value": lambda state, reused: state.update(reused),
    "items": lambda state, reused: state.add(reused),
    "map": lambda state, reused: state.put(1, reused),
    "reduced": lambda state, reused: state.add(reused),
    "collected": lambda state, reused: [state.add(number) for number in reused],
    "nested": lambda state, reused: state.add([]) or state.add(reused),
}
READ = {
    "value": lambda state: state.value(),
    "items": lambda state: next(state.get()),
    "map": lambda state: state.get(1),
    "reduced": lambda state: state.get(),
    "collected": lambda state: state.get(),
    "nested": lambda state: state.get()[1],
}


@pytest.mark.parametrize("state", GIVE)
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.feature("F7", "F15")
def test_one_object_may_be_changed_and_given_to_one_key_after_another(backend, guarded, state):
    task, reused = Task(backend, guarded), [0]
    for number, key in enumerate("abc"):
        reused[0] = number
        GIVE[state](task.at(key, state), reused)
        READ[state](task.at(key, state)).append(99)
    reused[0] = 99
    for _ in ("in the cache", "in the backend"):
        assert [READ[state](task.at(key, state)) for key in "abc"] == [[0], [1], [2]]
        task.seal()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.feature("F7", "F15")
def test_lists_and_maps_hold_copies_whichever_way_they_are_written_and_read(backend):
    task, reused = Task(backend, guarded=False), [0]
    items, entries = task.at("a", "items"), task.at("a", "map")
    items.update([reused])
    items.add_all([reused])
    entries.put_all({1: reused})
    entries[2] = reused
    reused[0] = 99
    for got in (*items, entries[1], entries.get(2)):
        got[0] = 99
    assert list(items.get()) == [[0], [0]]
    assert dict(entries.items()) == {1: [0], 2: [0]}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.feature("F7", "F15")
def test_a_batch_function_gets_copies_and_gives_copies(backend, guarded):
    """`values` and `update_all` of a state, which a function over whole batches calls."""
    task, reused = Task(backend, guarded), [0]
    state = task.at("a", "value")
    fields, groups = [Field("k", DataType("string"))], [ord("a") % 32, ord("b") % 32]
    keys = KeyIndex.of_keys(fields, ["a", "b"], groups, task.states.scope)
    state.update_all(keys, [reused, [1]])
    reused[0] = 99
    for _ in ("in the cache", "in the backend"):
        for got in state.values(keys):
            got.append(99)
        assert [list(value) for value in state.values(keys)] == [[0], [1]]
        task.seal()
        state = task.at("a", "value")


@pytest.mark.feature("F7", "F15")
def test_a_reduce_function_may_return_the_same_object_for_every_key():
    result: list[int] = []

    def add(so_far: list[int], value: list[int]) -> list[int]:
        result[:] = [so_far[0] + value[0]]
        return result

    spec = StateSpec(name="reduced", kind=StateKind.REDUCING, value=list[int], function=add)
    task = Task("hashmap", guarded=False, specs=(spec,))
    for key, number in [("a", 1), ("b", 10), ("a", 2), ("b", 20)]:
        task.at(key, "reduced").add([number])
    assert [task.at(key, "reduced").get() for key in "ab"] == [[3], [30]]


@pytest.mark.feature("F7", "F15")
def test_a_result_that_contains_the_accumulator_is_a_copy():
    class Pair(Collect):
        def get_result(self, accumulator: list) -> tuple[int, list]:
            return len(accumulator), accumulator

    spec = StateSpec(name="collected", kind=StateKind.AGGREGATING, value=list[int], function=Pair())
    state = Task("hashmap", guarded=False, specs=(spec,)).at("a", "collected")
    state.add(1)
    state.get()[1].append(99)
    assert state.get() == (1, [1])


def test_an_accumulator_that_is_changed_in_place_is_not_copied_with_each_element():
    task = Task("hashmap", guarded=False)
    state = task.at("a", "collected")
    state.add(0)
    held = state.stored()
    for number in range(1, 100):
        state.add(number)
    assert state.stored() is held
    assert len(held) == 100


@pytest.mark.parametrize("value", [1, "a", None, (1, "a", None), Decimal("1.5")])
def test_plain_values_and_rows_of_them_need_not_be_detached(value):
    assert detached(value) is value


@pytest.mark.feature("F15")
def test_a_row_with_a_list_is_detached_as_a_whole():
    row = (1, [2])
    made = detached(row)
    row[1].append(3)
    assert made == (1, [2])


def test_operator_state_does_not_change_with_the_object_it_was_given():
    specs = (
        StateSpec(name="list", kind=StateKind.LIST, value=list[int], distribution=Distribution.SPLIT),
        StateSpec(name="rules", kind=StateKind.MAP, map_key=int, value=list[int], distribution=Distribution.BROADCAST),
    )
    states = OperatorStates(Task("hashmap", guarded=False).store, specs, {"list": 1, "rules": 2}.__getitem__)
    states.set_writable(True)
    elements, rules, reused = states.lists["list"], states.maps["rules"], [1]
    elements.update([reused])
    elements.add(reused)
    rules.put(1, reused)
    reused[0] = 99
    next(elements.get())[0] = 99
    assert (list(elements.get()), rules.get(1)) == ([[1], [1]], [1])


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Frozen:
    names: tuple[str, ...]


@dataclass
class Open:
    names: list[str] = field(default_factory=list)


class Record(msgspec.Struct):
    n: int


@pytest.mark.parametrize("tp", [int, str, int | None, tuple[int, ...], frozenset[str], Point, Frozen])
def test_what_cannot_be_changed_is_not_copied(tp):
    assert copier_of(tp) is None


@pytest.mark.feature("F7", "F15")
@pytest.mark.parametrize(
    ("tp", "value"),
    [
        (list[int], [1, 2]),
        (dict[str, int], {"a": 1}),
        (set[int], {1}),
        (list[list[int]], [[1], [2]]),
        (Open, Open(["a"])),
        (Record, Record(1)),
        (tuple[list[int], int], ([1], 2)),
        (list[int] | None, [1]),
    ],
)
def test_what_can_be_changed_is_copied_down_to_its_leaves(tp, value):
    copied = copier_of(tp)
    assert copied is not None
    made = copied(value)
    assert made == value
    assert made is not value
    if isinstance(value, Open):
        assert made.names is not value.names
    assert copied(None) is None


def test_a_value_of_another_type_is_refused_where_it_is_given():
    task = Task("hashmap", guarded=False)
    with pytest.raises(WrongValue, match="Cannot store 'text'"):
        task.at("a", "value").update("text")
