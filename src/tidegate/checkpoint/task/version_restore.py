"""Restores the state of one task from a snapshot: unchanged, or assembled from the shares of other tasks.

Runs in the worker that will use the state. Downloads are verified against the checksums of the snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tidegate.checkpoint.files.file_lists import with_files
from tidegate.checkpoint.metadata import FileList, StateInfo, TaskState
from tidegate.checkpoint.metadata.validation import CANONICAL
from tidegate.checkpoint.task.assignment import KeyedShare, TaskRestore
from tidegate.checkpoint.task.change_plan import change_files
from tidegate.checkpoint.task.operator_shares import OperatorShares
from tidegate.checkpoint.task.version_fetch import begin_fetched, fetch_version, is_here, listed
from tidegate.checkpoint.task.version_upload import remember
from tidegate.core.errors import CorruptState, RestoreError, StateError
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, HostId, TaskId, Term
from tidegate.state.backends import built_in_backend, plain_name
from tidegate.state.changelog import note_same
from tidegate.state.disk.private_directory import PrivateDirectory, sweep
from tidegate.state.disk.version_directory import RESTORING, Building, discard_version, move_version, version_path
from tidegate.state.keys.entry_keys import OF_NO_KEY, key_group_range
from tidegate.state.port import StateBackend, StateStore
from tidegate.state.version import VersionId
from tidegate.storage import Storage
from tidegate.storage.routed import name_below

log = logging.getLogger("tidegate")

_WORTH_CUTTING = 0.5
"""Minimum share of an old task's key groups for which its files are taken over. What is cut off stays in the files, and
is uploaded with the next checkpoint, until compaction drops it."""


class Tables(Protocol):
    """One task of a canonical savepoint. The caller of a restore injects how it is opened."""

    def byte_entries(
        self, key_groups: tuple[int, int], states: Collection[int], epoch: EpochId
    ) -> Iterator[tuple[bytes, bytes]]: ...
    def get(self, key: bytes) -> bytes | None: ...
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...


OpenTables: TypeAlias = Callable[[Storage, str, TaskState], Tables]
"""Opens tables, given the storage, the root of relative names, and the task."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A state that was written as `old` and is now declared as `new`. `renames`: old field names to new ones."""

    old: StateInfo
    new: StateInfo
    renames: Mapping[str, str] = field(default_factory=dict)


Convert: TypeAlias = Callable[[bytes], bytes]
"""Converts the stored bytes of an entry, or of an element of operator state, to the type now declared."""
Converter: TypeAlias = Callable[[Migration], Convert]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """Everything that one task needs to know for its restore."""

    plan: TaskRestore
    sources: tuple[TaskState, ...]
    """The old tasks that `plan` names."""
    root: str
    """The root of relative file names in `sources`."""
    stored: tuple[Term, int] | None
    """Term and id of the checkpoint, if the next one may reuse its files. Not for a savepoint or another job's checkpoint."""
    from_local: bool = True
    """Whether a version that is still on local disk may be used, if its content is what was stored."""
    trusted: Mapping[TaskId, HostId] = field(default_factory=dict)
    """Old tasks whose version the driver has just accepted, and its host. It is used there without checksums, as the next epoch
    would."""
    trusts_boot: bool = False
    """Whether a version that was sealed since its machine was booted is used without comparing all checksums, if nobody else
    has used the disk (see `disk_token`). Not after a failure: a damaged file may have been its cause."""
    migrations: tuple[Migration, ...] = ()
    """States whose values are converted during the restore. A task that takes any of them is never restored unchanged."""

    def local_version(self) -> VersionId | None:
        """Return the version that the task uses as it is, if it is on local disk. None: there is none that it could use."""
        if not self.from_local or self.plan.as_is is None:
            return None
        return next(state.version for state in self.sources if state.task == self.plan.as_is)

    def sizes_bytes(self) -> tuple[int, int]:
        """Return the bytes of the files in storage that it may read, and of those that the metadata contains."""
        inlined = sum(len(file.data) for state in self.sources for file in state.inline)
        return sum(state.size_bytes for state in self.sources) - inlined, inlined


