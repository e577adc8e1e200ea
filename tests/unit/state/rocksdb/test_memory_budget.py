"""The memory of a slot: how it is divided, what is refused, and that RocksDB keeps to it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.backends import backend_named
from tidegate.state.rocksdb import RocksDBBackend, RocksDBOptions
from tidegate.state.rocksdb.budget import LEAST_BLOCKS, LEAST_WRITE_BUFFERS, MemoryBudget
from tidegate.state.rocksdb.options import option_notes
from tidegate.state.rocksdb.shared_memory import shared_memory
from tidegate.state.version import VersionId

P = "state.backend.rocksdb."
MB = 1 << 20


def v(number: int) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(number))


def options(**given: str) -> RocksDBOptions:
    return RocksDBOptions.from_configuration(
        {P + key.replace("__", ".").replace("_", "-"): value for key, value in given.items()}
    )


@pytest.mark.feature("F39")
def test_the_memory_of_a_slot_is_divided_as_in_flink() -> None:
    budget = MemoryBudget(slot_bytes=256 * MB, write_buffer_ratio=0.5)
    assert (budget.write_cache_bytes, budget.rocksdb_bytes) == (64 * MB, 192 * MB)
    assert (budget.block_cache_bytes, budget.write_buffer_bytes) == (160 * MB, 64 * MB)
    assert budget.block_cache_bytes + budget.write_buffer_bytes // 2 == budget.rocksdb_bytes
    more = MemoryBudget(slot_bytes=256 * MB, write_buffer_ratio=0.75)
    assert (more.block_cache_bytes, more.write_buffer_bytes) == (144 * MB, 96 * MB)
    assert options(memory__write_buffer_ratio="0.75").budget == more


@pytest.mark.feature("F36")
def test_a_budget_that_cannot_work_is_refused_with_its_arithmetic() -> None:
    small = (
        "fixed-per-slot gives a slot 4 MB: 1 MB for the write cache, 3 MB for RocksDB, and write buffers get 2/3 · 0.5 of that: "
        "1 MB. They need 2 MB. Set state.backend.rocksdb.memory.fixed-per-slot to at least 8 MB per slot"
    )
    with pytest.raises(ValueError, match=re.escape(small)):
        options(memory__fixed_per_slot="4 mb")
    with pytest.raises(ValueError, match=re.escape("0.1 of that is left for blocks besides write buffers: 1.2 MB.")):
        options(memory__fixed_per_slot="16 mb", memory__write_buffer_ratio="0.9")
    for ratio in ("0", "1", "-1", "1.5"):
        with pytest.raises(ValueError, match=r"write-buffer-ratio is .* above 0 and below 1"):
            options(memory__write_buffer_ratio=ratio)


@pytest.mark.feature("F36")
@pytest.mark.parametrize("ratio", [0.05, 0.1, 0.5, 0.9, 0.95])
def test_the_size_that_a_refusal_names_is_accepted(ratio: float) -> None:
    size = MB
    for _ in range(2):
        try:
            MemoryBudget(slot_bytes=size, write_buffer_ratio=ratio)
        except ValueError as error:
            size = round(float(re.search(r"at least ([\d.]+) MB", str(error))[1]) * MB)  # type: ignore[index]
    found = MemoryBudget(slot_bytes=size, write_buffer_ratio=ratio)
    assert found.write_buffer_bytes >= LEAST_WRITE_BUFFERS
    assert found.block_bytes >= LEAST_BLOCKS


@pytest.mark.feature("F37", "F44")
def test_memory_is_managed_unless_it_is_fixed_or_left_to_experts() -> None:
    assert options().budget == MemoryBudget(slot_bytes=256 * MB)
    assert options(memory__managed="true").budget == MemoryBudget(slot_bytes=256 * MB)
    assert options(memory__fixed_per_slot="64 mb").budget == MemoryBudget(slot_bytes=64 * MB)
    of_executor = MemoryBudget(slot_bytes=64 * MB, name=P + "memory.fixed-per-tm")
    assert options(memory__fixed_per_tm="64 mb").budget == of_executor
    both = options(memory__fixed_per_tm="64 mb", memory__fixed_per_slot="32 mb", memory__managed="false")
    assert both.budget == MemoryBudget(slot_bytes=32 * MB)
    assert options(memory__managed="false").budget is None


@pytest.mark.feature("F42", "F43")
def test_a_budget_overrides_the_sizes_of_cache_and_write_buffer_and_says_so() -> None:
    sizes = {P + "block.cache-size": "12 mb", P + "writebuffer.size": "4 mb"}
    managed, expert = (
        shared_memory(RocksDBOptions.from_configuration(given))
        for given in (sizes, sizes | {P + "memory.managed": "false"})
    )
    assert (managed.capacity_bytes, expert.capacity_bytes) == (160 * MB, 12 * MB)
    assert managed.write_buffers is not None
    assert managed.write_buffers.get_buffer_size() == 64 * MB
    assert expert.write_buffers is None
    notes = dict(option_notes(sizes))
    assert "Overridden by the memory budget of a slot, which makes it 160 MB" in notes[P + "block.cache-size"]
    assert "which makes it 32 MB" in notes[P + "writebuffer.size"]
    assert option_notes(sizes | {P + "memory.managed": "false"}) == []


@pytest.mark.feature("F42", "F43")
@pytest.mark.parametrize(("managed", "tables"), [("true", 1), ("false", 2)])
def test_the_memtable_of_a_database_has_the_size_of_the_budget_unless_memory_is_not_managed(
    tmp_path: Path, managed: str, tables: int
) -> None:
    given = {P + "writebuffer.size": "2 mb", P + "memory.managed": managed, P + "metrics.num-files-at-level": "true"}
    backend = RocksDBBackend(RocksDBOptions.from_configuration(given))
    store = backend.begin(tmp_path, None, v(1), (0, 1))
    for part in range(5):  # so few tables that none is compacted
        store.write((b"%d%06d" % (part, n), bytes(1000)) for n in range(1000))
    store.seal()
    store = backend.begin(tmp_path, v(1), v(2), (0, 1))
    store.get(b"")
    assert sum(store.metrics().values()) >= tables
    assert managed == "false" or sum(store.metrics().values()) == 1
    store.abandon()


def test_options_that_cannot_act_are_accepted_and_named() -> None:
    (note,) = option_notes({P + "memory.high-prio-pool-ratio": "0.1"})
    assert note[0] == P + "memory.high-prio-pool-ratio"
    assert "no effect" in note[1]
    (unused,) = option_notes({P + "memory.fixed-per-tm": "64 mb", P + "memory.fixed-per-slot": "64 mb"})
    assert unused[0] == P + "memory.fixed-per-tm"
    with pytest.raises(ValueError, match="between 0 and 1"):
        backend_named("rocksdb", {P + "memory.high-prio-pool-ratio": "2"})


def filled(directory: Path, backend: RocksDBBackend, megabytes: int) -> list[tuple[int, int]]:
    """Write in one attempt, and return the usage of write buffers and cache after each megabyte."""
    noise, memory = random.Random(7), shared_memory(backend.options)
    store = backend.begin(directory, None, v(1), (0, 1))
    seen = []
    for part in range(megabytes):
        store.write((b"%03d%06d" % (part, n), noise.randbytes(1000)) for n in range(1000))
        manager = memory.write_buffers
        seen.append((0 if manager is None else manager.get_usage(), memory.cache.get_usage()))
    store.seal()
    return seen


@pytest.mark.feature("F37", "F38")
def test_write_buffers_keep_to_their_share_and_count_as_used_in_the_cache(tmp_path: Path) -> None:
    backend = RocksDBBackend(options(memory__fixed_per_slot="17 mb"))
    budget = backend.options.budget
    assert budget is not None
    seen = filled(tmp_path, backend, 24)
    assert max(buffers for buffers, _ in seen) <= budget.write_buffer_bytes * 1.5 + MB
    assert all(cache >= buffers for buffers, cache in seen)
    assert max(cache for _, cache in seen) <= budget.block_cache_bytes * 1.25
    store = backend.begin(tmp_path, v(1), v(2), (0, 1))
    assert sum(1 for _ in store.scan(b"", b"\xff")) == 24_000
    assert shared_memory(backend.options).cache.get_usage() <= budget.block_cache_bytes * 1.25
    store.abandon()


@pytest.mark.feature("F38")
def test_all_databases_of_a_slot_share_one_cache_and_one_manager(tmp_path: Path) -> None:
    backend = RocksDBBackend(options(memory__fixed_per_slot="18 mb"))
    memory = shared_memory(backend.options)
    assert memory.write_buffers is not None
    stores = [backend.begin(tmp_path / str(n), None, v(1), (0, 1)) for n in range(2)]
    used = [memory.write_buffers.get_usage()]
    for store in stores:
        store.write((b"%06d" % n, bytes(1000)) for n in range(600))
        used.append(memory.write_buffers.get_usage())
    assert used[0] + 500_000 < used[1]
    assert used[1] + 500_000 < used[2]
    for store in stores:
        store.abandon()


def test_indexes_and_filters_stay_in_the_cache_while_a_scan_reads_more_than_fits(tmp_path: Path) -> None:
    watched = {f"metrics.{name}": "true" for name in ("block-cache-miss", "block-cache-hit")}
    given = {P + "memory.fixed-per-slot": "16 mb", P + "compression.per.level": "NO_COMPRESSION"}
    backend = RocksDBBackend(RocksDBOptions.from_configuration(given | {P + key: on for key, on in watched.items()}))
    noise = random.Random(7)
    store = backend.begin(tmp_path, None, v(1), (0, 1))
    store.load((b"%06d" % n, noise.randbytes(1000)) for n in range(40_000))
    store.seal()
    store = backend.begin(tmp_path, v(1), v(2), (0, 1))
    assert sum(1 for _ in store.scan(b"", b"\xff")) == 40_000
    before = store.metrics()["block-cache-miss"]
    assert store.get(b"020000") is not None
    # The block itself. Its table's index and filter, read before the scan, are still there.
    assert store.metrics()["block-cache-miss"] - before <= 1
    store.abandon()


def test_partitioned_indexes_and_filters_take_less_of_a_cache_to_read_one_key(tmp_path: Path) -> None:
    used = {}
    for partitioned, size in (("false", 40), ("true", 41)):
        given = {P + "memory.partitioned-index-filters": partitioned, P + "compression.per.level": "NO_COMPRESSION"}
        writer, reader = (
            RocksDBBackend(RocksDBOptions.from_configuration(given | {P + "memory.fixed-per-slot": f"{each} mb"}))
            for each in (16, size)
        )
        store = writer.begin(tmp_path / partitioned, None, v(1), (0, 1))
        store.load((b"%06d" % n, bytes(20)) for n in range(200_000))
        store.seal()
        store = reader.begin(tmp_path / partitioned, v(1), v(2), (0, 1))
        assert store.get(b"100000") == bytes(20)
        # The write buffers of the open database are counted in the cache as a quarter of a megabyte.
        used[partitioned] = shared_memory(reader.options).cache.get_usage() - (MB >> 2)
        store.abandon()
    assert used["true"] < used["false"] / 3
