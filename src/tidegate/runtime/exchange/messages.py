"""The contents of control rows: barriers between tasks, acknowledgements to the driver.

A control row is one binary value. Barriers are many (tasks × tasks of the next level), so they are small; an
acknowledgement is written once by its task, sent in one of its barriers, and forwarded unopened until the driver reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from tidegate.core.ids import EpochId, Term


class FaultKind(StrEnum):
    """Why a task did no work. It determines how the driver reacts; nothing of such an epoch becomes visible."""

    MISS = "miss"
    """The version to start from is not on this host."""
    PROTOCOL = "protocol"
    """A barrier is missing or duplicated, or there are too few or too many rows."""
    POISONED = "poisoned"
    """A task above did no work."""
    CORRUPT = "corrupt"
    """The version to start from is on this host but damaged."""
    USER = "user"
    """A user function raised. The text is a `UserErrorReport`."""
    RESTORE = "restore"
    """The checkpoint cannot be restored: a file in storage is missing or damaged."""


# `array_like`, here and below: the names of fields would be most of a small message, and a driver reads thousands.
class Fault(msgspec.Struct, frozen=True, array_like=True):
    kind: FaultKind
    text: str


class TaskCommittable(msgspec.Struct, frozen=True, array_like=True):
    """What one sink writer prepared in one epoch, for its committer. Opaque to everything but that sink."""

    sink: str
    payload: bytes
    staged: tuple[str, ...] = ()
    """Names in the job's storage of the rows staged for it."""
    size_bytes: int = 0


class Uploaded(msgspec.Struct, frozen=True, array_like=True):
    """A task's upload for one checkpoint: done, with its encoded part, or failed permanently, with the reason."""

    checkpoint_id: int
    part: bytes | None
    error: str | None


class OutputMark(msgspec.Struct, frozen=True, array_like=True):
    """All output of a slot up to an epoch."""

    lineage: str
    slot: int
    term: int
    number: int


class TaskCommitResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of an order to commit output of a sink."""

    sink: str
    marks: tuple[OutputMark, ...]
    """The output that was requested."""
    outcomes: dict[str, int]
    """The number of commits by outcome, under the names of `CommitOutcome`."""
    outcome: str
    error: str | None
    """None: all of it is committed."""
    taken: tuple[OutputMark, ...] = ()
    """The output that the target definitely accepted before it failed."""
    duration_ms: int = 0


class HostResources(msgspec.Struct, frozen=True, array_like=True):
    """What is left where a task runs. 0: unknown."""

    memory_used_bytes: int = 0
    memory_budget_bytes: int = 0
    disk_free_bytes: int = 0
    disk_size_bytes: int = 0


class HotKey(msgspec.Struct, frozen=True, array_like=True):
    """A key of which a task received many rows."""

    operator: str
    key: str
    """Its text, shortened."""
    rows: int
    """Estimated from a sample."""


class StateAccess(msgspec.Struct, frozen=True, array_like=True):
    """Sampled accesses of one kind to one state of one operator, in nanoseconds or bytes."""

    operator: str
    state: str
    name: str
    """The metric, such as `valueStateGetLatency`."""
    count: int
    total: int
    median: int
    p99: int
    most: int


class AsyncCallFigures(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What the calls of one async function took in one attempt."""

    operator: str
    calls: int
    """Rows whose call has ended, with all its tries."""
    retries: int
    timeouts: int
    failures: int
    """Rows whose call failed in the end, or took too long."""
    most_in_flight: int
    total_us: int
    median_us: int
    p99_us: int
    most_us: int


class TaskMetrics(msgspec.Struct, frozen=True, array_like=True):
    """What one task attempt measured of itself."""

    bytes_in: int = 0
    """Bytes of the Arrow batches it received."""
    bytes_out: int = 0
    busy_ms: int = 0
    idle_ms: int = 0
    """How long it waited for input."""
    held_ms: int = 0
    """How long nobody took its output."""
    restore_ms: int = 0
    seal_ms: int = 0
    fired_timers: int = 0
    resident_bytes: int = 0
    """Resident memory of its Python worker."""
    failed_rows: int = 0
    """Rows on which a function raised, and that the job passed over."""
    source_rows: dict[str, int] = {}
    """Rows read, by source."""
    storage: dict[str, tuple[int, int]] = {}
    """Requests and bytes by kind, of this worker since its last report."""
    resources: HostResources = HostResources()
    started_ms: int = 0
    """When the attempt began, in milliseconds since 1970-01-01 UTC on the clock of its host."""
    download_ms: int = 0
    """The part of `restore_ms` in which it read from the job's storage."""
    download_bytes: int = 0
    uploads_started: int = 0
    """Uploads for checkpoints that it started, again after a failure too."""
    uploads_failed: int = 0
    """Uploads that were found failed."""
    uploads_queued: int = 0
    """Uploads that were not finished when it ended."""
    pending_timers: dict[str, int] = {}
    """Timers by operator, in the epochs that count them."""
    hot_keys: tuple[HotKey, ...] = ()
    states: tuple[StateAccess, ...] = ()
    store: dict[str, float] = {}
    """What the state backend reports about itself."""
    memory: dict[str, float] = {}
    """Figures of the memory of state, under the names of metrics."""
    calls: tuple[AsyncCallFigures, ...] = ()
    """Of the async functions that made calls."""
    state_sizes: dict[str, dict[str, int]] = {}
    """Estimated bytes on local disk by operator and state, in the epochs that look at them."""


class TaskAck(msgspec.Struct, frozen=True, array_like=True):
    """The report of one task attempt about one epoch."""

    term: int
    number: int
    level: int
    sender: int
    """The slot; in the source stage, which has no slots, the Spark partition."""
    partition: int
    attempt: int
    host: str
    version: str | None
    """The state version after this epoch: a new one, the same as before if nothing changed, None while there is no state."""
    digest: bytes
    """The digest of the (sender, attempt) pairs whose rows this task consumed."""
    rows_in: int
    rows_out: int
    fault: Fault | None = None
    committables: tuple[TaskCommittable, ...] = ()
    operators: dict[str, tuple[int, int]] = {}
    """Rows in and out by operator name."""
    state_bytes: int = 0
    uploads: tuple[Uploaded, ...] = ()
    event_times: dict[str, int] = {}
    """The greatest event time read from each source, in milliseconds."""
    timers: tuple[int | None, int | None] | None = None
    """The earliest pending timers, in event time and in processing time. None: not checked, as before."""
    late_dropped: int = 0
    """Rows that were too late for all their windows and had no side output."""
    commit_results: tuple[TaskCommitResult, ...] = ()
    source_rows: int = 0
    """Rows read from sources, each counted in one place only."""
    metrics: TaskMetrics = TaskMetrics()
    spans: dict[str, dict[str, tuple[int, int, int]]] = {}
    """What `ctx.span` measured: operator → name → count, total and longest time in microseconds."""
    slowest_keys: dict[str, dict[str, str]] = {}
    """Operator → name → the key whose use took longest."""
    host_name: str = ""
    """How people call the host. `host` identifies its disk since its last boot, and placement goes by that alone."""

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
    """Return eight bytes that are equal if and, for all practical purposes, only if the sets of (sender, attempt) are."""
    text = ",".join(f"{sender}:{attempt}" for sender, attempt in sorted(pairs))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
