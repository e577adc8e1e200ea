"""What a writer hands to the committer: files that are whole and durable, and that no reader sees."""

from __future__ import annotations

import msgspec


class StagedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that waits."""

    final: str
    """Its path below the sink's, once it is seen."""
    hidden: str
    """What it is found by until then: a name, or the id of an upload."""
    parts: tuple[str, ...] = ()
    """Tags of what was uploaded, where the storage asks for them."""


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(tuple[StagedFile, ...]).decode
