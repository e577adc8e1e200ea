"""Makes the version of one task durable for one checkpoint. Any process of the host can start, continue or acknowledge it.

The state of an upload is kept in a folder next to the task's versions, `uploads/{term}-{checkpoint}`: a lock, a record
for each file in progress, and finally `part`, which is sent to the driver.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import ElementCount, FileList, InlineFile, OperatorInfo, StateFile, TaskState
from tidegate.checkpoint.task_part import decode_part, digest_of, encode_part, is_of
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, Slot, TaskId, Term
from tidegate.state.version import Manifest, VersionFile, VersionId
from tidegate.state.version_directory import version_path
from tidegate.storage import FileHandle, Storage, Upload, unique_name
from tidegate.storage.upload import remove_private, replace_whole

_PART = "part"
_LOCK = "lock"
_RECORDS = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Stored:
    """A completed checkpoint whose handles may be reused, and the digest of this task's handles."""

    term: Term
    checkpoint_id: int
    digest: bytes


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyUpload:
    """A checkpoint that will probably be taken of the epoch that runs. Each task stores the version that it seals, without
    waiting for an order."""

    checkpoint_id: int
    bases: tuple[Stored | None, ...]
    """For each slot."""
    inline_threshold: int
    inline_total: int

    def order(self, slot: Slot, version: VersionId) -> UploadOrder:
        return UploadOrder(
            checkpoint_id=self.checkpoint_id,
            version=version,
            base=self.bases[slot],
            inline_threshold=self.inline_threshold,
            inline_total=self.inline_total,
        )


class Stopped(Exception):
    """The upload was asked to stop; stored parts remain for the process that continues it."""


class VersionUpload:
    """One task's part of one checkpoint.

    1. Take the lock; if another process has it, that process is doing the work. A crash releases it.
    2. Find the files that the base already has, by origin and name, and those small enough for the metadata.
    3. Store the rest, part by part (see `Upload`), under names of this term, task and checkpoint.
    4. Write `part`. From here on, any process reads the result from it.
    """

    def __init__(
        self, storage: Storage, layout: JobLayout, directory: Path, task: TaskId, term: Term, order: UploadOrder
    ) -> None:
        self._storage, self._layout, self._directory = storage, layout, directory
        self._task, self._term, self._order = task, term, order
        self._folder = _folder(directory, term, order.checkpoint_id)

    def finished(self) -> bytes | None:
        """Return the task's encoded part, if a process has finished it. A part of another attempt's version does not count:
        that attempt began to store its version before anyone knew which one is accepted."""
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            part = (self._folder / _PART).read_bytes()
            return part if is_of(part, self._order.version) else None
        return None

    def run(
        self, manifest: Manifest, attempt: AttemptId, go_on: Callable[[], bool], progress: Callable[[], None]
    ) -> bytes | None:
        """Do all remaining work. Return the part, or None if another process holds the lock.

        `go_on` is called before every part, and False raises `Stopped`; `progress` is called after every part.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with _lock(self._folder / _LOCK) as held:
            if not held:
                return None
            if (done := self.finished()) is not None:
                return done
            remove_private(self._folder)
            reach("upload.1-begun", of=self._task, checkpoint=self._order.checkpoint_id)
            started = time.monotonic()
            state, new = self._store(manifest, attempt, go_on, progress)
            part = encode_part(state, new, round((time.monotonic() - started) * 1000))
            replace_whole(self._folder / _PART, part)
            reach("upload.2-noted", of=self._task, checkpoint=self._order.checkpoint_id)
            return part

    def _store(
        self, manifest: Manifest, attempt: AttemptId, go_on: Callable[[], bool], progress: Callable[[], None]
    ) -> tuple[TaskState, tuple[str, ...]]:
        order, source = self._order, version_path(self._directory, manifest.version)
        reusable = self._reusable()
        stored: list[StateFile] = []
        fresh: list[VersionFile] = []
        for file in manifest.files:
            known = reusable.get((file.origin, file.name))
            stored += [known] if known is not None else []
            fresh += [file] if known is None else []
        small, large = _split(fresh, order.inline_threshold, order.inline_total)
        inline = tuple(InlineFile(file.name, file.origin, (source / file.name).read_bytes()) for file in small)
        new: list[str] = []
        for file in large:
            handle = self._upload(source / file.name, file, attempt, go_on, progress)
            new += handle.objects()
            stored.append(self._state_file(file, handle))
        elements = tuple(ElementCount(id, count) for id, count in manifest.elements)
        state = TaskState(
            task=self._task,
            key_groups=manifest.key_groups,
            backend=manifest.backend,
            version=manifest.version,
            files=FileList(stored),
            inline=inline,
            elements=elements,
        )
        return state, tuple(new)

    def _upload(
        self, source: Path, file: VersionFile, attempt: AttemptId, go_on: Callable[[], bool],
        progress: Callable[[], None],
    ) -> FileHandle:  # fmt: skip
        if self._order.folder is None:
            name = self._layout.shared(self._term, self._task, attempt, self._order.checkpoint_id, unique_name())
        else:
            name = f"{self._order.folder}/{self._task}-{unique_name()}"
        origin = str(file.origin).replace("/", "-")
        upload = Upload(self._storage, source, name, self._folder / f"{origin}.{file.name}.upload")
        while (handle := upload.handle) is None:
            if not go_on():
                raise Stopped
            upload.step()
            progress()
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

    def _reusable(self) -> dict[tuple[VersionId, str], StateFile]:
        """Return the handles of the base, if this host's record matches the completed ones. Otherwise everything is
        uploaded again."""
        base = self._order.base
        if base is None:
            return {}
        try:
            state, _ = decode_part((_folder(self._directory, base.term, base.checkpoint_id) / _PART).read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError, ValueError):
            return {}
        if digest_of(state.files) != base.digest:
            return {}
        return {(file.origin, file.name): file for file in state.files}


def remember(directory: Path, term: Term, checkpoint_id: int, state: TaskState) -> None:
    """After a restore, record which of the task's files are in storage, as if they had been uploaded from here."""
    folder = _folder(directory, term, checkpoint_id)
    folder.mkdir(parents=True, exist_ok=True)
    replace_whole(folder / _PART, encode_part(state, ()))


