"""The block cache and the write buffer manager of a process, shared by all its databases."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rocksdict import Cache, WriteBufferManager

from tidegate.state.rocksdb.options import RocksDBOptions


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Memory that stays with a process from version to version.

    RocksDB identifies a cached block by the first writer of the file, which a hard link preserves: a block read by one
    version is a hit for the next.
    """

    cache: Cache
    capacity_bytes: int
    write_buffers: WriteBufferManager | None
    """Limits all memtables together, and counts them as used in the cache. None without a budget."""


# By size as well: jobs of one executor may have different budgets.
_shared: dict[tuple[int, int, int], SharedMemory] = {}


def shared_memory(options: RocksDBOptions) -> SharedMemory:
    """Return the memory of this process. Keyed by process id, since a cache created before a fork must not be used after it."""
    budget = options.budget
    capacity = options.block_cache_size if budget is None else budget.block_cache_bytes
    limit = 0 if budget is None else budget.write_buffer_bytes
    key = (os.getpid(), capacity, limit)
    if key not in _shared:
        cache = Cache(capacity)
        # Writers are not stalled by the manager: a single database waits for the flush of its other memtable anyway.
        manager = WriteBufferManager.new_write_buffer_manager_with_cache(limit, False, cache) if limit else None
        _shared[key] = SharedMemory(cache, capacity, manager)
    return _shared[key]
