"""The position of a reader: the offset of the next row for each partition of each topic. Pure; it does not access Kafka.

A partition enters the positions in a separate step, without rows, with the offset at which it begins. The rows between two
positions therefore follow from the two alone, whatever Kafka reports later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Offsets = dict[tuple[str, int], int]
"""(topic, partition) → offset."""


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of one partition, from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int


def from_json(found: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Read `{topic: {partition: offset}}`."""
    return {(topic, int(p)): int(offset) for topic, partitions in found.items() for p, offset in partitions.items()}


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Convert back, always in the same order: Spark compares positions as text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def ranges(start: Offsets, end: Offsets, earliest: Offsets) -> list[Range]:
    """Return the ranges between two positions. Rows before `earliest` are gone and skipped; `gaps` has reported them.

    An end before the start means that the topic was recreated: it is read from its beginning.
    """
    found: list[Range] = []
    for (topic, partition), to in sorted(end.items()):
        at = start.get((topic, partition))
        if at is None:
            continue
        first = earliest.get((topic, partition), 0)
        begin = first if at > to else max(at, first)
        if begin < to:
            found.append(Range(topic, partition, begin, to))
    return found


def gaps(start: Offsets, earliest: Offsets, latest: Offsets) -> list[str]:
    """Describe the positions that cannot be resumed from. Empty if all can."""
    found: list[str] = []
    for (topic, partition), at in sorted(start.items()):
        shown = f"partition {partition} of {topic!r}"
        if (topic, partition) not in latest:
            found.append(f"{shown} at {at}, which no longer exists")
        elif at < (first := earliest.get((topic, partition), 0)):
            found.append(f"{shown} at {at}, where Kafka has deleted everything before {first}")
        elif at > (last := latest[topic, partition]):
            found.append(f"{shown} at {at}, which ends at {last}, so it was recreated or truncated")
    return found


def advance(start: Offsets, earliest: Offsets, latest: Offsets, begin: Offsets, most_rows: int | None) -> Offsets:
    """Return the next end: at most `most_rows` beyond `start`, distributed over the partitions
    in proportion to their backlog.

    Partitions that `start` does not contain enter at the offset that `begin` gives, without rows. Partitions that Kafka no
    longer has keep their position.
    """
    # A partition that Kafka does not report now may be back later: its position is kept, and nothing is read.
    known = {place: at for place, at in start.items() if place in latest}
    base = {
        place: earliest.get(place, 0) if at > latest[place] else max(at, earliest.get(place, 0))
        for place, at in known.items()
    }
    waiting = {place: latest[place] - at for place, at in base.items()}
    total = sum(waiting.values())
    end = dict(start)
    if most_rows is None or total <= most_rows:
        end |= {place: latest[place] for place in base}
    else:
        # Round up, so that a partition with few rows is not starved; then cut to the limit.
        left = max(1, most_rows)
        for place in sorted(base):
            share = min(waiting[place], left, -(-waiting[place] * most_rows // total))
            # A partition that takes no rows keeps its position, even if it is before the earliest remaining row.
            if share:
                end[place] = base[place] + share
                left -= share
    return end | {place: at for place, at in begin.items() if place not in start}
