"""Metrics of RocksDB itself, under Flink's names. They appear if an option `state.backend.rocksdb.metrics.*` asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.metrics.metric import Kind, Metric, Scope

FILES_AT_LEVEL = "num-files-at-level"

# RocksDB's properties without `rocksdb.`, as Flink's options name them. All are gauges.
_PROPERTIES = {
    "actual-delayed-write-rate": ("", "Bytes per second to which writes are slowed down; 0: they are not."),
    "background-errors": ("", "Errors of flushes and compactions."),
    "block-cache-capacity": ("bytes", "Capacity of the block cache, which all tasks of a Python worker share."),
    "block-cache-pinned-usage": ("bytes", "Bytes of the block cache that cannot be evicted."),
    "block-cache-usage": ("bytes", "Bytes in the block cache."),
    "compaction-pending": ("", "1 if a compaction is due, else 0."),
    "cur-size-active-mem-table": ("bytes", "Size of the active memtable, before it is flushed at the end of an epoch."),
    "cur-size-all-mem-tables": ("bytes", "Size of all memtables that are not flushed."),
    "estimate-live-data-size": ("bytes", "Estimated size of live data."),
    "estimate-num-keys": ("", "Estimated number of entries."),
    "estimate-pending-compaction-bytes": ("bytes", "Bytes that compaction must rewrite to reach its target sizes."),
    "estimate-table-readers-mem": ("bytes", "Memory for reading tables, besides the block cache."),
    "is-write-stopped": ("", "1 if writes are stopped, else 0."),
    "live-sst-files-size": ("bytes", "Bytes of all tables of the latest version."),
    "mem-table-flush-pending": ("", "1 if a flush is due, else 0."),
    "num-deletes-active-mem-table": ("", "Deletions in the active memtable."),
    "num-deletes-imm-mem-tables": ("", "Deletions in memtables that wait for their flush."),
    "num-entries-active-mem-table": ("", "Entries in the active memtable."),
    "num-entries-imm-mem-tables": ("", "Entries in memtables that wait for their flush."),
    "num-immutable-mem-table": ("", "Memtables that wait for their flush."),
    "num-live-versions": ("", "Versions of the database that something still reads."),
    "num-running-compactions": ("", "Compactions in progress."),
    "num-running-flushes": ("", "Flushes in progress."),
    "num-snapshots": ("", "Snapshots that are not released."),
    "size-all-mem-tables": ("bytes", "Size of all memtables with those that are pinned."),
    "total-sst-files-size": ("bytes", "Bytes of all tables with those of older versions."),
}
# RocksDB's tickers, with dashes for dots, as Flink's options name them. All are counters.
_TICKERS = {
    "block-cache-hit": ("", "Blocks that were read from the cache."),
    "block-cache-miss": ("", "Blocks that had to be read from disk."),
    "bloom-filter-useful": ("", "Reads of a table that a Bloom filter avoided."),
    "bloom-filter-full-positive": ("", "Reads of a table that a Bloom filter let pass."),
    "bloom-filter-full-true-positive": ("", "Those of them that found the key."),
    "bytes-read": ("bytes", "Bytes of values that lookups returned."),
    "bytes-written": ("bytes", "Bytes written to memtables."),
    "compaction-read-bytes": ("bytes", "Bytes that compactions read."),
    "compaction-write-bytes": ("bytes", "Bytes that compactions wrote."),
    "iter-bytes-read": ("bytes", "Bytes that scans returned."),
    "stall-micros": ("us", "Time in which writes were held up."),
}


def _metric(name: str, kind: Kind, unit: str, help: str, *labels: str) -> Metric:
    return Metric(name, Scope.ROCKSDB, kind, unit=unit, help=help, labels=labels)


NATIVE: Mapping[str, Metric] = {
    **{name: _metric(name, Kind.GAUGE, unit, help) for name, (unit, help) in _PROPERTIES.items()},
    FILES_AT_LEVEL: _metric(FILES_AT_LEVEL, Kind.GAUGE, "", "Tables at a level.", "level"),
    **{name: _metric(name, Kind.COUNTER, unit, help) for name, (unit, help) in _TICKERS.items()},
}
"""Gauges are those of the last epoch in which the task wrote; counters add up what its epochs counted."""
