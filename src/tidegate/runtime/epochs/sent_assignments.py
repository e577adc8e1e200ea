"""The assignments of an epoch on their way to its tasks: short ones with Spark's tasks, long orders through the job's storage."""

from __future__ import annotations

import logging

from tidegate.checkpoint.layout import JobLayout
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId
from tidegate.runtime.epochs.slot_placement import PlacedSlots
from tidegate.runtime.exchange.assignment import Archive, TaskAssignment
from tidegate.runtime.exchange.task_parts import PackedAssignment, pack
from tidegate.storage import RoutedStorage, Storage, StorageError, open_storage, unique_name

log = logging.getLogger("tidegate")

_INLINE_BYTES = 512 << 10
"""Orders of a level up to this size are sent with every task of it. Reading them costs a task less than a request to storage."""


class SentAssignments:
    """Owned by the thread that runs epochs."""

    def __init__(self, job: str, archive: Archive | None) -> None:
        self._layout = JobLayout(job)
        self._archive = archive
        self._storage: Storage | None = None
        self._epoch: EpochId | None = None
        self._stored: list[str] = []
        """Objects of the epoch that was sent last. All tries of it have some."""

    def send(self, assignment: TaskAssignment, placed: PlacedSlots) -> PackedAssignment:
        """Return what Spark sends. Long orders are stored first; if storage does not accept them, they are sent, too."""
        # With the first level of the next epoch: until then, late attempts of the last one may still read.
        if assignment.epoch != self._epoch:
            self.discard()
            self._epoch = assignment.epoch
        packed = pack(assignment, placed.host_of)
        if self._archive is None or packed.orders_bytes <= _INLINE_BYTES:
            return packed
        path = self._layout.assignment(assignment.epoch, unique_name())
        stored, content = packed.stored_at(path)
        try:
            self._opened(self._archive).put(path, content)
        except StorageError as error:
            log.warning("the orders of epoch %s are sent with its tasks: %s", assignment.epoch, error)
            return packed
        self._stored.append(path)
        reach("assignment.1-stored", epoch=assignment.epoch)
        return stored

    def discard(self) -> None:
        """The epoch has ended, whatever its outcome: nobody needs its orders. What cannot be deleted is swept."""
        if not self._stored or self._archive is None:
            return
        paths = self._stored
        self._stored = []
        try:
            self._opened(self._archive).delete(paths)
        except StorageError as error:
            log.info("orders of an epoch are left to the next sweep: %s", error)
        reach("assignment.3-deleted")

    def _opened(self, archive: Archive) -> Storage:
        if self._storage is None:
            self._storage = RoutedStorage(open_storage(archive.url, **archive.options), archive.options)
        return self._storage
