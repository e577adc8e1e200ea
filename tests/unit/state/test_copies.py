"""What a function does to a list after it got it from a state, or gave it to one, does not reach the state."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.copies import copier_of
from tidegate.core.errors import WrongValue
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.graph.schema import DataType
from tidegate.graph.states import StateKind, StateSpec
from tidegate.state.backends import backend_named
from tidegate.state.keyed_states import KeyedStates
from tidegate.state.keys import KeyCodec
from tidegate.state.version import VersionId

SPECS = (
    StateSpec(name="value", kind=StateKind.VALUE, value=list[int], default=[]),
    StateSpec(name="items", kind=StateKind.LIST, value=list[int]),
    StateSpec(name="map", kind=StateKind.MAP, value=list[int], map_key=int),
)
IDS = {"value": 1, "items": 2, "map": 3}


class Task:
    def __init__(self, backend: str, guarded: bool) -> None:
        self.backend, self.directory, self.guarded = backend_named(backend), Path(tempfile.mkdtemp()), guarded
        self.version: VersionId | None = None
        self.number = 0
        self.begin()

    def begin(self) -> None:
        self.number += 1
        target = VersionId(EpochId(Term(1), self.number), AttemptId(self.number))
        self.store = self.backend.begin(self.directory, self.version, target, (0, 127))
        keys = KeyCodec([DataType("string")])
        self.states = KeyedStates(
            self.store, SPECS, IDS.__getitem__, keys, target.epoch, (0, 127), guarded=self.guarded
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
