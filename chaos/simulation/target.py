"""A target of sinks: rows and markers change in one transaction, and a repeat is recognised by the marker."""

from __future__ import annotations

import random
from collections import defaultdict

from chaos.simulation.faults import CALM
from chaos.simulation.storage import SimStorage
from tidegate.checkpoint.committables import Channel, channel
from tidegate.checkpoint.effects import CommitFailed
from tidegate.checkpoint.metadata import Committable
from tidegate.core.ids import EpochId


class SimTarget:
    def __init__(self, storage: SimStorage, rng: random.Random) -> None:
        self.visible: dict[Channel, list[EpochId]] = defaultdict(list)
        self.odds = CALM
        self._storage = storage
        self._rng = rng

    def commit(self, committable: Committable) -> None:
        """One transaction: look at the marker, read the staged rows, show them, move the marker."""
        refuses = self._rng.random() < self.odds.target_refuses if self.odds.target_refuses else False
        if refuses and self._rng.random() < 0.5:
            raise CommitFailed("the target is down (simulated)")
        shown = self.visible[channel(committable)]
        if not shown or shown[-1] < committable.epoch:
            if committable.payload.decode() not in self._storage.objects:
                raise CommitFailed(f"staged rows {committable.payload.decode()} are gone")
            shown.append(committable.epoch)
        if refuses:
            raise CommitFailed("the target's answer was lost (simulated)")
