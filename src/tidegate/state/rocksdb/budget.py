"""How the memory of one slot is divided between RocksDB and the write cache of an attempt. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.durations import show_bytes

DEFAULT_SLOT_BYTES = 256 << 20
"""The budget of a slot if nothing says how much memory Python has."""
WRITE_CACHE_SHARE = 0.25
"""The share of a slot's budget for values that an attempt has read or changed, as Python objects."""
LEAST_WRITE_BUFFERS = 2 << 20
"""Two memtables of a megabyte: with less, RocksDB writes a table for every few thousand changes."""
LEAST_BLOCKS = 4 << 20
"""Room for the index and filter of some tables and for the blocks of a compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """The memory of one slot, which is one Python worker while it runs a task. Raises ValueError, with the numbers, if a part
    is too small to work with.

    RocksDB's share is divided as in Flink: memtables may exceed the limit of their manager by half, so that
    `block cache + write buffers / 2` is the share. The memory of memtables counts as used in the block cache.
    """

    slot_bytes: int
    write_buffer_ratio: float = 0.5
    name: str = "state.backend.rocksdb.memory.fixed-per-slot"
    """Where the size comes from, for messages."""

    def __post_init__(self) -> None:
        if not 0 < self.write_buffer_ratio < 1:
            raise ValueError(
                f"state.backend.rocksdb.memory.write-buffer-ratio is {self.write_buffer_ratio:g}; it must be above 0 and below 1."
            )
        ratio, wanted = self.write_buffer_ratio, 1 - WRITE_CACHE_SHARE
        if self.write_buffer_bytes < LEAST_WRITE_BUFFERS:
            raise ValueError(
                f"{self._divided()}, and write buffers get 2/3 · {ratio:g} of that: {show_bytes(self.write_buffer_bytes)}. They "
                f"need {show_bytes(LEAST_WRITE_BUFFERS)}. Set {self.name} to at least "
                f"{show_bytes(_rounded_up(LEAST_WRITE_BUFFERS * 3 / (2 * ratio * wanted)))} per slot, or raise "
                "state.backend.rocksdb.memory.write-buffer-ratio."
            )
        if self.block_bytes < LEAST_BLOCKS:
            raise ValueError(
                f"{self._divided()}, and {1 - ratio:g} of that is left for blocks besides write buffers: "
                f"{show_bytes(self.block_bytes)}. They need {show_bytes(LEAST_BLOCKS)}. Set {self.name} to at least "
                f"{show_bytes(_rounded_up(LEAST_BLOCKS / ((1 - ratio) * wanted)))} per slot, or lower "
                "state.backend.rocksdb.memory.write-buffer-ratio."
            )

    @property
    def write_cache_bytes(self) -> int:
        return int(WRITE_CACHE_SHARE * self.slot_bytes)

    @property
    def rocksdb_bytes(self) -> int:
        return self.slot_bytes - self.write_cache_bytes

    @property
    def write_buffer_bytes(self) -> int:
        """The limit of all memtables of the slot together."""
        # Flink's formulas (`RocksDBMemoryControllerUtils`): the write buffer manager may exceed its limit by half.
        return int(2 * self.write_buffer_ratio * self.rocksdb_bytes / 3)

    @property
    def block_cache_bytes(self) -> int:
        """The capacity of the block cache, in which write buffers are counted."""
        return int((3 - self.write_buffer_ratio) * self.rocksdb_bytes / 3)

    @property
    def block_bytes(self) -> int:
        """What is left in the block cache when write buffers are at their limit."""
        return self.block_cache_bytes - self.write_buffer_bytes

    @property
    def memtable_bytes(self) -> int:
        """Half of the write buffers: one memtable fills up while the other is written to a table."""
        return self.write_buffer_bytes // 2

    def _divided(self) -> str:
        return (
            f"{self.name} gives a slot {show_bytes(self.slot_bytes)}: {show_bytes(self.write_cache_bytes)} for the write cache, "
            f"{show_bytes(self.rocksdb_bytes)} for RocksDB"
        )


def _rounded_up(size: float) -> int:
    """In whole megabytes."""
    return -(-int(size) // (1 << 20)) << 20
