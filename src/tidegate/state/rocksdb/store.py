"""The database of one attempt: a hard-linked clone of the base, opened on first use, sealed as the next version."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, RdictIter, ReadOptions, WriteBatch

from tidegate.core.content_check import check_of, require_same
from tidegate.core.errors import CorruptState, StateError
from tidegate.core.faults import reach
from tidegate.state.disk.version_directory import Building, base_of, version_path
from tidegate.state.failure import state_failure
from tidegate.state.frames import rows_of_a_frame
from tidegate.state.port import EntryTooLarge
from tidegate.state.rocksdb.database import flush_and_wait, ingest_sorted, open_database, without_wal
from tidegate.state.rocksdb.database_directory import DatabaseDirectory
from tidegate.state.rocksdb.native_metrics import hit_ratio, read_native_metrics
from tidegate.state.rocksdb.options import RocksDBOptions
from tidegate.state.rocksdb.shared_memory import shared_memory
from tidegate.state.version import Manifest, VersionFile, VersionId, counted

log = logging.getLogger("tidegate")

_BATCH_KEYS = 1000
"""Deletions per RocksDB write, which holds the GIL: few enough for other threads of the worker to keep uploading. Puts come
in as many rows, or a megabyte of values: a memtable takes a whole batch, however large."""
LARGEST_BYTES = (1 << 31) - 1
"""The most bytes of a key or a value, as in Flink."""
_COUNT_HITS_EVERY = 10
"""Hits and misses of the block cache are counted in one epoch out of so many."""
_SCAN_FIRST, _SCAN_MOST = 16, 1024
"""Entries read ahead by a scan: few at first, as most scans cover the map entries of one key, then doubling."""


class RocksDBStore:
    """See `StateStore`. Any RocksDB error ends the attempt: its content can no longer be trusted."""

    def __init__(
        self,
        options: RocksDBOptions,
        directory: Path,
        base: Manifest | None,
        target: VersionId,
        key_groups: tuple[int, int],
    ) -> None:
        self._options = options
        self._directory = directory
        self._base = base
        self._target = target
        self._key_groups = key_groups
        self._building: Building | None = None
        self._place: DatabaseDirectory | None = None
        self._database: Rdict | None = None
        self._settings: Options | None = None
        self._written = False
        self._ended: str | None = None
        self._damage: CorruptState | None = None
        self._no_wal = without_wal()
        self._scans: dict[int, list[Any]] = {}
        self._elements: tuple[tuple[int, int], ...] = ()

    @property
    def timers_on_heap(self) -> bool:
        """Whether timers of this store are held in memory (see `state.heap_timers`)."""
        return self._options.timer_service == "HEAP"

    def get(self, key: bytes) -> bytes | None:
        try:
            return (self._database or self._open()).get(key)
        except Exception as error:
            raise self._failed("reading", error) from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            found: list[bytes | None] = (self._database or self._open()).get(list(keys)) or []
            return found
        except Exception as error:
            raise self._failed("reading", error) from error

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if start >= end:
            return iter(())
        try:
            bounds = ReadOptions()
            bounds.set_iterate_upper_bound(end)
            cursor = (self._database or self._open()).iter(bounds)
            if reverse:
                cursor.seek_to_last()
            else:
                cursor.seek(start)
        except Exception as error:
            raise self._failed("scanning", error) from error
        # RocksDB stays open as long as a cursor lives, so the store must be able to take the cursor away from an open
        # scan. The cursor reads the bytes of `bounds` at every step, so both must live equally long.
        holder = [cursor, bounds]
        self._scans[id(holder)] = holder
        return self._walk(holder, start if reverse else None)

    def _walk(self, holder: list[Any], floor: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        size = _SCAN_FIRST
        try:
            while True:
                if not holder:
                    raise StateError(
                        "A scan was read after its store had been sealed or abandoned. Finish scans first."
                    )
                try:
                    chunk = _read_ahead(holder[0], size, floor)
                except Exception as error:
                    raise self._failed("scanning", error) from error
                yield from chunk
                if len(chunk) < size:
                    return
                size = min(2 * size, _SCAN_MOST)
        finally:
            holder.clear()
            self._scans.pop(id(holder), None)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        try:
            database = self._database or self._open()
            self._written = True
            rows = iter(puts)
            while chunk := rows_of_a_frame(rows):
                _check_sizes(chunk)
                batch = WriteBatch(raw_mode=True)
                put = batch.put
                for key, value in chunk:
                    put(key, value)
                database.write(batch, self._no_wal)
            gone = iter(deletes)
            while keys := list(islice(gone, _BATCH_KEYS)):
                batch = WriteBatch(raw_mode=True)
                for key in keys:
                    batch.delete(key)
                database.write(batch, self._no_wal)
        except EntryTooLarge:
            raise
        except Exception as error:
            raise self._failed("writing", error) from error

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Bypass the memtable: write table files, which the database ingests at the lowest level without overlapping entries.

        Takes a third of the time of `write` and leaves less to compact.
        """
        try:
            database = self._database or self._open()
            assert self._building is not None
            self._written = True
            rest = ingest_sorted(database, self._options, self._building.path, entries)
        except Exception as error:
            raise self._failed("loading", error) from error
        self.write(rest)

    def delete_range(self, start: bytes, end: bytes) -> None:
        if start >= end:
            return
        try:
            database = self._database or self._open()
            self._written = True
            database.delete_range(start, end, self._no_wal)
        except Exception as error:
            raise self._failed("deleting a range", error) from error

    def seal(self, elements: Mapping[int, int] | None = None) -> Manifest:
        """Seal the version under its name.

        1. Flush writes to a table file, and wait for background work.
        2. Close, and remove every file that is not part of the database.
        3. Write the manifest; rename the private directory to the version's name.

        A crash before the rename leaves an unlocked private directory, which `tidy` removes, and the base unchanged. An
        attempt that wrote nothing links all files of its base and opens no database.
        """
        self._check_usable()
        self._elements = counted(self._base, elements)
        try:
            manifest = self._seal_written() if self._written else self._seal_unchanged()
        except Exception as error:
            raise self._failed("sealing", error) from error
        self._ended = "sealed"
        return manifest

    def _seal_written(self) -> Manifest:
        assert self._database is not None
        assert self._building is not None
        assert self._place is not None
        path = self._building.path
        tables = flush_and_wait(self._database, compacts=not self._cuts)
        reach("seal.1-flushed", version=self._target)
        self._close()
        # CURRENT names the list of tables. Options, identity and logs are not needed to open a database.
        small = ["CURRENT", (self._place.path / "CURRENT").read_text().strip()]
        self._place.move_to_tables(small)
        self._place.discard()
        # What is left over: tables that a compaction has replaced, and files of ingestions.
        live = {*tables, *small}
        for entry in list(path.iterdir()):
            if entry.name not in live:
                entry.unlink()
        reach("seal.2-closed", version=self._target)
        # A table of the base keeps its origin, by which the next checkpoint knows that it is stored.
        linked = {file.name: file for file in _tables(self._base)}
        files = tuple(
            linked.get(name) or VersionFile(name, (path / name).stat().st_size, self._target) for name in sorted(live)
        )
        return self._seal_version(self._building, files)

    def _seal_unchanged(self) -> Manifest:
        self._close()
        self._discard()
        self._building = building = Building.begin(self._directory, self._target)
        files = () if self._base is None else self._base.files
        if self._base is not None:
            with base_of(self._directory, self._base.version) as source:
                building.link(source, files)
        return self._seal_version(building, files)

    def _seal_version(self, building: Building, files: tuple[VersionFile, ...]) -> Manifest:
        base = None if self._base is None else self._base.version
        manifest = Manifest(
            backend="rocksdb",
            version=self._target,
            base=base,
            files=files,
            key_groups=self._key_groups,
            elements=self._elements,
        )
        manifest = building.seal(manifest)
        reach("seal.3-published", version=self._target)
        return manifest

    def metrics(self) -> Mapping[str, float]:
        """See `MeasuredStore`. Empty if the database was not opened, or no option asks for values."""
        if not self._options.metrics or self._database is None or self._settings is None:
            return {}
        try:
            return read_native_metrics(self._database, self._settings, self._options.metrics)
        except Exception as error:  # No attempt fails because nobody can watch it.
            log.warning("RocksDB does not tell about itself: %s", error)
            return {}

    def memory(self) -> Mapping[str, float]:
        """See `MemoryUsingStore`. The hit ratio is there in one epoch out of ten: to count hits makes reads slower."""
        if self._database is None or self._settings is None:
            return {}
        shared = shared_memory(self._options)
        found = {"blockCacheCapacity": float(shared.capacity_bytes), "blockCacheUsage": float(shared.cache.get_usage())}
        if shared.write_buffers is not None:
            found["writeBufferUsage"] = float(shared.write_buffers.get_usage())
        ratio = hit_ratio(self._settings) if self._counts_hits else None
        return found if ratio is None else found | {"blockCacheHitRatio": ratio}

    @property
    def _counts_hits(self) -> bool:
        return self._target.epoch.number % _COUNT_HITS_EVERY == 1

    def abandon(self) -> None:
        if self._ended is None:
            self._ended = "abandoned"
        # What is abandoned may be broken in any way.
        with suppress(Exception):
            self._close()
        self._discard()

    @property
    def _cuts(self) -> bool:
        """Whether it makes a part of another task's version its own. The job waits for that; the epochs that follow compact the
        result while they run."""
        return self._base is not None and self._base.key_groups != self._key_groups

    def _open(self) -> Rdict:
        """Clone the base and open the clone.

        Immutable files are linked. The small files that RocksDB appends to or replaces are copied, and compared with their
        checksums: RocksDB takes a damaged list of tables for the shorter list of an earlier version.
        """
        self._check_usable()
        self._building = building = Building.begin(self._directory, self._target)
        self._place = place = DatabaseDirectory(building.path)
        if self._base is not None:
            linked = _tables(self._base)
            with base_of(self._directory, self._base.version) as source:
                building.link(source, linked)
                for file in self._base.files:
                    if file not in linked:
                        _copy(source / file.name, place.path / file.name, file.checksum)
        database, settings = open_database(
            place,
            self._options,
            create=self._base is None or not self._base.files,
            counting=self._counts_hits,
            compacts=not self._cuts,
        )
        self._database = database
        self._settings = settings
        reach("begin.1-opened", version=self._target)
        return database

    def _close(self) -> None:
        # A cursor keeps its database open, and with it the lock on the directory.
        for holder in self._scans.values():
            holder.clear()
        self._scans.clear()
        database = self._database
        self._database = None
        if database is not None:
            database.close()

    def _discard(self) -> None:
        if self._place is not None:
            self._place.discard()
        if self._building is not None:
            self._building.discard()

    def _check_usable(self) -> None:
        if self._damage is not None:
            raise self._damage  # Again: a function may have caught it.
        if self._ended is not None:
            raise StateError(f"The store of version {self._target} is {self._ended}. Begin a new attempt.")

    def _failed(self, doing: str, error: Exception) -> StateError:
        private = None if self._building is None else self._building.path
        place = self._directory if self._base is None else version_path(self._directory, self._base.version)
        failure = state_failure(doing, place, error, private)
        if isinstance(failure, CorruptState):
            self._damage = failure
        if self._ended is None:
            # Before `abandon`, which would call it abandoned.
            self._ended = f"unusable since it failed while {doing}"
            self.abandon()
        return failure


