"""Entries of a job's log. The newest one holds the complete truth about the job, so no reader needs earlier ones.

Each entry repeats everything that holds after it (lineage, base, retained checkpoints, last id). Its writer knows what
held before, because it read or wrote the previous slot; and it wins its slot only if nothing else followed that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from tidegate.core import history
from tidegate.core.errors import CheckpointError
from tidegate.core.history import Claims, History
from tidegate.core.ids import EpochId, Lineage, Term, ordinal, term_of
from tidegate.storage.port import Nonce

FORMAT = 2
"""2: entries are in folders. A version that looks for them elsewhere must not continue the log."""
SLOTS_PER_FOLDER = 1_000
"""As many names as an object store lists or deletes with one request, and far below what HDFS allows in a directory."""


class LogCorrupt(CheckpointError):
    """An entry cannot follow the one before it. Somebody else than tidegate wrote, changed or removed entries."""

    code = "LOG_CORRUPT"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(
            f"The job's log is not what tidegate writes: {path} {why}. Nothing was changed. "
            "Restore the log folder from a backup, or start a new job name from a savepoint or a retained checkpoint."
        )


NEVER = Term(0)
"""No claim has this term."""


class EntryKind(StrEnum):
    CLAIM = "claim"
    CHECKPOINT = "checkpoint"
    TERMINAL_SAVEPOINT = "terminal-savepoint"
    END = "end"


class RunOutcome(StrEnum):
    """How a run ended, if it was able to record it.

    Flink's terminal states, and STOPPED: with a savepoint that is in the log.
    """

    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    SUSPENDED = "SUSPENDED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """Points to a completed checkpoint or savepoint.

    `metadata` is its name in storage, `checksum` the expected checksum.
    """

    id: int
    term: Term
    epoch: EpochId
    lineage: Lineage
    metadata: str
    checksum: str
    owned: bool = True
    """The job may reuse its files and delete it. False for savepoints and for another job's checkpoints."""
    claimed: bool = False
    """A savepoint that was given to the job: the job may delete it, but not reuse its files."""

    @property
    def is_ours(self) -> bool:
        return self.owned or self.claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One slot of the log, and everything that holds after it."""

    slot: int
    kind: EntryKind
    term: Term
    """Identifies the claim.

    Its number is one more than any before it, and a claim without its slot does not exist: no two in a log share a term. Its
    random bits distinguish it from claims in other copies of the log.
    """
    nonce: Nonce
    owner: str
    """The writer, for people."""
    at_ms: int
    """Wall clock of the writer, for people. Nothing is decided by it."""
    lineage: Lineage
    base: CheckpointRef | None
    """What a restart starts from.

    None: from the beginning. A checkpoint of the job that is not in `retained` was discarded on purpose.
    """
    retained: tuple[CheckpointRef, ...]
    """Every existing checkpoint of the job, and savepoints it was given, oldest first."""
    last_id: int
    """Greatest checkpoint id ever completed; 0 if there is none."""
    owed: tuple[CheckpointRef, ...] = ()
    """Completed checkpoints that claims have abandoned since the last checkpoint. Their output must still become visible."""
    outcome: RunOutcome | None = None
    """Set by the last entry of a run that ended gracefully."""
    format: int = FORMAT
    disposing: tuple[CheckpointRef, ...] = ()
    """Claimed savepoints that were dropped and may still exist. No sweep finds them, since they are outside the job's folder."""
    folder: int = 0
    """The first slot of the folder that holds this entry. 0: the folder `log`, where version 1 kept every entry."""
    next_folder: int = 0
    """The folder of the next entry. It is part of this one, so that all drivers try to create the next slot under one name."""
    claims: Claims = ()
    """The claims in the log up to this entry, this one's last. Empty in entries of earlier versions of tidegate."""
    location: str = ""
    """Where the owner found the job's directory (`storage.place`). Empty in entries of earlier versions of tidegate."""
    here_since: Term = NEVER
    """In a copy of another directory, the claim that began a line of history of its own. What was before it is the original's.
    0: this is no copy."""

    @property
    def history(self) -> History:
        """The history as the owner of this entry knows it."""
        return History(self.lineage, self.claims, self.term)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


def to_bytes(entry: Entry) -> bytes:
    return _encode(entry)


