"""A job's history in storage before this driver owns it: what a start would begin from, and the claim that takes the job over."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidegate.checkpoint.effects import Get, Steps, perform
from tidegate.checkpoint.files.contents import contents_of, with_output
from tidegate.checkpoint.job_log import pins
from tidegate.checkpoint.job_log.claim import check_location, claim
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, Signature
from tidegate.checkpoint.job_log.foreign_output import Markers, foreign_output
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.job_log.start import Start, is_copy
from tidegate.checkpoint.job_log.takeover import check_unclaimed, take_over
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, decode
from tidegate.checkpoint.metadata.errors import MetadataError
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.core.clock import SYSTEM_CLOCK, Clock
from tidegate.core.errors import RestoreError
from tidegate.core.history import last_of_terms
from tidegate.core.ids import EpochId, Lineage, Uid
from tidegate.core.processes import has_died, this_process
from tidegate.savepoint.renames import DeclaredNames, carried_over
from tidegate.savepoint.restore_compatibility import translated
from tidegate.storage import (
    Nonce,
    ObjectMissing,
    OutcomeUnknown,
    Storage,
    StorageError,
    decode_segment,
    new_nonce,
)
from tidegate.storage.place import place_of
from tidegate.storage.routed import is_absolute

log = logging.getLogger("tidegate")
T = TypeVar("T")

# Three heartbeats (`ownership.BEAT_MS`).
PATIENCE_MS = 6_000
"""How long a start watches the heartbeat of a run that has not ended gracefully."""


class UnpublishedOutput(RestoreError):
    """A snapshot of another job carries output that is not known to be committed."""

    code = "UNPUBLISHED_OUTPUT"

    def __init__(self, job: str, path: str, epochs: int, claim: bool = False) -> None:
        otherwise = "start without --strict (execution.output.refuse-unpublished)."
        if claim:
            otherwise = "start with claim mode NO_CLAIM: a job that has it with claim mode CLAIM deletes it."
        super().__init__(
            f"The snapshot at {path} carries output of {epochs} epoch{'' if epochs == 1 else 's'} that may not be "
            f"published. It belongs to the job {job!r}: only a start of that job publishes it, and this job never "
            "will. Start that job once, stop it with a savepoint and start from that one; or, if the output is known "
            f"to be published or is not needed, {otherwise}"
        )


@dataclass(frozen=True, slots=True)
class ForkPin:
    """Protects the checkpoint of another job from clean-up until this job has its own checkpoint."""

    layout: JobLayout
    """The layout of the other job."""
    name: str
    placed_now: bool
    """Whether this start placed it, and therefore removes it if the start fails."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The snapshot that a start begins from, held as long as it is needed."""

    ref: CheckpointRef
    pin: ForkPin | None = None


