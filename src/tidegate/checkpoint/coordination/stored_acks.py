"""Acknowledgements that tasks have stored, because no epoch has taken them to the driver so far.

The driver looks for them at growing intervals, so that a checkpoint completes soon after its upload however long the epoch
takes that runs meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tidegate.checkpoint.coordination.timing import next_look_ms
from tidegate.checkpoint.effects import Get, ListNames, Steps
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.clock import MonotonicMs
from tidegate.core.errors import StorageError
from tidegate.core.ids import Term

log = logging.getLogger("tidegate")


@dataclass(slots=True)
class _Watch:
    """A checkpoint whose acknowledgements are looked for."""

    since_ms: MonotonicMs
    next_ms: MonotonicMs
    seen: set[str] = field(default_factory=set)


class StoredAcks:
    """The stored acknowledgements of one term. Used by the thread of the checkpoint loop."""

    def __init__(self, layout: JobLayout, term: Term) -> None:
        self._layout = layout
        self._term = term
        self._watched: dict[int, _Watch] = {}

    def watch(self, checkpoint_id: int, now_ms: MonotonicMs) -> None:
        """Begin to look for the acknowledgements of a checkpoint."""
        self._watched[checkpoint_id] = _Watch(now_ms, next_look_ms(now_ms, now_ms))

    def next_ms(self) -> MonotonicMs | None:
        """Return when to look again; None: nothing is looked for."""
        return min((watch.next_ms for watch in self._watched.values()), default=None)

    def new(self, now_ms: MonotonicMs, expiring: Collection[int] = ()) -> Steps[list[tuple[int, bytes]]]:
        """Return checkpoint and part of every acknowledgement that was not there before. `expiring`: checkpoints that are looked
        at although it is not time yet. What storage does not give now is there the next time."""
        parts: list[tuple[int, bytes]] = []
        for checkpoint_id, watch in tuple(self._watched.items()):
            if now_ms < watch.next_ms and checkpoint_id not in expiring:
                continue
            # Set before the request, so that storage that does not answer is not asked again at once.
            watch.next_ms = next_look_ms(watch.since_ms, now_ms)
            try:
                for path in (yield ListNames(self._layout.acks(self._term, checkpoint_id))):
                    if path not in watch.seen:
                        part = yield Get(path)
                        parts += [] if part is None else [(checkpoint_id, part)]
                        # After the read: if it failed, the next look reads the object again.
                        watch.seen.add(path)
            except StorageError as error:
                # Harmless: the next epoch brings the same acknowledgements. So this error must not end the term.
                log.info("acknowledgements of checkpoint %d could not be read: %s", checkpoint_id, error)
        return parts

    def watch_only(self, checkpoints: Iterable[int]) -> None:
        """Look for the acknowledgements of no other checkpoint."""
        kept = set(checkpoints)
        self._watched = {id: watch for id, watch in self._watched.items() if id in kept}

    def below(self, lowest_id: int) -> Steps[tuple[str, ...]]:
        """Return the stored acknowledgements of all checkpoints below an id. Some arrive when nobody looks for them any more.
        Raises `StorageError`."""
        found: list[str] = []
        for path in (yield ListNames(self._layout.all_acks(self._term))):
            file = self._layout.parse(path)
            if file is not None and file.number < lowest_id:
                found.append(path)
        return tuple(found)
