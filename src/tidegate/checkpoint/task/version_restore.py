"""Restores the state of one task from a snapshot: unchanged, or assembled from the shares of other tasks.

Runs in the worker that will use the state. Downloads are verified against the checksums of the snapshot.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tidegate.checkpoint.files.file_lists import with_files
from tidegate.checkpoint.metadata import FileList, InlineFile, StateFile, StateInfo, TaskState
from tidegate.checkpoint.metadata.validation import CANONICAL
from tidegate.checkpoint.task.assignment import KeyedShare, TaskRestore
from tidegate.checkpoint.task.change_plan import change_files
from tidegate.checkpoint.task.operator_shares import OperatorShares
from tidegate.checkpoint.task.version_upload import remember
from tidegate.core.content_check import ContentCheck, check_of_file
from tidegate.core.errors import CorruptState, RestoreError, StateError
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, HostId, TaskId, Term
from tidegate.state.backends import built_in_backend, plain_name
from tidegate.state.changelog import apply, changes_path, note_same
from tidegate.state.changelog.change_file import read_change_header
from tidegate.state.disk.disk_token import NOTHING, token_of
from tidegate.state.disk.local_root import boot_id
from tidegate.state.disk.private_directory import PrivateDirectory, sweep
from tidegate.state.disk.version_directory import RESTORING, Building, discard_version, move_version, version_path
from tidegate.state.keys.entry_keys import OF_NO_KEY, key_group_range
from tidegate.state.port import StateBackend, StateStore
from tidegate.state.version import Manifest, VersionFile, VersionId
from tidegate.storage import Storage, checksum_of_file, download
from tidegate.storage.handle import Checksum, FileHandle
from tidegate.storage.routed import name_below

log = logging.getLogger("tidegate")

_DOWNLOADS = 4
"""Concurrent downloads per task. Several tasks of a host restore concurrently."""
_BLOCK_BYTES = 1 << 20
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
    """Whether a version that was published since its machine was booted is used without comparing all checksums, if nobody else
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
    storage: Storage, directory: Path, order: RestoreOrder, backend: StateBackend, options: Mapping[str, Any],
    target: VersionId, open_tables: OpenTables | None = None, converter: Converter | None = None,
    local: HostVersions | None = None,
) -> VersionId | None:  # fmt: skip
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
    try:
        return _restored(storage, directory, order, backend, options, target, open_tables, converter, local)
    except CorruptState as error:
        if not order.from_local:
            raise
        # A version that was linked without comparing checksums. What is fetched was compared.
        log.warning("%s fetches its state: %s", order.plan.task, error)
        fetched = replace(order, from_local=False)
        return _restored(storage, directory, fetched, backend, options, target, open_tables, converter, local)


def _restored(  # noqa: PLR0913 as `restore`
    storage: Storage, directory: Path, order: RestoreOrder, backend: StateBackend, options: Mapping[str, Any],
    target: VersionId, open_tables: OpenTables | None, converter: Converter | None, local: HostVersions | None,
) -> VersionId | None:  # fmt: skip
    old = {state.task: with_files(storage, order.root, state) for state in order.sources}
    if order.plan.as_is is not None and plain_name(old[order.plan.as_is].backend) == backend.name:
        return _as_it_was(storage, directory, order, old[order.plan.as_is], backend, target)
    if not order.plan.sources:
        return None
    converts = {} if converter is None else {each.old.id: converter(each) for each in order.migrations}
    if len(converts) != len(order.migrations):
        raise RestoreError("State must be migrated, but no converter was provided. Restore it in its job.")
    fetcher = _Fetcher(storage, order, backend, local)
    return _put_together(storage, directory, order, old, backend, options, target, open_tables, converts, fetcher)


def _as_it_was(
    storage: Storage, directory: Path, order: RestoreOrder, state: TaskState, backend: StateBackend, target: VersionId
) -> VersionId | None:
    if not len(state.files) and not state.inline:
        return None
    reach("restore.1-begun", of=order.plan.task)
    version = state.version
    if not (order.from_local and _is_here(directory, state, backend, order.trusts_boot)):
        home = directory if order.from_local else None
        if change_files(state):
            version = _rebuild(storage, directory, order.root, state, backend, target, home)
        else:
            _fetch(storage, directory, order.root, state, state.key_groups, home, replaces=True)
    reach("restore.2-fetched", of=order.plan.task)
    if order.stored is not None:
        as_stored = next(each for each in order.sources if each.task == state.task)
        term, checkpoint_id = order.stored
        remember(directory, term, checkpoint_id, as_stored, _listed(state), _delta(storage, order.root, as_stored))
    reach("restore.3-noted", of=order.plan.task)
    return version


