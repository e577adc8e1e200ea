"""Encodes the part of one task in a checkpoint: for the acknowledgement to the driver, and for the host's own record.

The same bytes are sent in acknowledgements and stored in the folder of the upload, so that any process of the host can
repeat the acknowledgement of an upload that another one finished.
"""

from __future__ import annotations

import hashlib

import msgspec

from tidegate.checkpoint.metadata import ElementCount, FileList, InlineFile, TaskState
from tidegate.core.ids import Slot, TaskId
from tidegate.state.version import VersionId


class _InlineFile(msgspec.Struct, frozen=True, array_like=True):
    name: str
    origin: str
    data: bytes


class _TaskPart(msgspec.Struct, frozen=True, array_like=True):
    level: int
    slot: int
    key_groups: tuple[int, int]
    backend: str
    version: str
    files: bytes
    inline: tuple[_InlineFile, ...]
    new: tuple[str, ...]
    elements: tuple[tuple[int, int], ...] = ()
    async_ms: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_TaskPart).decode


def encode_part(state: TaskState, new: tuple[str, ...], async_ms: int = 0) -> bytes:
    """`new` are the names that were stored for this checkpoint, `async_ms` is how long that took."""
    inline = tuple(_InlineFile(file.name, str(file.origin), file.data) for file in state.inline)
    task = state.task
    return _encode(
        _TaskPart(
            level=task.level,
            slot=task.slot,
            key_groups=state.key_groups,
            backend=state.backend,
            version=str(state.version),
            files=state.files.packed,
            inline=inline,
            new=new,
            elements=tuple((each.state, each.count) for each in state.elements),
            async_ms=async_ms,
        )
    )


def decode_part(data: bytes) -> tuple[TaskState, tuple[str, ...]]:
    """Raises `msgspec.MsgspecError` for bytes that `encode_part` did not write."""
    part = _decode(data)
    state = TaskState(
        task=TaskId(part.level, Slot(part.slot)),
        key_groups=part.key_groups,
        backend=part.backend,
        version=VersionId.parse(part.version),
        files=FileList.of_packed(part.files),
        inline=tuple(InlineFile(file.name, VersionId.parse(file.origin), file.data) for file in part.inline),
        elements=tuple(ElementCount(id, count) for id, count in part.elements),
    )
    return state, part.new


def is_of(data: bytes, version: VersionId) -> bool:
    """Return whether a part is that of a version."""
    return _decode(data).version == str(version)


def upload_ms(data: bytes) -> int:
    """Return how long the upload took, beside the epochs. 0 in parts that were encoded before this was measured."""
    return _decode(data).async_ms


def digest_of(files: FileList) -> bytes:
    """Return a digest that distinguishes lists of handles. A worker's record of a checkpoint counts only if it matches
    the completed one."""
    return hashlib.blake2b(files.packed, digest_size=8).digest()
