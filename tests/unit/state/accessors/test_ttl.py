"""Time to live: entries against a model that keeps the time of each, and what a change of the config finds."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import tidegate as tg
from tests.tiers.profiles import examples
from tidegate.core.errors import GraphError
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.states import StateKind, StateSpec
from tidegate.graph.ttl import StateTtlConfig
from tidegate.schema.schema import DataType
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.ttl import StateClock
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec, key_group_range
from tidegate.state.version import VersionId

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
KEYS = st.sampled_from(["a", "b"])
NUMBERS = st.integers(0, 9)
IDS = {"value": 1, "items": 2, "map": 3}


class Task:
    """The states of one operator over epochs, with a clock that is moved by hand."""

    def __init__(self, backend: str, directory: Path, ttl: StateTtlConfig | None) -> None:
        self.backend, self.directory, self.ttl = backend_named(backend), directory, ttl
        self.version: VersionId | None = None
        self.number, self.now, self.watermark = 0, 1000, MIN_WATERMARK
        self.begin()

    def begin(self) -> None:
        self.number += 1
        target = VersionId(EpochId(Term(1), self.number), AttemptId(self.number))
        self.store = self.backend.begin(self.directory, self.version, target, (0, 127))
        specs = (
            StateSpec(name="value", kind=StateKind.VALUE, value=int, default=-1, ttl=self.ttl),
            StateSpec(name="items", kind=StateKind.LIST, value=int, ttl=self.ttl),
            StateSpec(name="map", kind=StateKind.MAP, value=int, map_key=int, ttl=self.ttl),
        )
        keys, clock = KeyCodec([DataType("string")]), StateClock(self.now, self.watermark)
        self.states = KeyedStates(self.store, specs, IDS.__getitem__, keys, target.epoch, (0, 127), clock)

    def at(self, key: str, state: str):
        self.states.scope.key, self.states.scope.key_group = key, ord(key) % 32
        return self.states.accessors[state]

    def move(self, ms: int) -> None:
        self.now += ms
        self.states.set_time(self.now, self.watermark)

    def seal(self, ttl: StateTtlConfig | str | None = "as before") -> None:
        self.states.flush()
        self.states.clean_up()
        self.version = self.store.seal().version
        self.ttl = self.ttl if isinstance(ttl, str) else ttl
        self.begin()

    def entries(self) -> int:
        return len(list(self.store.scan(*key_group_range(0, 127))))


class Lives(RuleBasedStateMachine):
    BACKEND = "hashmap"
    TTL = 10

    @initialize(renewed=st.booleans())
    def start(self, renewed: bool) -> None:
        self.renewed = renewed
        self.directory = Path(tempfile.mkdtemp())
        update = "OnReadAndWrite" if renewed else "OnCreateAndWrite"
        self.task = Task(self.BACKEND, self.directory, StateTtlConfig(f"{self.TTL} ms", update, cleanup_entries=3))
        self.value: dict = {}
        self.items: dict = {"a": [], "b": []}
        self.map: dict = {"a": {}, "b": {}}

    def alive(self, born: int) -> bool:
        return born + self.TTL > self.task.now

    @rule(ms=st.integers(1, 8))
    def time_goes_by(self, ms) -> None:
        self.task.move(ms)

    @rule(key=KEYS, number=NUMBERS)
    def update(self, key, number) -> None:
        self.task.at(key, "value").update(number)
        self.value[key] = (number, self.task.now)

    @rule(key=KEYS)
    def read(self, key) -> None:
        number, born = self.value.get(key, (-1, 0))
        expected = number if self.alive(born) else -1
        assert self.task.at(key, "value").value() == expected
        if self.renewed and self.alive(born):
            self.value[key] = (number, self.task.now)

    @rule(key=KEYS, number=NUMBERS)
    def add(self, key, number) -> None:
        self.task.at(key, "items").add(number)
        self.items[key].append((number, self.task.now))

    @rule(key=KEYS)
    def read_list(self, key) -> None:
        self.items[key] = [
            (number, self.task.now if self.renewed else born) for number, born in self.items[key] if self.alive(born)
        ]
        assert list(self.task.at(key, "items").get()) == [number for number, _ in self.items[key]]

    @rule(key=KEYS, user_key=NUMBERS, number=NUMBERS)
    def put(self, key, user_key, number) -> None:
        self.task.at(key, "map").put(user_key, number)
        self.map[key][user_key] = (number, self.task.now)

    @rule(key=KEYS, user_key=NUMBERS)
    def get(self, key, user_key) -> None:
        number, born = self.map[key].get(user_key, (None, 0))
        assert self.task.at(key, "map").get(user_key) == (number if self.alive(born) else None)
        if self.renewed and self.alive(born):
            self.map[key][user_key] = (number, self.task.now)

    @rule(key=KEYS)
    def read_map(self, key) -> None:
        self.map[key] = {
            k: (number, self.task.now if self.renewed else born)
            for k, (number, born) in self.map[key].items()
            if self.alive(born)
        }
        assert dict(self.task.at(key, "map").items()) == {k: number for k, (number, _) in self.map[key].items()}

    @rule()
    def epoch_ends(self) -> None:
        self.task.seal()

    def teardown(self) -> None:
        if hasattr(self, "task"):
            self.task.store.abandon()
            shutil.rmtree(self.directory, ignore_errors=True)


class RocksLives(Lives):
    BACKEND = "rocksdb"


TestHashmap = Lives.TestCase
TestHashmap.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestRocksDB = RocksLives.TestCase
TestRocksDB.settings = settings(max_examples=examples(20), stateful_step_count=30, deadline=None)


@BACKENDS
def test_the_dead_are_removed_bit_by_bit_without_being_read(tmp_path, backend):
    task = Task(backend, tmp_path, StateTtlConfig("10 ms", cleanup_entries=40))
    for n in range(100):
        task.at("a", "map").put(n, n)
    task.seal()
    assert task.entries() == 100
    task.move(10)
    left = []
    for _ in range(5):
        task.at("b", "value").update(1)  # nobody touches the map
        task.seal()
        left.append(sum(key[:4] == b"\0\1\0\3" for key, _ in task.store.scan(*key_group_range(0, 127))))
    assert left[-1] == 0
    assert left[0] > 0
    task.store.abandon()


@BACKENDS
def test_a_time_to_live_given_taken_away_and_changed_finds_old_entries(tmp_path, backend):
    task = Task(backend, tmp_path, None)
    task.at("a", "value").update(7)
    task.at("a", "items").add(8)
    task.at("a", "map").put(1, 9)
    everything = lambda: (task.at("a", "value").value(), list(task.at("a", "items")), dict(task.at("a", "map").items()))  # noqa: E731
    task.seal(StateTtlConfig("10 ms"))
    assert everything() == (7, [8], {1: 9})  # without a stamp: they begin to live now
    task.seal(None)
    task.move(100)
    assert everything() == (7, [8], {1: 9})  # with a stamp that means nothing any more
    task.seal(StateTtlConfig("1000 ms"))
    assert everything() == (7, [8], {1: 9})
    task.seal(StateTtlConfig("50 ms"))
    assert everything() == (-1, [], {})
    task.store.abandon()


@BACKENDS
def test_entries_that_are_never_read_get_their_stamp_from_the_search(tmp_path, backend):
    task = Task(backend, tmp_path, None)
    task.at("a", "value").update(7)
    task.seal(StateTtlConfig("10 ms"))
    task.at("b", "value").update(1)
    task.seal()
    task.move(10)
    assert task.at("a", "value").value() == -1
    task.store.abandon()


@BACKENDS
def test_event_time_does_not_advance_before_the_first_watermark(tmp_path, backend):
    task = Task(backend, tmp_path, StateTtlConfig("10 ms", time_characteristic="EventTime"))
    task.at("a", "value").update(7)
    task.move(1_000_000)
    assert task.at("a", "value").value() == 7
    task.watermark = 500
    task.move(0)
    task.at("a", "map").put(1, 1)
    assert task.at("a", "value").value() == 7
    task.seal()
    task.watermark = 509
    task.move(0)
    assert task.at("a", "map").get(1) == 1
    task.watermark = 510
    task.move(0)
    assert (task.at("a", "map").get(1), task.at("a", "value").value()) == (None, -1)
    task.store.abandon()


@BACKENDS
def test_an_expired_value_may_be_seen_once_more(tmp_path, backend):
    task = Task(
        backend, tmp_path, StateTtlConfig("10 ms", state_visibility="ReturnExpiredIfNotCleanedUp", cleanup_entries=0)
    )
    task.at("a", "value").update(7)
    task.at("a", "map").put(1, 1)
    task.at("a", "items").add(5)
    task.seal()
    task.move(50)
    once = (task.at("a", "value").value(), task.at("a", "map").get(1), list(task.at("a", "items")))
    again = (task.at("a", "value").value(), task.at("a", "map").get(1), list(task.at("a", "items")))
    assert (once, again) == ((7, 1, [5]), (-1, None, []))
    task.store.abandon()


class Sessions(tg.KeyedProcessFunction):
    clicks = tg.ValueState(int, default=0, ttl="10 s")
    pages = tg.MapState(str, int, ttl=tg.StateTtlConfig("1 min", tg.StateTtlConfig.UpdateType.OnReadAndWrite))

    def process_element(self, row, ctx):
        self.clicks.update(self.clicks.value() + 1)
        self.pages.put(row.page, 1)
        yield row.user, self.clicks.value()


@BACKENDS
def test_a_function_forgets_and_a_full_snapshot_does_not_carry_the_dead(backend):
    build = {"key": "user", "schema": "user string, page string", "state_backend": backend}
    with tg.testing.harness(Sessions(), **build) as h:
        h.process(("ann", "x"), ("ann", "y"), ("bob", "x"))
        h.set_processing_time(10_000)
        h.process(("ann", "z"))
        snapshot = h.snapshot()
        assert h.output() == [("ann", 1), ("ann", 2), ("bob", 1), ("ann", 1)]
    clicks = snapshot.state_ids["function", "clicks"].to_bytes(2, "big")
    assert len([key for key, _ in snapshot.entries if key[2:4] == clicks]) == 1
    with tg.testing.harness(Sessions(), restore=snapshot, parallelism=2, **build) as h:
        assert (h.state("clicks", "bob"), h.state("pages", "bob")) == (None, {"x": 1})
        h.set_processing_time(60_000)
        assert (h.state("pages", "bob"), h.state("pages", "ann")) == (None, {"z": 1})


def test_invalid_times_are_reported():
    with pytest.raises(GraphError, match="ttl='soon' is not a duration"):
        tg.ValueState(int, ttl="soon")
    with pytest.raises(GraphError, match="cannot be read"):
        tg.ValueState(int, ttl=tg.StateTtlConfig("1 h", "Sometimes"))
    with pytest.raises(GraphError, match="more than 0"):
        tg.ValueState(int, ttl=0)
    with pytest.raises(GraphError, match="no time to live"):
        tg.ListState(int, operator=True, ttl="1 h")
    assert tg.ValueState(int, ttl=tg.StateTtlConfig("1 h", "Disabled")).spec("x").ttl is None
