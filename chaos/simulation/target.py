"""A target of sinks: rows and markers change in one transaction, and a repeat is recognised by the marker."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from chaos.simulation.clock import Clock
from chaos.simulation.faults import CALM, Violation
from chaos.simulation.storage import SimStorage
from tidegate.checkpoint.committables import Channel, channel
from tidegate.checkpoint.effects import CommitFailed
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Uid


class SimTarget:
    """A log, in which the rows of a key come in some order, and a table, in which the last one of a key stays."""

    def __init__(
        self, storage: SimStorage, rng: random.Random, clock: Clock, keys: dict[tuple[Channel, EpochId], frozenset[int]]
    ) -> None:
        self.visible: dict[Channel, list[EpochId]] = defaultdict(list)
        self.odds = CALM
        self.away_until_ms: dict[Uid, float] = {}
        self._storage, self._rng, self._clock, self._keys = storage, rng, clock, keys
        self._values: dict[tuple[Uid, int], EpochId] = {}

    def commit(self, committables: Sequence[Committable]) -> None:
        """One transaction for each: look at the marker, read the staged rows, show them, move the marker."""
        for committable in committables:
            self._commit(committable)

    def _commit(self, committable: Committable) -> None:
        if self._clock.now_ms < self.away_until_ms.get(committable.sink, 0.0):
            raise CommitFailed("the target is away (simulated)")
        refuses = self._rng.random() < self.odds.target_refuses if self.odds.target_refuses else False
        if refuses and self._rng.random() < 0.5:
            raise CommitFailed("the target is down (simulated)")
        shown = self.visible[channel(committable)]
        if not shown or shown[-1] < committable.epoch:
            if committable.payload.decode() not in self._storage.objects:
                raise CommitFailed(f"staged rows {committable.payload.decode()} are gone")
            shown.append(committable.epoch)
            self._write(committable)
        if refuses:
            raise CommitFailed("the target's answer was lost (simulated)")

    def _write(self, committable: Committable) -> None:
        for key in self._keys[channel(committable), committable.epoch]:
            before = self._values.get((committable.sink, key))
            if before is not None and before > committable.epoch:
                raise Violation(
                    f"key group {key} of {committable.sink} had the value of epoch {before}, and that of {committable.epoch} "
                    "was written over it"
                )
            self._values[committable.sink, key] = committable.epoch
