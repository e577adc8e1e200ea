"""Puts epochs together to samples, so that the work for a decision does not grow with the number of epochs."""

from __future__ import annotations

from tidegate.autoscaler.epoch_sample import EpochSample

_PARTS = 60
"""A window consists of about so many samples, or of as many as there are epochs."""


class SampleCollector:
    """`window_ms` is the time over which decisions average."""

    def __init__(self, window_ms: int) -> None:
        self._least_ms = window_ms // _PARTS
        self._open: EpochSample | None = None

    def add(self, epoch: EpochSample) -> EpochSample | None:
        """Add a sample of one epoch. Returns a sample of all epochs since the last one that was returned, if they took long
        enough. Epochs of an attempt that has ended are dropped if they did not."""
        before = self._open
        follows = before is not None and before.running_since_ms == epoch.running_since_ms
        found = before.plus(epoch) if before is not None and follows else epoch
        is_complete = found.duration_ms >= self._least_ms
        self._open = None if is_complete else found
        return found if is_complete else None
