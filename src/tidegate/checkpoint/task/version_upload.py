"""Makes the version of one task durable for one checkpoint. Any process of the host can start, continue or acknowledge it.

The state of an upload is kept in a folder next to the task's versions, `uploads/{term}-{checkpoint}`: a lock, a record
for each file in progress, `files` if the list of all files is long, `delta` if only its changes are stored, and finally `part`,
which is sent to the driver.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tidegate.checkpoint.files.file_lists import list_in, objects_of
from tidegate.checkpoint.files.list_delta import decode_delta, delta_from, encode_delta
from tidegate.checkpoint.files.task_part import (
    UNKNOWN,
    ListChange,
    digest_of,
    encode_part,
    is_of,
    list_digest,
    read_part,
)
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    AnyFileList,
    ElementCount,
    FileList,
    InlineFile,
    MetadataError,
    OperatorInfo,
    StateFile,
    StoredFileList,
    TaskState,
)
from tidegate.checkpoint.task.change_plan import Fresh, change_files, plan_changes
from tidegate.core.content_check import check_of, condemn, require_same
from tidegate.core.errors import CorruptState
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, Slot, TaskId, Term
from tidegate.core.storage_cost import StorageCalls
from tidegate.state.backends import WITH_CHANGELOG, plain_name
from tidegate.state.changelog.chain import CHANGES_END, VersionChanges, changes_between, merge, verified
from tidegate.state.disk.version_directory import version_path
from tidegate.state.version import Manifest, VersionFile, VersionId
from tidegate.storage import FileHandle, MeteredStorage, Storage, Upload, unique_name
from tidegate.storage.handle import checksum_of
from tidegate.storage.upload import remove_private, replace_whole

LONGEST_INSIDE_BYTES = 8 << 10
"""A longer list of files becomes an object of its own instead of a part of the metadata: about 60 files."""
DELTAS_PER_LIST = 1.0
"""What changed in a list is stored instead of the list, until all changes since the same list would have this many times its
bytes. Then the list is stored again."""

_PART = "part"
_FILES = "files"
_DELTA = "delta"
_LOCK = "lock"
_INLINE_CHANGES_BYTES = 32 << 10
"""Small changes wait in the metadata, up to this many bytes per task: it is written with every checkpoint."""
_MERGED_BYTES = 32 << 20
"""Changes of several versions become one file, up to this size."""
_RECORDS = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Stored:
    """A completed checkpoint whose handles may be reused, and the digest of this task's handles."""

    term: Term
    checkpoint_id: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Materialized:
    """A version of one task that is stored, and the id under which its files are."""

    stored: Stored
    version: VersionId


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOrder:
    """What one task must make durable. Repeated with every epoch until the driver has received the acknowledgement."""

    checkpoint_id: int
    version: VersionId
    base: Stored | None
    """None: everything is uploaded."""
    inline_threshold: int
    """Files up to this size go into the metadata …"""
    inline_total: int
    """… up to this many bytes in total."""
    folder: str | None = None
    """The folder of a savepoint, which holds all its files itself; None: the job's shared folder."""
    tables: tuple[OperatorInfo, ...] | None = None
    """For a canonical savepoint: the operators whose state is written as tables."""
    changelog: bool = False
    """Whether to store what changed since the base instead of the files of the version, if the changes are known."""
    materialized: Stored | None = None
    """A version whose files are stored, but in no checkpoint yet: changes are stored from it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyUpload:
    """A checkpoint that will probably be taken of the epoch that runs. Each task stores the version that it seals, without
    waiting for an order."""

    checkpoint_id: int
    bases: Sequence[Stored | None]
    """For each slot."""
    inline_threshold: int
    inline_total: int
    changelog: bool = False
    materialized: Sequence[Stored | None] = ()
    """For each slot, or empty."""

    def order(self, slot: Slot, version: VersionId) -> UploadOrder:
        return UploadOrder(
            checkpoint_id=self.checkpoint_id,
            version=version,
            base=self.bases[slot],
            inline_threshold=self.inline_threshold,
            inline_total=self.inline_total,
            changelog=self.changelog,
            materialized=self.materialized[slot] if self.materialized else None,
        )


@dataclass(frozen=True, slots=True)
class UploadRun:
    """How an upload is run: see `VersionUpload.run`."""

    attempt: AttemptId
    is_wanted: Callable[[], bool]
    progress: Callable[[], None]


class Stopped(Exception):
    """The upload was asked to stop; stored parts remain for the process that continues it."""


class VersionUpload:
    """One task's part of one checkpoint.

    1. Take the lock; if another process has it, that process is doing the work. A crash releases it.
    2. Find the files that the base already has, by origin and name, and those small enough for the metadata. With a changelog:
       find the changes since the base; if they are known, store them and no other file.
    3. Store the rest, part by part (see `Upload`), under names of this term, task and checkpoint. If the list of files is
       long and has changed, store it, too. A file that is not what was written ends the upload (`CorruptState`).
    4. Write `part`. From here on, any process reads the result from it.
    """

    def __init__(
        self, storage: Storage, layout: JobLayout, directory: Path, task: TaskId, term: Term, order: UploadOrder
    ) -> None:
        self._storage = MeteredStorage(storage)
        self._layout = layout
        self._directory = directory
        self._task = task
        self._term = term
        self._order = order
        self._folder = _folder(directory, term, order.checkpoint_id)

    def finished(self) -> bytes | None:
        """Return the task's encoded part, if a process has finished it. A part of another attempt's version does not count:
        that attempt began to store its version before anyone knew which one is accepted."""
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            part = (self._folder / _PART).read_bytes()
            return part if is_of(part, self._order.version) else None
        return None

    def run(
        self, manifest: Manifest, attempt: AttemptId, is_wanted: Callable[[], bool], progress: Callable[[], None]
    ) -> bytes | None:
        """Do all remaining work. Return the part, or None if another process holds the lock.

        `is_wanted` is called before every part, and False raises `Stopped`; `progress` is called after every part.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with _lock(self._folder / _LOCK) as held:
            if not held:
                return None
            # Asked again under the lock: the process that held it may have finished since.
            if (done := self.finished()) is not None:
                return done
            # What a process left that was killed while it wrote. Nobody else writes here while the lock is held.
            remove_private(self._folder)
            reach("upload.1-begun", of=self._task, checkpoint=self._order.checkpoint_id)
            started = time.monotonic()
            run = UploadRun(attempt, is_wanted, progress)
            # Changes first; the whole version only if they are not known.
            state, change = self._list(*(self._store_changes(manifest, run) or self._store(manifest, run)), attempt)
            # Only what this process has sent. What a process that died has sent is lost to the figures, and to nothing
            # else.
            requests = StorageCalls.of(self._storage.traffic.total())
            part = encode_part(state, change, round((time.monotonic() - started) * 1000), requests)
            # The last step: a part that exists is complete, and any process may send it.
            replace_whole(self._folder / _PART, part)
            reach("upload.2-noted", of=self._task, checkpoint=self._order.checkpoint_id)
            return part

    def _store(self, manifest: Manifest, run: UploadRun) -> tuple[TaskState, tuple[str, ...]]:
        order, source = self._order, version_path(self._directory, manifest.version)
        base = self._stored_state(order.base)
        # Only files of the base: of another checkpoint nobody guarantees that it is still retained.
        reusable = {} if base is None else _by_name(base.files)
        stored: list[StateFile] = []
        fresh: list[VersionFile] = []
        for file in manifest.files:
            known = reusable.get((file.origin, file.name))
            stored += [known] if known is not None else []
            fresh += [file] if known is None else []
        small, large = _split(fresh, order.inline_threshold, order.inline_total)
        inline = tuple(InlineFile(file.name, file.origin, _read_checked(source / file.name, file)) for file in small)
        new: list[str] = []
        for file in large:
            handle = self._upload(source / file.name, file, run)
            new += handle.objects()
            stored.append(self._state_file(file, handle))
        return self._state(manifest, manifest.backend, stored, inline), tuple(new)

    def _store_changes(self, manifest: Manifest, run: UploadRun) -> tuple[TaskState, tuple[str, ...]] | None:
        """Store the changes since the base, which is in storage. Return None if they are not known, or not wanted."""
        order = self._order
        if not order.changelog:
            return None
        before = self._stored_state(order.base)
        # The version that was stored in the background is newer, so fewer changes follow it.
        candidates = (self._stored_state(order.materialized), before)
        for base in candidates:
            # Changes apply to files of the same backend and the same key groups only.
            if base is None or plain_name(base.backend) != manifest.backend or base.key_groups != manifest.key_groups:
                continue
            changes = self._changes_since(base, before, manifest.version)
            if changes is not None:
                return self._add_changes(manifest, base, changes, run)
        return None

    def _changes_since(
        self, base: TaskState, before: TaskState | None, version: VersionId
    ) -> list[StateFile | InlineFile | VersionChanges] | None:
        """Return the change files from `base` to a version, in order, or None if they are not known. `before` is the task in the
        latest checkpoint: some of them may be stored with it. Others are merged to few."""
        changes = changes_between(self._directory, base.version, version)
        if changes is None:
            return None
        plan = plan_changes(changes, () if before is None else change_files(before), _MERGED_BYTES)
        try:
            # Read and checked: a damaged file would be stored under a checksum of its own.
            return [
                verified(merge(self._directory, each.changes)) if isinstance(each, Fresh) else each for each in plan
            ]
        except (FileNotFoundError, CorruptState):
            return None

    def _add_changes(
        self,
        manifest: Manifest,
        base: TaskState,
        changes: Iterable[StateFile | InlineFile | VersionChanges],
        run: UploadRun,
    ) -> tuple[TaskState, tuple[str, ...]]:
        order = self._order
        assert isinstance(base.files, FileList)
        stored, inline = list(base.files), list(base.inline)
        new: list[str] = []
        # What the base has inlined is written again with this checkpoint, so it counts.
        room = min(order.inline_total, _INLINE_CHANGES_BYTES) - sum(len(file.data) for file in inline)
        for each in changes:
            if isinstance(each, VersionChanges) and each.size_bytes <= min(order.inline_threshold, room):
                file = VersionFile(each.name, each.size_bytes, each.version, each.checksum)
                each = InlineFile(each.name, each.version, _read_checked(each.path, file))
            if isinstance(each, InlineFile):
                inline.append(each)
                room -= len(each.data)
            elif isinstance(each, StateFile):
                stored.append(each)
            else:
                file = VersionFile(each.name, each.size_bytes, each.version, each.checksum)
                uploaded = self._upload(each.path, file, run)
                new += uploaded.objects()
                stored.append(self._state_file(file, uploaded))
        # Releases that do not apply changes do not know this name, and refuse the checkpoint instead of opening its
        # files without them.
        changed = any(name.endswith(CHANGES_END) for name in (*(f.name for f in stored), *(f.name for f in inline)))
        backend = manifest.backend + (WITH_CHANGELOG if changed else "")
        return self._state(manifest, backend, stored, inline), tuple(new)

    def _state(
        self, manifest: Manifest, backend: str, stored: Iterable[StateFile], inline: Iterable[InlineFile]
    ) -> TaskState:
        elements = tuple(ElementCount(id, count) for id, count in manifest.elements)
        return TaskState(
            task=self._task,
            key_groups=manifest.key_groups,
            backend=backend,
            version=manifest.version,
            files=FileList(stored),
            inline=tuple(inline),
            elements=elements,
        )

    def _upload(self, source: Path, file: VersionFile, run: UploadRun) -> FileHandle:
        if self._order.folder is None:
            name = self._layout.shared(self._term, self._task, run.attempt, self._order.checkpoint_id, unique_name())
        else:
            name = f"{self._order.folder}/{self._task}-{unique_name()}"
        # Two attempts of one epoch write files of one name, which must not share a record.
        origin = str(file.origin).replace("/", "-")
        record = self._folder / f"{origin}.{file.name}.upload"
        upload = Upload(self._storage, source, name, record, written=file.checksum)
        while (handle := upload.handle) is None:
            if not run.is_wanted():
                raise Stopped
            with _condemning(source):
                upload.step()
            run.progress()
        return handle

    def _state_file(self, file: VersionFile, handle: FileHandle) -> StateFile:
        return StateFile(
            name=file.name,
            path=handle.path.removeprefix(f"{self._order.folder or self._layout.root}/"),
            size_bytes=handle.size_bytes,
            checksum=handle.checksum,
            origin=file.origin,
            since=self._order.checkpoint_id,
            part_bytes=handle.part_bytes,
        )

    def _list(self, state: TaskState, new: tuple[str, ...], attempt: AttemptId) -> tuple[TaskState, ListChange]:
        """Store the list of files if it is long and not that of the base. Tell how it differs from the base. A savepoint is
        moved as a whole, and has its lists inside."""
        if self._order.folder is not None or not isinstance(state.files, FileList):
            return state, ListChange(None, new, ())
        base, root, packed = self._recorded(self._order.base), self._layout.root, state.files.packed
        listed = _KnownList(state, state.files)
        if len(packed) > LONGEST_INSIDE_BYTES and len(state.files):
            replace_whole(self._folder / _FILES, packed)
            # Nothing has changed: the object of the base is referred to again, and the checkpoint costs no request for
            # this list.
            if base is not None and isinstance(base.state.files, StoredFileList) and base.list == state.files:
                listed = _KnownList(replace(state, files=base.state.files), state.files, base.delta)
            else:
                listed, name = self._store_list(state, state.files, base, attempt)
                new = (*new, name)
            if listed.delta is not None:
                replace_whole(self._folder / _DELTA, listed.delta)
        objects, before = listed.objects(root), frozenset[str]() if base is None else base.objects(root)
        reused = objects.difference(new)
        # Told apart for clean-up: without shared objects, the list can be freed alone (`ListRegistry`).
        if not reused:
            return listed.state, ListChange(None, new, ())
        # Some are of a version that was stored in the background, of which the driver does not know the list.
        if base is None or not reused <= before:
            return listed.state, ListChange(UNKNOWN, new, ())
        return listed.state, ListChange(list_digest(base.state.files), new, tuple(sorted(before - objects)))

    def _store_list(
        self, state: TaskState, files: FileList, base: _KnownList | None, attempt: AttemptId
    ) -> tuple[_KnownList, str]:
        """Store the list, or what changed in it, whichever is cheaper in the long run. Return the list as it is stored, and the
        name of the object."""
        data, base_path, delta = files.packed, None, None
        if base is not None and isinstance(base.state.files, StoredFileList):
            change = delta_from(base.state.files, base.list, files, base.delta)
            encoded = b"" if change is None else encode_delta(change)
            if change is not None and change.earlier_bytes + len(encoded) <= DELTAS_PER_LIST * len(data):
                data, base_path, delta = encoded, change.base, encoded
        # The name follows from the content, so that a repeat after a crash leaves no second object.
        leaf = f"files-{checksum_of(data).partition(':')[2][:32]}"
        name = self._layout.shared(self._term, self._task, attempt, self._order.checkpoint_id, leaf)
        self._storage.put(name, data)
        stored = StoredFileList.to(files, name.removeprefix(f"{self._layout.root}/"), data, base_path)
        return _KnownList(replace(state, files=stored), files, delta), name

    def _stored_state(self, base: Stored | None) -> TaskState | None:
        """Return the task in `base`, if this host's record matches the completed one. Otherwise everything is uploaded again."""
        known = self._recorded(base)
        return None if known is None else replace(known.state, files=known.list)

    def _recorded(self, base: Stored | None) -> _KnownList | None:
        if base is None:
            return None
        folder = _folder(self._directory, base.term, base.checkpoint_id)
        try:
            state = read_part((folder / _PART).read_bytes()).state
            listed, delta = _recorded_list(folder, state.files)
        except (FileNotFoundError, msgspec.MsgspecError, ValueError, MetadataError):
            return None
        # The record may be that of an attempt that was not accepted: its files are not those of the completed
        # checkpoint.
        if digest_of(state) != base.digest:
            return None
        return _KnownList(state, listed, delta)