class Signer:
    """Signs the entries that a driver writes into the log, and remembers those whose outcome may be unknown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.in_doubt: set[Nonce] = set()

    def sign(self) -> Signature:
        """Sign a new entry, when it is known for each earlier one whether it is in the log."""
        self.in_doubt = set()
        return self.sign_again()

    def sign_again(self) -> Signature:
        """Sign a new entry, when the outcome of earlier ones is unknown."""
        # A nonce for each try, and all are remembered: `claim_again` follows only entries that carry one of them.
        nonce = new_nonce()
        self.in_doubt = {*self.in_doubt, nonce}
        owner = f"{socket.gethostname()} (process {os.getpid()})"
        return Signature(nonce, owner, self._clock.now().wall_ms, random_bits=secrets.randbits(32))

    def new_lineage(self) -> Lineage:
        """Return the name of a new line of history."""
        return Lineage(uuid.uuid4().hex)


@dataclass(frozen=True)
class JobHistory:
    """Where a job keeps its history, and how this run reads it."""

    storage: Storage
    layout: JobLayout
    config: CheckpointConfig
    uids: Mapping[str, str] = field(default_factory=dict)
    """Uids of snapshots and the job's current names for them."""
    clock: Clock = SYSTEM_CLOCK
    names: DeclaredNames = field(default_factory=DeclaredNames)
    """The names that the job declares."""

    def perform(self, steps: Steps[T]) -> T:
        return perform(steps, self.storage)

    def has_checkpoints(self) -> bool:
        """Whether a run of this job has ever completed a checkpoint."""
        found = self.perform(newest(self.layout))
        return found is not None and found.last_id > 0

    def peek(self, source: CheckpointRef | None) -> CheckpointMetadata | None:
        """Return the snapshot that a start would begin from, in the job's uids, as far as it can
        be read without owning the job.
        """
        found = self.perform(newest(self.layout))
        ref = source if source is not None else None if found is None else found.base
        if ref is None:
            return None
        try:
            return self.snapshot_in(self.storage.get(ref.metadata))
        except (StorageError, MetadataError):
            return None  # The claim reads it again, and reports what is wrong with it.

    @property
    def location(self) -> str:
        """Where the job's directory is, by a name that does not depend on the spelling of its address."""
        return f"{place_of(self.storage.url)}/{self.layout.root}"

    def check_location(self, fresh: bool, accepts_move: bool) -> None:
        """Raise `DirectoryMoved` if the job's last run used its directory elsewhere."""
        self.perform(check_location(self.layout, Start(fresh=fresh, location=self.location, accepts_move=accepts_move)))

    def foreign_output(
        self,
        markers: Callable[[Lineage], Markers],
        source: CheckpointRef | None = None,
        carried: Iterable[EpochId] = (),
    ) -> dict[Uid, tuple[EpochId, ...]]:
        """Return the output in targets that the job's log does not know, by sink."""
        return self.perform(foreign_output(self.layout, markers, source, carried))

    def snapshot_in(self, data: bytes) -> CheckpointMetadata:
        return carried_over(translated(decode(data), self.uids), self.names)

    def check_origin(
        self,
        source: CheckpointRef,
        snapshot: CheckpointMetadata,
        fresh: bool,
        claim: bool = False,
        accepts_move: bool = False,
    ) -> None:
        """Warn if the job starts another line of history from a snapshot whose output may not be committed: the output
        still belongs to the job that took the snapshot. Raises `UnpublishedOutput` if the configuration forbids that,
        and always with `claim`: this job would delete the only snapshot from which the other one can commit it.
        """
        if not snapshot.waiting_count:
            return
        found = self.perform(newest(self.layout))
        if found is not None and found.lineage == snapshot.lineage:
            newest_one = found.base is not None and found.base.metadata == source.metadata
            # In a copy of the directory, a new line of history leaves that to the original.
            copied = is_copy(found, Start(location=self.location, accepts_move=accepts_move))
            if not fresh or (newest_one and not copied):
                return  # The snapshot is the job's own: the job commits the output it carries.

        if self._has(committed_name(source, JobLayout(snapshot.job), snapshot)):
            return

        contents = self.perform(with_output(contents_of(source.metadata, snapshot, lambda committable: ())))
        epochs = len({committable.epoch for committable in contents.committables})
        unpublished = UnpublishedOutput(snapshot.job, source.metadata, epochs, claim)
        if self.config.refuse_unpublished or claim:
            raise unpublished
        log.warning("%s", unpublished)

    def _has(self, name: str) -> bool:
        try:
            self.storage.get(name)
        except ObjectMissing:
            return False
        return True

    def take(self, source: CheckpointRef, snapshot: CheckpointMetadata, claim: bool) -> Origin:
        """Make sure that the snapshot to start from stays as long as it is needed. Raises `CannotClaim`.

        With `claim`, the job takes it over. Otherwise its owner keeps it: a savepoint belongs to the user, and another
        job's checkpoint is pinned until this job has its own.
        """
        job, directory = self.layout.job, self.storage.url
        if claim:
            return Origin(self.perform(take_over(source, snapshot, job, directory, new_nonce())))
        self.perform(check_unclaimed(source, job, directory))
        return Origin(source, self.perform(self._hold(source)) if is_foreign(source, snapshot) else None)

    def _hold(self, source: CheckpointRef) -> Steps[ForkPin]:
        pin = self._pin_of(source)
        held, why = replace(source, owned=True), f"the job {self.layout.job!r} begins from it"
        placed_now = yield from pins.place_once(pin.layout, pin.name, held, why)
        return replace(pin, placed_now=placed_now)

    def hold_again(self, base: CheckpointRef) -> Steps[ForkPin]:
        """After the claim succeeded: the pin is needed until the first checkpoint. It exists, unless another start of
        this job failed and removed it.
        """
        # The name follows from both jobs and the checkpoint, so a start that crashed after it placed the pin finds the same one.
        pin = self._pin_of(base)
        if (yield Get(pin.layout.pin(pin.name))) is None:
            try:
                yield from self._hold(base)
            except pins.PinTooLate as error:
                log.warning("the checkpoint that the job starts from is not pinned, and may be deleted: %s", error)
        return pin

    def _pin_of(self, source: CheckpointRef) -> ForkPin:
        other = JobLayout(decode_segment(source.metadata.split("/", 1)[0]))
        return ForkPin(other, pins.fork_pin(self.layout.job, source), placed_now=False)

    def unpin(self, pin: ForkPin) -> Steps[bool]:
        """Remove the pin. Return whether it is gone."""
        try:
            yield from pins.remove(pin.layout, pin.name)
        except StorageError as error:
            log.warning(
                "the pin %s on the checkpoint that this job started from could not be removed: %s", pin.name, error
            )
            return False
        return True

    def claim(self, start: Start, signer: Signer, force: bool = False, pin: ForkPin | None = None) -> Steps[Entry]:
        """Claim the job. Raises `StartRefused` without having changed anything; `pin` is removed if this start placed it."""
        try:
            return (
                yield from claim(
                    layout=self.layout,
                    start=replace(start, location=self.location),
                    sign=signer.sign,
                    new_lineage=signer.new_lineage,
                    patience_ms=PATIENCE_MS,
                    force=force,
                    process=this_process(),
                    has_died=has_died,
                )
            )
        except OutcomeUnknown:
            raise  # The claim may be in the log, in which case it needs the pin.
        except Exception:
            if pin is not None and pin.placed_now:
                yield from self.unpin(pin)
            raise


def carried_epochs(storage: Storage, ref: CheckpointRef, snapshot: CheckpointMetadata) -> tuple[EpochId, ...]:
    """Return the last epoch of each term whose output a snapshot carries, of its own line of history."""
    contents = perform(with_output(contents_of(ref.metadata, snapshot, lambda committable: ())), storage)
    return last_of_terms(each.epoch for each in contents.committables if each.lineage == snapshot.lineage)


def is_foreign(ref: CheckpointRef, snapshot: CheckpointMetadata) -> bool:
    """Whether it is a checkpoint of another job in the same storage."""
    return not ref.owned and snapshot.kind is SnapshotKind.CHECKPOINT and not is_absolute(ref.metadata)


def committed_name(ref: CheckpointRef, layout: JobLayout, snapshot: CheckpointMetadata) -> str:
    """Return where the job of `layout` records that the output of its snapshot is committed."""
    if snapshot.kind is SnapshotKind.SAVEPOINT:
        return layout.committed(ref.lineage, ref.term, ref.id)
    return committed_record(ref.metadata)
