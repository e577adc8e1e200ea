"""What RocksDB tells about itself, under Flink's names (`state.backend.rocksdb.metrics.*`): properties of the open database, and
tickers that it counts if asked to."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocksdict import Options, Rdict

PROPERTIES = frozenset(
    {
        "actual-delayed-write-rate",
        "background-errors",
        "block-cache-capacity",
        "block-cache-pinned-usage",
        "block-cache-usage",
        "compaction-pending",
        "cur-size-active-mem-table",
        "cur-size-all-mem-tables",
        "estimate-live-data-size",
        "estimate-num-keys",
        "estimate-pending-compaction-bytes",
        "estimate-table-readers-mem",
        "is-write-stopped",
        "live-sst-files-size",
        "mem-table-flush-pending",
        "num-deletes-active-mem-table",
        "num-deletes-imm-mem-tables",
        "num-entries-active-mem-table",
        "num-entries-imm-mem-tables",
        "num-immutable-mem-table",
        "num-live-versions",
        "num-running-compactions",
        "num-running-flushes",
        "num-snapshots",
        "size-all-mem-tables",
        "total-sst-files-size",
    }
)
"""Named in RocksDB as in Flink."""
FILES_AT_LEVEL = "num-files-at-level"
"""One value for each level, under this name and the number of the level."""
LEVELS = 7
TICKERS = {
    "block-cache-hit": "rocksdb.block.cache.hit",
    "block-cache-miss": "rocksdb.block.cache.miss",
    "bloom-filter-useful": "rocksdb.bloom.filter.useful",
    "bloom-filter-full-positive": "rocksdb.bloom.filter.full.positive",
    "bloom-filter-full-true-positive": "rocksdb.bloom.filter.full.true.positive",
    "bytes-read": "rocksdb.bytes.read",
    "bytes-written": "rocksdb.bytes.written",
    "compaction-read-bytes": "rocksdb.compact.read.bytes",
    "compaction-write-bytes": "rocksdb.compact.write.bytes",
    "iter-bytes-read": "rocksdb.db.iter.bytes.read",
    "stall-micros": "rocksdb.stall.micros",
}
"""Flink's name → RocksDB's. They count from the opening of a database, so those of an attempt are those of its epoch."""
NAMES = frozenset((*PROPERTIES, *TICKERS, FILES_AT_LEVEL))
# rocksdict has statistics as a text only.
_COUNT = re.compile(r"^(\S+) COUNT : (\d+)$", re.MULTILINE)


def needs_statistics(names: Iterable[str]) -> bool:
    """Whether the database must count tickers, which makes its accesses somewhat slower."""
    return any(name in TICKERS for name in names)


def counts_entries(names: Iterable[str]) -> bool:
    """Whether the database must read the statistics of its tables when it is opened, which takes a read for each of them."""
    return "estimate-num-keys" in names or "estimate-live-data-size" in names


def hit_ratio(settings: Options) -> float | None:
    """Return the share of block reads that the cache answered since the database was opened, if it counts them."""
    counted = dict(_COUNT.findall(settings.get_statistics() or ""))
    hits, misses = (float(counted.get(TICKERS[name], 0)) for name in ("block-cache-hit", "block-cache-miss"))
    return hits / (hits + misses) if hits + misses else None


def read_native_metrics(database: Rdict, settings: Options, names: Iterable[str]) -> dict[str, float]:
    """Return the wanted values. `settings` are those that the database was opened with."""
    wanted = frozenset(names)
    found: dict[str, float] = {}
    for name in sorted(wanted & PROPERTIES):
        found[name] = float(database.property_int_value(f"rocksdb.{name}") or 0)
    if FILES_AT_LEVEL in wanted:
        for level in range(LEVELS):
            found[f"{FILES_AT_LEVEL}{level}"] = float(database.property_value(f"rocksdb.{FILES_AT_LEVEL}{level}") or 0)
    if needs_statistics(wanted):
        counted = dict(_COUNT.findall(settings.get_statistics() or ""))
        found |= {name: float(counted.get(theirs, 0)) for name, theirs in TICKERS.items() if name in wanted}
    return found
