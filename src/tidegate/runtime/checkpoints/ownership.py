"""One driver's ownership of a job: the claim it won, the completed checkpoints it took over, and its heartbeat."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Sequence

from tidegate.checkpoint.claim import claim_again, show_life
from tidegate.checkpoint.completed_store import CompletedCheckpointStore
from tidegate.checkpoint.contents import reader
from tidegate.checkpoint.entry import Entry
from tidegate.checkpoint.log import ClaimLost
from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.checkpoint.requests import Request
from tidegate.checkpoint.start import Start
from tidegate.connectors.sink import Committable
from tidegate.core.errors import RestoreError
from tidegate.core.ids import Uid
from tidegate.core.log_setup import in_this_context
from tidegate.core.processes import this_process
from tidegate.runtime.checkpoints.failure_latch import FailureLatch
from tidegate.runtime.checkpoints.history import ForkPin, JobHistory, Signer, is_foreign
from tidegate.runtime.checkpoints.restore_point import RestorePoint, root_of
from tidegate.storage import StorageError

log = logging.getLogger("tidegate")

BEAT_MS = 2_000
"""The interval of the heartbeat."""


class UnclaimedOutput(RestoreError):
    """A checkpoint carries output for a sink that the job does not have."""

    code = "UNCLAIMED_OUTPUT"

    def __init__(self, sinks: Sequence[Uid]) -> None:
        names = ", ".join(repr(str(uid)) for uid in sinks)
        super().__init__(
            f"The checkpoint holds uncommitted output for the sinks {names}, which this job no longer defines. Start the job "
            "once with each of them to commit it, or discard it with -n (execution.state-recovery.ignore-unclaimed-state)."
        )


class HeartbeatThread:
    """A thread that writes the heartbeat of the job's owner every two seconds, and detects when it has lost the job."""

    def __init__(self, beat: Callable[[int], None], on_failure: Callable[[BaseException], None]) -> None:
        """`beat` receives the number of the beat; an error it raises, other than `StorageError`, ends the thread."""
        self._beat, self._on_failure = beat, on_failure
        self._stopped = threading.Event()
        threading.Thread(target=in_this_context(self._run), name="tidegate-heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(BEAT_MS / 1000):
            number += 1
            try:
                self._beat(number)
            except StorageError as error:
                log.warning("the heartbeat of the job could not be written: %s", error)
            except Exception as error:
                self._on_failure(error)
                return


class Ownership:
    """From the claim to the end of a term. The heartbeat starts immediately, since taking over may take a while."""

    def __init__(self, history: JobHistory, entry: Entry, signer: Signer) -> None:
        """`entry` is the claim of this driver in the log, signed by `signer`."""
        self.history, self._signer = history, signer
        self.failure = FailureLatch()
        self._watchers: list[Callable[[BaseException], None]] = []
        self.store = CompletedCheckpointStore(
            layout=history.layout,
            claimed=entry,
            read=reader(staged_by),
            sign=signer.sign,
            num_retained=history.config.num_retained,
        )
        self._heartbeat = HeartbeatThread(self._show_life, self.fail)
        try:
            data = history.perform(self.store.recover())
            if self.store.discarded.found:
                sinks = ", ".join(sorted({repr(str(each.sink)) for each in self.store.discarded.found}))
                log.warning(
                    "the snapshot carries output for %s that was discarded with -n in an earlier run, so it is not published; "
                    "to publish it after all, delete %s and start from the snapshot again",
                    sinks, history.layout.all_discarded,
                )  # fmt: skip
            for ref in self.store.unreadable:
                log.warning("checkpoint %d at %s cannot be read and is skipped", ref.id, ref.metadata)
            self.snapshot: CheckpointMetadata | None = None if data is None else history.snapshot_in(data)
            """The snapshot that the job returns to: the latest checkpoint, or what the run started from."""
            base = entry.base
            foreign = base is not None and self.snapshot is not None and is_foreign(base, self.snapshot)
            self._pin = history.hold_again(base) if base is not None and foreign else None
        except BaseException:
            # The caller never gets this object, and a heartbeat that continued would refuse every later start.
            self._heartbeat.stop()
            raise

    @classmethod
    def claim(cls, history: JobHistory, start: Start, force: bool = False, pin: ForkPin | None = None) -> Ownership:
        """Claim the job and take over what its log contains. Raises `StartRefused` without having changed anything."""
        signer = Signer(history.clock)
        return cls(history, history.claim(start, signer, force, pin), signer)

    def claim_again(self) -> Ownership:
        """Claim the same job under a new term, after a failure that left the outcome of a write unknown. Raises `ClaimLost`
        if another driver owns the job. If it fails, it may be called again.
        """
        steps = claim_again(self.history.layout, self.store.entry, self._signer.unsettled, self._signer.sign_again)
        return Ownership(self.history, self.history.perform(steps), Signer(self.history.clock))

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

    def shares(self, request: Request) -> bool:
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

    def stand_alone(self) -> None:
        """Release the snapshot of another job: this job now has its own checkpoint."""
        if self._pin is not None and self.history.unpin(self._pin):
            self._pin = None

    def is_held(self) -> bool:
        """Whether no other driver has claimed the job, according to its log now."""
        try:
            self._show_life(0)
        except Exception:
            return False
        return self.failure.error is None

    def check_held(self) -> None:
        """Raise `ClaimLost` if another driver has claimed the job, according to its log now. Storage that does not respond
        tells nothing."""
        try:
            self._show_life(0)
        except StorageError as error:
            log.debug("the log could not be asked who owns the job: %s", error)

    def claim_lost(self) -> ClaimLost | None:
        """Return the error of a driver that another one has replaced, according to the log now. None as well if storage does not
        answer: then nothing is known."""
        try:
            self._show_life(0)
        except ClaimLost as error:
            return error
        except Exception as error:
            log.info("whether another driver has claimed the job could not be read: %s", error)
        known = self.failure.error
        return known if isinstance(known, ClaimLost) else None

    def _show_life(self, number: int) -> None:
        self.history.perform(show_life(self.history.layout, self.store.entry, number, this_process()))

    def fail(self, error: BaseException) -> None:
        """End the term: the job is claimed again, or lost."""
        if not self._heartbeat.is_stopped:
            log.error("the job can write no further checkpoint: %s", error)
        self.failure.set(error)
        for tell in self._watchers:
            tell(error)

    def watch(self, tell: Callable[[BaseException], None]) -> None:
        """Call `tell` when the term fails, or now if it has."""
        self._watchers.append(tell)
        if self.failure.error is not None:
            tell(self.failure.error)

    def stop(self) -> None:
        """Stop without a log entry, as a crash would."""
        self._heartbeat.stop()


def staged_by(committable: Committable) -> tuple[str, ...]:
    return committable.staged
