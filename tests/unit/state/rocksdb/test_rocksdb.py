"""The rocksdb backend's own parts: tables linked, small files in memory, level 0 bounded, one cache per process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from rocksdict import Rdict

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.disk.version_directory import version_path
from tidegate.state.failure import StateDiskFull, state_failure
from tidegate.state.rocksdb import RocksDBBackend, RocksDBOptions, database, database_directory
from tidegate.state.rocksdb.shared_memory import shared_memory
from tidegate.state.version import Manifest, VersionId

BACKEND = RocksDBBackend()


def v(number: int) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(1))


def step(directory: Path, number: int, *keys: bytes, backend: RocksDBBackend = BACKEND) -> Manifest:
    """Version `number` from the one before."""
    store = backend.begin(directory, v(number - 1) if number > 1 else None, v(number), (0, 1))
    store.write([(key, b"%d" % number) for key in keys])
    return store.seal()


@pytest.mark.feature("F27", "O16")
def test_a_second_version_adds_one_table_and_links_the_other(tmp_path: Path) -> None:
    first = step(tmp_path, 1, b"a")
    second = step(tmp_path, 2, b"b")
    old = {file for file in first.files if file.name.endswith(".sst")}
    new = {file for file in second.files if file.name.endswith(".sst")}
    assert len(old) == 1
    assert old < new
    assert len(new) == 2
    (linked,) = old
    assert os.path.samefile(version_path(tmp_path, v(1)) / linked.name, version_path(tmp_path, v(2)) / linked.name)


@pytest.mark.feature("F34")
def test_level_0_stays_below_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LEVEL0_FILES", 3)
    monkeypatch.setattr(database, "LEVEL0_BOUND", 4)
    most = 0
    for number in range(1, 25):
        manifest = step(tmp_path, number, b"%d" % number, b"every")
        most = max(most, sum(file.name.endswith(".sst") for file in manifest.files))
    assert 2 < most <= 6


@pytest.mark.feature("F34", "H12")
def test_a_part_of_a_version_is_cut_without_compacting_it_and_the_next_attempt_compacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job waits while its tasks take over state at another parallelism. Level 0 may be beyond its bound until it runs."""
    for number in range(1, 8):
        step(tmp_path, number, b"\0\0%d" % number, b"\0\1%d" % number)
    monkeypatch.setattr(database, "LEVEL0_FILES", 3)
    monkeypatch.setattr(database, "LEVEL0_BOUND", 4)
    whole = BACKEND.manifest(tmp_path, v(7))
    cut = BACKEND.begin(tmp_path, v(7), v(8), (0, 0))
    cut.delete_range(b"\0\1", b"\0\2")
    tables = {file.name for file in whole.files if file.name.endswith(".sst")}
    part = cut.seal()
    assert len(tables) == 7
    assert tables < {file.name for file in part.files}, "nothing was compacted"
    store = BACKEND.begin(tmp_path, v(8), v(9), (0, 0))
    assert [key for key, _ in store.scan(b"", b"\xff")] == [b"\0\0%d" % number for number in range(1, 8)]
    store.write([(b"\0\0x", b"")])
    after = store.seal()
    assert sum(file.name.endswith(".sst") for file in after.files) <= 4


@pytest.mark.feature("F10")
def test_small_files_lie_in_memory_only_while_an_attempt_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(database_directory, "_MEMORY", memory)
    task = tmp_path / "task"
    step(task, 1, b"a")
    store = BACKEND.begin(task, v(1), v(2), (0, 1))
    assert store.get(b"a") == b"1"
    (building,) = (path for path in (task / "1").iterdir() if path.name.startswith("."))
    assert {path.suffix for path in building.iterdir()} == {".sst"}
    (inside,) = (memory / f"tidegate-{os.geteuid()}").iterdir()
    assert (inside / "CURRENT").exists()
    store.abandon()
    assert list((memory / f"tidegate-{os.geteuid()}").iterdir()) == []


@pytest.mark.feature("F10")
def test_without_such_memory_they_lie_with_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_directory, "_MEMORY", tmp_path / "no such place")
    for number in range(1, 13):
        manifest = step(tmp_path, number, b"%d" % number)
    store = BACKEND.begin(tmp_path, manifest.version, v(13), (0, 1))
    assert [value for _, value in store.scan(b"", b"\xff")] == sorted(b"%d" % number for number in range(1, 13))
    store.abandon()
    kinds = {path.name.partition("-")[0].lstrip("0123456789") for path in version_path(tmp_path, v(12)).iterdir()}
    assert kinds == {".sst", "CURRENT", "MANIFEST", "manifest.json"}


