"""What RocksDB tells about itself: nothing unless asked, and under Flink's names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.metrics.native import NATIVE
from tidegate.state.backends import backend_named
from tidegate.state.port import MeasuredStore
from tidegate.state.rocksdb import RocksDBBackend, RocksDBOptions
from tidegate.state.rocksdb.native_metrics import NAMES
from tidegate.state.version import VersionId

PREFIX = "state.backend.rocksdb.metrics."


def v(number: int) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(1))


def told(directory: Path, **options: str) -> dict[str, float]:
    """What the store tells after 100 entries were written, and read in the next epoch."""
    names = {PREFIX + name.replace("_", "-"): value for name, value in options.items()}
    backend = RocksDBBackend(RocksDBOptions.from_configuration(names))
    first = backend.begin(directory, None, v(1), (0, 1))
    first.write([(b"%03d" % n, b"x" * 50) for n in range(100)])
    first.seal()
    store = backend.begin(directory, v(1), v(2), (0, 1))
    assert [store.get(b"%03d" % n) for n in range(100)] == [b"x" * 50] * 100
    found = dict(store.metrics())
    store.abandon()
    return found


@pytest.mark.feature("K5")
def test_rocksdb_reports_no_metrics_unless_an_option_asks(tmp_path: Path) -> None:
    assert RocksDBOptions().metrics == frozenset()
    assert told(tmp_path) == {}


@pytest.mark.feature("K5")
def test_an_option_of_flinks_asks_for_one_metric(tmp_path: Path) -> None:
    found = told(tmp_path, estimate_num_keys="true", block_cache_hit="true", live_sst_files_size="false")
    assert found.keys() == {"estimate-num-keys", "block-cache-hit"}
    assert found["estimate-num-keys"] == 100
    assert found["block-cache-hit"] >= 100


@pytest.mark.feature("K5")
def test_every_rocksdb_metric_of_flink_can_be_enabled(tmp_path: Path) -> None:
    found = told(tmp_path, **{name.replace("-", "_"): "true" for name in NAMES})
    levels = {f"num-files-at-level{level}" for level in range(7)}
    assert found.keys() == NAMES - {"num-files-at-level"} | levels
    assert found["num-files-at-level0"] == 1
    assert found["live-sst-files-size"] > 500
    assert set(NATIVE) == NAMES


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"metrics\.block-cache-hits is not an option"):
        RocksDBOptions.from_configuration({PREFIX + "block-cache-hits": "true"})


def test_a_store_without_an_open_database_reports_no_metrics(tmp_path: Path) -> None:
    backend = RocksDBBackend(RocksDBOptions(metrics=frozenset({"estimate-num-keys"})))
    store = backend.begin(tmp_path, None, v(1), (0, 1))
    assert isinstance(store, MeasuredStore)
    assert store.metrics() == {}
    store.seal()


def test_the_heap_has_nothing_to_tell(tmp_path: Path) -> None:
    assert not isinstance(backend_named("hashmap").begin(tmp_path, None, v(1), (0, 1)), MeasuredStore)


def after_an_epoch(directory: Path, options: RocksDBOptions, *, reads: int) -> dict[str, float]:
    """What is told at the end of an epoch that reads 2,000 entries of the one before, each so many times, and writes as many."""
    noise = random.Random(7)
    backend = RocksDBBackend(options)
    entries = [(b"%05d" % n, noise.randbytes(200)) for n in range(2_000)]
    first = backend.begin(directory, None, v(1), (0, 1))
    first.write(entries)
    first.seal()
    store = backend.begin(directory, v(1), v(2), (0, 1))
    for _ in range(reads):
        assert [store.get(key) for key, _ in entries] == [value for _, value in entries]
    for first in range(0, 2_000, 100):
        store.write(entries[first : first + 100])
    found = dict(store.metrics())
    store.abandon()
    return found


def unmanaged(**sizes: int) -> RocksDBOptions:
    return RocksDBOptions(memory_managed=False, metrics=WATCHED, **sizes)


WATCHED = frozenset({"block-cache-miss", "block-cache-hit", "num-files-at-level"})


@pytest.mark.feature("K13")
def test_misses_show_that_the_block_cache_is_too_small(tmp_path: Path) -> None:
    small = after_an_epoch(tmp_path / "s", unmanaged(block_cache_size=32 << 10), reads=3)
    large = after_an_epoch(tmp_path / "l", unmanaged(block_cache_size=33 << 20), reads=3)
    assert small["block-cache-miss"] > 2 * large["block-cache-miss"]
    assert large["block-cache-hit"] > 10 * large["block-cache-miss"]


@pytest.mark.feature("K13")
def test_files_within_an_epoch_show_that_the_write_buffer_is_too_small(tmp_path: Path) -> None:
    small = after_an_epoch(tmp_path / "s", unmanaged(writebuffer_size=64 << 10), reads=0)
    large = after_an_epoch(tmp_path / "l", RocksDBOptions(metrics=WATCHED), reads=0)
    assert large["num-files-at-level0"] == 1
    assert sum(small[f"num-files-at-level{level}"] for level in range(7)) > 2
