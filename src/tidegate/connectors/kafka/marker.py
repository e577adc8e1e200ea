"""The marker of a commit: how far the output of one (lineage, sink, slot) is in the topic.

It is the committed offset of a consumer group that has no consumers. A Kafka transaction can carry such an offset, so it
takes effect together with the rows. The number has the count of the claim in its highest bits, then the number of the epoch,
then the part of the epoch's output: later output has a greater one. The whole term is in the metadata of the offset, after the
name of the holder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tidegate.core.errors import GraphError
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid, ordinal

# 63 bits: an offset is a signed long, and a negative one means "none".
_TERM_BITS, _NUMBER_BITS, _PART_BITS = 20, 32, 11
MAX_PARTS = 1 << _PART_BITS


@dataclass(frozen=True, slots=True)
class SinkSlot:
    """The unit of ordered commits: the output of one slot into one sink."""

    lineage: Lineage
    sink: Uid
    slot: Slot

    def __str__(self) -> str:
        return f"{self.lineage}-{self.sink}-{self.slot}"


def encode(epoch: EpochId, part: int) -> int:
    """Return the marker that covers all output up to this part of this epoch."""
    fields = ((ordinal(epoch.term), _TERM_BITS), (epoch.number, _NUMBER_BITS), (part, _PART_BITS))
    marker = 0
    for value, bits in fields:
        if not 0 <= value < 1 << bits:
            raise GraphError(
                f"Part {part} of epoch {epoch} cannot be encoded as a marker: a Kafka offset has room for "
                f"{1 << _TERM_BITS} starts of a job, {1 << _NUMBER_BITS} epochs per start and {MAX_PARTS} parts of an "
                "epoch's output in one slot."
            )
        marker = marker << bits | value
    return marker


def decode(marker: int) -> tuple[EpochId, int]:
    part = marker & MAX_PARTS - 1
    number = marker >> _PART_BITS & (1 << _NUMBER_BITS) - 1
    return EpochId(Term(marker >> _PART_BITS + _NUMBER_BITS), number), part


_METADATA = re.compile(r"(.*) term=(\d{1,19})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marker:
    """How far the output of a slot is, and in which term that was committed."""

    offset: int
    term: Term

    @property
    def epoch(self) -> EpochId:
        return EpochId(self.term, decode(self.offset)[0].number)


def metadata_of(holder: str, term: Term) -> str:
    return f"{holder} term={term}"


def read_marker(offset: int, metadata: str | None) -> Marker:
    """Return the marker of a committed offset. Before terms had random bits, the term was in the offset alone."""
    found = _METADATA.fullmatch(metadata or "")
    claim = decode(offset)[0].term
    # Whoever may commit offsets of this group may have changed its metadata. The number decides, as before.
    term = claim if found is None or ordinal(int(found[2])) != claim else Term(int(found[2]))
    return Marker(offset, term)


def holder_in(metadata: str | None) -> str | None:
    """Return the transactional id that the metadata of an offset names."""
    found = _METADATA.fullmatch(metadata or "")
    return metadata if found is None else found[1]


class Expired(Enum):
    """What to do with rows whose marker the broker may have deleted."""

    FAIL = "fail"
    PUBLISH = "publish"
    SKIP = "skip"


class PartState(Enum):
    """What a marker says about a part."""

    COMMITTED = "committed"
    WAITING = "waiting"
    UNKNOWN = "unknown"


def decide(marker: int | None, expected: int, age_ms: int, retention_ms: int) -> PartState:
    """Decide whether a part was committed. `marker` is None if the broker has none, `age_ms` is the
    time since the part was staged. `expected` is the marker that covers it.

    A broker deletes the offset of an idle group `retention_ms` after it was committed. While the part is younger than that,
    a missing marker means "never committed"; afterwards it means nothing.
    """
    if marker is not None:
        return PartState.COMMITTED if marker >= expected else PartState.WAITING
    return PartState.WAITING if age_ms < retention_ms else PartState.UNKNOWN
