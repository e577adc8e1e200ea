"""Accessors against plain Python objects: whatever a function does, in whatever order, over epochs and crashes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.tiers.profiles import examples
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.graph.states import StateKind, StateSpec
from tidegate.schema.schema import DataType, Field
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.list_accessor import SEGMENT_ELEMENTS
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec, TimeWindow, split_entry_key
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.version import VersionId

SPECS = (
    StateSpec(name="value", kind=StateKind.VALUE, value=int, default=7),
    StateSpec(name="items", kind=StateKind.LIST, value=int),
    StateSpec(name="map", kind=StateKind.MAP, value=int, map_key=str),
)
IDS = {"value": 1, "items": 2, "map": 3}
BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
KEYS = st.sampled_from(["", "a", "b", "b\0", "é"])
NUMBERS = st.integers(-5, 5)


class Attempt:
    """One attempt over a version, and what sealing it gives."""

    def __init__(self, backend, directory: Path, base: VersionId | None, number: int) -> None:
        self.target = VersionId(EpochId(Term(1), number), AttemptId(number))
        self.store = backend.begin(directory, base, self.target, (0, 127))
        self.states = KeyedStates(self.store, SPECS, IDS.__getitem__, KeyCodec([DataType("string")]), self.target.epoch)

    def at(self, key: str, state: str):
        self.states.scope.key, self.states.scope.key_group = key, len(key)
        return self.states.accessors[state]

    def seal(self) -> VersionId:
        self.states.flush()
        return self.store.seal().version


class Model(RuleBasedStateMachine):
    BACKEND = "hashmap"

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.backend = backend_named(self.BACKEND)
        self.version: VersionId | None = None
        self.number = 0
        self.sealed: dict[str, dict] = {"value": {}, "items": {}, "map": {}}
        self.start()

    def start(self) -> None:
        self.number += 1
        self.attempt = Attempt(self.backend, self.directory, self.version, self.number)
        self.now = {
            "value": dict(self.sealed["value"]),
            "items": {k: list(v) for k, v in self.sealed["items"].items()},
            "map": {k: dict(v) for k, v in self.sealed["map"].items()},
        }

    @rule(key=KEYS, number=NUMBERS)
    def update(self, key, number) -> None:
        self.attempt.at(key, "value").update(number)
        self.now["value"][key] = number

    @rule(key=KEYS)
    def clear_value(self, key) -> None:
        self.attempt.at(key, "value").clear()
        self.now["value"].pop(key, None)

    @rule(key=KEYS)
    def read_value(self, key) -> None:
        assert self.attempt.at(key, "value").value() == self.now["value"].get(key, 7)

    def index(self, keys) -> KeyIndex:
        return KeyIndex.of_keys(
            [Field("key", DataType("string"))], keys, [len(k) for k in keys], self.attempt.states.scope
        )

    @rule(keys=st.lists(KEYS, unique=True))
    def read_values(self, keys) -> None:
        found = self.attempt.states.value_state("value").values(self.index(keys))
        assert found.tolist() == [self.now["value"].get(key, 7) for key in keys]

    @rule(entries=st.dictionaries(KEYS, st.none() | NUMBERS))
    def update_values(self, entries) -> None:
        self.attempt.states.value_state("value").update_all(self.index(list(entries)), list(entries.values()))
        merged = self.now["value"] | entries
        self.now["value"] = {key: number for key, number in merged.items() if number is not None}

    @rule(keys=st.lists(KEYS, unique=True))
    def clear_values(self, keys) -> None:
        self.attempt.states.value_state("value").clear_all(self.index(keys))
        for key in keys:
            self.now["value"].pop(key, None)

    @rule(key=KEYS, numbers=st.lists(NUMBERS, max_size=3))
    def add(self, key, numbers) -> None:
        self.attempt.at(key, "items").add_all(numbers)
        self.now["items"].setdefault(key, []).extend(numbers)

    @rule(key=KEYS, numbers=st.lists(NUMBERS, max_size=3))
    def replace_list(self, key, numbers) -> None:
        self.attempt.at(key, "items").update(numbers)
        self.now["items"][key] = list(numbers)

    @rule(key=KEYS)
    def read_list(self, key) -> None:
        assert list(self.attempt.at(key, "items").get()) == self.now["items"].get(key, [])

    @rule(key=KEYS, user_key=KEYS, number=NUMBERS)
    def put(self, key, user_key, number) -> None:
        self.attempt.at(key, "map").put(user_key, number)
        self.now["map"].setdefault(key, {})[user_key] = number

    @rule(key=KEYS, user_key=KEYS)
    def remove(self, key, user_key) -> None:
        self.attempt.at(key, "map").remove(user_key)
        self.now["map"].get(key, {}).pop(user_key, None)

    @rule(key=KEYS, user_key=KEYS)
    def get(self, key, user_key) -> None:
        accessor = self.attempt.at(key, "map")
        assert accessor.get(user_key) == self.now["map"].get(key, {}).get(user_key)
        assert accessor.contains(user_key) == (user_key in self.now["map"].get(key, {}))

    @rule(key=KEYS)
    def read_map(self, key) -> None:
        accessor, expected = self.attempt.at(key, "map"), self.now["map"].get(key, {})
        assert list(accessor.items()) == sorted(expected.items())
        assert (list(accessor), list(accessor.values())) == (sorted(expected), [v for _, v in sorted(expected.items())])
        assert accessor.is_empty() == (not expected)

    @rule(key=KEYS)
    def clear_map(self, key) -> None:
        self.attempt.at(key, "map").clear()
        self.now["map"].pop(key, None)

    @rule()
    def memory_runs_short(self) -> None:
        self.attempt.states.CACHE_ENTRIES = 0
        self.attempt.states.bound_memory()

    @rule()
    def epoch_ends(self) -> None:
        self.version = self.attempt.seal()
        self.sealed = self.now
        self.start()

    @rule()
    def attempt_fails(self) -> None:
        self.attempt.store.abandon()
        self.start()

    def teardown(self) -> None:
        if hasattr(self, "attempt"):
            self.attempt.store.abandon()
            shutil.rmtree(self.directory, ignore_errors=True)


class RocksModel(Model):
    BACKEND = "rocksdb"


TestHashmap = Model.TestCase
TestHashmap.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestRocksDB = RocksModel.TestCase
TestRocksDB.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)


class Attempts:
    """One attempt after the other, each over the version of the one before."""

    attempt: Attempt

    def __init__(self, backend: str, directory: Path) -> None:
        self.backend, self.directory, self.number = backend_named(backend), directory, 0
        self.version: VersionId | None = None

    def next(self) -> Attempt:
        if self.number:
            self.version = self.attempt.seal()
        self.number += 1
        self.attempt = Attempt(self.backend, self.directory, self.version, self.number)
        return self.attempt


@BACKENDS
@pytest.mark.feature("A16")
def test_a_value_is_its_default_until_it_is_updated_and_again_once_it_is_cleared(tmp_path, backend):
    attempts = Attempts(backend, tmp_path)
    value = attempts.next().at("a", "value")
    assert value.value() == 7
    value.update(0)
    value = attempts.next().at("a", "value")
    assert value.value() == 0
    value.clear()
    assert value.value() == 7
    assert attempts.next().at("a", "value").value() == 7


@BACKENDS
@pytest.mark.feature("A17")
def test_a_list_grows_from_epoch_to_epoch_until_it_is_replaced_or_cleared(tmp_path, backend):
    attempts = Attempts(backend, tmp_path)
    attempts.next().at("a", "items").add(1)
    attempts.next().at("a", "items").add_all([2, 1])
    assert list(attempts.next().at("a", "items").get()) == [1, 2, 1]
    attempts.attempt.at("a", "items").update([5, 6])
    assert list(attempts.next().at("a", "items").get()) == [5, 6]
    assert list(attempts.attempt.at("b", "items").get()) == []
    attempts.attempt.at("a", "items").clear()
    assert list(attempts.next().at("a", "items").get()) == []


@BACKENDS
@pytest.mark.feature("A18")
def test_the_entries_of_a_map_are_written_and_removed_one_by_one(tmp_path, backend):
    attempts = Attempts(backend, tmp_path)
    attempts.next().at("a", "map").put_all({"x": 1, "y": 2, "z": 3})
    changed = attempts.next().at("a", "map")
    changed.put("y", 20)
    changed.remove("x")
    found = attempts.next().at("a", "map")
    assert (found.get("x"), found.get("y"), found.contains("z"), found.contains("x")) == (None, 20, True, False)
    assert (list(found.items()), list(found.keys()), list(found.values())) == (
        [("y", 20), ("z", 3)],
        ["y", "z"],
        [20, 3],
    )
    assert list(attempts.attempt.at("b", "map")) == []
    attempts.attempt.at("a", "map").clear()
    assert attempts.next().at("a", "map").is_empty()


@BACKENDS
@pytest.mark.feature("A10", "A18")
def test_the_map_of_one_key_is_not_that_of_another(tmp_path, backend):
    attempt = Attempts(backend, tmp_path).next()
    attempt.at("a", "map").put("x", 1)
    assert attempt.at("b", "map").get("x") is None
    attempt.at("b", "map").put("x", 2)
    assert attempt.at("a", "map").get("x") == 1


@BACKENDS
@pytest.mark.parametrize("cleared", [True, False])
@pytest.mark.feature("A18", "A22")
def test_ranges_of_a_map_are_in_order_from_either_end_also_before_they_are_written(tmp_path, backend, cleared):
    attempts = Attempts(backend, tmp_path)
    attempts.next().at("a", "map").put_all({key: ord(key) for key in "zyx"})
    found, keys = attempts.next().at("a", "map"), "dbeac" if cleared else "dbeaczyx"
    if cleared:
        found.clear()
    found.put_all({key: ord(key) for key in "dbeac"})
    assert (found.first_key(), found.last_key(), found.is_empty()) == ("a", max(keys), False)
    for reverse in (False, True):
        assert list(found.keys(reverse=reverse)) == sorted(keys, reverse=reverse)
        assert list(found.values(reverse=reverse)) == sorted(map(ord, keys), reverse=reverse)
        assert list(found.keys("b", "d", reverse=reverse)) == sorted("bc", reverse=reverse)
        assert [value for _, value in found.items("b", reverse=reverse)] == sorted(
            (ord(key) for key in keys if key != "a"), reverse=reverse
        )


@BACKENDS
@pytest.mark.feature("A17")
def test_what_is_added_to_a_list_that_was_read_comes_after_what_is_stored(tmp_path, backend):
    """A short list is kept in memory once it was read."""
    first = Attempt(backend_named(backend), tmp_path, None, 1)
    first.at("a", "items").update([1, 2])
    second = Attempt(backend_named(backend), tmp_path, first.seal(), 2)
    items = second.at("a", "items")
    assert list(items.get()) == [1, 2]
    items.add(3)
    assert list(items.get()) == [1, 2, 3]
    second.store.abandon()


@BACKENDS
@pytest.mark.feature("A18")
def test_the_stored_entries_of_a_map_are_gone_as_soon_as_it_is_cleared(tmp_path, backend):
    first = Attempt(backend_named(backend), tmp_path, None, 1)
    first.at("a", "map").put_all({"x": 1, "y": 2})
    second = Attempt(backend_named(backend), tmp_path, first.seal(), 2)
    entries = second.at("a", "map")
    entries.clear()
    assert (entries.get("x"), "y" in entries, entries.is_empty()) == (None, False, True)
    entries.put("y", 3)
    third = Attempt(backend_named(backend), tmp_path, second.seal(), 3)
    assert dict(third.at("a", "map").items()) == {"y": 3}
    third.store.abandon()


class Counting:
    """A store that counts reads and writes."""

    def __init__(self, store) -> None:
        self._store, self.reads, self.writes = store, 0, 0

    def get(self, key):
        self.reads += 1
        return self._store.get(key)

    def write(self, puts, deletes=()):
        self.writes += 1
        self._store.write(puts, deletes)

    def __getattr__(self, name):
        return getattr(self._store, name)


@BACKENDS
@pytest.mark.feature("A12")
def test_a_key_that_is_updated_a_thousand_times_costs_one_read_and_one_write(tmp_path, backend):
    target = VersionId(EpochId(Term(1), 1), AttemptId(1))
    store = Counting(backend_named(backend).begin(tmp_path, None, target, (0, 127)))
    states = KeyedStates(store, SPECS[:1], IDS.__getitem__, KeyCodec([DataType("string")]), target.epoch)
    states.scope.key, states.scope.key_group = "a", 1
    for _ in range(1000):
        states.value_state("value").update(states.value_state("value").value() + 1)
    states.flush()
    assert (store.reads, store.writes) == (1, 1)
    assert states.value_state("value").stored() == 1007
    store.abandon()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.feature("A17")
def test_long_lists_are_read_in_segments_and_in_order(tmp_path, backend):
    chosen = backend_named(backend)
    first = Attempt(chosen, tmp_path, None, 1)
    first.at("a", "items").add_all(range(3 * SEGMENT_ELEMENTS // 2))
    version = first.seal()
    second = Attempt(chosen, tmp_path, version, 2)
    second.at("a", "items").add(-1)
    assert list(second.at("a", "items").get()) == [*range(3 * SEGMENT_ELEMENTS // 2), -1]
    second.store.abandon()


@pytest.mark.feature("A22")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_many_scans_open_at_once_keep_to_their_bounds(tmp_path, backend):
    """A scan's bound must live as long as the scan: RocksDB reads its bytes at every step."""
    attempt = Attempt(backend_named(backend), tmp_path, None, 1)
    keys = [f"k{n}" for n in range(50)]
    for key in keys:
        attempt.at(key, "map").put_all({str(n): n for n in range(40)})
    attempt.states.flush()
    scans = [attempt.at(key, "map").items() for key in keys]
    started = [next(scan) for scan in scans for _ in range(1)]
    rest = [list(scan) for scan in scans]
    attempt.store.abandon()
    assert all(first == ("0", 0) for first in started)
    assert all(len(found) == 39 for found in rest)


