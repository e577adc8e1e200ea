"""Deletes the files that the completed checkpoints of a job no longer need.

Every method is a protocol of numbered steps, run by `effects.perform`. `clean` and `sweep` may run concurrently with the
protocols of the store.
"""

from __future__ import annotations

from tidegate.checkpoint.committables import record_path
from tidegate.checkpoint.completed_store import CompletedCheckpointStore
from tidegate.checkpoint.contents import verified
from tidegate.checkpoint.effects import Delete, Get, ListFolders, ListNames, Steps
from tidegate.checkpoint.layout import claimed_record, committed_record
from tidegate.checkpoint.metadata.errors import MetadataError
from tidegate.checkpoint.pins import read_pins
from tidegate.checkpoint.shared import Boundary, InFlight, orphans
from tidegate.core.errors import CheckpointError
from tidegate.core.faults import reach


class CleaningSkipped(CheckpointError):
    """A pinned snapshot cannot be read, so the files it needs are unknown. Nothing is deleted, and the job continues."""

    code = "CLEANING_SKIPPED"
    retryable = True

    def __init__(self, metadata: str, why: str) -> None:
        self.metadata = metadata
        super().__init__(f"Nothing is cleaned up while {metadata}, which is pinned, cannot be read: {why}")


class Cleaner:
    """Cleans up for the present owner of the job, whose store knows which files are needed.

    It keeps no state between calls. After a crash, the sweep of the next owner finds what is left.
    """

    def __init__(self, store: CompletedCheckpointStore) -> None:
        self._store = store
        self._layout = store.layout
        self._shared = store.shared

    def clean(self, in_flight: InFlight) -> Steps[int]:
        """Delete the files that dropped checkpoints leave and nothing else needs. Return the number of files.

        1. Read the pins. They are read after the entry that dropped the checkpoints, so no pin that was placed in time
           is missed.
        2. Delete `_metadata` of dropped checkpoints, so that no job starts from an incomplete one.
        3. Delete the files. A crash leaves some of them; the sweep of the next owner finds them.
        """
        store = self._store
        unreferenced = self._shared.unreferenced()
        candidates = {path for path in unreferenced if self._layout.parse(path) is not None}
        self._shared.forget(unreferenced - candidates)
        if not candidates:
            return 0
        named = (*store.entry.retained, *(() if store.entry.base is None else (store.entry.base,)))
        superseded = store.contents.keys() - {ref.metadata for ref in named} - in_flight.bases
        unneeded = candidates - (yield from self._held(in_flight))
        reach("clean.1-marked", term=store.term)
        metadata_paths = tuple(sorted(path for path in unneeded if path.endswith("/_metadata")))
        if metadata_paths:
            yield Delete(metadata_paths)
        reach("clean.2-metadata", term=store.term)
        if file_paths := tuple(sorted(unneeded.difference(metadata_paths))):
            yield Delete(file_paths)
        reach("clean.3-files", term=store.term)
        self._shared.forget(unneeded)
        store.forget(superseded)
        return len(unneeded)

    def sweep(self, in_flight: InFlight) -> Steps[int]:
        """Delete the files that crashes, failed checkpoints and former owners left. Return the number of files.

        1. Note what is referenced, then list, then read the pins. In this order concurrent publications do no harm:
           what they add is beyond the boundary, and what they drop is still noted, so a pin placed before is not missed.
        2. Delete the files that nothing references or can reference later (see `shared`), `_metadata` first.
        """
        store = self._store
        boundary = Boundary(store.term, store.entry.last_id, in_flight.lowest_id, store.published_epoch)
        needed = set(self._shared.counts())
        for ref in store.entry.retained:
            needed |= {ref.metadata, committed_record(ref.metadata)}
        listed: list[str] = []
        for folder in ("shared", "taskowned", "acks"):
            listed += yield ListNames(f"{self._layout.root}/{folder}")
        folders: list[str] = yield ListFolders(self._layout.root)
        for folder in folders:
            if folder.startswith("chk-"):
                listed += yield ListNames(f"{self._layout.root}/{folder}")
        reach("sweep.1-listed", term=store.term)
        needed |= yield from self._held(in_flight)
        orphaned = orphans(self._layout, listed, boundary, needed)
        if orphaned:
            yield Delete(tuple(sorted(orphaned, key=lambda path: not path.endswith("/_metadata"))))
        reach("sweep.2-deleted", term=store.term)
        self._shared.forget(orphaned)
        return len(orphaned)

    def dispose(self) -> Steps[int]:
        """Delete claimed savepoints that the log has dropped. Return the number of files. Any owner may repeat it.

        1. Read the pins and the metadata of each savepoint. If it is pinned, leave it for later. If it is missing, it was
           deleted before. If it is not the savepoint that was claimed, it was put there by someone else, and it stays.
        2. Delete the files that the metadata names in the savepoint's own folder. A crash leaves a savepoint that no job
           can start from, and that is still listed in the entry.
        3. Delete `_metadata`, `_claimed` and the COMMITTED record. A crash leaves only its name in the entry.
        4. The next entry of the store no longer lists it.
        """
        store, deleted = self._store, 0
        listed = [ref for ref in store.entry.disposing if ref.metadata not in store.disposed]
        pinned = {pin.metadata for pin in (yield from read_pins(self._layout))} if listed else set()
        for ref in listed:
            if ref.metadata in pinned:
                continue
            body: bytes | None = yield Get(ref.metadata)
            contents = verified(store.read, ref, body)
            if contents is not None:
                folder = ref.metadata.removesuffix("_metadata")
                own_files = tuple(sorted(path for path in contents.files if path.startswith(folder)))
                reach("dispose.1-read", term=store.term)
                if own_files:
                    yield Delete(own_files)
                reach("dispose.2-files", term=store.term)
                deleted += len(own_files) + 1
            if contents is not None or body is None:
                yield Delete((ref.metadata, claimed_record(ref.metadata), record_path(self._layout, ref)))
            reach("dispose.3-metadata", term=store.term)
            store.disposed.add(ref.metadata)
        return deleted

    def _held(self, in_flight: InFlight) -> Steps[set[str]]:
        """Everything that pins, pending checkpoints and unpublished output need."""
        held: set[str] = set()
        for contents in self._store.owing:
            held |= contents.staged
        for pin in (yield from read_pins(self._layout)):
            body: bytes | None = yield Get(pin.metadata)
            if body is not None:
                try:
                    contents = self._store.read(pin.metadata, body)
                except MetadataError as error:
                    raise CleaningSkipped(pin.metadata, str(error)) from error
                held |= contents.files | contents.staged | {pin.metadata, committed_record(pin.metadata)}
        for base in in_flight.bases:
            held |= self._store.contents[base].files
        return held
