"""Format 3 of `_metadata`: like format 2, but a stored list of files may consist of two objects, a list and what changed in it,
and a note of a source of several, which are its parts.

Files with these names exist, so nothing here may change; adding a field requires a new format. A snapshot without either is
written in an earlier format, so that earlier versions of tidegate can read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tidegate.checkpoint.metadata import format1, format2
from tidegate.checkpoint.metadata.files import FileList
from tidegate.checkpoint.metadata.model import CheckpointMetadata
from tidegate.checkpoint.metadata.stored_list import AnyFileList, StoredFileList
from tidegate.checkpoint.metadata.validation import FileChecks

SEGMENT_OF_NOTE = re.compile(r"(.+)\.part-(\d{4})")
"""The name of an object with a part of a note of a source: the name of the note, and the number of the part."""


class _ChangedList(msgspec.Struct, gc=False):
    changed: str
    """The path of what changed. This name distinguishes it from other references."""
    base: str
    """The path of the list in which it changed."""
    stored_bytes: int
    checksum: str
    count: int
    bytes: int
    since: tuple[int, int]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_ChangedList).decode


def from_model(model: CheckpointMetadata) -> Iterator[bytes]:
    """Yield the value of `checkpoint` in pieces."""
    return format1.from_model(model, _packed)


def to_model(raw: msgspec.Raw, written_by: str) -> CheckpointMetadata:
    """Raises `msgspec.MsgspecError` or ValueError if the bytes do not follow the format, and UntrustedSnapshot."""
    return format1.to_model(raw, written_by, _unpacked)


def _packed(files: AnyFileList) -> bytes:
    if isinstance(files, FileList) or files.base is None:
        return format2.packed(files)
    return _encode(
        _ChangedList(
            changed=files.path,
            base=files.base,
            stored_bytes=files.stored_bytes,
            checksum=files.checksum,
            count=files.count,
            bytes=files.size_bytes,
            since=files.since,
        )
    )


def _unpacked(raw: bytes, checks: FileChecks) -> AnyFileList:
    # As in format 2: the first name tells.
    if not raw.startswith(b'{"changed":'):
        return format2.unpacked(raw, checks)
    form = _decode(raw)
    return StoredFileList(
        path=form.changed,
        stored_bytes=form.stored_bytes,
        checksum=form.checksum,
        count=form.count,
        size_bytes=form.bytes,
        since=form.since,
        base=form.base,
    )
