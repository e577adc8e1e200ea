"""Tells the next epoch which checkpoint will be taken of it, if that is known."""

from __future__ import annotations

from tidegate.checkpoint.announcements import Announced
from tidegate.checkpoint.coordinator import Coordinator
from tidegate.core.clock import Instant
from tidegate.runtime.checkpoints.checkpoint_work import early_wait_ms
from tidegate.runtime.checkpoints.loop_thread import LoopThread
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.uploads import PendingUploads

_SLOW_EPOCH_MS = 2_000
"""If epochs take longer, it costs less to read acknowledgements from storage than to wait for the next epoch."""


class Announcer:
    """That of one term. Used by the thread of the checkpoint loop."""

    def __init__(
        self, ownership: Ownership, uploads: PendingUploads, coordinator: Coordinator, loop: LoopThread
    ) -> None:
        self._config, self._store = ownership.history.config, ownership.store
        self._uploads, self._coordinator, self._loop = uploads, coordinator, loop
        self._epoch_ms = {True: 0, False: 0}
        """How long the last epoch with rows took, and the last one without."""

    def epoch_took(self, duration_ms: int, with_rows: bool) -> None:
        self._epoch_ms[with_rows] = duration_ms
        self._uploads.slow_epochs = self._epoch_ms[True] > _SLOW_EPOCH_MS

    def announce(self, now: Instant) -> None:
        base, rows_ms, empty_ms = self._store.entry.base, self._epoch_ms[True], self._epoch_ms[False]
        id, to_empty = self._coordinator.announce(rows_ms, now), self._coordinator.announce(empty_ms, now) is not None
        incremental = self._config.incremental and base is not None and base.owned
        changelog = incremental and self._config.changelog
        offered = self._uploads.materialized if changelog else {}
        announced = None
        if id is not None:
            wait_ms = early_wait_ms(self._uploads.upload_ms, rows_ms)
            announced = Announced(id, incremental, to_empty, changelog, materialized=offered, wait_ms=wait_ms)
        self._uploads.announcements.announce(announced, in_progress=bool(self._coordinator.pending))
        for known, expected_ms in ((id is not None, rows_ms), (to_empty, empty_ms)):
            self._loop.wake_at(None if known else self._coordinator.announces_at(expected_ms))
