"""Counts the requests that a driver makes for checkpoints: acknowledgements, metadata, log entries, clean-up."""

from __future__ import annotations

from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.core.storage_cost import NO_CALLS, StorageCalls
from tidegate.storage import MeteredStorage, Storage


class CheckpointCalls:
    """Used by the thread of the checkpoint loop. What other threads send to the same storage is not counted here: the heartbeat,
    records of the run, output."""

    def __init__(self, storage: Storage, statistics: CheckpointStatsTracker) -> None:
        self.statistics = statistics
        self.storage = MeteredStorage(storage)
        """The job's storage, through which requests are counted."""
        self._others = NO_CALLS

    def add(self, requests: StorageCalls) -> None:
        """Add requests of tasks that belong to no checkpoint: those for whole versions beside a changelog."""
        self._others += requests

    def record_calls(self, checkpoint_id: int | None) -> None:
        """Attribute to a checkpoint, which has ended, everything since another one was charged."""
        if checkpoint_id is not None:
            spent = StorageCalls.of(self.storage.traffic.take()) + self._others
            self._others = NO_CALLS
            self.statistics.record_calls(checkpoint_id, spent)
