"""Bytes of `_metadata`: one JSON object with a small head and the checkpoint under it.

    {"tidegate": "0.1.0", "format": 1, "checksum": "sha256:…", "checkpoint": {…}}

The checksum is of version, format and the very bytes of `checkpoint`. The head never changes, so any tidegate can say
of any later file who wrote it. A new format gets a module `format{n}` with `to_model`; those before it stay as they
are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from tidegate.checkpoint.metadata import format1
from tidegate.checkpoint.metadata.errors import MetadataDamaged, MetadataIncomplete, MetadataTooNew
from tidegate.checkpoint.metadata.model import CheckpointMetadata

NEWEST_FORMAT = 1

_READERS: dict[int, Callable[[msgspec.Raw, str], CheckpointMetadata]] = {1: format1.to_model}
"""From the bytes of `checkpoint` and the writer's version to the newest model."""


class _Head(msgspec.Struct):
    tidegate: str
    format: int
    checksum: str
    checkpoint: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Head).decode


def encode(model: CheckpointMetadata) -> bytes:
    """Bytes in the newest format. Equal models give equal bytes."""
    pieces = list(format1.from_model(model))
    checksum = _checksum(model.tidegate_version, NEWEST_FORMAT, pieces)
    front = _encode(_Head(model.tidegate_version, NEWEST_FORMAT, checksum, msgspec.Raw(b""))).removesuffix(b"}")
    return b"".join((front, *pieces, b"}"))


def decode(data: bytes) -> CheckpointMetadata:
    """The model that was written. Fails closed: `MetadataDamaged`, `MetadataTooNew` or `MetadataIncomplete`."""
    try:
        head = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MetadataDamaged(f"it is not a whole _metadata file ({error})") from error
    if head.format > NEWEST_FORMAT:
        raise MetadataTooNew(head.format, NEWEST_FORMAT, head.tidegate)
    if head.checksum != _checksum(head.tidegate, head.format, [memoryview(head.checkpoint)]):
        raise MetadataDamaged("its content does not have the checksum it was written with")
    if head.format not in _READERS:
        raise MetadataIncomplete(f"there never was a format {head.format}", head.tidegate)
    try:
        return _READERS[head.format](head.checkpoint, head.tidegate)
    except (msgspec.MsgspecError, ValueError) as error:
        raise MetadataIncomplete(str(error), head.tidegate) from error


def checksum_in(data: bytes) -> str:
    """The checksum that `_metadata` bytes carry in their head, unverified."""
    return _decode(data).checksum


def _checksum(version: str, format: int, body: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256(f"{format} {version}\n".encode())
    for piece in body:
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"
