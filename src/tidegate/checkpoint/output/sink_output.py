"""Uncommitted output, kept in the two orders in which it is needed: by epoch, and by lane. Pure.

A target confirms lanes, one slot after the other; checkpoints, limits and people ask for epochs. With both at hand, a result
costs what it confirms, and a question about a sink costs its epochs, however many slots wait in each of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TypeAlias

from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

Lane: TypeAlias = tuple[Lineage, Slot]
"""Within a sink: the unit that a marker in the target covers."""

_epoch = attrgetter("epoch")
_slot = attrgetter("slot")


def lane(committable: Committable) -> Lane:
    return committable.lineage, committable.slot


@dataclass(slots=True)
class _EpochOutput:
    """The output of one sink in one epoch."""

    parts: dict[Lane, Committable] = field(default_factory=dict)
    size_bytes: int = 0


class SinkOutput:
    """The uncommitted output of one sink."""

    def __init__(self) -> None:
        self._epochs: dict[EpochId, _EpochOutput] = {}
        self._ordered: list[EpochId] = []
        """The keys of `_epochs`, ascending."""
        self._lanes: dict[Lane, list[Committable]] = {}
        """The same committables: those of each lane, ascending by epoch."""
        self.payload_bytes = 0
        """The size of all of them, with the rows that they contain."""

    def add(self, committable: Committable) -> None:
        """A repeat changes nothing."""
        key, epoch = lane(committable), committable.epoch
        found = self._epochs.get(epoch)
        if found is None:
            found = self._epochs[epoch] = _EpochOutput()
            insort(self._ordered, epoch)
        elif key in found.parts:
            return
        found.parts[key] = committable
        found.size_bytes += committable.size_bytes
        self.payload_bytes += len(committable.payload)
        waiting = self._lanes.setdefault(key, [])
        if not waiting or waiting[-1].epoch < epoch:
            waiting.append(committable)
        else:
            # Only while output of several checkpoints is taken over; else epochs come in their order.
            insort(waiting, committable, key=_epoch)

    def holds(self, committable: Committable) -> bool:
        found = self._epochs.get(committable.epoch)
        return found is not None and lane(committable) in found.parts

    def confirm(self, lineage: Lineage, slot: Slot, epoch: EpochId) -> None:
        """Remove the output of a lane up to an epoch."""
        key = (lineage, slot)
        waiting = self._lanes.get(key)
        if waiting is None:
            return
        end = bisect_right(waiting, epoch, key=_epoch)
        for committable in waiting[:end]:
            self._remove_from_epoch(key, committable)
        del waiting[:end]
        if not waiting:
            del self._lanes[key]

    def discard(self, term: Term, after: EpochId | None) -> None:
        """Remove the output of the epochs of a term after one of them, or of all its epochs."""
        # (term, -1) is before every epoch of the term.
        begin = bisect_right(self._ordered, EpochId(term, -1) if after is None else after)
        for epoch in [each for each in self._ordered[begin:] if each.term == term]:
            for key, committable in tuple(self._epochs[epoch].parts.items()):
                waiting = self._lanes[key]
                del waiting[bisect_left(waiting, epoch, key=_epoch)]
                if not waiting:
                    del self._lanes[key]
                self._remove_from_epoch(key, committable)

    def _remove_from_epoch(self, key: Lane, committable: Committable) -> None:
        epoch = committable.epoch
        found = self._epochs[epoch]
        del found.parts[key]
        found.size_bytes -= committable.size_bytes
        self.payload_bytes -= len(committable.payload)
        if not found.parts:
            del self._epochs[epoch]
            del self._ordered[bisect_left(self._ordered, epoch)]

    def epochs(self, last: EpochId | None = None) -> list[EpochId]:
        """Return the epochs with output, ascending, up to `last`."""
        return self._ordered[:] if last is None else self._ordered[: bisect_right(self._ordered, last)]

    def first(self) -> EpochId | None:
        return self._ordered[0] if self._ordered else None

    def size_bytes(self, epochs: Iterable[EpochId]) -> int:
        return sum(self._epochs[epoch].size_bytes for epoch in epochs)

    def of(self, epochs: Iterable[EpochId]) -> Iterator[Committable]:
        """Yield the output of these epochs, each by slot."""
        for epoch in epochs:
            yield from sorted(self._epochs[epoch].parts.values(), key=_slot)

    def slots(self, term: Term, last: EpochId, most: int) -> Iterator[tuple[Committable, ...]]:
        """Yield the first output of each slot in one term, up to `last` and up to so many committables, ascending by epoch."""
        first = EpochId(term, -1)
        # Before every epoch of later terms: terms are integers.
        end = min(last, EpochId(Term(term + 1), -1))
        by_slot: dict[Slot, list[Committable]] = {}
        for (_, slot), waiting in self._lanes.items():
            some = waiting[bisect_left(waiting, first, key=_epoch) : bisect_right(waiting, end, key=_epoch)]
            if slot in by_slot:
                # Output that was taken over from another lineage. Its lanes have markers of their own.
                some = sorted((*by_slot[slot], *some), key=_epoch)
            by_slot[slot] = some
        for some in by_slot.values():
            if some:
                yield tuple(some[:most])

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))


@dataclass(frozen=True, slots=True)
class OutputUpTo:
    """What the ledger holds up to an epoch, at the moment it is asked. A view: it costs nothing to make."""

    sinks: Mapping[Uid, SinkOutput] = field(repr=False)
    last: EpochId

    def waiting_sinks(self) -> list[Uid]:
        """Return the sinks that have such output, sorted."""
        return sorted(sink for sink in self.sinks if self.since(sink) is not None)

    def since(self, sink: Uid) -> EpochId | None:
        """Return the first epoch of a sink whose output waits."""
        first = self.sinks[sink].first() if sink in self.sinks else None
        return None if first is None or first > self.last else first

    def first(self) -> EpochId | None:
        return min((each for sink in self.sinks if (each := self.since(sink)) is not None), default=None)

    def newest(self) -> EpochId | None:
        return max((epochs[-1] for sink in self.sinks if (epochs := self.epochs(sink))), default=None)

    def epochs(self, sink: Uid) -> list[EpochId]:
        return self.sinks[sink].epochs(self.last) if sink in self.sinks else []

    def size_bytes(self, sink: Uid) -> int:
        return self.sinks[sink].size_bytes(self.epochs(sink)) if sink in self.sinks else 0

    def of(self, sink: Uid, most: int | None = None) -> tuple[Committable, ...]:
        """Return the output of a sink by (epoch, slot); with `most`, the first ones of it."""
        return tuple(islice(self.sinks[sink].of(self.epochs(sink)), most)) if sink in self.sinks else ()

    def stage(self, sink: Uid, most: int) -> list[tuple[Committable, ...]]:
        """Return the output of the first unfinished stage of a sink (`release_plan`), for each of its slots.

        A new stage starts with every term: a new claim may have changed the parallelism, and with it the slots of keys.
        Within a term a key stays in its slot. That holds only for slots that are chosen by key.
        """
        first = self.since(sink)
        if first is None:
            return []
        slots = self.sinks[sink].slots(first.term, self.last, most)
        return sorted(slots, key=lambda some: (some[0].epoch, some[0].slot))

    def __iter__(self) -> Iterator[Committable]:
        for sink in self.sinks.values():
            yield from sink.of(sink.epochs(self.last))

    def __bool__(self) -> bool:
        return self.first() is not None