def _read_ahead(cursor: RdictIter, size: int, floor: bytes | None) -> list[tuple[bytes, bytes]]:
    """Return the next entries, fewer than `size` at the end. A cursor stops on an error as it does at its bound, so
    check its status.

    With a `floor`, read backwards down to it. (A lower bound set on the cursor lets the empty key pass.)
    """
    chunk: list[tuple[bytes, bytes]] = []
    valid, key, value, step = cursor.valid, cursor.key, cursor.value, cursor.next if floor is None else cursor.prev
    while len(chunk) < size:
        if not valid():
            cursor.status()
            break
        found = key()
        if floor is not None and found < floor:
            break
        chunk.append((found, value()))
        step()
    return chunk


def _copy(source: Path, target: Path, checksum: str) -> None:
    """Copy a small file. Raises `CorruptState` if its content has changed; versions of earlier releases have no checksum."""
    data = source.read_bytes()
    if checksum:
        require_same(source, check_of(data), checksum)
    target.write_bytes(data)


def _check_sizes(rows: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise `EntryTooLarge` for the first entry above the limit. RocksDB itself drops an entry above 4 GB without an error."""
    if sum(map(len, chain.from_iterable(rows))) <= LARGEST_BYTES:
        return  # All of them together: one pass in C for nearly every batch.
    for key, value in rows:
        if max(len(key), len(value)) > LARGEST_BYTES:
            raise EntryTooLarge(key, max(len(key), len(value)), LARGEST_BYTES)


def _tables(manifest: Manifest | None) -> list[VersionFile]:
    """Return the files that RocksDB writes once, under names that it never reuses."""
    return [] if manifest is None else [file for file in manifest.files if file.name.endswith(".sst")]
