"""Restores the state of one task from a snapshot: unchanged, or assembled from the shares of other tasks.

Runs in the worker that will use the state. Downloads are verified against the checksums of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tidegate.checkpoint.assignment import KeyedShare, TaskRestore
from tidegate.checkpoint.metadata import StateInfo, TaskState
from tidegate.checkpoint.metadata.validation import CANONICAL
from tidegate.checkpoint.operator_shares import OperatorShares
from tidegate.checkpoint.version_upload import remember
from tidegate.core.errors import CorruptState, RestoreError
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, TaskId, Term
from tidegate.state.backends import built_in_backend
from tidegate.state.keys import OF_NO_KEY, key_group_range
from tidegate.state.port import StateBackend, StateStore, VersionMissing
from tidegate.state.private_directory import PrivateDirectory, sweep
from tidegate.state.version import Manifest, VersionFile, VersionId
from tidegate.state.version_directory import RESTORING, Building, discard_version, move_version, version_path
from tidegate.storage import Storage, checksum_of_file, download
from tidegate.storage.handle import FileHandle
from tidegate.storage.routed import name_below

_DOWNLOADS = 4
"""Concurrent downloads per task. Several tasks of a host restore concurrently."""
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


@dataclass(frozen=True, slots=True)
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
    """Whether a version that is still on local disk may be used, if its checksums match."""
    migrations: tuple[Migration, ...] = ()
    """States whose values are converted during the restore. A task that takes any of them is never restored unchanged."""

    def sizes_bytes(self) -> tuple[int, int]:
        """Return the bytes of the files in storage that it may read, and of those that the metadata contains."""
        inlined = sum(len(file.data) for state in self.sources for file in state.inline)
        return sum(state.size_bytes for state in self.sources) - inlined, inlined


def restore(
    storage: Storage, directory: Path, order: RestoreOrder, backend: StateBackend, options: Mapping[str, Any],
    target: VersionId, open_tables: OpenTables | None = None, converter: Converter | None = None,
) -> VersionId | None:  # fmt: skip
    """Create the task's version. Return its id, or None for a task without state. Can be repeated, also concurrently.

    1. If nothing is added, left out or moved, the version keeps its name and files. A version on local disk with
       matching checksums is used as it is.
    2. Otherwise the files are fetched into a private directory, and entries are read from there; those of migrated
       states are converted by the result of `converter`. A crash leaves the directory unlocked, and `tidy` removes it.
    3. The version is renamed to its final name atomically.
    4. The files already in storage are recorded, so that the next checkpoint uploads only changes.
    """
    old = {state.task: state for state in order.sources}
    if order.plan.as_is is not None and old[order.plan.as_is].backend == backend.name:
        return _as_it_was(storage, directory, order, old[order.plan.as_is], backend)
    if not order.plan.sources:
        return None
    converts = {} if converter is None else {each.old.id: converter(each) for each in order.migrations}
    if len(converts) != len(order.migrations):
        raise RestoreError("State must be migrated, but no converter was provided. Restore it in its job.")
    return _put_together(storage, directory, order, old, backend, options, target, open_tables, converts)


def _as_it_was(
    storage: Storage, directory: Path, order: RestoreOrder, state: TaskState, backend: StateBackend
) -> VersionId | None:
    if not len(state.files) and not state.inline:
        return None
    reach("restore.1-begun", of=order.plan.task)
    if not (order.from_local and _intact(directory, state, backend)):
        discard_version(directory, state.version)
        _fetch(storage, directory, order.root, state, state.key_groups)
    reach("restore.2-fetched", of=order.plan.task)
    if order.stored is not None:
        remember(directory, *order.stored, state)
    reach("restore.3-noted", of=order.plan.task)
    return state.version


def _intact(directory: Path, state: TaskState, backend: StateBackend) -> bool:
    """Whether the version is on local disk, with exactly the content that was stored."""
    try:
        manifest = backend.manifest(directory, state.version)
    except (VersionMissing, CorruptState):
        return False
    path = version_path(directory, state.version)
    wanted: dict[tuple[str, VersionId], str | bytes] = {(f.name, f.origin): f.checksum for f in state.files}
    wanted |= {(f.name, f.origin): f.data for f in state.inline}
    if {(file.name, file.origin) for file in manifest.files} != wanted.keys():
        return False
    try:
        for (name, _), content in wanted.items():
            if isinstance(content, bytes):
                if (path / name).read_bytes() != content:
                    return False
            elif checksum_of_file(path / name) != content:
                return False
    except FileNotFoundError:
        return False
    return True


def _fetch(storage: Storage, directory: Path, root: str, state: TaskState, groups: tuple[int, int]) -> None:
    """Build the version of `state` below `directory` from storage."""
    building = Building.begin(directory, state.version)
    try:
        for inlined in state.inline:
            (building.path / inlined.name).write_bytes(inlined.data)
        handles = [
            (FileHandle(name_below(root, f.path), f.size_bytes, f.checksum, f.part_bytes), building.path / f.name)
            for f in state.files
        ]
        with ThreadPoolExecutor(_DOWNLOADS, "tidegate-restore") as pool:
            list(pool.map(lambda each: download(storage, *each), handles))
        files = [VersionFile(f.name, f.size_bytes, f.origin) for f in state.files]
        files += [VersionFile(f.name, len(f.data), f.origin) for f in state.inline]
        # If the order of files matters, it is that of the versions that wrote them.
        ordered = tuple(sorted(files, key=lambda file: (file.origin, file.name)))
        try:
            elements = tuple((each.state, each.count) for each in state.elements)
            building.publish(
                Manifest(
                    backend=state.backend,
                    version=state.version,
                    base=None,
                    files=ordered,
                    key_groups=groups,
                    elements=elements,
                )
            )
        except OSError:
            if not version_path(directory, state.version).is_dir():
                raise
            # Another attempt was faster. Its files passed the same checks.
    finally:
        building.discard()


def _put_together(  # noqa: C901, PLR0913 the steps of one restore, in order
    storage: Storage, directory: Path, order: RestoreOrder, old: Mapping[TaskId, TaskState], backend: StateBackend,
    options: Mapping[str, Any], target: VersionId, open_tables: OpenTables | None, converts: Mapping[int, Convert],
) -> VersionId:  # fmt: skip
    """Create a new version from the shares of old tasks, each read with its own backend or from tables.

    If the backend cuts cheaply, the files of the old task with the largest share are taken over and cut to the share;
    only the entries of other tasks are read. The new version is then built where those files are, and moved when it is
    complete.
    """
    reach("restore.1-begun", of=order.plan.task)
    sweep(directory, RESTORING)
    plan = order.plan
    scratch = PrivateDirectory.make(directory, RESTORING)
    lists = OperatorShares(plan, converts)
    taken = _taken_over(plan, old, backend, target, converts)
    store: StateStore | None = None
    try:
        if taken is None:
            store = backend.begin(directory, None, target, plan.key_groups)
        else:
            base = old[taken.source]
            _fetch(storage, scratch.path, order.root, base, base.key_groups)
            store = backend.begin(scratch.path, base.version, target, plan.key_groups)
            begin, end = key_group_range(*taken.key_groups)
            store.delete_range(b"", begin)
            store.delete_range(end, OF_NO_KEY[0])
        # In the order of old slots, which is the order of a list's elements.
        for source in plan.sources:
            state = old[source]
            if not len(state.files) and not state.inline:
                continue
            if taken is not None and taken.source == source:
                lists.take(store, source)
                continue
            if state.backend == CANONICAL and open_tables is not None:
                tables = open_tables(storage, order.root, state)
                for share in plan.keyed:
                    if share.source == source:
                        for id in share.states:  # each state is in order
                            entries = tables.byte_entries(share.key_groups, [id], state.version.epoch)
                            store.load(_converted(entries, converts))
                lists.take(tables, source)
                continue
            place = scratch.path / str(state.task)
            _fetch(storage, place, order.root, state, state.key_groups)
            stored_in = backend if state.backend == backend.name else built_in_backend(state.backend, options)
            reader = stored_in.begin(place, state.version, target, state.key_groups)
            try:
                for share in plan.keyed:
                    if share.source == source:
                        store.load(_converted(_entries(reader, share), converts))
                lists.take(reader, source)
            finally:
                reader.abandon()
            discard_version(place, state.version)
        if taken is not None:
            store.delete_range(*OF_NO_KEY)
        store.write(lists.entries())
        reach("restore.2-fetched", of=plan.task)
        # None of the lists in the taken-over files is left.
        gone = {} if taken is None else {each.state: 0 for each in old[taken.source].elements}
        store.seal(gone | lists.held())
        if taken is not None:
            move_version(target, scratch.path, directory)
        reach("restore.3-noted", of=plan.task)
        return target
    except BaseException:
        if store is not None:
            store.abandon()
        raise
    finally:
        scratch.discard()


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
        part = (last - first + 1) / (high - low + 1)
        return part * state.size_bytes if part >= _WORTH_CUTTING else 0

    fit = [
        share
        for share in plan.keyed
        if share.complete
        and converts.keys().isdisjoint(share.states)
        and old[share.source].backend == backend.name
        and old[share.source].version != target
    ]
    best = max(fit, key=size, default=None) if backend.cuts_cheaply else None
    return best if best is not None and size(best) > 0 else None


def _entries(reader: StateStore, share: KeyedShare) -> Iterator[tuple[bytes, bytes]]:
    entries = reader.scan(*key_group_range(*share.key_groups))
    if share.complete:
        return entries
    states = {id.to_bytes(2, "big") for id in share.states}
    return ((key, value) for key, value in entries if key[2:4] in states)


def _converted(
    entries: Iterator[tuple[bytes, bytes]], converts: Mapping[int, Convert]
) -> Iterator[tuple[bytes, bytes]]:
    if not converts:
        return entries
    by_bytes = {id.to_bytes(2, "big"): convert for id, convert in converts.items()}
    return ((key, value if (convert := by_bytes.get(key[2:4])) is None else convert(value)) for key, value in entries)


fetch_version = _fetch
"""For readers of snapshots outside a job."""
