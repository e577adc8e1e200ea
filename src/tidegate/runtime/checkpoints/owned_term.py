"""One term of ownership of a job: the claim that began it, the completed checkpoints that it took over, what it returns to.

Steps only. `ownership` gives it a heartbeat of its own and runs them; the simulation runs them as well.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence

from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore
from tidegate.checkpoint.coordination.requests import CheckpointRequest
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.files.contents import reader
from tidegate.checkpoint.files.output_objects import INLINE_BYTES
from tidegate.checkpoint.job_log.claim import claim_again, show_life
from tidegate.checkpoint.job_log.entry import Entry
from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.connectors.sink import Committable
from tidegate.core.errors import RestoreError
from tidegate.core.ids import Uid
from tidegate.core.processes import this_process
from tidegate.runtime.checkpoints.failure_latch import FailureLatch
from tidegate.runtime.checkpoints.history import ForkPin, JobHistory, Signer, is_foreign
from tidegate.runtime.checkpoints.restore_point import RestorePoint, root_of
from tidegate.storage import StorageError

log = logging.getLogger("tidegate")


class UnclaimedOutput(RestoreError):
    """A checkpoint carries output for a sink that the job does not have."""

    code = "UNCLAIMED_OUTPUT"

    def __init__(self, sinks: Sequence[Uid]) -> None:
        names = ", ".join(repr(str(uid)) for uid in sinks)
        super().__init__(
            f"The checkpoint holds uncommitted output for the sinks {names}, which this job no longer defines. Start the job "
            "once with each of them to commit it, or discard it with -n (execution.state-recovery.ignore-unclaimed-state)."
        )


class OwnedTerm:
    """From the claim to the end of a term. Complete after `recover`."""

    def __init__(self, history: JobHistory, entry: Entry, signer: Signer, inline_bytes: int = INLINE_BYTES) -> None:
        """`entry` is the claim of this driver in the log, signed by `signer`."""
        self.history = history
        self._signer = signer
        self.failure = FailureLatch()
        self.store = CompletedCheckpointStore(
            layout=history.layout,
            claimed=entry,
            read=reader(staged_by),
            sign=signer.sign,
            num_retained=history.config.num_retained,
            inline_bytes=inline_bytes,
        )
        self.snapshot: CheckpointMetadata | None = None
        """The snapshot that the job returns to: the latest checkpoint, or what the run started from."""
        self._pin: ForkPin | None = None
        """Of the checkpoint of another job that this term began from."""

    def recover(self) -> Steps[None]:
        """Take over what the log says, and hold what the job starts from until it has a checkpoint of its own."""
        # Before anything else: a term that acted on an empty store would delete files that retained checkpoints need.
        data = yield from self.store.recover()
        if self.store.discarded.found:
            sinks = ", ".join(sorted({repr(str(each.sink)) for each in self.store.discarded.found}))
            log.warning(
                "the snapshot carries output for %s that was discarded with -n in an earlier run, so it is not committed; "
                "to commit it after all, delete %s and start from the snapshot again",
                sinks,
                self.history.layout.all_discarded,
            )
        for ref in self.store.unreadable:
            log.warning("checkpoint %d at %s cannot be read and is skipped", ref.id, ref.metadata)
        base = self.store.entry.base
        if data is None or base is None:
            return
        self.snapshot = self.history.snapshot_in(data)
        if is_foreign(base, self.snapshot):
            self._pin = yield from self.history.hold_again(base)

    def claimed_again(self) -> Steps[Entry]:
        """Claim the same job under a new term, after a failure that left the outcome of a write unknown. Raises `ClaimLost`
        if another driver owns the job. If it fails, it may be called again.
        """
        return (
            yield from claim_again(
                self.history.layout, self.store.entry, self._signer.in_doubt, self._signer.sign_again
            )
        )

    def restore_point(self) -> RestorePoint:
        """Return what a run, or an attempt of one, returns to."""
        entry = self.store.entry
        base = entry.base
        return RestorePoint(
            lineage=entry.lineage,
            term=entry.term,
            snapshot=self.snapshot,
            root=self.history.layout.root if base is None else root_of(base.metadata, self.snapshot),
            stored=(base.term, base.id) if base is not None and base.owned else None,
            storage=self.history.storage,
        )

    def shares(self, request: CheckpointRequest) -> bool:
        """Whether a checkpoint may have files of the latest one: that is this job's own, and no full one is requested."""
        base, latest = self.store.entry.base, self.snapshot
        if base is None or latest is None or request.full:
            return False
        return base.owned and (latest.term, latest.checkpoint_id) == (base.term, base.id)

    def check_output(self, sinks: Container[Uid], allow: bool) -> None:
        """Refuse to start if output waits for a sink that the job does not have; with `allow`, discard that output."""
        lost = [sink for sink in self.store.ledger.sinks() if sink not in sinks]
        if lost and not allow:
            raise UnclaimedOutput(lost)
        for sink in lost:
            log.warning("output that waited for the sink %r is dropped: the job has no such sink", sink)
            self.store.discarded.discard(sink)

    def unpin_origin(self) -> Steps[None]:
        """Remove the pin on the checkpoint of another job: this job now has its own."""
        if self._pin is not None and (yield from self.history.unpin(self._pin)):
            self._pin = None

    def show_life(self, number: int) -> Steps[None]:
        """Write a heartbeat. Raises `ClaimLost` if another driver has claimed the job."""
        yield from show_life(self.history.layout, self.store.entry, number, this_process())

    def check_held(self) -> Steps[None]:
        """Raise `ClaimLost` if another driver has claimed the job, according to its log now. Storage that does not respond
        proves nothing."""
        try:
            yield from self.show_life(0)
        except StorageError as error:
            log.debug("who owns the job could not be read from its log: %s", error)


def staged_by(committable: Committable) -> tuple[str, ...]:
    return committable.staged