def test_what_the_dead_left_in_memory_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_directory, "_MEMORY", tmp_path)
    left = tmp_path / f"tidegate-{os.geteuid()}" / "db-deserted"
    left.mkdir(parents=True)
    living = database_directory.DatabaseDirectory(tmp_path)
    database_directory.DatabaseDirectory(tmp_path).discard()
    assert not left.exists()
    assert living.path.exists()
    living.discard()


@pytest.mark.feature("F41")
def test_index_and_filter_blocks_of_level_0_are_pinned_in_the_cache(tmp_path: Path) -> None:
    backend = RocksDBBackend(RocksDBOptions(memory_managed=False, block_cache_size=5 << 20))
    step(tmp_path, 1, *(b"%06d" % n for n in range(20_000)), backend=backend)
    cache = shared_memory(backend.options).cache
    before = cache.get_pinned_usage()
    store = backend.begin(tmp_path, v(1), v(2), (0, 1))
    store.get(b"000001")
    # Ten bits for each of the 20,000 keys in the filter alone.
    assert cache.get_pinned_usage() > before + 20_000
    store.abandon()


@pytest.mark.feature("F41")
def test_all_stores_of_a_process_share_one_cache_that_stays_warm(tmp_path: Path) -> None:
    backend = RocksDBBackend(RocksDBOptions(memory_managed=False, block_cache_size=3 << 20))
    cache = shared_memory(backend.options).cache
    assert shared_memory(RocksDBOptions(memory_managed=False, block_cache_size=3 << 20)).cache is cache
    step(tmp_path, 1, *(b"%06d" % n for n in range(20_000)), backend=backend)
    store = backend.begin(tmp_path, v(1), v(2), (0, 1))
    before = cache.get_usage()
    list(store.scan(b"", b"\xff"))
    store.abandon()
    warm = cache.get_usage()
    assert warm > before + 100_000
    store = backend.begin(tmp_path, v(1), v(2), (0, 1))
    list(store.scan(b"", b"\xff"))
    assert cache.get_usage() < warm + 50_000, "the clone's blocks are the ones already cached"
    store.abandon()


def test_a_full_disk_is_reported_with_a_remedy(tmp_path: Path) -> None:
    error = state_failure(
        "sealing", tmp_path, Exception("IO error: No space left on device: While appending: 000012.sst")
    )
    assert isinstance(error, StateDiskFull)
    assert error.retryable
    assert "TIDEGATE_LOCAL_DIR" in str(error)
    assert "000012.sst" in str(error)


@pytest.mark.feature("F1", "F34")
@pytest.mark.large
def test_a_flush_that_makes_compaction_due_does_not_lose_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of range tombstones over most of the tables does. A compaction that began after the tables were listed would
    take some away and add others; a slow process gives it the time."""
    small = RocksDBBackend(
        RocksDBOptions(
            memory_managed=False, target_file_size_base=1 << 20, max_size_level_base=2 << 20, writebuffer_size=4 << 20
        )
    )
    count = 160_000
    store = small.begin(tmp_path, None, v(1), (0, 127))
    store.load((n.to_bytes(4, "big") + b"%08d" % n, os.urandom(190)) for n in range(count))
    store.seal()
    settle = database.flush_and_wait

    def slowly(of: Rdict, *, compacts: bool) -> list[str]:
        tables = settle(of, compacts=compacts)
        time.sleep(0.15)
        return tables

    monkeypatch.setattr("tidegate.state.rocksdb.store.flush_and_wait", slowly)
    for number in range(2, 12):
        store = small.begin(tmp_path, v(1), v(number), (0, 127))
        store.delete_range(b"", (count // 2).to_bytes(4, "big"))
        store.delete_range(count.to_bytes(4, "big"), b"\x80")
        store.delete_range(b"\x80", b"\xff")
        store.write([(b"\x80", b"0")])
        store.seal()
        reader = small.begin(tmp_path, v(number), v(99), (0, 127))
        assert sum(1 for _ in reader.scan(b"", b"\xff")) == count // 2 + 1
        reader.abandon()