def _delta(storage: Storage, root: str, state: TaskState) -> bytes | None:
    """Return what changed in the list of a task's files, if only that is stored: the next checkpoint continues from it."""
    files = state.files
    if isinstance(files, FileList) or files.base is None:
        return None
    return storage.get(name_below(root, files.path))


def _rebuild(
    storage: Storage, directory: Path, root: str, state: TaskState, backend: StateBackend, target: VersionId,
    home: Path | None,
) -> VersionId:  # fmt: skip
    """Apply the changes of a task to its files. The result is a version of its own: files that it adds have its name, since
    those of the version that was stored are elsewhere and differ."""
    sweep(directory, RESTORING)
    scratch = PrivateDirectory.make(directory, RESTORING)
    store: StateStore | None = None
    try:
        _fetch(storage, scratch.path, root, state, state.key_groups, home)
        store = begin_fetched(backend, scratch.path, state, target, state.key_groups)
        store.seal({each.state: each.count for each in state.elements})
        move_version(target, scratch.path, directory)
        note_same(directory, target, state.version)
        return target
    except BaseException:
        if store is not None:
            store.abandon()
        raise
    finally:
        scratch.discard()


def _listed(state: TaskState) -> FileList:
    if not isinstance(state.files, FileList):
        raise TypeError(f"The list of files of {state.task} is not loaded.")
    return state.files


def begin_fetched(
    backend: StateBackend, directory: Path, state: TaskState, target: VersionId, groups: tuple[int, int]
) -> StateStore:
    """Open a task that `fetch_version` has brought to `directory`, with all its changes applied."""
    store = backend.begin(directory, state.version, target, groups)
    try:
        for file in change_files(state):
            apply(directory / "changes" / file.name, store)
    except BaseException:
        store.abandon()
        raise
    return store


def _is_here(directory: Path, state: TaskState, backend: StateBackend, trusts_boot: bool) -> bool:
    """Whether the version is on local disk, with all its changes applied and the content that was stored. Checksums decide: those
    in the checkpoint, and for files that were never stored those of the manifest. With `trusts_boot`, names and sizes are enough
    for files that check themselves, if nobody else can have used the disk since the version was published (see `disk_token`)."""
    stored: dict[tuple[str, VersionId], StateFile | InlineFile] = {
        (file.name, file.origin): file for file in (*_listed(state), *state.inline)
    }
    changes = change_files(state)
    here = version_path(directory, state.version)
    try:
        manifest = backend.manifest(directory, state.version)
        if changes:
            # Some of its files were never stored: it is only known to be whole until the machine is booted again.
            if read_change_header(changes_path(directory, state.version)).boot != boot_id():
                return False
            if not _is_same(directory / "changes" / changes[-1].name, changes[-1]):
                return False
        elif {(file.name, file.origin) for file in manifest.files} != stored.keys():
            return False
        if not manifest.is_checked:
            # Of an earlier release. The next checkpoint could not tell whether a file is what was written. `_fetch` links the
            # files that have the stored checksums, and adds those that the manifest lacks.
            return False
        trusted = trusts_boot and manifest.token == token_of(directory) != NOTHING
        for file in manifest.files:
            expected = stored.get((file.name, file.origin))
            if trusted and file.checks_itself and not isinstance(expected, InlineFile):
                same = expected is None or file.size_bytes == expected.size_bytes
            else:
                same = _is_same(here / file.name, expected or file)
            if not same:
                return False
        return True
    except (StateError, FileNotFoundError):
        return False  # Missing, damaged, or written by a backend of another name, as far as its manifest tells.


def _is_same(path: Path, expected: StateFile | InlineFile | VersionFile) -> bool:
    """Whether a file has the content that was stored, or with which it was written."""
    match expected:
        case StateFile():
            return checksum_of_file(path) == expected.checksum
        case InlineFile():
            return path.read_bytes() == expected.data
        case VersionFile():
            return check_of_file(path) == expected.checksum


