"""The payload that a writer passes to the committer: parts of rows that wait in the job's storage."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import msgspec

from tidegate.connectors.kafka.marker import MAX_PARTS
from tidegate.connectors.sink import Committable, decoded, untrusted


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of one epoch in one slot, committed as a unit."""

    token: str
    rows: int
    size_bytes: int


class KafkaCommittable(msgspec.Struct, frozen=True):
    """A committable. The topic is the one at the time of writing: a sink whose topic has changed still owes these rows to
    it, and accepts that if its `previous_topics` name it."""

    topic: str
    at_ms: int
    parts: list[StagedPart]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(KafkaCommittable).decode

CheckStaged = Callable[[Committable, Sequence[str]], None]


def checked(request: Committable, topics: Container[str], check_staged: CheckStaged) -> KafkaCommittable:
    """Return the payload of a request. Raises `UntrustedOutput` unless it is for one of the topics of the sink and names
    rows of the request's epoch: a snapshot must not choose where the job's credentials write.
    """
    staged = decoded(request, decode)
    if staged.topic not in topics:
        raise untrusted(
            request,
            f"is for the topic {staged.topic[:200]!r}, which the sink does not name (if the sink wrote to that topic until "
            "now, name it once: KafkaSink(…, previous_topics=[…]))",
        )
    # A part has its number in the marker.
    if not 0 < len(staged.parts) <= MAX_PARTS:
        raise untrusted(request, f"names {len(staged.parts)} parts")
    check_staged(request, [part.token for part in staged.parts])
    return staged