def from_bytes(data: bytes, path: str) -> Entry:
    """Decode an entry. Fails closed with `LogCorrupt`."""
    try:
        entry = _decode(data)
    except msgspec.MsgspecError as error:
        raise LogCorrupt(path, f"cannot be read ({error})") from error
    if entry.format > FORMAT:
        raise LogCorrupt(path, f"was written in format {entry.format} by a newer tidegate")
    return entry


@dataclass(frozen=True, slots=True)
class Signature:
    """The part of every entry that identifies its writer."""

    nonce: Nonce
    owner: str
    at_ms: int
    random_bits: int | None = None
    """What distinguishes a claim from one in another copy of the log. None: nothing, for tests."""


def claim(
    before: Entry | None,
    by: Signature,
    lineage: Lineage,
    base: CheckpointRef | None,
    accepted: Iterable[EpochId] = (),
    unbounded: bool = False,
    location: str = "",
    carried: Iterable[EpochId] = (),
) -> Entry:
    """Return the claim for the slot after `before`.

    The table of starts chose its base, from `before` alone. `accepted` are markers in targets that the log does not know, and
    that the user has accepted. `unbounded`: the owner commits output before its checkpoint. `location` is where the owner
    found the log; empty: where it was. `carried` are the epochs whose output the base carries, of its lineage.
    """
    slot = 1 if before is None else before.slot + 1
    accepted = tuple(accepted)
    # Above the origin's terms, too: a fork starts with files that carry those, and (origin, name) must stay one
    # content.
    number = _ordinal_after(before, base, accepted)
    # The first claim needs no random bits: no other job has its lineage.
    term = term_of(number, None if before is None and base is None else by.random_bits)
    return Entry(
        slot=slot,
        kind=EntryKind.CLAIM,
        term=term,
        nonce=by.nonce,
        owner=by.owner,
        at_ms=by.at_ms,
        lineage=lineage,
        base=base,
        retained=_retained_after(before, base),
        last_id=0 if before is None else before.last_id,
        owed=_abandoned_after(before, base, lineage),
        disposing=() if before is None else before.disposing,
        folder=_folder_after(before),
        next_folder=_folder_for(slot + 1, _folder_after(before)),
        claims=_claims_after(before, term, lineage, base, carried, accepted, unbounded),
        location=location or ("" if before is None else before.location),
        here_since=NEVER if before is None else before.here_since,
    )


def in_copy(mine: Entry) -> Entry:
    """Return a claim as it begins a new line of history in a copy of the directory. The old line is the original's, with the
    output that it has not committed and with the savepoints that it has claimed: they are outside the directory, and both would
    delete them."""
    return replace(mine, owed=(), disposing=(), retained=_without_given(mine.retained, mine.base), here_since=mine.term)


def _without_given(retained: tuple[CheckpointRef, ...], base: CheckpointRef | None) -> tuple[CheckpointRef, ...]:
    """Return the snapshots that lie in the directory, and the one that the claim itself was given."""
    return tuple(ref for ref in retained if not ref.claimed or ref == base)


def _folder_after(before: Entry | None) -> int:
    """Return the folder of the entry after `before`. The first entry of a job is in `log`, where older versions find it."""
    return 0 if before is None else before.next_folder


def _folder_for(slot: int, last: int) -> int:
    """Return the folder for `slot` if the slot before it is in the folder `last`."""
    # 0 is the folder `log`, which takes no further entry: versions that look there must not continue this one.
    has_room = last > 0 and slot - last < SLOTS_PER_FOLDER
    return last if has_room else slot


def _claims_after(
    before: Entry | None,
    term: Term,
    lineage: Lineage,
    base: CheckpointRef | None,
    carried: Iterable[EpochId],
    accepted: Iterable[EpochId],
    unbounded: bool,
) -> Claims:
    claims = () if before is None else before.claims
    # A savepoint of the lineage may contain more than the log: the job commits the output that it carries.
    if base is not None and base.lineage == lineage:
        for epoch in (base.epoch, *carried):
            claims = history.learnt(claims, epoch)
    for epoch in sorted(accepted):
        claims = history.learnt(claims, epoch, own=False)
    return history.claimed(claims, term, unbounded)


def _retained_after(before: Entry | None, base: CheckpointRef | None) -> tuple[CheckpointRef, ...]:
    """Return what a claim retains: what was retained before, and the savepoint that it takes over."""
    kept = () if before is None else before.retained
    # A rollback changes nothing about what is retained: it can be taken back until a checkpoint drops what it left.
    return kept if base is None or not base.claimed or base in kept else (*kept, base)


