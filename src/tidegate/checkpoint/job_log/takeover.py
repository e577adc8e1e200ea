"""Claim mode CLAIM: a job takes over a savepoint from the user, and deletes it when it is no longer needed.

With the claim that starts from it (`entry.claim`), the savepoint becomes one of the job's retained snapshots, and it is
dropped like one: the entry that drops it adds it to the list of savepoints to dispose of, where it stays until its
files are gone. Its files are never part of a checkpoint: as with NO_CLAIM, the first checkpoint is full. So a
checkpoint needs nothing outside its job's folder.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tidegate.checkpoint.effects import Create, Get, Steps
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.layout import claimed_record
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind
from tidegate.core.errors import RestoreError
from tidegate.core.faults import reach
from tidegate.storage.port import Lost, Nonce


class CannotClaim(RestoreError):
    """The snapshot does not belong to the user, or was given to another job."""

    code = "CANNOT_CLAIM"


class _Claimed(msgspec.Struct, frozen=True):
    """Body of `_claimed`, also for people."""

    job: str
    directory: str
    nonce: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Claimed).decode


def take_over(
    ref: CheckpointRef, snapshot: CheckpointMetadata, job: str, directory: str, nonce: Nonce
) -> Steps[CheckpointRef]:
    """Take over the savepoint at `ref` for the job of this name with its checkpoints in `directory`. Can be repeated.

    1. Write `_claimed` next to its metadata, if absent: it names the job, and no other job can start from the savepoint
       now. A crash leaves a savepoint that only this job can start from. It is not deleted, since the job's log does
       not contain it yet.
    2. Return the reference to start from. The claim in the job's log makes the savepoint the job's own.

    A checkpoint of the job itself is its own already. Raises `CannotClaim` for a checkpoint of another job, since that
    job's log controls its files, and its other checkpoints share them.
    """
    if ref.owned:
        return ref
    if snapshot.kind is not SnapshotKind.SAVEPOINT:
        raise CannotClaim(
            f"{ref.metadata} is a checkpoint of the job {snapshot.job!r}, which shares its files among its checkpoints and "
            "deletes them itself. Start from it with claim mode NO_CLAIM, or take a savepoint of that job and claim that."
        )
    yield from check_unclaimed(ref, job, directory)
    mine = _encode(_Claimed(job, directory, nonce))
    result = yield Create(claimed_record(ref.metadata), mine, nonce)
    # Another start was faster. If it was of the same job, the record says so, and it counts for this one as well.
    if isinstance(result, Lost):
        yield from check_unclaimed(ref, job, directory)
    reach("takeover.1-marked")
    return replace(ref, claimed=True)


def check_unclaimed(ref: CheckpointRef, job: str, directory: str) -> Steps[None]:
    """Raise `CannotClaim` if another job has claimed the savepoint: that job may delete it at any time."""
    if ref.owned:
        return
    body: bytes | None = yield Get(claimed_record(ref.metadata))
    if body is None:
        return
    try:
        owner = _decode(body)
    except msgspec.MsgspecError:
        # Somebody has claimed it; a record that cannot be read must not open it to others.
        owner = _Claimed("?", "?", "")
    if (owner.job, owner.directory) != (job, directory):
        raise CannotClaim(
            f"{ref.metadata} was claimed by the job {owner.job!r} with checkpoints in {owner.directory}, which "
            "deletes it when it no longer needs it. Copy it first (`tidegate savepoint copy`); or, if that job never started "
            f"from it, delete {claimed_record(ref.metadata)}."
        )
