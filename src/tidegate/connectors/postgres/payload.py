"""The payload that a writer passes to the committer: rows in the job's storage, or a prepared transaction in the server."""

from __future__ import annotations

import hashlib
import re

import msgspec

from tidegate.connectors.sink import Committable, CommitterContext, WriterContext, decoded, untrusted
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

_GID = re.compile(r"tidegate:[0-9a-f]{32}:([0-9]+)\.([0-9]+):[0-9]+:[0-9]+")
_MAX_GID_BYTES = 199
"""PostgreSQL's limit."""


def checked(request: Committable, context: CommitterContext) -> Payload:
    """Return the payload of a request. Raises `UntrustedOutput` unless it names the request's own rows or transaction: the
    id becomes part of a statement, and would end a transaction of anyone.
    """
    payload: Payload = decoded(request, decode)
    if isinstance(payload, Prepared):
        prefix = f"{gid_prefix(request.lineage, request.sink)}{request.epoch.name}:{request.slot}:"
        attempt = payload.gid.removeprefix(prefix)
        # The attempt is not part of a request, so it is only checked for being a number.
        ours = payload.gid.startswith(prefix) and attempt.isascii() and attempt.isdigit()
        if not ours or len(payload.gid) > _MAX_GID_BYTES:
            raise untrusted(request, f"names the prepared transaction {payload.gid[:200]!r}")
        return payload
    if not payload.tokens or not payload.columns or len(set(payload.columns)) < len(payload.columns):
        raise untrusted(request, "names no rows, no column, or one column twice")
    if any(not name or "\x00" in name for name in payload.columns) or payload.size_bytes < 0:
        raise untrusted(request, "names a column that no table has")
    context.check_staged(request, payload.tokens)
    return payload


def gid_prefix(lineage: Lineage, sink: Uid) -> str:
    """Return the gid prefix of one sink's transactions. Hashed: a server accepts ids of at most 199 bytes."""
    return f"tidegate:{hashlib.sha256(f'{lineage} {sink}'.encode()).hexdigest()[:32]}:"


def gid_of(context: WriterContext) -> str:
    return f"{gid_prefix(context.lineage, context.sink)}{context.epoch.name}:{context.slot}:{context.attempt}"


def epoch_in(gid: str) -> EpochId | None:
    found = _GID.fullmatch(gid)
    return None if found is None else EpochId(Term(int(found[1])), int(found[2]))
