"""Opens RocksDB databases. Every setting that the user cannot change is here, with its reason."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import lt
from pathlib import Path

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    DBCompressionType,
    DBPath,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
    WriteOptions,
)

from tidegate.state.rocksdb.database_directory import DatabaseDirectory
from tidegate.state.rocksdb.native_metrics import counts_entries, needs_statistics
from tidegate.state.rocksdb.options import RocksDBOptions
from tidegate.state.rocksdb.shared_memory import shared_memory

LEVEL0_FILES = 8
"""Compaction of level 0 starts at this many files (every epoch that writes adds one)."""
LEVEL0_BOUND = 16
"""The most level-0 files of a sealed version; `flush_and_wait` waits."""

_LOAD_ROWS = 1000

_COMPRESSION = {
    "NO_COMPRESSION": DBCompressionType.none,
    "SNAPPY_COMPRESSION": DBCompressionType.snappy,
    "LZ4_COMPRESSION": DBCompressionType.lz4,
    "ZSTD_COMPRESSION": DBCompressionType.zstd,
}


def without_wal() -> WriteOptions:
    """Return write options without a log: a version is either sealed and complete or does not exist, so there is
    nothing to recover."""
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment]  # a property; the stub is wrong
    return options


def open_database(
    place: DatabaseDirectory, options: RocksDBOptions, *, create: bool, counting: bool = False, compacts: bool = True
) -> tuple[Rdict, Options]:
    """Open the database in `place`, which must be private to the caller. Raises rocksdict's errors. The second result are
    the settings it was opened with.

    With `create`, the database is new. Otherwise it must exist: if its files were lost, an empty database would
    silently take the place of the state. With `counting`, it counts what it does. Without `compacts`, it compacts nothing.
    """
    settings = _settings(options)
    settings.create_if_missing(create)
    settings.set_disable_auto_compactions(not compacts)
    # No limit: all tables go to the one path.
    settings.set_db_paths([DBPath(str(place.tables), 1 << 62)])
    if counting or needs_statistics(options.metrics):
        settings.enable_statistics()
    return Rdict(str(place.path), settings), settings


def _settings(options: RocksDBOptions) -> Options:
    table, memory, budget = BlockBasedOptions(), shared_memory(options), options.budget
    table.set_block_cache(memory.cache)
    table.set_block_size(options.block_blocksize)
    # The one that `table_file` reads.
    table.set_format_version(6)
    # Index and filter blocks live in the bounded cache, so that memory does not grow with the number of files. They
    # stay there from version to version, so that an open need not read them.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    if options.use_bloom_filter:
        # Ten bits a key, as in Flink: about one false positive in a hundred.
        table.set_bloom_filter(10, False)
    if options.memory_partitioned_index_filters:
        # Only the part of an index or filter that a read needs has to be in the cache. Filters are partitioned with the index.
        table.set_index_type(BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(options.use_bloom_filter)
        table.set_pin_top_level_index_and_filter(True)
    # Bytes as they are: otherwise rocksdict adds a type to each of them.
    settings = Options(raw_mode=True)
    settings.set_block_based_table_factory(table)
    settings.set_compression_type(_COMPRESSION[options.compression]())
    settings.set_write_buffer_size(options.writebuffer_size if budget is None else budget.memtable_bytes)
    if memory.write_buffers is not None:
        settings.set_write_buffer_manager(memory.write_buffers)
    # One thread and no statistics make an open cheaper, and a database lives for one epoch.
    settings.set_max_file_opening_threads(1)
    settings.set_max_background_jobs(1)
    settings.set_skip_stats_update_on_db_open(not counts_entries(options.metrics))
    settings.set_stats_dump_period_sec(0)
    settings.set_stats_persist_period_sec(0)
    settings.set_keep_log_file_num(1)
    settings.set_manifest_preallocation_size(64 << 10)
    # Levels are sized from the last one up, so that deleted entries take no more than a tenth of it.
    settings.set_level_compaction_dynamic_level_bytes(True)
    settings.set_max_bytes_for_level_base(options.max_size_level_base)
    settings.set_target_file_size_base(options.target_file_size_base)
    # Bound the size of one compaction, so that no epoch waits long for it.
    settings.set_max_compaction_bytes(4 * options.target_file_size_base)
    settings.set_level_zero_file_num_compaction_trigger(LEVEL0_FILES)
    # LEVEL0_BOUND applies instead; RocksDB's limit would stall writers in the middle of an epoch.
    settings.set_level_zero_slowdown_writes_trigger(1 << 20)
    settings.set_level_zero_stop_writes_trigger(1 << 20)
    return settings


def ingest_sorted(
    database: Rdict, options: RocksDBOptions, folder: Path, entries: Iterable[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    """Write entries to table files in `folder` and ingest them, as long as they come in byte order. Return the rest."""
    rows, last = iter(entries), None
    moved = IngestExternalFileOptions()
    # Linked, not copied: the file is in the same directory.
    moved.set_move_files(True)
    chunk = list(islice(rows, _LOAD_ROWS))
    while chunk and _in_order(last, chunk):
        # Each file has a unique name: if one was left behind, opening it again would truncate the table that was
        # ingested from it.
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


def flush_and_wait(database: Rdict, *, compacts: bool = True) -> list[str]:
    """Flush the memtable, wait for background work, and return the names of the live table files.

    RocksDB compacts in the background while the attempt reads and runs user code, so most of that work costs no time.
    Running compactions are awaited, since the next attempt would have to restart a cancelled one. A compaction that
    becomes due through the flush is left to the next attempt, unless level 0 has reached its bound. A database that was opened
    without compactions has none to wait for.
    """
    if not compacts:
        database.flush()
        return _live(database)
    # Here the attempt waits for compaction, so that reads of the next one do not search ever more files.
    while _level0(database) >= LEVEL0_BOUND and _compacts(database):
        time.sleep(0.001)
    # Only if needed: it costs three disk syncs.
    stopped = _level0(database) + 1 >= LEVEL0_FILES or _compacts(database)
    if stopped:
        database.set_options({"disable_auto_compactions": "true"})
    database.flush()
    if not stopped and _compacts(database):
        # The flush itself made a compaction due, as large range tombstones do. If it started after the tables are
        # listed, it would remove some of them.
        database.set_options({"disable_auto_compactions": "true"})
    while _number(database, "rocksdb.num-running-compactions"):
        time.sleep(0.001)
    return _live(database)


def _live(database: Rdict) -> list[str]:
    return [file["name"].lstrip("/") for file in database.live_files()]


def _compacts(database: Rdict) -> bool:
    """Whether a compaction is running or due. After a background error none ever runs; the flush reports the error."""
    due = _number(database, "rocksdb.compaction-pending") or _number(database, "rocksdb.num-running-compactions")
    return bool(due) and not _number(database, "rocksdb.background-errors")


def _level0(database: Rdict) -> int:
    return int(database.property_value("rocksdb.num-files-at-level0") or 0)


def _number(database: Rdict, name: str) -> int:
    return int(database.property_int_value(name) or 0)
