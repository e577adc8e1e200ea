"""Encodes the part of one task in a checkpoint: for the acknowledgement to the driver, and for the host's own record.

The same bytes are sent in acknowledgements and stored in the folder of the upload, so that any process of the host can
repeat the acknowledgement of an upload that another one finished. They tell what changed: a long list of files is only
referred to.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidegate.checkpoint.metadata import AnyFileList, ElementCount, FileList, InlineFile, StoredFileList, TaskState
from tidegate.core.ids import Slot, TaskId
from tidegate.core.storage_cost import NO_CALLS, StorageCalls
from tidegate.state.version import VersionId


class _InlineFile(msgspec.Struct, frozen=True, array_like=True):
    name: str
    origin: str
    data: bytes


class _ListReference(msgspec.Struct, frozen=True, array_like=True):
    path: str
    stored_bytes: int
    checksum: str
    count: int
    size_bytes: int
    since: tuple[int, int]
    base: str | None = None


class _TaskPart(msgspec.Struct, frozen=True, array_like=True):
    level: int
    slot: int
    key_groups: tuple[int, int]
    backend: str
    version: str
    files: bytes
    """The list, if it is short."""
    inline: tuple[_InlineFile, ...]
    new: tuple[str, ...]
    elements: tuple[tuple[int, int], ...] = ()
    async_ms: int = 0
    stored: _ListReference | None = None
    """Instead of `files`."""
    base: bytes | None = None
    unreferenced: tuple[str, ...] = ()
    requests: tuple[int, ...] = ()
    """Writes, their bytes, reads, their bytes, lists, deletes; without zeros at the end."""


UNKNOWN = b""
"""Instead of the digest of a base."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """How the list of a task's files differs from that of the base. Names are those of objects, including the objects of
    lists that are stored."""

    base: bytes | None
    """Digest of the base's list, which has all objects of this one that are not new. None: no object of this list is in any
    other. UNKNOWN: it also has objects of other lists."""
    new: tuple[str, ...]
    unreferenced: tuple[str, ...]
    """Objects of the base's list that this one does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadAck:
    """The upload of one task for one checkpoint is durable. May arrive twice, late, or from another process than the first."""

    checkpoint_id: int
    task: TaskId
    state: Any
    """The task's part of the metadata: its files, new and reused. Opaque here."""
    new_files: tuple[str, ...] = ()
    """Names that were uploaded for this checkpoint."""
    change: Any = None
    """How its files differ from those in the base. Opaque here."""
    state_size_bytes: int = 0
    checkpointed_size_bytes: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    requests: StorageCalls = NO_CALLS
    """To storage, for this upload."""


@dataclass(frozen=True, slots=True)
class TaskPart:
    """The decoded part of one task."""

    state: TaskState
    change: ListChange
    async_ms: int
    """How long the upload took, besides the epochs."""
    requests: StorageCalls = NO_CALLS
    """What the process that finished the upload has sent to storage for it."""

    def acknowledges(self, checkpoint_id: int) -> UploadAck:
        """Return the acknowledgement that the part is."""
        return UploadAck(
            checkpoint_id=checkpoint_id,
            task=self.state.task,
            state=self.state,
            new_files=self.change.new,
            change=self.change,
            state_size_bytes=self.state.size_bytes,
            checkpointed_size_bytes=self.state.delta_bytes(checkpoint_id),
            async_ms=self.async_ms,
            requests=self.requests,
        )


# MessagePack, not JSON: it travels in every acknowledgement, and nobody reads it by hand. Fields are an array, so new
# ones go to the end and have defaults.
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_TaskPart).decode


NO_CHANGE = ListChange(None, (), ())


