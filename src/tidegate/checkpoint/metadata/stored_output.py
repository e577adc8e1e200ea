"""Uncommitted output that is an object of its own in storage.

If a target does not answer, the output of many epochs waits, and every checkpoint carries all of it: 43 MB with 100 epochs of
1,000 slots. So what one checkpoint has carried is stored once, and later ones refer to it (`checkpoint.output_objects`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tidegate.checkpoint.metadata.committable_form import CommittableForm
from tidegate.checkpoint.metadata.errors import MetadataDamaged
from tidegate.connectors.sink import Committable
from tidegate.storage.handle import checksum_of

_FORMAT = 1
"""Of the object. Another one would come with another format of `_metadata`, which earlier versions refuse."""


class _OutputForm(msgspec.Struct):
    format: int
    committables: list[CommittableForm]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_OutputForm).decode


def encode_output(committables: Sequence[Committable]) -> bytes:
    """Return the content of an object."""
    return _encode(_OutputForm(_FORMAT, [CommittableForm.of(each) for each in committables]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOutput:
    """A reference to such an object, and which of its committables the checkpoint carries: the others have left since."""

    path: str
    """Relative to the job's directory."""
    size_bytes: int
    checksum: str
    count: int
    """Of the committables in the object."""
    waiting: bytes = b""
    """A bit for each committable of the object, the first in the lowest bit of the first byte. Empty: all of them."""

    @staticmethod
    def of(path: str, data: bytes, count: int) -> StoredOutput:
        """Return the reference to an object of which everything waits."""
        return StoredOutput(path=path, size_bytes=len(data), checksum=checksum_of(data), count=count)

    @property
    def waiting_count(self) -> int:
        # One number of all bits, and its population count: no loop over a hundred thousand committables.
        return int.from_bytes(self.waiting, "little").bit_count() if self.waiting else self.count

    def read(self, data: bytes | None) -> tuple[Committable, ...]:
        """Return all committables of the object. Raises `MetadataDamaged` unless these are the bytes that were written."""
        if data is None:
            raise MetadataDamaged(f"the waiting output {self.path} is missing")
        if len(data) != self.size_bytes or checksum_of(data) != self.checksum:
            raise MetadataDamaged(f"the waiting output {self.path} does not have the checksum it was written with")
        try:
            body = _decode(data)
            committables = tuple(form.committable() for form in body.committables)
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise MetadataDamaged(f"the waiting output {self.path} cannot be read") from error
        if body.format != _FORMAT or len(committables) != self.count:
            raise MetadataDamaged(f"the waiting output {self.path} is not what its checkpoint says about it")
        return committables

    def waiting_of(self, committables: Sequence[Committable]) -> tuple[Committable, ...]:
        """Return those of the object's committables that the checkpoint carries."""
        if not self.waiting:
            return tuple(committables)
        return tuple(each for at, each in enumerate(committables) if self.waiting[at >> 3] >> (at & 7) & 1)


def bits_of(flags: Sequence[bool]) -> bytes:
    """Return the form of `StoredOutput.waiting`."""
    if all(flags):
        return b""
    bits = bytearray(-(-len(flags) // 8))
    for at, flag in enumerate(flags):
        if flag:
            bits[at >> 3] |= 1 << (at & 7)
    return bytes(bits)
