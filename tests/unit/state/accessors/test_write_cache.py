"""The write cache of an attempt: bounded in bytes, measured seldom, written early where nobody sees it, and gone at the end."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
import pytest

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.core.times import TimeDomain
from tidegate.graph.states import StateKind, StateSpec
from tidegate.schema.schema import DataType
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.object_size import object_bytes
from tidegate.state.accessors.write_cache import MOST_SKIPPED, WriteCache
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.port import BudgetedBackend
from tidegate.state.version import VersionId

MB = 1 << 20
SPECS = (
    StateSpec(name="value", kind=StateKind.VALUE, value=str),
    StateSpec(name="numbers", kind=StateKind.LIST, value=int),
    StateSpec(name="map", kind=StateKind.MAP, value=str, map_key=int),
    StateSpec(name="timers", kind=StateKind.TIMERS, value=None),
)
IDS = {spec.name: number for number, spec in enumerate(SPECS, 1)}


class Attempt:
    def __init__(self, directory: Path, base: VersionId | None, number: int, cache_bytes: int | None) -> None:
        self.target = VersionId(EpochId(Term(1), number), AttemptId(number))
        self.store = backend_named("rocksdb").begin(directory, base, self.target, (0, 127))
        codec = KeyCodec([DataType("string")])
        self.states = KeyedStates(
            self.store, SPECS, IDS.__getitem__, codec, self.target.epoch, (0, 127), cache_bytes=cache_bytes
        )

    def at(self, key: int, state: str):
        self.states.scope.key, self.states.scope.key_group = f"key-{key:08}", key % 128
        return self.states.accessors[state]

    def write(self, first: int, rows: int, state: str, text: str = "x" * 100) -> None:
        """One batch."""
        for n in range(first, first + rows):
            accessor = self.at(n, state)
            if state == "value":
                accessor.update(f"{n}{text}")
            elif state == "numbers":
                accessor.add_all(range(n + 1000, n + 1010))
            else:
                accessor.put_all((entry, f"{n}{text}") for entry in range(3))
        self.states.bound_memory()


@pytest.mark.feature("F14")
@pytest.mark.parametrize("state", ["value", "numbers", "map"])
def test_what_an_attempt_holds_in_memory_is_bounded_however_much_it_writes(tmp_path: Path, state: str) -> None:
    attempt = Attempt(tmp_path, None, 1, 2 * MB)
    held = []
    for first in range(0, 40_000, 500):
        attempt.write(first, 500, state)
        held.append(attempt.states.cache.size_bytes())
    # The bound, and what comes until the next look.
    assert max(held) < 3 * MB
    assert attempt.states.cache.peak_bytes >= max(held)
    attempt.states.flush()
    version = attempt.store.seal().version
    later = Attempt(tmp_path, version, 2, 2 * MB)
    for n in (0, 12_345, 39_999):
        found = later.at(n, state)
        if state == "value":
            assert found.value() == f"{n}{'x' * 100}"
        elif state == "numbers":
            assert list(found) == list(range(n + 1000, n + 1010))
        else:
            assert dict(found.items()) == dict.fromkeys(range(3), f"{n}{'x' * 100}")
    later.store.abandon()


@pytest.mark.feature("F14")
@pytest.mark.parametrize("state", ["value", "numbers", "map"])
def test_what_an_attempt_holds_in_memory_is_bounded_however_much_it_clears(tmp_path: Path, state: str) -> None:
    """As a watermark does that closes a million windows: each emits its result, and clears its state."""
    attempt = Attempt(tmp_path, None, 1, 2 * MB)
    held = []
    for first in range(0, 60_000, 500):
        for n in range(first, first + 500):
            attempt.at(n, state).clear()
        attempt.states.bound_memory()
        held.append(attempt.states.accessors[state].cached())
    assert max(held) < 30_000
    assert attempt.states.cache.peak_bytes > MB
    attempt.store.abandon()


@pytest.mark.feature("F14")
def test_what_is_written_early_is_gone_with_the_attempt(tmp_path: Path) -> None:
    first = Attempt(tmp_path, None, 1, None)
    first.write(0, 10, "value", " first")
    first.states.flush()
    version = first.store.seal().version
    failed = Attempt(tmp_path, version, 2, 1)
    for start in range(0, 5_000, 500):
        failed.write(start, 500, "value", " second")
    assert failed.states.accessors["value"].written == 5_000
    assert failed.states.cache.size_bytes() == 0
    failed.store.abandon()
    again = Attempt(tmp_path, version, 3, 1)
    assert [again.at(n, "value").value() for n in (0, 9, 10, 4_999)] == ["0 first", "9 first", None, None]
    again.store.abandon()


@pytest.mark.parametrize("state", ["value", "numbers", "map"])
@pytest.mark.parametrize("text", ["x", "x" * 2_000])
def test_the_estimate_is_near_what_python_has_allocated(tmp_path: Path, state: str, text: str) -> None:
    attempt = Attempt(tmp_path, None, 1, 1 << 40)
    attempt.write(0, 1, state, text)
    tracemalloc.start()
    attempt.write(1, 5_000, state, text)
    allocated = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.8 < attempt.states.cache.size_bytes() / allocated < 1.4
    attempt.store.abandon()


def test_timers_count_as_well(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, None, 1, 1 << 40)
    assert attempt.states.timers is not None
    names = [(time, f"key-{time:08}", None) for time in range(10_000)]
    attempt.states.timers.register_many(TimeDomain.EVENT_TIME, names, [1] * 10_000)
    assert 100 * 10_000 < attempt.states.cache.size_bytes() < 500 * 10_000
    attempt.states.drop_cached()
    assert attempt.states.cache.size_bytes() == 0
    attempt.store.abandon()


class Growing:
    """A state that grows by so many entries with each batch, each of ten bytes."""

    def __init__(self, pace: int) -> None:
        self.entries, self.pace, self.looks = 0, pace, 0

    def cached(self) -> int:
        self.looks += 1
        return self.entries

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        return most, 10 * most


def test_a_slowly_growing_cache_is_measured_rarely_and_stays_near_its_limit() -> None:
    for pace in (0, 1, 10, 100, 1_000):
        state = Growing(pace)
        cache = WriteCache([state], 100_000)
        most = 0
        for _ in range(2_000):
            state.entries += pace
            most = max(most, state.entries)
            if cache.is_full(0):
                state.entries = 0
                cache.emptied()
        assert most * 10 <= 100_000 + 2 * 10 * pace
        if pace <= 10:
            assert state.looks < 2_000 / MOST_SKIPPED * 3


def test_a_sudden_burst_is_seen_soon() -> None:
    state = Growing(0)
    cache = WriteCache([state], 100_000)
    for _ in range(100):
        assert not cache.is_full(0)
    state.entries = 1_000_000
    assert next(n for n in count(1) if cache.is_full(0)) <= MOST_SKIPPED + 1


class Kept:
    """A value that tells when it is gone."""


def test_values_are_gone_with_the_attempt_and_wait_for_no_garbage_collector(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, None, 1, None)
    kept = Kept()
    gone = weakref.ref(kept)
    attempt.at(1, "value").update(kept)
    attempt.at(1, "map").put(1, kept)
    attempt.at(1, "numbers").add(kept)
    del kept
    gc.disable()
    try:
        attempt.store.abandon()
        attempt.states.drop_cached()
        assert gone() is None
    finally:
        gc.enable()


class Point(msgspec.Struct):
    name: str
    place: tuple[int, int]


@dataclass
class Pair:
    one: str
    two: list[int]


@dataclass(slots=True)
class Slim:
    one: str


def test_the_size_of_an_object_counts_what_it_contains() -> None:
    long = "x" * 10_000
    for value in (
        Point(long, (1, 2)),
        Pair(long, [1]),
        Slim(long),
        [long],
        (long,),
        {long},
        {1: long},
        {1: [{2: long}]},
    ):
        assert 10_000 < object_bytes(value) < 11_500
    assert 80_000 < object_bytes(list(range(1_000, 3_000))) + object_bytes([long] * 2) < 120_000


def test_the_write_cache_is_a_quarter_of_the_memory_of_a_slot() -> None:
    fixed = {"state.backend.rocksdb.memory.fixed-per-slot": "64 mb"}
    for name in ("rocksdb", "rocksdb+changelog"):
        backend = backend_named(name, fixed)
        assert isinstance(backend, BudgetedBackend)
        assert backend.write_cache_bytes == 16 * MB
    unmanaged = backend_named("rocksdb", {"state.backend.rocksdb.memory.managed": "false"})
    assert isinstance(unmanaged, BudgetedBackend)
    assert unmanaged.write_cache_bytes is None
    assert not isinstance(backend_named("hashmap"), BudgetedBackend)
