"""Claim mode CLAIM: a savepoint that a job takes over from the user, to delete it when it is not needed any more.

With the claim that starts from it (`entry.claim`) the savepoint becomes one of the job's retained snapshots, and it goes like
one: the entry that drops it puts it on the list of those to be disposed of, where it stays until its files are gone. Its files
are never part of a checkpoint: as with NO_CLAIM the first one is full. So a checkpoint needs nothing outside its job's folder.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tidegate.checkpoint.effects import Create, Get, Steps
from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.layout import claimed_record
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind
from tidegate.core.errors import RestoreError
from tidegate.core.faults import reach
from tidegate.storage.port import Lost, Nonce


class CannotClaim(RestoreError):
    """A snapshot that is not the user's to give away, or was given to another job."""

    code = "CANNOT_CLAIM"


class _Claimed(msgspec.Struct, frozen=True):
    """Body of `_claimed`, for people too."""

    job: str
    directory: str
    nonce: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Claimed).decode


def take_over(
    ref: CheckpointRef, snapshot: CheckpointMetadata, job: str, directory: str, nonce: Nonce
) -> Steps[CheckpointRef]:
    """Take the savepoint at `ref` over for the job of this name with its checkpoints in `directory`. May be repeated.

    1. Write `_claimed` beside its metadata, if absent: it names the job, and no other can start from the savepoint now. A crash
       leaves a savepoint that only this job can start from. Nobody deletes it: the job's log does not have it yet.
    2. Answer: the reference to start from. The job's claim in its log makes the savepoint its own.

    A checkpoint of the job is its own already. Raises `CannotClaim` for one of another job: that job's log decides over its
    files, and its other checkpoints share them.
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
    if isinstance(result, Lost):
        yield from check_unclaimed(ref, job, directory)
    reach("takeover.1-marked")
    return replace(ref, claimed=True)


def check_unclaimed(ref: CheckpointRef, job: str, directory: str) -> Steps[None]:
    """Raises `CannotClaim` when another job has the savepoint: that one deletes it, and not when it suits us."""
    if ref.owned:
        return
    body: bytes | None = yield Get(claimed_record(ref.metadata))
    if body is None:
        return
    try:
        owner = _decode(body)
    except msgspec.MsgspecError:
        owner = _Claimed("?", "?", "")
    if (owner.job, owner.directory) != (job, directory):
        raise CannotClaim(
            f"{ref.metadata} was claimed by the job {owner.job!r} with checkpoints in {owner.directory}, and goes when that job "
            f"does not need it any more. Copy it first (`tidegate savepoint copy`); or, if that job never started from it, "
            f"delete {claimed_record(ref.metadata)}."
        )
