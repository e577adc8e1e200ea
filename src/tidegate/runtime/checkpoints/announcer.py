"""Tells the next epoch which checkpoint will be taken of it, if that is known."""

from __future__ import annotations

from tidegate.checkpoint.coordination.announcements import Announced
from tidegate.checkpoint.coordination.coordinator import Coordinator, WakeAt
from tidegate.checkpoint.coordination.timing import Timing
from tidegate.core.clock import Instant
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.checkpoints.term_effects import TermSteps
from tidegate.runtime.checkpoints.uploads import PendingUploads


class Announcer:
    """That of one term. Used by the thread of the checkpoint loop."""

    def __init__(
        self,
        ownership: OwnedTerm,
        uploads: PendingUploads,
        coordinator: Coordinator,
        timing: Timing,
    ) -> None:
        self._config = ownership.history.config
        self._store = ownership.store
        self._uploads = uploads
        self._coordinator = coordinator
        self._timing = timing

    def announce(self, now: Instant) -> TermSteps[None]:
        base = self._store.entry.base
        rows_ms, empty_ms = self._timing.epoch_ms(with_rows=True), self._timing.epoch_ms(with_rows=False)
        id, to_empty = self._coordinator.announce(rows_ms, now), self._coordinator.announce(empty_ms, now) is not None
        incremental = self._config.incremental and base is not None and base.owned
        changelog = incremental and self._config.changelog
        offered = self._uploads.materialized if changelog else {}
        announced = None
        if id is not None:
            announced = Announced(
                id, incremental, to_empty, changelog, materialized=offered, wait_ms=self._timing.early_wait_ms
            )
        self._uploads.announcements.announce(announced, in_progress=bool(self._coordinator.pending))
        for known, expected_ms in ((id is not None, rows_ms), (to_empty, empty_ms)):
            at_ms = None if known else self._coordinator.announces_at(expected_ms)
            if at_ms is not None:
                yield WakeAt(at_ms)
