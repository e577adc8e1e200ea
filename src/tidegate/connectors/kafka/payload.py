"""What a writer hands to the committer: parts of rows that wait in the job's storage."""

from __future__ import annotations

import msgspec


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of one epoch in one slot: what is committed whole."""

    token: str
    rows: int
    size_bytes: int


class KafkaCommittable(msgspec.Struct, frozen=True):
    """A committable. The topic is that of the time of writing: a sink that has moved on still owes these rows there."""

    topic: str
    at_ms: int
    parts: list[StagedPart]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(KafkaCommittable).decode