def _recorded_list(folder: Path, files: AnyFileList) -> tuple[FileList, bytes | None]:
    """Return the list in a record, and what changed in it, if only that is stored. Raises `MetadataError` if it is damaged."""
    if isinstance(files, FileList):
        return files, None
    packed = (folder / _FILES).read_bytes()
    if files.base is None:
        return list_in(files, [packed]), None
    delta = (folder / _DELTA).read_bytes()
    decode_delta(files, delta).check_list(packed)
    # `check_list` has compared the list with the checksum in the delta, so it need not be put together again.
    listed = FileList.of_packed(packed)
    files.check_summary(listed)
    return listed, delta


@dataclass(frozen=True, slots=True)
class _KnownList:
    """A task in some checkpoint as the metadata has it, and the list of its files."""

    state: TaskState
    list: FileList
    delta: bytes | None = None
    """What changed in the list, if only that is stored."""

    def objects(self, root: str) -> frozenset[str]:
        return objects_of(root, self.list, self.state.files)


def remember(
    directory: Path, term: Term, checkpoint_id: int, state: TaskState, files: FileList, delta: bytes | None = None
) -> None:
    """After a restore, record which of the task's files are in storage, as if they had been uploaded from here. `files` is
    the list that `state` has or refers to, and `delta` what changed in it, if only that is stored."""
    folder = _folder(directory, term, checkpoint_id)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(state.files, StoredFileList):
        replace_whole(folder / _FILES, files.packed)
    if delta is not None:
        replace_whole(folder / _DELTA, delta)
    replace_whole(folder / _PART, encode_part(state))


