"""The payload that a writer passes to the committer: rows in the job's storage, or a prepared transaction in the server."""

from __future__ import annotations

import hashlib
import re

import msgspec

from tidegate.connectors.sink import WriterContext
from tidegate.core.ids import EpochId, Lineage, Term, Uid


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    """Text for COPY, in the chunks that these tokens name."""

    columns: tuple[str, ...]
    tokens: tuple[str, ...]
    rows: int
    size_bytes: int = 0
    """0 in output that was staged before sizes were recorded."""


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    gid: str
    rows: int


Payload = Copy | Prepared

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Payload).decode

_GID = re.compile(r"tidegate:[0-9a-f]{32}:(\d+)\.(\d+):\d+:\d+")


def gid_prefix(lineage: Lineage, sink: Uid) -> str:
    """Return the gid prefix of one sink's transactions. Hashed: a server accepts ids of at most 199 bytes."""
    return f"tidegate:{hashlib.sha256(f'{lineage} {sink}'.encode()).hexdigest()[:32]}:"


def gid_of(context: WriterContext) -> str:
    return f"{gid_prefix(context.lineage, context.sink)}{context.epoch}:{context.slot}:{context.attempt}"


def epoch_in(gid: str) -> EpochId | None:
    found = _GID.fullmatch(gid)
    return None if found is None else EpochId(Term(int(found[1])), int(found[2]))
