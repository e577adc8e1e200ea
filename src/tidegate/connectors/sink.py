"""The contract of a sink, as in Flink's Sink V2: a writer in the task stages rows, a committer publishes them later.

1. In the task: `write` batches of rows, then `prepare_commit` once all input is verified. Its result is sent with the
   acknowledgement. Nothing may be visible to readers yet; a discarded attempt leaves only orphans. If a target cannot hide
   rows, they wait in the job's own storage, through `context.staging`.
2. At the committer: `commit` publishes, an epoch's output of all slots before any of the next. It may be called again
   with the same requests, also by another process; the second call must change nothing, even if a reader has
   meanwhile removed what the first call published. Publishing must therefore leave a marker of (lineage, sink, slot)
   in the same step of the target. `tidegate.connectors.outcome` lists the possible outcomes. The sink's
   `publishes_in` determines where the committer runs.
3. At the committer, if it has a method `sweep`: remove what discarded attempts left, and markers that are no longer needed.

`tidegate.testing.sink_contract` tests all of this for any sink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, CommitRefused, RetryLater
from tidegate.core.errors import GraphError
from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Uid
from tidegate.graph.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CommitInDoubt",
    "CommitOutcome",
    "CommitRefused",
    "CommitRequest",
    "Committable",
    "Committer",
    "CommitterContext",
    "Guarantee",
    "PublishesIn",
    "RetryLater",
    "Settled",
    "Sink",
    "SinkWriter",
    "Staging",
    "Sweeping",
    "WriterContext",
    "calls_of",
    "prepare",
    "publishes_in",
    "publishes_small_in_driver",
]

PublishesIn: TypeAlias = Literal["task", "driver"]
Request = TypeVar("Request")


class Staging(Protocol):
    """Where rows wait until their checkpoint is complete: in the job's storage or, without one, in the committable."""

    def put(self, data: bytes) -> str:
        """Store some bytes durably. Returns a token by which the committer reads them (`CommitterContext.read`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterContext:
    """Identifies a writer. (lineage, sink, epoch, slot, attempt) is never reused."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    slot: Slot
    attempt: AttemptId
    schema: Schema
    staging: Staging = field(repr=False)


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """Identifies a committer."""

    schema: Schema
    read: Callable[[str], bytes] = field(repr=False)
    """Returns what a writer staged, verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """One committable with all it needs to be published by anyone, at any time."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    slot: Slot
    payload: bytes
    staged: tuple[str, ...] = ()
    """Names in the job's storage of the rows that it stages. Only clean-up uses them."""
    size_bytes: int = 0
    """The approximate size of its rows."""


CommitRequest = Committable
"""Flink's name for what a committer is given."""


class SinkWriter(Protocol):
    """Writes the rows of one slot and epoch, in the task. What it writes stays hidden until its committer publishes it."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows that were checked against the sink's schema."""
        ...

    def prepare_commit(self) -> bytes | None:
        """Finish staging and return what is to be committed, or None for nothing. No row may be written after it."""
        ...

    def abort(self) -> None:
        """Clean up after a failed attempt. Removes what can be removed; must not raise."""
        ...


def prepared_payload(writer: SinkWriter, uid: str) -> bytes | None:
    """What `prepare_commit` of a writer returns. Raises TypeError if it is not bytes: it could not be sent to the driver."""
    payload: object = writer.prepare_commit()
    if payload is None or isinstance(payload, bytes):
        return payload
    raise TypeError(
        f"Sink {uid!r}: prepare_commit() of {type(writer).__name__} returned {type(payload).__name__}. Return bytes, such as "
        "token.encode() for a token of staging.put, or None for nothing."
    )


class Committer(Protocol):
    """Publishes the output of one sink. Created in the driver, or in a task if the sink `publishes_in` tasks. A committer
    that holds connections has a method `close()`, after which it remains usable and opens new ones. If its target keeps
    no markers, it has the attribute `keeps_markers = False`: it is called for one epoch after the other, and what it has
    accepted is not sent again after a failure.
    """

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome] | None:
        """Publish requests of any number of slots and epochs, each with its marker, in as few transactions as the target
        allows. They are sorted by (epoch, slot), and none may become visible after one of a later epoch. Requests that a
        marker already covers are skipped.

        Raises on the first failure. What was published until then stays, and is skipped when the requests are repeated:
        `RetryLater` and errors that are not ours repeat them, `CommitRefused` and `CommitInDoubt` stop the job.

        A sink that publishes in tasks may receive the requests of single slots, in several processes at once. One that
        publishes in the driver receives whole epochs, in order: later calls contain later epochs, or a repeat.

        Returns COMMITTED or ALREADY_COMMITTED for each request, in order; or None if the
        committer does not distinguish them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """The epoch up to which the outcome of one sink's output is final."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    """Nothing of this lineage up to this epoch will be asked for again, except what waits."""
    waiting: tuple[Committable, ...] = ()
    """What some checkpoint still carries: it may be committed once more, whether or not it already was."""


@runtime_checkable
class Sweeping(Protocol):
    """A committer whose writers leave orphans when their attempt is discarded."""

    def sweep(self, settled: Settled) -> None:
        """Remove orphans and markers that `settled` covers, and nothing else. May be repeated; may leave some."""
        ...


class Sink(Protocol):
    """A target of rows. A frozen configuration, pickled into every task; it opens nothing when constructed.

    A sink that does not declare its `guarantee` is assumed to repeat rows after a failure.

    A class may have the attribute `publishes_in`: `"task"` if committers of single slots work in parallel in tasks,
    so that rows never pass through the driver; `"driver"` if one committer must see all slots, as for table
    formats. The default is `"driver"`.

    A sink may have a method `prepare(schema)`. The driver calls it at each start of the job, before any row is written.
    """

    @property
    def guarantee(self) -> Guarantee:
        """What readers of the target can rely on, if the job takes checkpoints."""
        ...

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer of one slot and epoch, in the task."""
        ...

    def create_committer(self, context: CommitterContext) -> Committer:
        """Create the object that publishes what writers have written."""
        ...

    def describe(self) -> str:
        """Return a short description for `explain`."""
        ...


def calls_of(
    committer: object, requests: Sequence[Request], epoch: Callable[[Request], EpochId]
) -> list[list[Request]]:
    """Split requests into committer calls: all in one, or without markers one epoch after the other."""
    if getattr(committer, "keeps_markers", True):
        return [list(requests)]
    return [list(group) for _, group in groupby(requests, key=epoch)]


def prepare(sink: object, schema: Schema) -> None:
    """Let a sink do what must be done once before tasks write to it."""
    if (found := getattr(sink, "prepare", None)) is not None:
        found(schema)


def publishes_in(sink: object) -> PublishesIn:
    """Return where the committer of a sink runs."""
    found = getattr(sink, "publishes_in", "driver")
    if found not in ("task", "driver"):
        raise GraphError(f"A sink publishes in the 'task' or in the 'driver', not in {found!r}.")
    return cast(PublishesIn, found)


def publishes_small_in_driver(sink: object) -> bool:
    """Return whether the driver may publish for tasks while little output waits, so that it is visible sooner."""
    return bool(getattr(sink, "publishes_small_in_driver", False))
