"""What travels in control rows: barriers between tasks, acknowledgements to the driver.

A control row is one binary value. Barriers are many (tasks × tasks of the next level), so they are small; an
acknowledgement is written once by its task, travels in one of its barriers, and is passed on unopened until the driver reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from tidegate.core.ids import EpochId, Term


class FaultKind(StrEnum):
    """Why a task did no work. The driver acts by it; nothing of such an epoch becomes visible."""

    MISS = "miss"
    """The version to start from is not on this host."""
    PROTOCOL = "protocol"
    """A barrier is missing or double, or rows are missing or too many."""
    POISONED = "poisoned"
    """A task above did no work."""
    CORRUPT = "corrupt"
    """The version to start from is here and damaged."""
    USER = "user"
    """A function of the user's raised. The text is a `UserErrorReport`."""
    RESTORE = "restore"
    """What the checkpoint says cannot be brought back: a file in storage is missing or damaged."""


class Fault(msgspec.Struct, frozen=True, array_like=True):
    kind: FaultKind
    text: str


class TaskCommittable(msgspec.Struct, frozen=True, array_like=True):
    """What one sink writer prepared in one epoch, for its committer. Opaque to all but that sink."""

    sink: str
    payload: bytes
    staged: tuple[str, ...] = ()
    """Names in the job's storage of the rows that wait for it."""
    size_bytes: int = 0


class Uploaded(msgspec.Struct, frozen=True, array_like=True):
    """A task's upload for one checkpoint: done, with its encoded part, or impossible, with the reason."""

    checkpoint_id: int
    part: bytes | None
    error: str | None


class PublishedMark(msgspec.Struct, frozen=True, array_like=True):
    """All output of a slot up to an epoch."""

    lineage: str
    slot: int
    term: int
    number: int


class TaskPublished(msgspec.Struct, frozen=True, array_like=True):
    """What came of an order to publish output of a sink."""

    sink: str
    marks: tuple[PublishedMark, ...]
    """What was asked for."""
    outcomes: dict[str, int]
    """How many commits ended how, by the names of `CommitOutcome`."""
    outcome: str
    error: str | None
    """None: all of it is published."""
    taken: tuple[PublishedMark, ...] = ()
    """What the target has certainly taken before it failed."""


class TaskAck(msgspec.Struct, frozen=True, array_like=True):
    """One attempt of one task says what it did in one epoch."""

    term: int
    number: int
    level: int
    sender: int
    """The slot; in the source stage, which has no slots, the Spark partition."""
    partition: int
    attempt: int
    host: str
    version: str | None
    """The state version after this epoch: a new one, the same as before when nothing changed, None while there is no state."""
    digest: bytes
    """Of the (sender, attempt) pairs whose rows this task consumed."""
    rows_in: int
    rows_out: int
    fault: Fault | None = None
    committables: tuple[TaskCommittable, ...] = ()
    operators: dict[str, tuple[int, int]] = {}
    """Rows in and out by operator name."""
    state_bytes: int = 0
    busy_ms: int = 0
    uploads: tuple[Uploaded, ...] = ()
    event_times: dict[str, int] = {}
    """The greatest event time read from each source, in milliseconds."""
    timers: tuple[int | None, int | None] | None = None
    """The earliest pending timers, in event time and in processing time. None: not looked at, as before."""
    late_dropped: int = 0
    """Rows that came too late for all their windows, and had no side output to go to."""
    published: tuple[TaskPublished, ...] = ()
    source_rows: int = 0
    """Rows that were read from sources, each counted in one place only."""

    @property
    def epoch(self) -> EpochId:
        return EpochId(Term(self.term), self.number)


class Barrier(msgspec.Struct, frozen=True, array_like=True):
    """Ends one channel: from one attempt of one task to one task of the next level."""

    term: int
    number: int
    level: int
    sender: int
    attempt: int
    target: int
    rows: int
    poisoned: bool
    acks: tuple[bytes, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_barriers = msgspec.msgpack.Decoder(Barrier)
_acks = msgspec.msgpack.Decoder(TaskAck)

encode = _encoder.encode
decode_barrier = _barriers.decode
decode_ack = _acks.decode


def digest(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Eight bytes that are equal if and, for all practical purposes, only if the sets of (sender, attempt) are."""
    text = ",".join(f"{sender}:{attempt}" for sender, attempt in sorted(pairs))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
