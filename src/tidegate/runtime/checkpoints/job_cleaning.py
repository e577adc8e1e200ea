"""Deletes, in steps, what no checkpoint of the job needs any more. The job is correct without it, so its errors never fail it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore
from tidegate.checkpoint.coordination.stored_acks import StoredAcks
from tidegate.checkpoint.effects import Delete, Steps
from tidegate.checkpoint.files.shared import InFlight
from tidegate.core.errors import TidegateError
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.storage import StorageError

log = logging.getLogger("tidegate")


class JobCleaning:
    """The cleaning of one term. Used by the thread of the checkpoint loop."""

    def __init__(self, history: JobHistory, store: CompletedCheckpointStore, acks: StoredAcks) -> None:
        self._acks = acks
        self._cleaner = Cleaner(store, parallel=history.config.parallel_cleaning)
        self._warned: set[str] = set()
        self._sweeps = 1
        """After how many of the next checkpoints to search for files that failed checkpoints or former owners left."""

    def expect_leftovers(self, checkpoints: int = 1) -> None:
        """Search for files that nothing references, after each of this many checkpoints. A search that is under way may have
        passed the place already."""
        self._sweeps = max(self._sweeps, checkpoints + self._cleaner.is_sweeping)

    def clean(self, in_flight: InFlight) -> Steps[None]:
        """Delete old folders of the log, the files of dropped checkpoints, stored acknowledgements of those that ended, what may
        be left over, and claimed savepoints.

        Each part is tried by itself: what stops one of them after every checkpoint, as an unreadable pin does, must not stop the
        others. The log in particular would grow until its directory is full.
        """
        parts = (
            self._cleaner.trim_log(),
            self._cleaner.clean(in_flight),
            self._delete_acks(in_flight),
            self._sweep(in_flight),
            self._dispose(),
        )
        problems: dict[str, Exception] = {}
        for part in parts:
            try:
                yield from part
            except Exception as error:
                # Whatever the error: the job is correct without cleaning up, and would fail here again after every restart.
                problems.setdefault(str(error), error)
        for problem in problems.values():
            trace = None if isinstance(problem, TidegateError) else problem
            log.warning("clean-up was skipped, files are kept until the next one: %s", problem, exc_info=trace)
        if problems:
            self.expect_leftovers()

    def _delete_acks(self, in_flight: InFlight) -> Steps[None]:
        if acks := (yield from self._acks.below(in_flight.lowest_id)):
            yield Delete(acks)

    def _sweep(self, in_flight: InFlight) -> Steps[None]:
        if self._sweeps or self._cleaner.wants_sweep:
            yield from self._cleaner.sweep(in_flight)
            # A sweep of many tasks takes several calls (`TASKS_OF_A_SWEEP`); only a whole one counts.
            self._sweeps = max(0, self._sweeps - (not self._cleaner.is_sweeping))
        self._warn_of_lists()

    def _dispose(self) -> Steps[None]:
        if (yield from self._cleaner.dispose()):
            log.info("a savepoint that the job had claimed is deleted: newer checkpoints replace it")

    def _warn_of_lists(self) -> None:
        for path in sorted(self._cleaner.unreadable - self._warned):
            log.warning("the file list %s cannot be read; files of its task are kept", path)
            self._warned.add(path)

    def discard(self, paths: Sequence[str]) -> Steps[None]:
        """Delete files that nothing references."""
        if not paths:
            return
        try:
            yield Delete(tuple(paths))
        except StorageError as error:
            log.warning("%d files that are no longer needed are left for the next sweep: %s", len(paths), error)
            self.expect_leftovers()
