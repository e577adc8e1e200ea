"""The payload that a writer passes to the committer: complete, durable files that no reader can see."""

from __future__ import annotations

import msgspec


class StagedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that waits for its commit."""

    final: str
    """Its path relative to the sink's path, once committed."""
    hidden: str
    """Its identifier until then: a name, or the id of an upload."""
    parts: tuple[str, ...] = ()
    """Tags of the uploaded parts, if the storage requires them."""


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(tuple[StagedFile, ...]).decode