def forget_uploads(directory: Path, term: Term, keep: Iterable[tuple[Term, int]]) -> None:
    """Remove records that no checkpoint needs any more. `keep` names the base and all checkpoints pending when an epoch
    of `term` was planned.

    The caller may have been paused since then, so uploads that may have started later are left alone: ids above all in
    `keep`, and newer terms. Ids grow, so a missing id below them has failed. Of earlier terms only the base can be
    needed, and `keep` names it.
    """
    kept = {(int(of), id) for of, id in keep}
    # 0: nothing of this term is known yet, so nothing of it is removed.
    newest = max((id for of, id in kept if of == term), default=0)
    with contextlib.suppress(FileNotFoundError), os.scandir(directory / "uploads") as entries:
        for entry in list(entries):
            found = _RECORDS.fullmatch(entry.name)
            if found is None:
                continue
            of, id = int(found[1]), int(found[2])
            if (of, id) not in kept and (of < term or (of == term and id < newest)):
                shutil.rmtree(entry.path, ignore_errors=True)


def _by_name(files: AnyFileList) -> dict[tuple[VersionId, str], StateFile]:
    assert isinstance(files, FileList)
    return {(file.origin, file.name): file for file in files}


def _folder(directory: Path, term: Term, checkpoint_id: int) -> Path:
    return directory / "uploads" / f"{term}-{checkpoint_id}"