@pytest.mark.feature("A16")
def test_a_default_that_can_change_is_not_shared_between_keys(tmp_path):
    spec = StateSpec(name="seen", kind=StateKind.VALUE, value=list[int], default=[])
    store = backend_named("hashmap").begin(tmp_path, None, VersionId(EpochId(Term(1), 1), AttemptId(1)), (0, 127))
    states = KeyedStates(store, [spec], lambda _: 1, KeyCodec([DataType("string")]), EpochId(Term(1), 1))
    seen = states.value_state("seen")
    states.scope.key, states.scope.key_group = "a", 1
    seen.value().append(1)
    states.scope.key = "b"
    assert seen.value() == []
    store.abandon()


@pytest.mark.feature("A18")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_every_nan_and_every_zero_is_one_map_key(tmp_path, backend):
    spec = StateSpec(name="m", kind=StateKind.MAP, value=int, map_key=float)
    store = backend_named(backend).begin(tmp_path, None, VersionId(EpochId(Term(1), 1), AttemptId(1)), (0, 127))
    states = KeyedStates(store, [spec], lambda _: 1, KeyCodec([DataType("string")]), EpochId(Term(1), 1))
    states.scope.key, states.scope.key_group = "a", 1
    m = states.map_state("m")
    for number in range(5):
        m.put(float("nan"), number)
        m.put(-0.0, number)
    assert (m.get(float("nan")), m.get(0.0), len(list(m.keys()))) == (4, 4, 2)
    m.remove(float("nan"))
    assert m.get(float("nan")) is None
    store.abandon()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.feature("F17")
def test_entries_lie_under_key_group_state_key_and_namespace(tmp_path, backend):
    specs = (
        StateSpec(name="value", kind=StateKind.VALUE, value=int),
        StateSpec(name="map", kind=StateKind.MAP, value=int, map_key=str, windowed=True),
    )
    target, codec, window = (
        VersionId(EpochId(Term(1), 1), AttemptId(1)),
        KeyCodec([DataType("string")]),
        TimeWindow(0, 9),
    )
    store = backend_named(backend).begin(tmp_path, None, target, (0, 127))
    states = KeyedStates(store, specs, IDS.__getitem__, codec, target.epoch)
    for number, key in enumerate("ab"):
        states.scope.key, states.scope.key_group = key, 100 - number
        states.window_scope.key, states.window_scope.key_group = (key, window), 100 - number
        states.value_state("value").update(1)
        states.map_state("map").put("m", 2)
    states.flush()
    found = [split_entry_key(raw, codec) for raw, _ in store.scan(b"", b"\x80")]
    assert [(k.key_group, k.state_id, k.key, k.namespace) for k in found] == [
        (99, 1, "b", None), (99, 3, "b", window), (100, 1, "a", None), (100, 3, "a", window),
    ]  # fmt: skip
    store.abandon()