@dataclass(frozen=True, slots=True)
class HostVersions:
    """Where the versions of tasks are on this host."""

    host: HostId
    directory_of: Callable[[TaskId], Path]


def restore(  # noqa: PLR0913 what a restore reads from, and where it writes to
    storage: Storage,
    directory: Path,
    order: RestoreOrder,
    backend: StateBackend,
    options: Mapping[str, Any],
    target: VersionId,
    open_tables: OpenTables | None = None,
    converter: Converter | None = None,
    local: HostVersions | None = None,
) -> VersionId | None:
    """Create the task's version. Return its id, or None for a task without state. Can be repeated, also concurrently. If a
    version on local disk turns out to be damaged while it is read, everything is fetched.

    1. If nothing is added, left out or moved, the version keeps its name and files. A version on local disk with
       the stored content is used as it is. If changes must be applied to the files, the result is a new version.
    2. Otherwise the files are fetched into a private directory, or linked from a version that is on local disk (`local`), and
       entries are read from there; those of migrated states are converted by the result of `converter`. A crash leaves the
       directory unlocked, and `tidy` removes it.
    3. The version is renamed to its final name atomically.
    4. The files already in storage are recorded, so that the next checkpoint uploads only changes.
    """
    attempt = _Restore(
        storage=storage,
        directory=directory,
        order=order,
        backend=backend,
        options=options,
        target=target,
        open_tables=open_tables,
        converter=converter,
        local=local,
    )
    try:
        return attempt.run()
    except CorruptState as error:
        if not order.from_local:
            raise
        # A version that was linked without comparing checksums. What is fetched was compared.
        log.warning("%s fetches its state: %s", order.plan.task, error)
        return replace(attempt, order=replace(order, from_local=False)).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restore:
    """One attempt to restore a task: what it reads from, and where it writes to."""

    storage: Storage
    directory: Path
    order: RestoreOrder
    backend: StateBackend
    options: Mapping[str, Any]
    target: VersionId
    open_tables: OpenTables | None
    converter: Converter | None
    local: HostVersions | None

    def run(self) -> VersionId | None:
        """Create the version, without a second attempt."""
        order = self.order
        old = {state.task: with_files(self.storage, order.root, state) for state in order.sources}
        if order.plan.as_is is not None and plain_name(old[order.plan.as_is].backend) == self.backend.name:
            return self._use_unchanged(old[order.plan.as_is])
        if not order.plan.sources:
            return None
        converts = {} if self.converter is None else {each.old.id: self.converter(each) for each in order.migrations}
        if len(converts) != len(order.migrations):
            raise RestoreError("State must be migrated, but no converter was provided. Restore it in its job.")
        return self._assemble(old, converts)

    def _use_unchanged(self, state: TaskState) -> VersionId | None:
        order, directory = self.order, self.directory
        if not len(state.files) and not state.inline:
            return None
        reach("restore.1-begun", of=order.plan.task)
        version = state.version
        if not (order.from_local and is_here(directory, state, self.backend, order.trusts_boot)):
            home = directory if order.from_local else None
            if change_files(state):
                version = self._rebuild(state, home)
            else:
                fetch_version(self.storage, directory, order.root, state, state.key_groups, home, replaces=True)
        reach("restore.2-fetched", of=order.plan.task)

        # Without a record, the next checkpoint would upload everything again. With `order.sources`, not `state`: the record
        # has a reference where the metadata has one.
        if order.stored is not None:
            as_stored = next(each for each in order.sources if each.task == state.task)
            term, checkpoint_id = order.stored
            delta = _delta(self.storage, order.root, as_stored)
            remember(directory, term, checkpoint_id, as_stored, listed(state), delta)
        reach("restore.3-noted", of=order.plan.task)
        return version

    def _rebuild(self, state: TaskState, home: Path | None) -> VersionId:
        """Apply the changes of a task to its files. The result is a version of its own: files that it adds have its name, since
        those of the version that was stored are elsewhere and differ."""
        sweep(self.directory, RESTORING)
        scratch = PrivateDirectory.make(self.directory, RESTORING)
        store: StateStore | None = None
        try:
            fetch_version(self.storage, scratch.path, self.order.root, state, state.key_groups, home)
            store = begin_fetched(self.backend, scratch.path, state, self.target, state.key_groups)
            store.seal({each.state: each.count for each in state.elements})
            move_version(self.target, scratch.path, self.directory)
            # After the move: a note about a version that does not exist would be of no use. Without it, the next
            # checkpoint stores the whole version.
            note_same(self.directory, self.target, state.version)
            return self.target
        except BaseException:
            if store is not None:
                store.abandon()
            raise
        finally:
            scratch.discard()

    def _assemble(self, old: Mapping[TaskId, TaskState], converts: Mapping[int, Convert]) -> VersionId:
        """Create a new version from the shares of old tasks, each read with its own backend or from tables.

        If the backend cuts cheaply, the files of the old task with the largest share are taken over and cut to the share;
        only the entries of other tasks are read. The new version is then built where those files are, and moved when it is
        complete.
        """
        plan = self.order.plan
        reach("restore.1-begun", of=plan.task)
        sweep(self.directory, RESTORING)
        scratch = PrivateDirectory.make(self.directory, RESTORING)
        lists = OperatorShares(plan, converts)
        taken = _taken_over(plan, old, self.backend, self.target, converts)
        store: StateStore | None = None
        try:
            if taken is None:
                store = self.backend.begin(self.directory, None, self.target, plan.key_groups)
            else:
                # Assigned before it is cut: an interrupt in between must not leave it open.
                store = self._open(scratch.path, old[taken.source], self.backend, plan.key_groups)
                _cut(store, taken)
            # In the order of old slots, which is the order of a list's elements.
            for source in plan.sources:
                state = old[source]
                if taken is not None and taken.source == source:
                    # Its keyed entries are in the store already. Its lists are read before they are deleted below.
                    lists.take(store, source)
                elif len(state.files) or state.inline:
                    self._add(state, store, lists, converts, scratch.path)
            if taken is not None:
                # The lists of the taken-over files are those of the old task. `lists` has the part that stays.
                store.delete_range(*OF_NO_KEY)
            store.write(lists.entries())
            reach("restore.2-fetched", of=plan.task)

            # None of the lists in the taken-over files is left.
            gone = {} if taken is None else {each.state: 0 for each in old[taken.source].elements}
            store.seal(gone | lists.held())
            if taken is not None:
                move_version(self.target, scratch.path, self.directory)
            reach("restore.3-noted", of=plan.task)
            return self.target
        except BaseException:
            if store is not None:
                store.abandon()
            raise
        finally:
            scratch.discard()

    def _add(
        self,
        state: TaskState,
        store: StateStore,
        lists: OperatorShares,
        converts: Mapping[int, Convert],
        scratch: Path,
    ) -> None:
        """Copy the share of one old task to the store of the new version."""
        shares = [share for share in self.order.plan.keyed if share.source == state.task]
        if state.backend == CANONICAL and self.open_tables is not None:
            tables = self.open_tables(self.storage, self.order.root, state)
            for share in shares:
                # State by state: the tables of each are in the order of keys, all of them together are not.
                for id in share.states:
                    entries = tables.byte_entries(share.key_groups, [id], state.version.epoch)
                    store.load(_converted(entries, converts))
            lists.take(tables, state.task)
            return

        place = scratch / str(state.task)
        # A job may change its backend between two runs: each old task is read with the backend that wrote it.
        same = plain_name(state.backend) == self.backend.name
        stored_in = self.backend if same else built_in_backend(state.backend, self.options)
        reader = self._open(place, state, stored_in, state.key_groups)
        try:
            for share in shares:
                store.load(_converted(_entries(reader, share), converts))
            lists.take(reader, state.task)
        finally:
            reader.abandon()
        # At once, so that the disk never holds the files of all old tasks.
        discard_version(place, state.version)

    def _open(self, place: Path, state: TaskState, stored_in: StateBackend, groups: tuple[int, int]) -> StateStore:
        """Open the version of `state` below `place`, for a task of these key groups."""
        if self._link(place, state):
            return stored_in.begin(place, state.version, self.target, groups)
        home = self.local.directory_of(state.task) if self.local is not None and self.order.from_local else None
        fetch_version(self.storage, place, self.order.root, state, state.key_groups, home)
        return begin_fetched(stored_in, place, state, self.target, groups)

    def _link(self, place: Path, state: TaskState) -> bool:
        """Link the version on local disk, which contains all its changes, if there is one with the stored content."""
        local, version = self.local, state.version
        if local is None or not self.order.from_local or plain_name(state.backend) != self.backend.name:
            return False
        home = local.directory_of(state.task)
        is_accepted = self.order.trusted.get(state.task) == local.host
        # With checksums, whatever its boot: files of the new version are uploaded as they are here, so a damaged one would
        # replace the good one in storage.
        if not is_accepted and not is_here(home, state, self.backend, trusts_boot=False):
            return False
        building = Building.begin(place, version)
        try:
            manifest = self.backend.manifest(home, version)
            building.link(version_path(home, version), manifest.files)
            # Its base is not in this directory.
            building.seal(replace(manifest, base=None))
            return True
        except (StateError, FileNotFoundError):
            return False  # Removed meanwhile, or damaged: storage has it.
        finally:
            building.discard()


