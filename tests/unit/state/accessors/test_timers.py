"""Timers against a plain set, on both backends; and that finding what is due reads nothing else."""

from __future__ import annotations

import shutil
import tempfile
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.core.times import TimeDomain
from tidegate.graph.states import TIMERS
from tidegate.schema.schema import DataType
from tidegate.state.accessors.heap_timers import HeapTimers
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.timers import TimerState
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec, TimeWindow
from tidegate.state.version import VersionId

EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME
BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "rocksdb, heap timers"])
FACTORY = "state.backend.rocksdb.timer-service.factory"
CODEC = KeyCodec([DataType("bigint")])


class Versions:
    """A task's directory: attempts one after the other."""

    def __init__(self, backend: str) -> None:
        self.directory = Path(tempfile.mkdtemp())
        name, _, heap = backend.partition(", ")
        self.backend = backend_named(name, {FACTORY: "heap"} if heap else {})
        self.version: VersionId | None = None
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.store.abandon()
        shutil.rmtree(self.directory)

    def begin(self) -> TimerState:
        self.number += 1
        target = VersionId(EpochId(Term(1), self.number), AttemptId(self.number))
        self.store = self.backend.begin(self.directory, self.version, target, (0, 7))
        kind = HeapTimers if getattr(self.store, "timers_on_heap", False) else TimerState
        self.timers = kind(self.store, 3, CODEC, (0, 7))
        return self.timers

    def seal(self) -> TimerState:
        self.timers.flush()
        self.version = self.store.seal().version
        return self.begin()


def fired(timers: TimerState, until: int, domain: TimeDomain = EVENT) -> list[tuple[int, int]]:
    return [(timer.time_ms, timer.key) for timer in timers.due(domain, until)]


@BACKENDS
@pytest.mark.feature("B1")
def test_timers_fire_once_in_the_order_of_their_times(backend):
    with Versions(backend) as task:
        timers = task.begin()
        for time, key in [(30, 1), (10, 2), (20, 3), (10, 2), (-5, 4)]:
            timers.register(EVENT, time, key, key)
        timers.register(PROCESSING, 1, 9, 1)
        assert fired(timers, 20) == [(-5, 4), (10, 2), (20, 3)]
        assert fired(timers, 20) == []
        assert (timers.earliest(EVENT), timers.earliest(PROCESSING)) == (30, 1)
        assert fired(task.seal(), 100) == [(30, 1)]


@pytest.mark.feature("B1")
@BACKENDS
def test_what_a_firing_timer_registers_or_deletes_counts_at_once(backend):
    with Versions(backend) as task:
        timers = task.begin()
        timers.register(EVENT, 10, 1, 1)
        timers.register(EVENT, 40, 2, 2)
        timers.register(EVENT, 50, 3, 3)
        seen = []
        for timer in timers.due(EVENT, 100):
            seen.append((timer.time_ms, timer.key))
            if timer.time_ms == 10:
                timers.delete(EVENT, 40, 2, 2)
                timers.register(EVENT, 50, 3, 3)
                timers.register(EVENT, 5, 7, 7)
                timers.register(EVENT, 200, 8, 0)
        assert seen == [(10, 1), (5, 7), (50, 3)]
        assert fired(task.seal(), 1000) == [(200, 8)]