def _abandoned_after(before: Entry | None, base: CheckpointRef | None, lineage: Lineage) -> tuple[CheckpointRef, ...]:
    if before is None:
        return ()
    # What the log stands at now. If this claim continues from elsewhere, the output of `left` would never be seen
    # again.
    left = before.base
    if left is None or left in before.owed:
        return before.owed
    # A claim that starts a new lineage takes over the state of its base, but not its output.
    if _same(left, base) and left.lineage == lineage:
        return before.owed
    # A run that ended without keeping its checkpoints committed their output first (`CompletedCheckpointStore.finish`).
    given_up = left.is_ours and left not in before.retained
    origins = left.lineage != before.lineage  # a fork's base: its origin commits that output
    return before.owed if given_up or origins else (*before.owed, left)


def _same(left: CheckpointRef | None, base: CheckpointRef | None) -> bool:
    """Whether both are the same snapshot, even if a savepoint already in the log was claimed later."""
    return left is not None and base is not None and left.metadata == base.metadata


def _forgets_output(before: Entry | None, entry: Entry) -> bool:
    if entry.owed == _abandoned_after(before, entry.base, entry.lineage):
        return False
    if before is not None and _forks_copy(before, entry) and not entry.owed:
        return False
    # Older logs do not list a snapshot as `owed` if a new lineage starts from that very snapshot.
    return before is None or not _same(before.base, entry.base) or entry.owed != before.owed


def _forks_copy(before: Entry, entry: Entry) -> bool:
    """Whether a claim begins a new line of history in a copy of the directory. The original commits what the old one has left."""
    return entry.lineage != before.lineage and entry.location != before.location


def _ordinal_after(before: Entry | None, base: CheckpointRef | None, accepted: Iterable[EpochId] = ()) -> int:
    """Return a number above all that this job or the origin of its state ever used: epochs name versions and output in both.
    Output of a lost history that the user accepts must not hide later output either."""
    # By number, not by the whole term: random bits are no order.
    terms = [epoch.term for epoch in accepted]
    if before is not None:
        terms.append(before.term)
    if base is not None:
        terms += [base.term, base.epoch.term]
    return max(map(ordinal, terms), default=0) + 1


def checkpoint(before: Entry, by: Signature, ref: CheckpointRef, num_retained: int) -> Entry:
    """Return the entry that completes `ref` and at the same time drops the oldest checkpoints beyond `num_retained`."""
    # Claimed savepoints count as well: they are dropped like checkpoints, the oldest first.
    kept = (*before.retained, ref)[-num_retained:]
    last_id = max(before.last_id, ref.id)
    entry = _next(before, by, EntryKind.CHECKPOINT, ref, kept, last_id, None)
    # Empty from now on: a checkpoint carries all waiting output, also that of checkpoints that earlier claims abandoned.
    return replace(entry, owed=(), disposing=_disposing_after(before, kept))


def terminal_savepoint(before: Entry, by: Signature, ref: CheckpointRef) -> Entry:
    return _next(
        before, by, EntryKind.TERMINAL_SAVEPOINT, ref, before.retained, max(before.last_id, ref.id), RunOutcome.STOPPED
    )


def end(before: Entry, by: Signature, outcome: RunOutcome, keep: bool) -> Entry:
    """Return the entry that ends the run. Without `keep` it drops all checkpoints, before any of their files is deleted."""
    # The base stays named although it may go: the next start tells "given up" from "never had one" by it.
    kept = before.retained if keep else ()
    entry = _next(before, by, EntryKind.END, before.base, kept, before.last_id, outcome)
    return replace(entry, disposing=_disposing_after(before, kept))


def _disposing_after(before: Entry, kept: tuple[CheckpointRef, ...]) -> tuple[CheckpointRef, ...]:
    return (*before.disposing, *(ref for ref in before.retained if ref.claimed and ref not in kept))


def _next(
    before: Entry,
    by: Signature,
    kind: EntryKind,
    base: CheckpointRef | None,
    kept: tuple[CheckpointRef, ...],
    last_id: int,
    outcome: RunOutcome | None,
) -> Entry:
    return replace(
        before,
        slot=before.slot + 1,
        kind=kind,
        nonce=by.nonce,
        owner=by.owner,
        at_ms=by.at_ms,
        base=base,
        retained=kept,
        last_id=last_id,
        outcome=outcome,
        folder=before.next_folder,
        next_folder=_folder_for(before.slot + 2, before.next_folder),
        # A marker in a target is compared with the last epoch of its claim, which this entry may have moved.
        claims=before.claims if base is None else history.reached(before.claims, base.epoch),
    )