def _delta(storage: Storage, root: str, state: TaskState) -> bytes | None:
    """Return what changed in the list of a task's files, if only that is stored: the next checkpoint continues from it."""
    files = state.files
    if isinstance(files, FileList) or files.base is None:
        return None
    return storage.get(name_below(root, files.path))


def _taken_over(
    plan: TaskRestore,
    old: Mapping[TaskId, TaskState],
    backend: StateBackend,
    target: VersionId,
    converts: Mapping[int, Convert],
) -> KeyedShare | None:
    """Return the share whose source's files become those of the new version: the largest one, if most of it is needed."""

    def size(share: KeyedShare) -> float:
        state = old[share.source]
        (first, last), (low, high) = share.key_groups, state.key_groups
        # By key groups: how much state is in each of them is not known without reading.
        part = (last - first + 1) / (high - low + 1)
        return part * state.size_bytes if part >= _WORTH_CUTTING else 0

    fit = [
        share
        for share in plan.keyed
        # If only some of its states are needed, the others would stay in the files.
        if share.complete
        and converts.keys().isdisjoint(share.states)
        and plain_name(old[share.source].backend) == backend.name
        # The new version needs a name of its own, or its files would be taken for those of the old one.
        and old[share.source].version != target
    ]
    best = max(fit, key=size, default=None) if backend.cuts_cheaply else None
    return best if best is not None and size(best) > 0 else None


def _cut(store: StateStore, share: KeyedShare) -> None:
    """Delete the keyed entries of other shares. Lists stay: they are read before they are deleted."""
    begin, end = key_group_range(*share.key_groups)
    store.delete_range(b"", begin)
    store.delete_range(end, OF_NO_KEY[0])


def _entries(reader: StateStore, share: KeyedShare) -> Iterator[tuple[bytes, bytes]]:
    entries = reader.scan(*key_group_range(*share.key_groups))
    if share.complete:
        return entries
    states = {id.to_bytes(2, "big") for id in share.states}
    # The bytes of an entry begin with its key group and the number of its state, two bytes each.
    return ((key, value) for key, value in entries if key[2:4] in states)


def _converted(
    entries: Iterator[tuple[bytes, bytes]], converts: Mapping[int, Convert]
) -> Iterator[tuple[bytes, bytes]]:
    if not converts:
        return entries
    by_bytes = {id.to_bytes(2, "big"): convert for id, convert in converts.items()}
    return ((key, value if (convert := by_bytes.get(key[2:4])) is None else convert(value)) for key, value in entries)
