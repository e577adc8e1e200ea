"""A target of sinks: rows and markers change in one transaction, and a repeat is recognised by the marker."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from chaos.simulation.clock import Clock
from chaos.simulation.faults import CALM, Violation
from chaos.simulation.storage import SimStorage
from tidegate.checkpoint.effects import Commit, CommitFailed
from tidegate.checkpoint.output.committables import Channel, channel
from tidegate.connectors.sink import Committable, CommitterContext, check_markers
from tidegate.core.history import History
from tidegate.core.ids import EpochId, Lineage, Uid
from tidegate.schema.schema import Schema

_SCHEMA = Schema.parse("value string")

INLINE = "inline"
"""The payload of a committable that has its rows inside."""


class SlotMarkers:
    """The committer of one place, as far as it lists markers."""

    def __init__(self, target: SimTarget, storage: SimStorage) -> None:
        self._target, self._storage = target, storage

    def commit(self, requests: Sequence[Committable]) -> None:
        raise NotImplementedError

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        if self._target.is_away(sink, self._storage):
            raise CommitFailed("the target is away (simulated)")
        return self._target.markers(lineage, self._storage).get(sink, [])


class SimTarget:
    """A log, in which the rows of a key come in some order, and a table, in which the last one of a key stays."""

    def __init__(self, rng: random.Random, clock: Clock, keys: dict[tuple[Channel, EpochId], frozenset[int]]) -> None:
        self.visible: dict[Channel, list[EpochId]] = defaultdict(list)
        self.odds = CALM
        self.away_until_ms: dict[Uid, float] = {}
        self.cut_off_until_ms: dict[SimStorage, float] = {}
        """Until then, the job in this place does not reach the target."""
        self.lost: set[tuple[Lineage, EpochId]] = set()
        """Output of a lost history that nobody has accepted."""
        self.repeats: Counter[tuple[Channel, EpochId]] = Counter()
        """How often output may become visible once more: its operator was told that a target has output of another history, and
        continued. What that history has published of the output that waits cannot be known."""
        self._rng, self._clock, self._keys = rng, clock, keys
        self._authors: dict[tuple[Channel, EpochId], SimStorage] = {}
        """From where output was published."""
        self._known: dict[SimStorage, set[tuple[Channel, EpochId]]] = defaultdict(set)
        """Output of another place that the operator of this place knows of."""
        self._shared: set[tuple[Lineage, EpochId]] = set()
        """Epochs that were complete when the job was copied: both places may publish them."""
        self._abandoned: set[tuple[SimStorage, Lineage]] = set()
        """Lines of history that the operator of a place has left."""
        self._values: dict[tuple[SimStorage, Uid, int], EpochId] = {}

    def markers(self, lineage: Lineage, storage: SimStorage) -> dict[Uid, list[EpochId]]:
        """The last epochs of all slots, of sinks that can be asked now."""
        found: dict[Uid, list[EpochId]] = {}
        for (line, sink, _), shown in self.visible.items():
            if line == lineage and shown and not self.is_away(sink, storage):
                found.setdefault(sink, []).append(shown[-1])
        return found

    def shows(self, committable: Committable) -> bool:
        """Whether its rows are visible."""
        return committable.epoch in self.visible[channel(committable)]

    def is_away(self, sink: Uid, storage: SimStorage) -> bool:
        until_ms = max(self.away_until_ms.get(sink, 0.0), self.cut_off_until_ms.get(storage, 0.0))
        return self._clock.now_ms < until_ms

    def overwrite(self) -> None:
        """Somebody continues after another history, and writes rows again: values of that may be replaced by older ones."""
        self._values.clear()

    def accept(self, storage: SimStorage) -> None:
        """The operator knows that there is output of another history, and continues."""
        self.know(storage)
        self.overwrite()
        self.lost.clear()
        self.repeats.update((lane, epoch) for lane, shown in self.visible.items() for epoch in set(shown))

    def know(self, storage: SimStorage) -> None:
        """The operator of the job in this place knows all output until now."""
        self._known[storage] = {*self._authors}

    def abandon(self, lines: set[Lineage], storage: SimStorage) -> None:
        """The operator begins a new line of history, and knows that what the abandoned ones owe is published once more, next to
        what a copy of the job has made of them since."""
        self._abandoned |= {(storage, lineage) for lineage in lines}

    def share(self, epochs: set[tuple[Lineage, EpochId]], *places: SimStorage) -> None:
        """The job was copied when these epochs were complete."""
        self._shared = epochs
        for storage in places:
            self.know(storage)

    def commit(self, effect: Commit, storage: SimStorage, history: History | None = None) -> None:
        """One transaction for each: look at the marker, read the staged rows, show them, move the marker."""
        if effect.compare_with is not None:
            check_markers(SlotMarkers(self, storage), effect.committables[0].sink, effect.compare_with)
        for committable in effect.committables:
            self._commit(committable, storage, history)

    def _commit(self, committable: Committable, storage: SimStorage, history: History | None) -> None:
        if self.is_away(committable.sink, storage):
            raise CommitFailed("the target is away (simulated)")
        refuses = self._rng.random() < self.odds.target_refuses if self.odds.target_refuses else False
        if refuses and self._rng.random() < 0.5:
            raise CommitFailed("the target is down (simulated)")
        shown = self.visible[channel(committable)]
        # What the committers of the product ask, about the last epoch that moved the marker.
        context = CommitterContext(_SCHEMA, lambda token: b"", history=lambda: history)
        marker = shown[-1] if shown else None
        if not context.covers(committable.lineage, committable.sink, marker, committable.epoch):
            payload = committable.payload.decode()
            if payload != INLINE and payload not in storage.objects:
                raise CommitFailed(f"staged rows {payload} are gone")
            if any((committable.lineage, epoch) in self.lost for epoch in shown):
                raise Violation(
                    f"epoch {committable.epoch} of {channel(committable)} was written next to output of a lost history, and "
                    "nobody was asked"
                )
            lane = channel(committable)
            others = [epoch for epoch in shown if self._authors[lane, epoch] is not storage]
            is_left = (storage, committable.lineage) in self._abandoned
            for epoch in others:
                known = (lane, epoch) in self._known[storage] or (lane[0], epoch) in self._shared
                if not known and not is_left:
                    raise Violation(
                        f"epoch {committable.epoch} of {lane} was written next to epoch {epoch}, which a copy of the job has "
                        "published, and nobody was asked"
                    )
            if others and any(lineage == committable.lineage for _, lineage in self._abandoned):
                # Each of the two moves the markers of the other back, and may publish again what waited when the job was copied.
                self.repeats[lane, committable.epoch] += 1
                self.overwrite()
            self._authors[lane, committable.epoch] = storage
            shown.append(committable.epoch)
            self._write(committable, storage)
        if refuses:
            raise CommitFailed("the target's answer was lost (simulated)")

    def _write(self, committable: Committable, storage: SimStorage) -> None:
        """Two jobs that write to one table overwrite each other; each keeps its own order."""
        for key in self._keys[channel(committable), committable.epoch]:
            before = self._values.get((storage, committable.sink, key))
            if before is not None and before > committable.epoch:
                raise Violation(
                    f"key group {key} of {committable.sink} had the value of epoch {before}, and that of {committable.epoch} "
                    "was written over it"
                )
            self._values[storage, committable.sink, key] = committable.epoch