def _split(files: list[VersionFile], threshold: int, total: int) -> tuple[list[VersionFile], list[VersionFile]]:
    """Return the smallest files, as many as fit into the metadata, and the others."""
    small: list[VersionFile] = []
    large: list[VersionFile] = []
    # The smallest first: as many requests as possible are saved.
    for file in sorted(files, key=lambda file: (file.size_bytes, file.name)):
        if file.size_bytes <= threshold and file.size_bytes <= total:
            small.append(file)
            total -= file.size_bytes
        else:
            large.append(file)
    return small, large


def _read_checked(path: Path, file: VersionFile) -> bytes:
    """Read a small file. Raises `CorruptState` if it is not what was written."""
    data = path.read_bytes()
    if file.checksum:
        with _condemning(path):
            require_same(path, check_of(data), file.checksum)
    return data


@contextlib.contextmanager
def _condemning(path: Path) -> Iterator[None]:
    """If the block finds that a file is damaged, make the next epoch find it, too, which returns the job to its checkpoint.
    Otherwise every checkpoint would fail from now on."""
    try:
        yield
    except CorruptState:
        with contextlib.suppress(FileNotFoundError):
            condemn(path)
        raise


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Hold a lock while the block runs. Yield whether this process got it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            # The kernel releases it when the process ends, however it ends, so no lock outlives its holder.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