def forget_uploads(directory: Path, term: Term, keep: Iterable[tuple[Term, int]]) -> None:
    """Remove records that no checkpoint needs any more. `keep` names the base and all checkpoints pending when an epoch
    of `term` was planned.

    The caller may have been paused since then, so uploads that may have started later are left alone: ids above all in
    `keep`, and newer terms. Ids grow, so a missing id below them has failed. Of earlier terms only the base can be
    needed, and `keep` names it.
    """
    kept = {(int(of), id) for of, id in keep}
    newest = max((id for of, id in kept if of == term), default=0)
    with contextlib.suppress(FileNotFoundError), os.scandir(directory / "uploads") as entries:
        for entry in list(entries):
            found = _RECORDS.fullmatch(entry.name)
            if found is None:
                continue
            of, id = int(found[1]), int(found[2])
            if (of, id) not in kept and (of < term or (of == term and id < newest)):
                shutil.rmtree(entry.path, ignore_errors=True)


def _folder(directory: Path, term: Term, checkpoint_id: int) -> Path:
    return directory / "uploads" / f"{term}-{checkpoint_id}"


def _split(files: list[VersionFile], threshold: int, total: int) -> tuple[list[VersionFile], list[VersionFile]]:
    """Return the smallest files, as many as fit into the metadata, and the others."""
    small: list[VersionFile] = []
    large: list[VersionFile] = []
    for file in sorted(files, key=lambda file: (file.size_bytes, file.name)):
        if file.size_bytes <= threshold and file.size_bytes <= total:
            small.append(file)
            total -= file.size_bytes
        else:
            large.append(file)
    return small, large


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Hold a lock while the block runs. Yield whether this process got it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
