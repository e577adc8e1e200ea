"""Very many entries under one key: what is asked for is read, and little more. A million of them in `make nightly`."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import pytest

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.graph.states import StateKind, StateSpec
from tidegate.schema.schema import DataType
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.version import VersionId

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
MANY = pytest.mark.parametrize("many", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
pytestmark = pytest.mark.large
SPECS = (
    StateSpec(name="items", kind=StateKind.LIST, value=int),
    StateSpec(name="map", kind=StateKind.SORTED_MAP, value=int, map_key=int),
)
IDS = {"items": 1, "map": 2}


class Counting:
    """A store that counts the entries it hands out."""

    def __init__(self, store) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def get(self, key):
        self.read += 1
        return self._store.get(key)

    def scan(self, start, end, *, reverse=False):
        for entry in self._store.scan(start, end, reverse=reverse):
            self.read += 1
            yield entry


def begin(backend, directory, base, number):
    target = VersionId(EpochId(Term(1), number), AttemptId(number))
    store = Counting(backend.begin(directory, base, target, (0, 127)))
    states = KeyedStates(store, SPECS, IDS.__getitem__, KeyCodec([DataType("string")]), target.epoch, (0, 127))
    states.scope.key, states.scope.key_group = "all", 1
    return store, states


@pytest.mark.feature("A18")
@MANY
@BACKENDS
def test_a_map_of_many_entries_is_read_where_it_is_asked(tmp_path, backend, many):
    chosen = backend_named(backend)
    store, states = begin(chosen, tmp_path, None, 1)
    states.CACHE_ENTRIES = 50_000
    for first in range(0, many, 50_000):
        states.accessors["map"].put_all((n, n) for n in range(first, first + 50_000))
        states.bound_memory()
    states.flush()
    store, states = begin(chosen, tmp_path, store.seal().version, 2)
    big = states.accessors["map"]
    assert (big.get(177_777), big.contains(many), big.is_empty()) == (177_777, False, False)
    assert list(big.keys(100_000, 100_003)) == [100_000, 100_001, 100_002]
    assert list(islice(big.items(reverse=True), 2)) == [(many - 1, many - 1), (many - 2, many - 2)]
    assert (big.first_key(), big.last_key()) == (0, many - 1)
    big.put(-1, 0)
    assert next(big.keys()) == -1
    assert store.read < 20
    tracemalloc.start()
    assert sum(1 for _ in big.values()) == many + 1
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    store.abandon()
    assert most < (40 * many if backend == "hashmap" else 1_000_000)


@pytest.mark.feature("A17")
@MANY
@BACKENDS
def test_a_list_of_many_elements_grows_without_being_read(tmp_path, backend, many):
    chosen = backend_named(backend)
    store, states = begin(chosen, tmp_path, None, 1)
    states.accessors["items"].add_all(range(many))
    states.flush()
    store, states = begin(chosen, tmp_path, store.seal().version, 2)
    long = states.accessors["items"]
    long.add(-1)
    assert store.read == 0
    assert list(islice(long, 3)) == [0, 1, 2]
    assert store.read == 1
    assert sum(1 for _ in long) == many + 1
    assert states.accessors["items"].cached() == 1
    store.abandon()
