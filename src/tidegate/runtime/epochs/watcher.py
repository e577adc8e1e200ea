"""Watches the Spark jobs of epochs for progress, and learns from one epoch how long the next may be silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tidegate.config.declared.waiting import PROGRESS_TIMEOUT
from tidegate.core.ids import EpochId
from tidegate.runtime.epochs.deadline import DeadlinePassed, ProgressWatch, watched
from tidegate.runtime.epochs.tolerance import UNHEARD, Tolerance
from tidegate.runtime.exchange.progress_marks import MarkPlace


class EpochWatcher:
    """The watcher of all epochs of a run, one at a time."""

    def __init__(self, place: MarkPlace) -> None:
        self.place = place
        """Where tasks leave their marks."""
        self._tolerance = Tolerance()

    @contextmanager
    def watching(self, spark: SparkSession, epoch: EpochId, limit_ms: int, *, restores: bool) -> Iterator[None]:
        """Interrupt the Spark job of an epoch if it makes no progress for so long; 0: never. `restores`: tasks restore state."""
        if not limit_ms:
            yield
            return
        watch = ProgressWatch(
            limit_ms,
            PROGRESS_TIMEOUT.key,
            self._tolerance,
            lambda: self.place.of(epoch).take(),
            # A restore reads files on local disks, of which nobody hears (see `tolerance`).
            heard=UNHEARD if restores else 1,
            unheard=UNHEARD,
        )
        try:
            with watched(spark, f"epoch {epoch}", watch):
                yield
        except DeadlinePassed:
            self._tolerance = watch.end()
            raise
        # Not after another error: an epoch that failed early says nothing about how long it takes.
        self._tolerance = watch.end()
