"""The payload that a writer passes to the committer: parts of rows that wait in the job's storage."""

from __future__ import annotations

import msgspec


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of one epoch in one slot, committed as a unit."""

    token: str
    rows: int
    size_bytes: int


class KafkaCommittable(msgspec.Struct, frozen=True):
    """A committable. The topic is the one at the time of writing: a sink whose topic has changed still owes these rows to it."""

    topic: str
    at_ms: int
    parts: list[StagedPart]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(KafkaCommittable).decode
