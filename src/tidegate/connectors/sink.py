"""The contract of a sink, as Flink's Sink V2: a writer in the task stages rows, a committer publishes them later.

1. In the task: `write` batches of rows, then `prepare_commit` once all input is verified. What it returns travels with the
   acknowledgement. Nothing may be visible to readers yet; an attempt that is thrown away leaves only leavings. A target
   that cannot hide rows has them wait in the job's own storage, by `context.staging`.
2. At the committer: `commit` publishes, an epoch's output of all slots before any of the next. It may be called again with
   the same requests, also by another process; the second time must change nothing, even if a reader has meanwhile taken
   away what the first time published. So whatever publishes must leave a marker of (lineage, sink, slot) in the same step
   of the target. What may come of it is told apart in `tidegate.connectors.outcome`. Where the committer runs is said by
   the sink's `publishes_in`.
3. At the committer, if it has a method `sweep`: remove what discarded attempts left, and markers nobody will ask for.

`tidegate.testing.sink_contract` tries all of this on any sink.
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
    "publishes_in",
]

PublishesIn: TypeAlias = Literal["task", "driver"]
Request = TypeVar("Request")


class Staging(Protocol):
    """Where rows wait until their checkpoint is complete: in the job's storage, or without one in the committable."""

    def put(self, data: bytes) -> str:
        """Keep some bytes, durably. Answer: a token by which the committer reads them again (`CommitterContext.read`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterContext:
    """Who writes. (lineage, sink, epoch, slot, attempt) is never used twice."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    slot: Slot
    attempt: AttemptId
    schema: Schema
    staging: Staging = field(repr=False)


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """Who commits."""

    schema: Schema
    read: Callable[[str], bytes] = field(repr=False)
    """Gives back what a writer staged, verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """One committable with all it needs to be published by anyone, at any time."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    slot: Slot
    payload: bytes
    staged: tuple[str, ...] = ()
    """Names in the job's storage of the rows that wait for it. Only clean-up looks at them."""
    size_bytes: int = 0
    """About how large its rows are."""


CommitRequest = Committable
"""Flink's name for what a committer is given."""


class SinkWriter(Protocol):
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows that were checked against the sink's schema."""
        ...

    def prepare_commit(self) -> bytes | None:
        """Finish staging and say what is to be committed, or None for nothing. No row may be written after it."""
        ...

    def abort(self) -> None:
        """The attempt failed. Remove what can be removed; must not raise."""
        ...


class Committer(Protocol):
    """Publishes the output of one sink. Made in the driver, or in a task where the sink `publishes_in` tasks. One that holds
    connections has a method `close()`, after which it may be used again and opens new ones. One whose target keeps no markers
    has the attribute `keeps_markers = False`: it is called for one epoch after the other, and what it has taken is not sent
    again after a failure."""

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome] | None:
        """Publish requests of any number of slots and epochs, each with its marker, in as few transactions as the target
        allows. They are sorted by (epoch, slot), and none may become visible after one of a later epoch. What a marker
        already covers is skipped.

        Raises on the first failure. What was published until then stays, and is skipped when the requests come again:
        `RetryLater` and errors that are not ours bring them again, `CommitRefused` and `CommitInDoubt` stop the job.

        A sink that publishes in tasks may be given the requests of single slots, by several processes at once. One that
        publishes in the driver is given whole epochs, in order: what comes after a call is of later epochs, or a repeat.

        Answer: COMMITTED or ALREADY_COMMITTED for each request, in their order; or None, when the committer does not tell
        them apart.
        """
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """Up to where the fate of one sink's output is sealed."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    """Nothing of this lineage up to this epoch will be asked for again, except what waits."""
    waiting: tuple[Committable, ...] = ()
    """What some checkpoint still carries: it may be committed once more, whether or not it already was."""


@runtime_checkable
class Sweeping(Protocol):
    """A committer whose writers leave something behind when their attempt is thrown away."""

    def sweep(self, settled: Settled) -> None:
        """Remove leavings and markers that `settled` covers, and nothing else. May be repeated; may leave some."""
        ...


class Sink(Protocol):
    """Where rows go. Frozen configuration, pickled into every task; opens nothing by itself.

    A sink that says nothing about its `guarantee` is taken to repeat rows after a failure.

    A class may have the attribute `publishes_in`: `"task"` when committers of single slots work side by side in tasks, so
    that rows never pass through the driver; `"driver"` when one committer must see all slots, as table formats do. Without
    the attribute it is `"driver"`.
    """

    @property
    def guarantee(self) -> Guarantee:
        """What readers of the target may rely on, if the job takes checkpoints."""
        ...

    def create_writer(self, context: WriterContext) -> SinkWriter: ...

    def create_committer(self, context: CommitterContext) -> Committer: ...

    def describe(self) -> str:
        """A few words for `explain`."""
        ...


def calls_of(
    committer: object, requests: Sequence[Request], epoch: Callable[[Request], EpochId]
) -> list[list[Request]]:
    """What is handed to the committer in one call each: all of it, or without markers one epoch after the other."""
    if getattr(committer, "keeps_markers", True):
        return [list(requests)]
    return [list(group) for _, group in groupby(requests, key=epoch)]


def publishes_in(sink: object) -> PublishesIn:
    """Where the committer of a sink runs."""
    found = getattr(sink, "publishes_in", "driver")
    if found not in ("task", "driver"):
        raise GraphError(f"A sink publishes in the 'task' or in the 'driver', not in {found!r}.")
    return cast(PublishesIn, found)
