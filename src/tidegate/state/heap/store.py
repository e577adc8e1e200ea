"""One attempt on an in-memory table: reads fall through to the base, writes go to an overlay, which `seal` writes to disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tidegate.core.errors import CorruptState, StateError
from tidegate.core.faults import reach
from tidegate.state.disk.version_directory import Building, base_of, version_path
from tidegate.state.failure import state_failure
from tidegate.state.heap import chain
from tidegate.state.heap.change_file import Changes
from tidegate.state.heap.key_order import KeyOrder
from tidegate.state.heap.table import CACHE, HeapTable
from tidegate.state.version import Manifest, VersionFile, VersionId, counted


class HeapStore:
    """See `StateStore`. The table of the base is loaded on first use and never modified by an attempt."""

    def __init__(
        self,
        cache_size: int,
        directory: Path,
        base: Manifest | None,
        target: VersionId,
        key_groups: tuple[int, int],
    ) -> None:
        self._cache_size = cache_size
        self._directory = directory
        self._base = base
        self._target = target
        self._key_groups = key_groups
        self._table: HeapTable | None = None
        self._changes: Changes = {}
        self._changed_order: KeyOrder | None = None
        self._building: Building | None = None
        self._ended: str | None = None
        self._damage: CorruptState | None = None

    def get(self, key: bytes) -> bytes | None:
        table = self._table or self._load()
        # Not `get`: None in the overlay means deleted.
        if key in self._changes:
            return self._changes[key]
        return table.entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        entries = (self._table or self._load()).entries
        changes = self._changes
        if not changes:
            return [entries.get(key) for key in keys]
        return [changes[key] if key in changes else entries.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        table = self._table or self._load()
        # The table does not change until `seal`; the overlay does, so its part of the range is copied now.
        changed = [(key, self._changes[key]) for chunk in self._changed_chunks(start, end, reverse) for key in chunk]
        return self._walk(table, changed, start, end, reverse)

    def _walk(
        self, table: HeapTable, changed: list[tuple[bytes, bytes | None]], start: bytes, end: bytes, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        entries = table.entries
        at = 0
        for keys in table.key_chunks(start, end, reverse):
            if not changed:
                # The usual case: the attempt has changed nothing in this range.
                pairs = [(key, entries[key]) for key in keys]
            else:
                upto = at
                far = keys[-1]
                while upto < len(changed) and (changed[upto][0] >= far if reverse else changed[upto][0] <= far):
                    upto += 1
                mixed: Changes = {key: entries[key] for key in keys}
                mixed.update(changed[at:upto])
                pairs = [(key, value) for key, value in sorted(mixed.items(), reverse=reverse) if value is not None]
                at = upto
            yield from pairs
            if self._ended is not None:
                raise StateError("A scan was read after its store had been sealed or abandoned. Finish scans first.")
        yield from ((key, value) for key, value in changed[at:] if value is not None)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        self._check_usable()
        changes, order = self._changes, self._changed_order
        # As long as nothing was scanned, the overlay needs no order.
        if order is None:
            changes.update(puts)
            changes.update(dict.fromkeys(deletes))
            return
        for key, value in puts:
            if key not in changes:
                order.add(key)
            changes[key] = value
        for key in deletes:
            if key not in changes:
                order.add(key)
            changes[key] = None

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self.write(entries)

    def delete_range(self, start: bytes, end: bytes) -> None:
        table = self._table or self._load()
        doomed = [key for chunk in self._changed_chunks(start, end) for key in chunk]
        doomed += [key for chunk in table.key_chunks(start, end) for key in chunk]
        self.write((), doomed)

    def _changed_chunks(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[bytes]]:
        if self._changed_order is None:
            self._changed_order = KeyOrder(self._changes)
        return self._changed_order.chunks(start, end, reverse)

    def seal(self, elements: Mapping[int, int] | None = None) -> Manifest:
        """Seal the version under its name.

        1. Link the files of the base that are kept.
        2. Write one file with the changes, merged with the last files of the base if those are small.
        3. Write the manifest; rename the private directory to the version's name.
        4. Apply the changes to the table in memory and keep it for the next attempt in this process.

        A crash before the rename leaves an unlocked private directory, which `tidy` removes, and the base unchanged.
        """
        table = self._table or self._load()
        changes = self._changes
        if None in changes.values():
            # A delete of a key that the base never had is irrelevant to later versions.
            changes = {key: value for key, value in changes.items() if value is not None or key in table.entries}
        try:
            manifest = self._write_version(table, changes, counted(self._base, elements))
        except Exception as error:
            self.abandon()
            raise state_failure("sealing", self._directory, error) from error
        self._ended = "sealed"
        self._table = None
        if manifest.files:
            table.apply(changes, manifest.files[-1].origin)
        CACHE.put(self._directory, table, self._cache_size)
        return manifest

    def _write_version(self, table: HeapTable, changes: Changes, elements: tuple[tuple[int, int], ...]) -> Manifest:
        self._building = building = Building.begin(self._directory, self._target)
        base = self._base
        files = () if base is None else base.files
        source = self._directory if base is None else version_path(self._directory, base.version)
        # Without changes, a version is the files of its base.
        kept = len(files) if not changes else chain.kept_files(files, _size(changes))
        building.link(source, files[:kept])
        reach("seal.1-linked", version=self._target)
        new: tuple[VersionFile, ...] = ()
        if changes:
            epoch = self._target.epoch
            name = f"{epoch.term}-{epoch.number}-{self._target.attempt}.{'delta' if kept else 'full'}"
            path = building.path / name
            if kept:
                chain.write_delta(path, source, files[kept:], changes, self._target)
            else:
                chain.write_full(path, table, changes, self._target)
            new = (VersionFile(name, path.stat().st_size, self._target),)
        reach("seal.2-written", version=self._target)
        from_version, all_files = None if base is None else base.version, (*files[:kept], *new)
        manifest = Manifest(
            backend="hashmap",
            version=self._target,
            base=from_version,
            files=all_files,
            key_groups=self._key_groups,
            elements=elements,
        )
        manifest = building.seal(manifest)
        reach("seal.3-published", version=self._target)
        return manifest

    def abandon(self) -> None:
        if self._ended is None:
            self._ended = "abandoned"
        if self._table is not None:
            CACHE.put(self._directory, self._table, self._cache_size)
            self._table = None
        if self._building is not None:
            self._building.discard()

    def _load(self) -> HeapTable:
        self._check_usable()
        # Taken out, so that no other attempt in this process uses it meanwhile. If loading fails, it is gone, and the
        # next attempt reads files.
        cached = CACHE.take(self._directory)
        try:
            if self._base is None:
                self._table = HeapTable(None, {})
            else:
                with base_of(self._directory, self._base.version) as source:
                    self._table = chain.load(source, self._base, cached)
        except Exception as error:
            self._ended = "unusable since its base could not be read"
            failure = state_failure("reading", self._directory, error)
            if isinstance(failure, CorruptState):
                self._damage = failure
            raise failure from error
        return self._table

    def _check_usable(self) -> None:
        if self._damage is not None:
            raise self._damage  # Again: a function may have caught it.
        if self._ended is not None:
            raise StateError(f"The store of version {self._target} is {self._ended}. Begin a new attempt.")


def _size(changes: Changes) -> int:
    # About what MessagePack adds to a pair.
    return 10 * len(changes) + sum(map(len, changes)) + sum(len(value) for value in changes.values() if value)
