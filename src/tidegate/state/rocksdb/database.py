"""One RocksDB database as tidegate opens it: every setting that is not the user's, with its reason."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import lt
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBPath,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
    WriteOptions,
)

from tidegate.state.rocksdb.home import Home
from tidegate.state.rocksdb.options import RocksDBOptions

LEVEL0_FILES = 8
"""Compaction of level 0 begins at so many files (one is added by every epoch that writes)."""
LEVEL0_BOUND = 16
"""A version is not sealed with more; `flush_and_settle` waits."""

_LOAD_ROWS = 1000

_COMPRESSION = {
    "NO_COMPRESSION": DBCompressionType.none,
    "SNAPPY_COMPRESSION": DBCompressionType.snappy,
    "LZ4_COMPRESSION": DBCompressionType.lz4,
    "ZSTD_COMPRESSION": DBCompressionType.zstd,
}
_caches: dict[tuple[int, int], Cache] = {}


def block_cache(size_bytes: int) -> Cache:
    """The block cache of this process. Shared by all its stores, and warm across versions.

    RocksDB names a cached block by the identity of the file's first writer, which a hard link keeps: what one version
    read is a hit for the next. Keyed by process id, since a cache made before a fork must not be used after it.
    """
    key = (os.getpid(), size_bytes)
    if key not in _caches:
        _caches[key] = Cache(size_bytes)
    return _caches[key]


def without_wal() -> WriteOptions:
    """A version is complete when sealed or it does not exist, so a log to recover from would be written for nothing."""
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment]  # a property; the stub is wrong
    return options


def open_database(home: Home, options: RocksDBOptions, *, create: bool) -> Rdict:
    """Open the database in `home`, which is the caller's alone. Raises what rocksdict raises.

    With `create` it is a new one. Without, it must be there: were its files lost on the way, an empty database in their
    place would be a state that nobody wrote.
    """
    settings = _settings(options)
    settings.create_if_missing(create)
    settings.set_db_paths([DBPath(str(home.tables), 1 << 62)])
    return Rdict(str(home.path), settings)


def _settings(options: RocksDBOptions) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(block_cache(options.block_cache_size))
    table.set_block_size(options.block_blocksize)
    table.set_format_version(6)
    # Index and filter blocks live in the bounded cache, so that memory does not grow with the number of files; and they
    # stay there from version to version, which spares each open the reading of them.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    if options.use_bloom_filter:
        table.set_bloom_filter(10, False)
    settings = Options(raw_mode=True)
    settings.set_block_based_table_factory(table)
    settings.set_compression_type(_COMPRESSION[options.compression]())
    settings.set_write_buffer_size(options.writebuffer_size)
    # One thread and no statistics make an open cheaper, and a database lives for one epoch.
    settings.set_max_file_opening_threads(1)
    settings.set_max_background_jobs(1)
    settings.set_skip_stats_update_on_db_open(True)
    settings.set_stats_dump_period_sec(0)
    settings.set_stats_persist_period_sec(0)
    settings.set_keep_log_file_num(1)
    settings.set_manifest_preallocation_size(64 << 10)
    settings.set_level_compaction_dynamic_level_bytes(True)
    settings.set_max_bytes_for_level_base(options.max_size_level_base)
    settings.set_target_file_size_base(options.target_file_size_base)
    # One compaction is one step of bounded length, so that no epoch waits long for one.
    settings.set_max_compaction_bytes(4 * options.target_file_size_base)
    settings.set_level_zero_file_num_compaction_trigger(LEVEL0_FILES)
    # Our own bound rules; RocksDB's would stall writers in the middle of an epoch.
    settings.set_level_zero_slowdown_writes_trigger(1 << 20)
    settings.set_level_zero_stop_writes_trigger(1 << 20)
    return settings


def ingest_sorted(
    database: Rdict, options: RocksDBOptions, folder: Path, entries: Iterable[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    """Write entries as table files in `folder`, and have the database take those over, as long as they come in byte
    order. Answer: the rest."""
    rows, last = iter(entries), None
    moved = IngestExternalFileOptions()
    moved.set_move_files(True)
    chunk = list(islice(rows, _LOAD_ROWS))
    while chunk and _in_order(last, chunk):
        # Each has a name of its own: were one left behind, opening it again would empty the table that was made of it.
        path = str(folder / f"load-{uuid.uuid4().hex}.sst")
        writer = SstFileWriter(options=_settings(options))
        writer.open(path)
        while chunk and _in_order(last, chunk):
            for key, value in chunk:
                writer[key] = value
            last, chunk = chunk[-1][0], list(islice(rows, _LOAD_ROWS))
            if writer.file_size() >= options.target_file_size_base:
                break
        writer.finish()
        database.ingest_external_file([path], moved)
    return chain(chunk, rows)


def _in_order(last: bytes | None, chunk: list[tuple[bytes, bytes]]) -> bool:
    keys = [key for key, _ in chunk]
    return (last is None or last < keys[0]) and all(map(lt, keys, islice(keys, 1, None)))


def flush_and_settle(database: Rdict) -> list[str]:
    """Write out the memtable, let background work end, and give the names of the live table files.

    RocksDB compacts by itself while the attempt reads and runs the user's code, so most of that work costs no time.
    What has begun is waited for, since a cancelled compaction would be begun again by the next attempt; what the flush
    makes due is left to the next attempt, unless level 0 has reached its bound.
    """
    while _level0(database) >= LEVEL0_BOUND and _compacts(database):
        time.sleep(0.001)
    # Only when needed: it costs three syncs of the disk.
    stopped = _level0(database) + 1 >= LEVEL0_FILES or _compacts(database)
    if stopped:
        database.set_options({"disable_auto_compactions": "true"})
    database.flush()
    if not stopped and _compacts(database):
        # The flush itself made one due, as that of large range tombstones does. Begun after the tables are listed, it would
        # take some of them away.
        database.set_options({"disable_auto_compactions": "true"})
    while _number(database, "rocksdb.num-running-compactions"):
        time.sleep(0.001)
    return [file["name"].lstrip("/") for file in database.live_files()]


def _compacts(database: Rdict) -> bool:
    """Whether compaction runs or will. After an error in the background it never will; the flush tells the error."""
    due = _number(database, "rocksdb.compaction-pending") or _number(database, "rocksdb.num-running-compactions")
    return bool(due) and not _number(database, "rocksdb.background-errors")


def _level0(database: Rdict) -> int:
    return int(database.property_value("rocksdb.num-files-at-level0") or 0)


def _number(database: Rdict, name: str) -> int:
    return int(database.property_int_value(name) or 0)
