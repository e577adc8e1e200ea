"""Undoing a row: random rows that succeed or fail, against plain objects that only the successful ones change."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.core.times import TimeDomain
from tidegate.graph.states import TIMERS, StateKind, StateSpec
from tidegate.schema.schema import DataType
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.version import VersionId

SPECS = (
    StateSpec(name="value", kind=StateKind.VALUE, value=int, default=0),
    StateSpec(name="changing", kind=StateKind.VALUE, value=list[int], default=[]),
    StateSpec(name="items", kind=StateKind.LIST, value=int),
    StateSpec(name="map", kind=StateKind.MAP, value=list[int], map_key=str),
    TIMERS,
)
IDS = {spec.name: n for n, spec in enumerate(SPECS, 1)}
NUMBERS = st.integers(0, 3)
STEP = st.one_of(
    st.tuples(st.just("update"), NUMBERS),
    st.tuples(st.just("update many"), NUMBERS),
    st.tuples(st.just("clear many"), NUMBERS),
    st.tuples(st.just("change in place many"), NUMBERS),
    st.tuples(st.just("clear value"), NUMBERS),
    st.tuples(st.just("change in place"), NUMBERS),
    st.tuples(st.just("add"), NUMBERS),
    st.tuples(st.just("replace list"), NUMBERS),
    st.tuples(st.just("read list"), NUMBERS),
    st.tuples(st.just("put"), NUMBERS),
    st.tuples(st.just("append to entry"), NUMBERS),
    st.tuples(st.just("remove"), NUMBERS),
    st.tuples(st.just("scan"), NUMBERS),
    st.tuples(st.just("clear map"), NUMBERS),
    st.tuples(st.just("register"), NUMBERS),
    st.tuples(st.just("delete timer"), NUMBERS),
)
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.lists(STEP, max_size=5), st.sampled_from(["ok", "ok", "fails", "epoch ends"])),
    max_size=14,
)


def empty() -> dict:
    return {"value": 0, "changing": [], "items": [], "map": {}, "timers": set()}


def on_state(states: KeyedStates, step: str, n: int) -> None:  # noqa: C901 one case for each operation
    value, changing = states.value_state("value"), states.value_state("changing")
    items, map_ = states.list_state("items"), states.map_state("map")
    scope = states.scope
    here = [scope.key], [scope.key_group]
    match step:
        case "update":
            value.update(value.value() + n)
        case "update many":
            value.write_many(*here, [value.read_many(*here)[0] + n])
        case "clear many":
            value.write_many(*here, [None])
        case "change in place many":
            (held,) = changing.read_many(*here)
            held.append(n)
            changing.write_many(*here, [held])
        case "clear value":
            value.clear()
        case "change in place":
            held = changing.value()
            held.append(n)
            changing.update(held)
        case "add":
            items.add(n)
        case "replace list":
            items.update([n, n])
        case "read list":
            list(items)
        case "put":
            map_.put(str(n), [n])
        case "append to entry":
            held = map_.get(str(n)) or []
            held.append(n)
            map_.put(str(n), held)
        case "remove":
            map_.remove(str(n))
        case "scan":
            list(map_.items())
        case "clear map":
            map_.clear()
        case "register":
            states.timers.register(TimeDomain.EVENT_TIME, n, scope.key, scope.key_group)
        case "delete timer":
            states.timers.delete(TimeDomain.EVENT_TIME, n, scope.key, scope.key_group)


def on_model(model: dict, step: str, n: int) -> None:
    match step:
        case "update" | "update many":
            model["value"] += n
        case "clear value" | "clear many":
            model["value"] = 0
        case "change in place" | "change in place many":
            model["changing"].append(n)
        case "add":
            model["items"].append(n)
        case "replace list":
            model["items"] = [n, n]
        case "put":
            model["map"][str(n)] = [n]
        case "append to entry":
            model["map"].setdefault(str(n), []).append(n)
        case "remove":
            model["map"].pop(str(n), None)
        case "clear map":
            model["map"] = {}
        case "register":
            model["timers"].add(n)
        case "delete timer":
            model["timers"].discard(n)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "rocksdb, heap timers"])
@settings(max_examples=examples(120), deadline=None)
@given(rows=ROWS)
def test_only_rows_that_succeed_change_anything(backend, rows):
    with tempfile.TemporaryDirectory() as directory:
        name, _, heap = backend.partition(", ")
        chosen = backend_named(name, {"state.backend.rocksdb.timer-service.factory": "heap"} if heap else {})
        version, model = None, {"a": empty(), "b": empty()}

        def begin(number: int):
            target = VersionId(EpochId(Term(1), number), AttemptId(number))
            store = chosen.begin(Path(directory), version, target, (0, 127))
            keys = KeyCodec([DataType("string")])
            states = KeyedStates(store, SPECS, IDS.__getitem__, keys, target.epoch, (0, 127), guarded=True)
            return store, states

        store, states = begin(1)
        for number, (key, steps, end) in enumerate(rows, 2):
            states.scope.key, states.scope.key_group = key, ord(key)
            states.mark()
            after = copy.deepcopy(model[key])
            for step, n in steps:
                on_state(states, step, n)
                on_model(after, step, n)
            if end == "fails":
                states.roll_back()
            else:
                model[key] = after
            if end == "epoch ends":
                states.flush()
                version = store.seal().version
                store, states = begin(number)
        found = {}
        for key in "ab":
            states.scope.key, states.scope.key_group = key, ord(key)
            read = {name: accessor.stored() for name, accessor in states.accessors.items()}
            found[key] = {
                "value": read["value"] or 0,
                "changing": read["changing"] or [],
                "items": read["items"] or [],
                "map": read["map"] or {},
                "timers": set(),
            }
        for timer in states.timers.due(TimeDomain.EVENT_TIME, 10):
            found[timer.key]["timers"].add(timer.time_ms)
        store.abandon()
        assert found == model
