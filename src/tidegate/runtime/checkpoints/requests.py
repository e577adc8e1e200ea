"""Counts the requests that a driver makes for checkpoints: acknowledgements, metadata, log entries, clean-up."""

from __future__ import annotations

from dataclasses import replace

from tidegate.checkpoint.statistics import CheckpointStatistics
from tidegate.core.storage_cost import NO_REQUESTS, RequestCounts
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.storage import MeteredStorage


class CheckpointRequests:
    """Used by the thread of the checkpoint loop. What other threads send to the same storage is not counted here: the heartbeat,
    records of the run, output."""

    def __init__(self, history: JobHistory, statistics: CheckpointStatistics) -> None:
        self._storage, self._statistics = MeteredStorage(history.storage), statistics
        self.history = replace(history, storage=self._storage)
        """The job's history, through which requests are counted."""
        self._others = NO_REQUESTS

    def add(self, requests: RequestCounts) -> None:
        """Add requests of tasks that belong to no checkpoint: those for whole versions beside a changelog."""
        self._others += requests

    def charge(self, checkpoint_id: int | None) -> None:
        """Attribute to a checkpoint, which has ended, everything since another one was charged."""
        if checkpoint_id is not None:
            spent = RequestCounts.of(self._storage.traffic.take()) + self._others
            self._others = NO_REQUESTS
            self._statistics.charge(checkpoint_id, spent)
