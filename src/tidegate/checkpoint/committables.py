"""Uncommitted output: carried from checkpoint to checkpoint until a durable record says COMMITTED.

Pure. The order is that of `release_plan`; no output overtakes earlier output, nothing is dropped if a checkpoint fails,
and the marker in the target makes a repeat a no-op.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from tidegate.checkpoint.effects import Commit, Steps
from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.checkpoint.metadata import CommittedMark
from tidegate.checkpoint.release_plan import Publication
from tidegate.connectors.sink import Committable
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Term, Uid

Channel: TypeAlias = tuple[Lineage, Uid, int]
"""Lineage, sink and partition: the unit in which order is kept and that a marker in the target covers."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[CommittedMark, ...]).decode


def channel(committable: Committable) -> Channel:
    return committable.lineage, committable.sink, committable.slot


def in_order(committables: Iterable[Committable]) -> dict[Channel, list[Committable]]:
    """Return the committables of each channel in the order in which its marker advances."""
    lanes: dict[Channel, list[Committable]] = defaultdict(list)
    for committable in sorted(committables, key=lambda c: c.epoch):
        lanes[channel(committable)].append(committable)
    return lanes


def marks(committables: Iterable[Committable]) -> tuple[CommittedMark, ...]:
    """Return the last epoch of each channel."""
    return tuple(CommittedMark(*lane, waiting[-1].epoch) for lane, waiting in sorted(in_order(committables).items()))


class Ledger:
    """Output that this driver knows to be staged and does not know to be published."""

    def __init__(self, waiting: Iterable[Committable] = ()) -> None:
        self._waiting: dict[tuple[Channel, EpochId], Committable] = {}
        self._forgotten: set[tuple[Channel, EpochId]] = set()
        self.accept(waiting)

    def accept(self, committables: Iterable[Committable]) -> None:
        """Add the output that an accepted epoch staged or a restored checkpoint carried. Repeats change nothing."""
        for committable in committables:
            self._waiting.setdefault((channel(committable), committable.epoch), committable)

    def carried_by(self, epoch: EpochId) -> tuple[Committable, ...]:
        """Return the output that a checkpoint of `epoch` must contain: everything up to it that is not known to be published."""
        return tuple(c for c in self._waiting.values() if c.epoch <= epoch)

    def confirm(self, committed: Iterable[CommittedMark]) -> None:
        """A target has accepted these, or a durable COMMITTED record covers them: checkpoints no longer carry them.

        Their rows are deleted only with a log entry that is won after this; until then a driver may start from a
        checkpoint that carries them.
        """
        last: dict[Channel, EpochId] = {}
        for mark in committed:
            # Records arrive in any order; one of an older checkpoint reverts nothing.
            key = (mark.lineage, mark.sink, mark.partition)
            last[key] = max(last.get(key, mark.epoch), mark.epoch)
        self._waiting = {
            key: c for key, c in self._waiting.items() if key[0] not in last or c.epoch > last[key[0]]
        }  # fmt: skip

    def rewind(self, term: Term, epoch: EpochId | None) -> None:
        """The epochs of `term` after `epoch` (None: all of them) were discarded: their output must never become visible."""
        self._waiting = {
            key: c
            for key, c in self._waiting.items()
            if c.epoch.term != term or (epoch is not None and c.epoch <= epoch)
        }

    def forget(self, sink: Uid) -> None:
        """The user discards the output of a sink that no longer exists."""
        self._forgotten |= {key for key, c in self._waiting.items() if c.sink == sink}
        self._waiting = {key: c for key, c in self._waiting.items() if c.sink != sink}

    def holds(self, committables: Iterable[Committable]) -> bool:
        """Whether any of them is still unpublished."""
        return any((channel(c), c.epoch) in self._waiting for c in committables)

    def has_forgotten(self, committables: Iterable[Committable]) -> bool:
        """Whether any of them was discarded, and so was never published."""
        return any((channel(c), c.epoch) in self._forgotten for c in committables)

    def waiting(self) -> tuple[Committable, ...]:
        return tuple(self._waiting.values())

    def __len__(self) -> int:
        return len(self._waiting)


def commit(publication: Publication) -> Steps[None]:
    """Publish the output of one sink. Raises `CommitFailed`; a retry skips, by marker, what the target has accepted.

    1. Pass everything to the target, which publishes it in the order of epochs. A crash before the result leaves some
       of it published and nothing recorded; the repeat finds the markers.
    """
    yield Commit(publication.committables)
    reach("release.1-commit", sink=publication.sink)


def record_path(layout: JobLayout, ref: CheckpointRef) -> str:
    """Return where the job records that all output of a checkpoint or savepoint is published.

    Never in the folder of a savepoint, which belongs to the user: a copy of it must be the same savepoint.
    """
    return committed_record(ref.metadata) if ref.owned else layout.committed(ref.lineage, ref.term, ref.id)


def record(committables: Iterable[Committable]) -> bytes:
    """Return the body of a COMMITTED record."""
    return _encode(marks(committables))


def read_record(data: bytes) -> tuple[CommittedMark, ...]:
    return _decode(data)
