"""Sizes of states from the files of RocksDB, in every form that options give them."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from pathlib import Path

import pytest

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.disk.version_directory import version_path
from tidegate.state.keys.entry_keys import state_prefix
from tidegate.state.rocksdb import RocksDBBackend, RocksDBOptions
from tidegate.state.rocksdb.options import COMPRESSIONS
from tidegate.state.version import Manifest, VersionId

SHAPES = {
    "few entries": (4, {1: 1, 2: 3}),
    "many states in a block": (64, {1: 2, 2: 8, 3: 1}),
    "runs of blocks": (4, {1: 4000, 2: 1000, 3: 10}),
}
"""Key groups, and entries of each state in each of them."""


def table(
    directory: Path, options: RocksDBOptions, groups: int, per_group: dict[int, int], *, loaded: bool
) -> tuple[Manifest, Counter[int]]:
    """A version with these entries, and their bytes by state."""
    written: Counter[int] = Counter()
    rows = []
    for group in range(groups):
        for state, number in per_group.items():
            for key in range(number):
                value = os.urandom(20) + b"a" * 20
                rows.append((state_prefix(group, state) + struct.pack(">Q", key), value))
                written[state] += len(value)
    version = VersionId(EpochId(Term(1), 1), AttemptId(1))
    store = RocksDBBackend(options).begin(directory, None, version, (0, groups - 1))
    if loaded:
        store.load(rows)
    else:
        store.write(rows)
    return store.seal(), written


def shares(sizes: dict[int, int]) -> dict[int, float]:
    whole = sum(sizes.values())
    return {state: size / whole for state, size in sizes.items()}


@pytest.mark.feature("K4")
@pytest.mark.parametrize("loaded", [False, True], ids=["written", "loaded"])
@pytest.mark.parametrize("partitioned", [False, True], ids=["one index", "partitioned index"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_by_state_of_every_form(
    tmp_path: Path, shape: str, compression: str, partitioned: bool, loaded: bool
) -> None:
    options = RocksDBOptions(compression=compression, memory_partitioned_index_filters=partitioned)
    manifest, written = table(tmp_path, options, *SHAPES[shape], loaded=loaded)
    backend, found = RocksDBBackend(), Counter[int]()
    for file in manifest.files:
        sizes = backend.bytes_by_state(version_path(tmp_path, manifest.version) / file.name)
        assert sum(sizes.values()) == pytest.approx(file.size_bytes if file.name.endswith(".sst") else 0, abs=3)
        found.update(sizes)
    assert found.keys() == written.keys()
    assert shares(dict(found)) == pytest.approx(shares(dict(written)), abs=0.1)


@pytest.mark.feature("K4")
def test_a_table_of_deletions_only_does_not_fail(tmp_path: Path) -> None:
    version = VersionId(EpochId(Term(1), 1), AttemptId(1))
    store = RocksDBBackend().begin(tmp_path, None, version, (0, 7))
    store.delete_range(state_prefix(0, 1), state_prefix(0, 2))
    manifest = store.seal()
    for file in manifest.files:
        assert RocksDBBackend().bytes_by_state(version_path(tmp_path, version) / file.name) == {}


def test_a_damaged_table_has_no_estimate_and_causes_no_failure(tmp_path: Path) -> None:
    """A place or a size may be any number then. A check of the state finds the damage; an estimate does not look for it."""
    manifest, _ = table(tmp_path, RocksDBOptions(), *SHAPES["runs of blocks"], loaded=False)
    folder = version_path(tmp_path, manifest.version)
    whole = next(folder / file.name for file in manifest.files if file.name.endswith(".sst")).read_bytes()
    damaged = tmp_path / "damaged.sst"
    chance = random.Random(1)
    for _ in range(400):
        # What finds the blocks lies at the end of the file.
        at = len(whole) - 1 - chance.randrange(2_000)
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :])
        assert all(size >= 0 for size in RocksDBBackend().bytes_by_state(damaged).values())
