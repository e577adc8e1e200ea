"""Which Spark partition serves which slot: one on the host that holds the slot's state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.core.ids import HostId, Partition, Slot


@dataclass(frozen=True, slots=True)
class Placed:
    """A permutation: the partition of each slot."""

    partitions: tuple[Partition, ...]

    def slots(self) -> tuple[Slot, ...]:
        """Return the slot of each partition."""
        inverse = [Slot(0)] * len(self.partitions)
        for slot, partition in enumerate(self.partitions):
            inverse[partition] = Slot(slot)
        return tuple(inverse)


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Slots whose host has too few partitions, or none. Anchoring again may help; if the host is gone, only a rewind does."""

    slots: tuple[Slot, ...]
    hosts: tuple[HostId, ...]
    """Their hosts, each once."""


def place(layout: Sequence[HostId], homes: Sequence[HostId | None]) -> Placed | Unplaceable:
    """Assign every slot to a partition on its host. `layout` is the host of each partition, `homes` the host of each
    slot's version (None: any host).

    Deterministic: the same arguments give the same permutation, and a slot keeps the partition of its own number if
    possible, so that an undisturbed job keeps the identity.
    """
    free: dict[HostId, list[int]] = defaultdict(list)
    for partition in reversed(range(len(layout))):
        free[layout[partition]].append(partition)

    chosen: dict[int, int] = {}

    # Slots that can keep the partition of their own number go first: another slot of the host could take it otherwise.
    for slot, home in enumerate(homes):
        if home is not None and layout[slot] == home:
            chosen[slot] = slot
            free[home].remove(slot)

    # The others with state take any partition of their host.
    unplaceable: list[int] = []
    for slot, home in enumerate(homes):
        if home is None or slot in chosen:
            continue
        if free.get(home):
            chosen[slot] = free[home].pop()
        else:
            unplaceable.append(slot)

    if unplaceable:
        hosts = sorted({home for slot in unplaceable if (home := homes[slot]) is not None})
        return Unplaceable(tuple(Slot(s) for s in unplaceable), tuple(hosts))

    # Slots without state fill what is left, again their own number first.
    rest = sorted(partition for partitions in free.values() for partition in partitions)
    for slot, home in enumerate(homes):
        if home is None and slot in rest:
            chosen[slot] = slot
            rest.remove(slot)
    for slot in range(len(homes)):
        if slot not in chosen:
            chosen[slot] = rest.pop(0)

    return Placed(tuple(Partition(chosen[slot]) for slot in range(len(homes))))


def quotas(homes: Sequence[Sequence[HostId | None]]) -> dict[HostId, int]:
    """Return how many partitions each host must have so that every level (one sequence each) can be placed. Slots without a
    version are assigned to a host that is listed anyway.
    """
    wanted: Counter[HostId] = Counter()
    for level in homes:
        wanted |= Counter(home for home in level if home is not None)
    spare = max((len(level) for level in homes), default=0) - wanted.total()
    if wanted and spare > 0:
        # Any host will do, but always the same one, so that a repeated placement asks for the same.
        wanted[min(wanted)] += spare
    return dict(wanted)
