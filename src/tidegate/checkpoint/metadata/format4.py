"""Format 4 of `_metadata`: like format 3, but some of the uncommitted output may be in objects of its own.

Files with these names exist, so nothing here may change; adding a field requires a new format. A snapshot that carries all its
output itself is written in an earlier format, so that earlier versions of tidegate can read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from tidegate.checkpoint.metadata import format3
from tidegate.checkpoint.metadata.model import CheckpointMetadata
from tidegate.checkpoint.metadata.stored_output import StoredOutput


class _StoredForm(msgspec.Struct, gc=False, omit_defaults=True):
    path: str
    size_bytes: int
    checksum: str
    count: int
    waiting: bytes = b""


class _More(msgspec.Struct):
    """What this format adds to the fields of format 3. A decoder ignores the fields that it does not know."""

    stored_output: list[_StoredForm]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_More).decode


def from_model(model: CheckpointMetadata) -> Iterator[bytes]:
    """Yield the value of `checkpoint` in pieces."""
    stored = [
        _StoredForm(
            path=each.path, size_bytes=each.size_bytes, checksum=each.checksum, count=each.count, waiting=each.waiting
        )
        for each in model.stored_output
    ]
    pieces = format3.from_model(model)
    # In front of the fields of format 3, whose pieces are passed on as they come.
    yield _encode(_More(stored)).removesuffix(b"}") + b","
    yield next(pieces).removeprefix(b"{")
    yield from pieces


def to_model(raw: msgspec.Raw, written_by: str) -> CheckpointMetadata:
    """Raises `msgspec.MsgspecError` or ValueError if the bytes do not follow the format, and UntrustedSnapshot."""
    stored = tuple(
        StoredOutput(
            path=form.path, size_bytes=form.size_bytes, checksum=form.checksum, count=form.count, waiting=form.waiting
        )
        for form in _decode(raw).stored_output
    )
    return replace(format3.to_model(raw, written_by), stored_output=stored)
