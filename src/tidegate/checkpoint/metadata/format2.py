"""Format 2 of `_metadata`: like format 1, but the files of a task may be a reference to a list in an object of its own.

Files with these names exist, so nothing here may change; adding a field requires a new format. A snapshot in which every
list is inside is written in format 1, so that earlier versions of tidegate can read it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.checkpoint.metadata import format1
from tidegate.checkpoint.metadata.files import FileList
from tidegate.checkpoint.metadata.model import CheckpointMetadata
from tidegate.checkpoint.metadata.stored_list import AnyFileList, StoredFileList
from tidegate.checkpoint.metadata.validation import FileChecks


class _StoredList(msgspec.Struct, gc=False):
    stored: str
    """Its path. This name distinguishes a reference from a list."""
    stored_bytes: int
    checksum: str
    count: int
    bytes: int
    since: tuple[int, int]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_StoredList).decode


def from_model(model: CheckpointMetadata) -> Iterator[bytes]:
    """Yield the value of `checkpoint` in pieces."""
    return format1.from_model(model, packed)


def to_model(raw: msgspec.Raw, written_by: str) -> CheckpointMetadata:
    """Raises `msgspec.MsgspecError` or ValueError if the bytes do not follow the format, and UntrustedSnapshot."""
    return format1.to_model(raw, written_by, unpacked)


def packed(files: AnyFileList) -> bytes:
    """Return the stored form of the files of a task."""
    if isinstance(files, FileList):
        return files.packed
    return _encode(
        _StoredList(
            stored=files.path,
            stored_bytes=files.stored_bytes,
            checksum=files.checksum,
            count=files.count,
            bytes=files.size_bytes,
            since=files.since,
        )
    )


def unpacked(raw: bytes, checks: FileChecks) -> AnyFileList:
    """Return the files of a task."""
    # msgspec writes fields in the order of the struct, so the first name tells the two forms apart without decoding a
    # list of a megabyte.
    if not raw.startswith(b'{"stored":'):
        return checks.read(raw)
    form = _decode(raw)
    return StoredFileList(
        path=form.stored,
        stored_bytes=form.stored_bytes,
        checksum=form.checksum,
        count=form.count,
        size_bytes=form.bytes,
        since=form.since,
    )
