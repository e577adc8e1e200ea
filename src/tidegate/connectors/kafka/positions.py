"""Where a reader stands: for each partition of each topic the offset of the next row. Pure; Kafka is asked elsewhere.

A partition enters the positions in a step of its own, without rows, with the offset at which it begins. So the rows between
two positions are known from the two alone, whatever Kafka says later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Offsets = dict[tuple[str, int], int]
"""(topic, partition) → offset."""


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of one partition, from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int


def from_json(found: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Read `{topic: {partition: offset}}`."""
    return {(topic, int(p)): int(offset) for topic, partitions in found.items() for p, offset in partitions.items()}


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The same, always in the same order: Spark compares positions as text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def ranges(start: Offsets, end: Offsets, earliest: Offsets) -> list[Range]:
    """What lies between two positions. Rows before `earliest` are gone and left out; whether that may be, `gaps` has said.

    An end before the start means that the topic was made anew: it is read from its beginning.
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
    """Positions that cannot be gone on from, in words. Empty if all can."""
    found: list[str] = []
    for (topic, partition), at in sorted(start.items()):
        shown = f"partition {partition} of {topic!r}"
        if (topic, partition) not in latest:
            found.append(f"{shown} at {at}, which is not there any more")
        elif at < (first := earliest.get((topic, partition), 0)):
            found.append(f"{shown} at {at}, where Kafka has deleted everything before {first}")
        elif at > (last := latest[topic, partition]):
            found.append(f"{shown} at {at}, which ends at {last} and so was made anew or cut")
    return found


def advance(start: Offsets, earliest: Offsets, latest: Offsets, begin: Offsets, most_rows: int | None) -> Offsets:
    """The next end: at most `most_rows` further than `start`, each partition by its share of what waits.

    Partitions that `start` does not know enter at what `begin` says, without rows. Partitions that Kafka does not know any
    more stay where they were.
    """
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
        # Rounded up, so that a partition with few rows is not passed over for ever; then cut to what is allowed.
        left = max(1, most_rows)
        for place in sorted(base):
            share = min(waiting[place], left, -(-waiting[place] * most_rows // total))
            # One that takes no rows keeps its position as it is, also if it is before the earliest row that is left.
            if share:
                end[place] = base[place] + share
                left -= share
    return end | {place: at for place, at in begin.items() if place not in start}