def _fetch(
    storage: Storage, directory: Path, root: str, state: TaskState, groups: tuple[int, int], home: Path | None = None,
    *, replaces: bool = False,
) -> None:  # fmt: skip
    """Build the version of `state` below `directory` from storage. Change files go to `changes` there; see `begin_fetched`. The
    list of its files must be loaded.

    `home` is the task's directory on this host, if it has one. Files that are there with the stored content are linked and not
    fetched: those of a version of an earlier release, or of one of which another file is damaged. With `replaces`, a version that
    `directory` has under this name is removed.
    """
    building = Building.begin(directory, state.version)
    changes = {file.name for file in change_files(state)}
    if changes:
        (directory / "changes").mkdir(parents=True, exist_ok=True)

    def place(name: str) -> Path:
        return (directory / "changes" if name in changes else building.path) / name

    def bring(file: StateFile) -> VersionFile:
        target = place(file.name)
        copies = _copies(home, state.version, file, file.name in changes)
        check = next(filter(None, (_link_same(path, file, target) for path in copies)), "")
        if not check:
            handle = FileHandle(name_below(root, file.path), file.size_bytes, file.checksum, file.part_bytes)
            download(storage, handle, target)
        return VersionFile(file.name, file.size_bytes, file.origin, check)

    try:
        for inlined in state.inline:
            place(inlined.name).write_bytes(inlined.data)
        with ThreadPoolExecutor(_DOWNLOADS, "tidegate-restore") as pool:
            brought = list(pool.map(bring, _listed(state)))
        if replaces:
            # Not before: its files were linked. A crash before the next one is published leaves none, and all is fetched.
            discard_version(directory, state.version)
        files = [file for file in brought if file.name not in changes]
        files += [VersionFile(f.name, len(f.data), f.origin) for f in state.inline if f.name not in changes]
        # If the order of files matters, it is that of the versions that wrote them.
        ordered = tuple(sorted(files, key=lambda file: (file.origin, file.name)))
        try:
            elements = tuple((each.state, each.count) for each in state.elements)
            building.seal(
                Manifest(
                    backend=plain_name(state.backend),
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


def _copies(home: Path | None, version: VersionId, file: StateFile, is_change: bool) -> Iterator[Path]:
    """Where the file may be on this host: in its version, or in the one that wrote it."""
    if home is None:
        return
    if is_change:
        yield home / "changes" / file.name
        return
    for each in {version, file.origin}:
        yield version_path(home, each) / file.name


def _link_same(source: Path, file: StateFile, target: Path) -> str:
    """Link a file on local disk if it has the content that was stored. Return its checksum for the manifest, of the same bytes
    that were compared. Empty: there is no such file."""
    try:
        if source.stat().st_size != file.size_bytes:
            return ""
        os.link(source, target)
    except OSError:
        return ""  # missing, or on another file system
    stored, written = Checksum(), ContentCheck()
    try:
        with target.open("rb") as content:
            while block := content.read(_BLOCK_BYTES):
                stored.update(block)
                written.update(block)
    except OSError:
        stored = Checksum()  # The disk cannot read it.
    if stored.text() == file.checksum:
        return written.text()
    target.unlink()
    return ""


@dataclass(frozen=True, slots=True)
class _Fetcher:
    """Brings the versions of old tasks to a private directory."""

    storage: Storage
    order: RestoreOrder
    backend: StateBackend
    local: HostVersions | None

    def begin(
        self, place: Path, state: TaskState, stored_in: StateBackend, target: VersionId, groups: tuple[int, int]
    ) -> StateStore:
        """Open the version of `state` below `place`, for a task of these key groups."""
        if self._link(place, state):
            return stored_in.begin(place, state.version, target, groups)
        home = self.local.directory_of(state.task) if self.local is not None and self.order.from_local else None
        _fetch(self.storage, place, self.order.root, state, state.key_groups, home)
        return begin_fetched(stored_in, place, state, target, groups)

    def _link(self, place: Path, state: TaskState) -> bool:
        """Link the version on local disk, which contains all its changes, if there is one with the stored content."""
        local, version = self.local, state.version
        if local is None or not self.order.from_local or plain_name(state.backend) != self.backend.name:
            return False
        home = local.directory_of(state.task)
        is_accepted = self.order.trusted.get(state.task) == local.host
        # With checksums, whatever its boot: files of the new version are uploaded as they are here, so a damaged one would
        # replace the good one in storage.
        if not is_accepted and not _is_here(home, state, self.backend, trusts_boot=False):
            return False
        building = Building.begin(place, version)
        try:
            manifest = self.backend.manifest(home, version)
            building.link(version_path(home, version), manifest.files)
            building.seal(replace(manifest, base=None))
            return True
        except (StateError, FileNotFoundError):
            return False  # Removed meanwhile, or damaged: storage has it.
        finally:
            building.discard()


def _put_together(  # noqa: C901, PLR0913 the steps of one restore, in order
    storage: Storage, directory: Path, order: RestoreOrder, old: Mapping[TaskId, TaskState], backend: StateBackend,
    options: Mapping[str, Any], target: VersionId, open_tables: OpenTables | None, converts: Mapping[int, Convert],
    fetcher: _Fetcher,
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
            store = fetcher.begin(scratch.path, old[taken.source], backend, target, plan.key_groups)
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
            same = plain_name(state.backend) == backend.name
            stored_in = backend if same else built_in_backend(state.backend, options)
            reader = fetcher.begin(place, state, stored_in, target, state.key_groups)
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
        and plain_name(old[share.source].backend) == backend.name
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
