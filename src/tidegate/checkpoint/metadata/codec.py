"""Encodes `_metadata`: one JSON object with a small head and the checkpoint in it.

    {"tidegate": "0.1.0", "format": 1, "checksum": "sha256:…", "checkpoint": {…}}

The checksum covers version, format and the exact bytes of `checkpoint`. The head never changes, so any version of
tidegate can tell which version wrote a newer file. A new format gets a module `format{n}` with `to_model`; earlier ones
stay unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from tidegate.checkpoint.metadata import format1, format2, format3, format4, validation
from tidegate.checkpoint.metadata.errors import (
    MetadataDamaged,
    MetadataIncomplete,
    MetadataTooNew,
    UntrustedSnapshot,
)
from tidegate.checkpoint.metadata.format3 import SEGMENT_OF_NOTE
from tidegate.checkpoint.metadata.model import CheckpointMetadata
from tidegate.checkpoint.metadata.stored_list import StoredFileList

NEWEST_FORMAT = 4
_MAX_METADATA_BYTES = 4 << 30
"""Ten million files need a third of that, if their lists are inside."""
_MAX_VERSION_CHARS = 100
_MAX_QUOTED_CHARS = 300

_READERS: dict[int, Callable[[msgspec.Raw, str], CheckpointMetadata]] = {
    1: format1.to_model,
    2: format2.to_model,
    3: format3.to_model,
    4: format4.to_model,
}
"""By format: converts the bytes of `checkpoint`, given the writer's version, to the newest model."""
_WRITERS: dict[int, Callable[[CheckpointMetadata], Iterable[bytes]]] = {
    1: format1.from_model,
    2: format2.from_model,
    3: format3.from_model,
    4: format4.from_model,
}


class _Head(msgspec.Struct):
    tidegate: str
    format: int
    checksum: str
    checkpoint: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Head).decode


def encode(model: CheckpointMetadata) -> bytes:
    """Encode in the oldest format that can hold it, so that earlier versions can read it if possible. Equal models have
    equal bytes.
    """
    format = _format_for(model)
    pieces = list(_WRITERS[format](model))
    checksum = _checksum(model.tidegate_version, format, pieces)
    # An empty `Raw` leaves the value of the last field out: what follows the head are the pieces, which are never
    # joined before.
    front = _encode(_Head(model.tidegate_version, format, checksum, msgspec.Raw(b""))).removesuffix(b"}")
    return b"".join((front, *pieces, b"}"))


def _format_for(model: CheckpointMetadata) -> int:
    # Formats 1 to 3 have no field for it, and their readers would start without this output.
    if model.stored_output:
        return 4
    stored = [task.files for task in model.tasks if isinstance(task.files, StoredFileList)]
    names = (file.name for position in model.positions for file in position.files)
    if any(files.base is not None for files in stored) or any(SEGMENT_OF_NOTE.fullmatch(name) for name in names):
        return 3
    return 2 if stored else 1


def decode(data: bytes) -> CheckpointMetadata:
    """Decode metadata. Fails closed: `MetadataDamaged`, `MetadataTooNew`, `MetadataIncomplete`, or `UntrustedSnapshot`
    for content that tidegate never writes. Every reader gets its model from here.
    """
    try:
        head = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MetadataDamaged(f"it is not a whole _metadata file ({_short(error)})") from error
    except RecursionError:
        raise UntrustedSnapshot("It is nested without end") from None
    if len(head.tidegate) > _MAX_VERSION_CHARS or not head.tidegate.isprintable():
        raise MetadataDamaged("it does not say which version of tidegate wrote it")
    if head.format > NEWEST_FORMAT:
        raise MetadataTooNew(head.format, NEWEST_FORMAT, head.tidegate)
    # Before the body is decoded: what cannot be trusted is not parsed further than its head.
    if head.checksum != _checksum(head.tidegate, head.format, [memoryview(head.checkpoint)]):
        raise MetadataDamaged("its content does not have the checksum it was written with")
    if head.format not in _READERS:
        raise MetadataIncomplete(f"format {head.format} never existed", head.tidegate)
    try:
        model = _READERS[head.format](head.checkpoint, head.tidegate)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise MetadataIncomplete(_short(error), head.tidegate) from error
    except RecursionError:
        raise UntrustedSnapshot("It is nested without end") from None
    # Anyone can write a correct checksum, so what the names in it would touch is checked as well.
    validation.check(model)
    return model


def check_size(size_bytes: int) -> None:
    """Check the size of an untrusted file before reading it, since it is held in memory as a whole."""
    if size_bytes > _MAX_METADATA_BYTES:
        raise UntrustedSnapshot(
            f"Its _metadata has {size_bytes} bytes, and there are never more than {_MAX_METADATA_BYTES}"
        )


def checksum_in(data: bytes) -> str:
    """Return the checksum in the head of `_metadata`, unverified."""
    return _decode(data).checksum


def _short(error: Exception) -> str:
    """Shorten an error, since it may quote content of any length."""
    text = str(error)
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…"


def _checksum(version: str, format: int, body: Iterable[bytes | memoryview]) -> str:
    # With the head's fields: the format of a body cannot be changed without breaking the checksum.
    digest = hashlib.sha256(f"{format} {version}\n".encode())
    for piece in body:
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"
