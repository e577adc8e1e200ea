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
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.checkpoint.metadata import CommittedMark
from tidegate.checkpoint.output.release_plan import CommitBatch
from tidegate.checkpoint.output.sink_output import OutputUpTo, SinkOutput
from tidegate.connectors.sink import Committable
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

Channel: TypeAlias = tuple[Lineage, Uid, int]
"""Lineage, sink and partition: the unit in which order is kept and that a marker in the target covers."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[CommittedMark, ...]).decode


def channel(committable: Committable) -> Channel:
    return committable.lineage, committable.sink, committable.slot


def in_order(committables: Iterable[Committable]) -> dict[Channel, list[Committable]]:
    """Return the committables of each channel in the order in which its marker advances."""
    lanes: dict[Channel, list[Committable]] = defaultdict(list)
    # A marker says "everything up to here", so output of one channel must reach it in the order of epochs.
    for committable in sorted(committables, key=lambda c: c.epoch):
        lanes[channel(committable)].append(committable)
    return lanes


def marks(committables: Iterable[Committable]) -> tuple[CommittedMark, ...]:
    """Return the last epoch of each channel."""
    return tuple(CommittedMark(*lane, waiting[-1].epoch) for lane, waiting in sorted(in_order(committables).items()))


class Ledger:
    """Output that this driver knows to be staged and does not know to be committed.

    The cost of a call is proportional to its arguments, not to the output that waits.
    """

    def __init__(self, waiting: Iterable[Committable] = ()) -> None:
        self._sinks: dict[Uid, SinkOutput] = {}
        self._forgotten: set[tuple[Channel, EpochId]] = set()
        self.accept(waiting)

    def accept(self, committables: Iterable[Committable]) -> None:
        """Add the output that an accepted epoch staged or a restored checkpoint carried. Repeats change nothing."""
        for committable in committables:
            self._of(committable.sink).add(committable)

    def _of(self, sink: Uid) -> SinkOutput:
        found = self._sinks.get(sink)
        if found is None:
            found = self._sinks[sink] = SinkOutput()
        return found

    def up_to(self, epoch: EpochId) -> OutputUpTo:
        """Return what waits up to an epoch, as it is when it is asked."""
        return OutputUpTo(self._sinks, epoch)

    def carried_by(self, epoch: EpochId) -> tuple[Committable, ...]:
        """Return the output that a checkpoint of `epoch` must contain: everything up to it that is not known to be committed."""
        return tuple(self.up_to(epoch))

    def confirm(self, committed: Iterable[CommittedMark]) -> None:
        """A target has accepted these, or a durable COMMITTED record covers them: checkpoints no longer carry them.

        Their rows are deleted only with a log entry that is won after this; until then a driver may start from a
        checkpoint that carries them. Records arrive in any order; one of an older checkpoint reverts nothing.
        """
        for mark in committed:
            # A record may name sinks of which nothing waits here.
            if (sink := self._sinks.get(mark.sink)) is not None:
                sink.confirm(mark.lineage, Slot(mark.partition), mark.epoch)

    def rewind(self, term: Term, epoch: EpochId | None) -> None:
        """The epochs of `term` after `epoch` (None: all of them) were discarded: their output must never become visible."""
        for sink in self._sinks.values():
            sink.discard(term, epoch)

    def forget(self, sink: Uid) -> None:
        """The user discards the output of a sink that no longer exists."""
        found = self._sinks.pop(sink, SinkOutput())
        self.note_forgotten(found.of(found.epochs()))

    def note_forgotten(self, committables: Iterable[Committable]) -> None:
        """These were discarded, now or in an earlier run: they are not in the ledger, and were never committed."""
        self._forgotten |= {(channel(c), c.epoch) for c in committables}

    def holds(self, committables: Iterable[Committable]) -> bool:
        """Whether any of them is still uncommitted."""
        return any(c.sink in self._sinks and self._sinks[c.sink].holds(c) for c in committables)

    def has_forgotten(self, committables: Iterable[Committable]) -> bool:
        """Whether any of them was discarded, and so was never committed."""
        if not self._forgotten:
            return False
        return any((channel(c), c.epoch) in self._forgotten for c in committables)

    @property
    def payload_bytes(self) -> int:
        """The size of the committables that wait, with the rows in them. Other threads may read it."""
        return sum(sink.payload_bytes for sink in tuple(self._sinks.values()))

    def sinks(self) -> list[Uid]:
        """Return the sinks for which output waits."""
        return sorted(uid for uid, sink in self._sinks.items() if sink.first() is not None)

    def waiting(self) -> tuple[Committable, ...]:
        return tuple(c for sink in self._sinks.values() for c in sink.of(sink.epochs()))

    def __len__(self) -> int:
        return sum(map(len, self._sinks.values()))


class Carried:
    """The output of a checkpoint or savepoint of which some may wait. Output that left the ledger never returns to it, so each
    committable is looked up until it has left, and not again."""

    def __init__(self, contents: CheckpointContents) -> None:
        self.contents = contents
        self._rest = list(contents.committables)

    def is_in(self, ledger: Ledger) -> bool:
        """Whether the ledger still holds some of it."""
        # From the end, where `pop` costs nothing. The first one that waits ends the search.
        while self._rest and not ledger.holds(self._rest[-1:]):
            self._rest.pop()
        return bool(self._rest)


def commit(batch: CommitBatch) -> Steps[None]:
    """Commit the output of one sink. Raises `CommitFailed`; a retry skips, by marker, what the target has accepted.

    1. If the target could not be asked when the job started, compare its markers with the job's history. Changes nothing.
    2. Pass everything to the target, which commits it in the order of epochs. A crash before the result leaves some
       of it committed and nothing recorded; the repeat finds the markers.
    """
    yield Commit(batch.committables, batch.compare_with)
    reach("release.1-commit", sink=batch.sink)


def record_path(layout: JobLayout, ref: CheckpointRef) -> str:
    """Return where the job records that all output of a checkpoint or savepoint is committed.

    Never in the folder of a savepoint, which belongs to the user: a copy of it must be the same savepoint.
    """
    return committed_record(ref.metadata) if ref.owned else layout.committed(ref.lineage, ref.term, ref.id)


def record(committables: Iterable[Committable]) -> bytes:
    """Return the body of a COMMITTED record."""
    return _encode(marks(committables))


def record_of(committed: Iterable[CommittedMark]) -> bytes:
    """Return the body of a record of these marks."""
    return _encode(tuple(committed))


def read_record(data: bytes) -> tuple[CommittedMark, ...]:
    return _decode(data)