@pytest.mark.feature("B1", "B11")
@BACKENDS
def test_a_timer_belongs_to_its_window(backend):
    with Versions(backend) as task:
        timers = task.begin()
        for window in (TimeWindow(0, 10), TimeWindow(5, 15), None):
            timers.register(EVENT, 20, 1, 1, window)
        timers.delete(EVENT, 20, 1, 1, TimeWindow(5, 15))
        assert {timer.namespace for timer in task.seal().due(EVENT, 20)} == {TimeWindow(0, 10), None}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(-20, 20), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(-20, 20), st.integers(0, 5)),
        st.tuples(st.just("due"), st.integers(-25, 25), st.just(0)),
        st.tuples(st.just("seal"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@pytest.mark.feature("B1", "B4", "B7")
@BACKENDS
@given(steps=STEPS)
def test_timers_are_a_set_ordered_by_time(backend, steps):
    model: set[tuple[int, int]] = set()
    with Versions(backend) as task:
        timers = task.begin()
        for what, time, key in steps:
            match what:
                case "register":
                    timers.register(EVENT, time, key, key)
                    model.add((time, key))
                case "delete":
                    timers.delete(EVENT, time, key, key)
                    model.discard((time, key))
                case "seal":
                    timers = task.seal()
                case "due":
                    expected = sorted(entry for entry in model if entry[0] <= time)
                    found = fired(timers, time)
                    assert sorted(found) == expected
                    assert [at for at, _ in found] == [at for at, _ in expected]
                    model.difference_update(expected)
        assert timers.earliest(EVENT) == min((time for time, _ in model), default=None)


class Counting:
    """A store that counts the entries that scans read."""

    def __init__(self, store) -> None:
        self._store = store
        self.read = self.put = self.deleted = 0

    def write(self, puts, deletes=()):
        puts, deletes = list(puts), list(deletes)
        self.put, self.deleted = self.put + len(puts), self.deleted + len(deletes)
        self._store.write(puts, deletes)

    def scan(self, start, end):
        for entry in self._store.scan(start, end):
            self.read += 1
            yield entry

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.mark.feature("B4")
def test_heap_timers_are_read_once_and_those_of_one_epoch_are_never_written():
    with Versions("rocksdb, heap timers") as task:
        timers = task.begin()
        timers.register(EVENT, 500, 1, 1)
        task.seal()
        counting = Counting(task.store)
        timers = HeapTimers(counting, 3, CODEC, (0, 7))
        for n in range(1000):
            timers.register(EVENT, n, 2, 2)
        assert len(fired(timers, 400)) == 401
        assert timers.earliest(EVENT) == 401
        assert len(fired(timers, 2000)) == 600
        timers.flush()
        assert (counting.read, counting.put, counting.deleted) == (1, 0, 1)


@pytest.mark.feature("B4")
def test_the_place_of_timers_may_change_at_any_start_since_what_is_stored_is_the_same():
    with Versions("rocksdb, heap timers") as task:
        timers = task.begin()
        for n in range(20):
            timers.register(EVENT, n, n, n % 8)
        task.backend = backend_named("rocksdb")
        timers = task.seal()
        assert type(timers) is TimerState
        assert fired(timers, 9) == [(n, n) for n in range(10)]
        task.backend = backend_named("rocksdb", {FACTORY: "HEAP"})
        timers = task.seal()
        assert type(timers) is HeapTimers
        assert fired(timers, 100) == [(n, n) for n in range(10, 20)]


@pytest.mark.feature("B3", "B4")
@pytest.mark.parametrize("backend", ["rocksdb", "rocksdb+changelog"])
@pytest.mark.parametrize("guarded", [False, True])
def test_timers_of_an_operator_are_in_rocksdb_unless_its_backend_puts_them_on_the_heap(tmp_path, guarded, backend):
    target = VersionId(EpochId(Term(1), 1), AttemptId(1))
    for configuration, on_heap in (({}, False), ({FACTORY: "rocksdb"}, False), ({FACTORY: "heap"}, True)):
        store = backend_named(backend, configuration).begin(tmp_path, None, target, (0, 7))
        states = KeyedStates(store, (TIMERS,), lambda _: 3, CODEC, target.epoch, (0, 7), guarded=guarded)
        assert isinstance(states.timers, HeapTimers) is on_heap
        store.abandon()


@pytest.mark.parametrize("factory", ["rocksdb", "heap"])
def test_what_a_firing_timer_that_fails_registered_and_deleted_is_undone(tmp_path, factory):
    target = VersionId(EpochId(Term(1), 1), AttemptId(1))
    store = backend_named("rocksdb", {FACTORY: factory}).begin(tmp_path, None, target, (0, 7))
    states = KeyedStates(store, (TIMERS,), lambda _: 3, CODEC, target.epoch, (0, 7), guarded=True)
    states.timers.register(EVENT, 10, 1, 1)
    states.timers.register(EVENT, 40, 2, 2)
    seen = []
    for timer in states.timers.due(EVENT, 100):
        seen.append(timer.time_ms)
        states.mark()
        states.timers.delete(EVENT, 40, 2, 2)
        states.timers.register(EVENT, 20, 3, 3)
        states.roll_back()
    assert seen == [10, 40]
    store.abandon()


@pytest.mark.feature("B4")
def test_an_unknown_place_of_timers_is_refused():
    with pytest.raises(ValueError, match="choose rocksdb or heap"):
        backend_named("rocksdb", {FACTORY: "disk"})


@pytest.mark.large
@pytest.mark.feature("B3", "B7")
def test_a_million_timers_in_rocksdb_are_read_in_order_with_little_memory():
    with Versions("rocksdb") as task:
        timers, many = task.begin(), 1_000_000
        for n in range(many):
            timers.register(EVENT, n * 7919 % many, n % 5000, n % 8)
            if timers.cached() == 100_000:
                timers.flush()
        timers = task.seal()
        due = timers.due(EVENT, many)
        tracemalloc.start()
        first = [timer.time_ms for timer in islice(due, 1000)]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert first == list(range(1000))
        assert peak < 10e6
        assert [timer.time_ms for timer in due] == list(range(1000, many))
        assert timers.earliest(EVENT) is None


@pytest.mark.feature("B3", "B7")
def test_of_a_hundred_thousand_timers_in_rocksdb_only_the_due_ones_are_read():
    with Versions("rocksdb") as task:
        timers = task.begin()
        for n in range(100_000):
            timers.register(EVENT, n, n, n % 8)
            if timers.cached() == 10_000:
                timers.flush()
        task.seal()
        counting = Counting(task.store)
        timers = TimerState(counting, 3, CODEC, (0, 7))
        assert timers.earliest(EVENT) == 0
        assert fired(timers, 24) == [(n, n) for n in range(25)]
        assert timers.earliest(EVENT) == 25
        assert counting.read <= 25 + 2 * 8


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_million_timers_take_disk_and_not_memory():
    """By hand, some minutes. A tenth of them fires, in order; finding those reads nothing of the others."""
    many, at_once = 10_000_000, 250_000
    with Versions("rocksdb") as task:
        timers = task.begin()
        for first in range(0, many, at_once):
            for n in range(first, first + at_once):
                # Times are all over the place, each once.
                timers.register(EVENT, n * 7_919 % many, n, n % 8)
            timers = task.seal()
        assert timers.earliest(EVENT) == 0
        last, count = -1, 0
        for timer in timers.due(EVENT, many // 10 - 1):
            assert timer.time_ms == last + 1
            last, count = timer.time_ms, count + 1
        assert count == many // 10
        timers = task.seal()
        assert timers.earliest(EVENT) == many // 10
        resident = int(
            next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")).split()[1]
        )
        assert resident < 1_000_000, "kB"