def encode_part(
    state: TaskState, change: ListChange = NO_CHANGE, async_ms: int = 0, requests: StorageCalls = NO_CALLS
) -> bytes:
    """`change.new` are the names that were stored for this checkpoint, `async_ms` is how long that took, and `requests` what it
    needed."""
    inline = tuple(_InlineFile(file.name, str(file.origin), file.data) for file in state.inline)
    task, files = state.task, state.files
    # Either the list itself travels, or a reference to the object that has it.
    stored = None
    if isinstance(files, StoredFileList):
        stored = _ListReference(
            path=files.path,
            stored_bytes=files.stored_bytes,
            checksum=files.checksum,
            count=files.count,
            size_bytes=files.size_bytes,
            since=files.since,
            base=files.base,
        )
    return _encode(
        _TaskPart(
            level=task.level,
            slot=task.slot,
            key_groups=state.key_groups,
            backend=state.backend,
            version=str(state.version),
            files=files.packed if isinstance(files, FileList) else b"",
            inline=inline,
            new=change.new,
            elements=tuple((each.state, each.count) for each in state.elements),
            async_ms=async_ms,
            stored=stored,
            base=change.base,
            unreferenced=change.unreferenced,
            requests=_packed(requests),
        )
    )


def read_part(data: bytes) -> TaskPart:
    """Raises `msgspec.MsgspecError` for bytes that `encode_part` did not write."""
    part = _decode(data)
    files: AnyFileList
    if part.stored is None:
        files = FileList.of_packed(part.files)
    else:
        stored = part.stored
        files = StoredFileList(
            path=stored.path,
            stored_bytes=stored.stored_bytes,
            checksum=stored.checksum,
            count=stored.count,
            size_bytes=stored.size_bytes,
            since=stored.since,
            base=stored.base,
        )
    state = TaskState(
        task=TaskId(part.level, Slot(part.slot)),
        key_groups=part.key_groups,
        backend=part.backend,
        version=VersionId.parse(part.version),
        files=files,
        inline=tuple(InlineFile(file.name, VersionId.parse(file.origin), file.data) for file in part.inline),
        elements=tuple(ElementCount(id, count) for id, count in part.elements),
    )
    return TaskPart(state, ListChange(part.base, part.new, part.unreferenced), part.async_ms, _unpacked(part.requests))


def read_stored_part(data: bytes) -> TaskPart:
    """Read an acknowledgement that a task has stored, which is one more request."""
    part = read_part(data)
    return replace(part, requests=part.requests + StorageCalls(writes=1, written_bytes=len(data)))


def _packed(requests: StorageCalls) -> tuple[int, ...]:
    if not requests:
        return ()
    values = [
        requests.writes,
        requests.written_bytes,
        requests.reads,
        requests.read_bytes,
        requests.lists,
        requests.deletes,
    ]
    # Zeros at the end are left out: most uploads list and delete nothing.
    while not values[-1]:
        values.pop()
    return tuple(values)


def _unpacked(values: tuple[int, ...]) -> StorageCalls:
    writes, written_bytes, reads, read_bytes, lists, deletes = (*values, 0, 0, 0, 0, 0, 0)[:6]
    return StorageCalls(
        writes=writes, written_bytes=written_bytes, reads=reads, read_bytes=read_bytes, lists=lists, deletes=deletes
    )


def decode_part(data: bytes) -> tuple[TaskState, tuple[str, ...]]:
    """Return the state, and the names that were stored for this checkpoint. Raises `msgspec.MsgspecError`."""
    part = read_part(data)
    return part.state, part.change.new


def is_of(data: bytes, version: VersionId) -> bool:
    """Return whether a part is that of a version."""
    return _decode(data).version == str(version)


def list_digest(files: AnyFileList) -> bytes:
    """Return a digest that distinguishes the lists of a task."""
    # Eight bytes: it tells the few lists of one task apart, and is no protection against forgery.
    return hashlib.blake2b(_identity(files), digest_size=8).digest()


def digest_of(state: TaskState) -> bytes:
    """Return a digest that distinguishes the parts of a task. A worker's record of a checkpoint counts only if it matches the
    completed one: an attempt that was not accepted may have left another."""
    # With the version: with a changelog, small changes are in the metadata, and two attempts of one epoch may have
    # equal lists of files.
    return hashlib.blake2b(_identity(state.files) + str(state.version).encode(), digest_size=8).digest()


def _identity(files: AnyFileList) -> bytes:
    return files.packed if isinstance(files, FileList) else f"{files.path} {files.checksum}".encode()