def fold(entries: Iterable[Entry], path: str = "log", before: Entry | None = None) -> Entry | None:
    """Return the newest entry of a history, after checking that each entry may follow the one before it.

    The history is complete, or follows `before`.
    """
    for entry in entries:
        check(before, entry, f"{path}/{entry.slot:012d}")
        before = entry
    return before


def check(before: Entry | None, entry: Entry, path: str) -> None:
    """Raise `LogCorrupt` unless `entry` may follow `before`."""
    why = _objection(before, entry)
    if why:
        raise LogCorrupt(path, why)


def _objection(before: Entry | None, entry: Entry) -> str | None:
    """Return the first rule that `entry` breaks as the successor of `before`."""
    why = _objection_to_slot(before, entry)
    if why is not None:
        return why
    if entry.kind is EntryKind.CLAIM:
        return _objection_to_claim(before, entry)
    # Every other kind is written by the driver whose claim, or later entry, is the one before.
    if before is None or entry.term != before.term:
        return "was not written by the owner of its time"
    if before.outcome is not None:
        return "follows the end of its run"
    if entry.lineage != before.lineage:
        return "changes the lineage without a claim"
    return _objection_to_retained(before, entry) or _objection_to_disposing(before, entry)


def _objection_to_slot(before: Entry | None, entry: Entry) -> str | None:
    if entry.slot != (1 if before is None else before.slot + 1):
        return "is not the slot after the one before it"
    if entry.folder != _folder_after(before):
        return "is not in the folder that the entry before it names"
    # Format 1 kept every entry in one folder, so its entries name no next one.
    if entry.format > 1 and entry.next_folder not in {entry.folder, entry.slot + 1} - {0}:
        return "names a folder for the next entry that cannot hold it"
    return None


def _objection_to_claim(before: Entry | None, entry: Entry) -> str | None:
    """A claim takes over the log as it is. Only a fork in a copy of the directory leaves to the original what lies elsewhere:
    see `in_copy`."""
    # Accepted output may have raised it further, so a greater number is fine.
    if ordinal(entry.term) < _ordinal_after(before, entry.base):
        return "is a claim with a term out of order"
    forks_copy = before is not None and _forks_copy(before, entry)
    retained = _retained_after(before, entry.base)
    if entry.retained != retained and not (forks_copy and entry.retained == _without_given(retained, entry.base)):
        return "is a claim that changes what is retained"
    if entry.disposing != (() if before is None else before.disposing) and not (forks_copy and not entry.disposing):
        return "is a claim that changes what is to be disposed of"
    if _forgets_output(before, entry):
        return "is a claim that forgets output which is still to come"
    # The files of a checkpoint that is no longer retained may already be deleted.
    if entry.base is not None and entry.base.owned and entry.base not in (() if before is None else before.retained):
        return "is a claim whose base is not retained"
    return None


def _objection_to_retained(before: Entry, entry: Entry) -> str | None:
    """Only a checkpoint adds to what is retained, and only itself."""
    new = [ref for ref in entry.retained if ref not in before.retained]
    if entry.kind is EntryKind.CHECKPOINT and (
        entry.base is None or new != [entry.base] or entry.base.id <= before.last_id
    ):
        return "is a checkpoint that does not come after the one before it"
    if entry.kind is EntryKind.TERMINAL_SAVEPOINT and (entry.base is None or _older(entry.base, before.base)):
        return "is a savepoint of an older epoch than the newest checkpoint"
    if entry.kind is not EntryKind.CHECKPOINT and new:
        return "retains a checkpoint that was never completed"
    return None


def _objection_to_disposing(before: Entry, entry: Entry) -> str | None:
    """No sweep finds a claimed savepoint, so the log alone knows which of them are still to be deleted. An owner may strike
    one from the list after it has deleted it, but must add what this entry drops."""
    dropped = _disposing_after(before, entry.retained)
    if not set(entry.disposing) <= set(dropped):
        return "disposes of a savepoint that it was not given, or that it retains"
    if not set(dropped) - set(before.disposing) <= set(entry.disposing):
        return "forgets to dispose of a savepoint that it was given"
    return None


def _older(ref: CheckpointRef, than: CheckpointRef | None) -> bool:
    return than is not None and ref.epoch < than.epoch
