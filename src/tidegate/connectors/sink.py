"""The contract of a sink, as in Flink's Sink V2: a writer in the task stages rows, a committer makes them visible later.

1. In the task: `write` batches of rows, then `prepare_commit` once all input is verified. Its result is sent with the
   acknowledgement. Nothing may be visible to readers yet; a discarded attempt leaves only orphans. If a target cannot hide
   rows, they wait in the job's own storage, through `context.staging`.
2. At the committer: `commit` makes rows visible, an epoch's output of all slots before any of the next. It may be called again
   with the same requests, also by another process; the second call must change nothing, even if a reader has
   meanwhile removed what the first call committed. Committing must therefore leave a marker of (lineage, sink, slot)
   in the same step of the target. `tidegate.connectors.outcome` lists the possible outcomes. The sink's
   `publishes_in` determines where the committer runs.
   A payload comes from a checkpoint or savepoint, which somebody else may have written. What is committed, and where,
   follows from the request and from the sink's own configuration: a payload that says anything else is refused
   (`UntrustedOutput`), before anything is committed.
3. At the committer: a marker that the job's history does not know (`CommitterContext.check_marker`) is output of a lost
   or a copied history. The committer refuses to commit. If it can list its markers (`Marking`), the job checks them
   before it starts.
4. At the committer, if it has a method `sweep`: remove what discarded attempts left, and markers that are no longer needed.
5. At the cleaner, if the sink creates one (`CleansUp`): find and end what a lineage has left in the target that no job
   continues. `tidegate cleanup` uses it.

`tidegate.testing.sink_contract` tests all of this for any sink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeGuard, TypeVar, cast

from msgspec import MsgspecError

from tidegate.connectors.outcome import (
    CommitInDoubt,
    CommitOutcome,
    CommitRefused,
    ForeignOutput,
    RetryLater,
    UntrustedOutput,
)
from tidegate.core.errors import GraphError
from tidegate.core.guarantee import Guarantee
from tidegate.core.history import History
from tidegate.core.hooks import hook
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Uid
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Checking",
    "CleansUp",
    "Closing",
    "CommitInDoubt",
    "CommitOutcome",
    "CommitRefused",
    "CommitRequest",
    "Committable",
    "Committer",
    "CommitterContext",
    "ForeignOutput",
    "Guarantee",
    "LeftOutput",
    "Marking",
    "OutputCleaner",
    "PublishesIn",
    "RetryLater",
    "RowWriter",
    "Settled",
    "Sink",
    "SinkWriter",
    "Staging",
    "Sweeping",
    "UntrustedOutput",
    "WriterContext",
    "calls_of",
    "checks_target",
    "cleans_up",
    "closes",
    "commits_small_in_driver",
    "decoded",
    "lists_markers",
    "prepare",
    "publishes_in",
    "sweeps",
    "takes_rows",
    "untrusted",
]

PublishesIn: TypeAlias = Literal["task", "driver"]
Request = TypeVar("Request")
Payload = TypeVar("Payload")


class Staging(Protocol):
    """Where rows wait until their checkpoint is complete: in the job's storage or, without one or if they are few, in the
    committable."""

    def put(self, data: bytes) -> str:
        """Keep some bytes until then. Returns a token by which the committer reads them (`CommitterContext.read`), and which must
        be part of what `prepare_commit` returns."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """One committable with all it needs to be committed by anyone, at any time."""

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


def _accept_all(request: Committable, tokens: Sequence[str]) -> None:
    """For a context without a job, whose tokens have no form of ours."""


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """Identifies a committer."""

    schema: Schema
    read: Callable[[str], bytes] = field(repr=False)
    """Returns what a writer staged, verified. Raises if the token names anything but staged rows of this sink."""
    check_staged: Callable[[Committable, Sequence[str]], None] = field(default=_accept_all, repr=False)
    """Raises `UntrustedOutput` unless each of these tokens names rows that were staged in the epoch of the request."""
    history: Callable[[], History | None] = field(default=lambda: None, repr=False)
    """Returns the line of history that the job continues. None: the job has no checkpoints, so there is nothing to compare."""

    def check_marker(
        self, lineage: Lineage, sink: Uid, marker: EpochId | None, waiting: Collection[EpochId] = ()
    ) -> None:
        """Raise `ForeignOutput` if a marker in the target is not of the job's history. A committer calls this with every marker
        that it reads, before it skips or commits a request because of it. `waiting` are the epochs of the requests that the
        committer skips if the marker is not below them: a marker of another history must not hide them. A committer that asks
        `covers` about each request needs no such list."""
        if marker is None:
            return
        history = self.history()
        known = _NO_HISTORY if history is None else history
        if any(known.hides(marker, epoch) for epoch in waiting):
            raise ForeignOutput(sink, [marker], hides=True)
        if not self.knows(lineage, marker):
            raise ForeignOutput(sink, [marker])

    def knows(self, lineage: Lineage, marker: EpochId | None) -> bool:
        """Return whether a marker in the target is of the job's history. A committer does not sweep next to another one."""
        history = self.history()
        return marker is None or history is None or history.knows(lineage, marker)

    def covers(self, lineage: Lineage, sink: Uid, marker: EpochId | None, epoch: EpochId) -> bool:
        """Return whether a marker in the target says that output of this epoch was committed. Raises `ForeignOutput` if the
        marker is not of the job's history.

        A marker of another history that the user has accepted, or that an abandoned lineage has, covers nothing of this one:
        the output is committed, and its own marker replaces the other one, even if that has a greater number.
        """
        if marker is None:
            return False
        history = self.history()
        known = _NO_HISTORY if history is None else history
        # Moved back from a marker of its own, the target would not know any more what was committed up to there.
        hidden = known.is_own(marker.term) and known.hides(marker, epoch)
        self.check_marker(lineage, sink, marker, [epoch] if hidden else ())
        return known.covers(marker, epoch)


def check_markers(committer: Committer, sink: Uid, history: History) -> None:
    """Raise `ForeignOutput` if the target has output, of whatever slot, that is not of the job's history. A commit only sees the
    markers of the slots that it commits."""
    if lists_markers(committer):
        markers = committer.markers(history.lineage, sink)
        if unknown := [epoch for epoch in markers if not history.knows(history.lineage, epoch)]:
            raise ForeignOutput(sink, unknown)


_NO_HISTORY = History(Lineage(""), ())
"""Of a job without checkpoints: markers are compared with each other only."""


def untrusted(request: Committable, what: str) -> UntrustedOutput:
    """Return the error for a request whose payload no writer returned. `what` continues "the output of … for sink …"."""
    return UntrustedOutput(request.sink, request.slot, request.epoch, what)


def decoded(request: Committable, decode: Callable[[bytes], Payload]) -> Payload:
    """Decode the payload of a request. Raises `UntrustedOutput` if it is none: a repeat would fail again."""
    try:
        return decode(request.payload)
    except (ValueError, TypeError, LookupError, RecursionError, MsgspecError) as error:
        raise untrusted(request, f"has a payload that cannot be read ({type(error).__name__})") from error


class SinkWriter(Protocol):
    """Writes the rows of one slot and epoch, in the task. What it writes stays hidden until it is committed."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Stage the rows of `batch`, which were checked against the sink's schema."""
        ...

    def prepare_commit(self) -> bytes | None:
        """Finish staging and return what is to be committed, or None for nothing. No row may be written after it."""
        ...

    def abort(self) -> None:
        """Clean up after a failed attempt. Removes what can be removed; must not raise."""
        ...


class RowWriter(Protocol):
    """A writer that takes rows as the function emitted them, unchecked."""

    def write_rows(self, rows: Sequence[Any], /) -> None: ...


class Closing(Protocol):
    """A committer that holds connections. After `close` it remains usable, and opens new ones."""

    def close(self) -> None: ...


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
    """Commits the output of one sink. Created in the driver, or in a task if the sink `publishes_in` tasks. A committer
    that holds connections has a method `close()`, after which it remains usable and opens new ones. If its target keeps
    no markers, it has the attribute `keeps_markers = False`: it is called for one epoch after the other, and what it has
    accepted is not sent again after a failure.
    """

    def commit(self, requests: Sequence[Committable], /) -> Sequence[CommitOutcome] | None:
        """Commit `requests` of any number of slots and epochs, each with its marker, in as few transactions as the target
        allows. They are sorted by (epoch, slot), and none may become visible after one of a later epoch. Requests that a
        marker already covers are skipped.

        Raises on the first failure. What was committed until then stays, and is skipped when the requests are repeated:
        `RetryLater` and errors that are not ours repeat them, `CommitRefused` and `CommitInDoubt` stop the job.

        A sink that commits in tasks may receive the requests of single slots, in several processes at once. One that
        commits in the driver receives whole epochs, in order: later calls contain later epochs, or a repeat.

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


class Sweeping(Protocol):
    """A committer whose writers leave orphans when their attempt is discarded."""

    def sweep(self, final: Settled, /) -> None:
        """Remove orphans and markers that `final` covers, and nothing else. May be repeated; may leave some."""
        ...


class Marking(Protocol):
    """A committer that can list the markers in its target."""

    def markers(self, lineage: Lineage, sink: Uid, /) -> Collection[EpochId]:
        """Return the last epoch of each marker of this lineage and sink, in any order. Changes nothing in the target. A
        target that cannot be reached raises what `commit` raises; it is asked again before it gets any output."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutput:
    """Something in a target that no reader sees: staged for a commit, or by an attempt that was discarded."""

    kind: str
    """For people: `prepared transaction`, `hidden file`."""
    name: str
    """For people, where it is in the target."""
    handle: str
    """What the cleaner needs to end it."""
    epoch: EpochId | None = None
    at_ms: int | None = None
    """When it was written. None: the target does not tell."""
    size_bytes: int | None = None


class OutputCleaner(Protocol):
    """Finds and ends what a lineage has left in a target. Who calls it knows that no job continues the lineage."""

    def find(self, lineage: Lineage, sink: Uid, /) -> Iterable[LeftOutput]:
        """Yield what this lineage and sink have left, and nothing of any other. Changes nothing in the target, and does not
        create it. Anything that was ever committed is not left."""
        ...

    def end(self, left: Sequence[LeftOutput], /) -> None:
        """Remove what `find` yielded, for good. What is gone already is skipped; after an error some of it is left.

        Markers that say what was committed stay. If the lineage comes back all the same, out of a backup, its committer must
        raise instead of treating what was removed as committed.
        """
        ...


class CleansUp(Protocol):
    """A sink whose writers or committers leave something in the target if the job never starts again."""

    def create_cleaner(self) -> OutputCleaner:
        """Create the object that finds and ends it. Like all methods of a sink, it opens nothing before it is used."""
        ...


class Checking(Protocol):
    """A committer that can tell before a job starts that its target will not take output."""

    def check_target(self) -> None:
        """Check what cannot pass by itself: credentials, and that the database, table, topic or bucket exists. Raise an error of
        ours that is not retryable, such as `CommitRefused`, and name the address and the user in it, never a password. Anything
        else that is raised means that the target cannot be reached now: output waits for it. Takes seconds at most, may be
        repeated, and changes nothing that readers see.

        The driver calls it at each start. It ends the start of a job that has completed no checkpoint yet; later, output waits
        as it does when a commit fails."""
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

    def create_writer(self, context: WriterContext, /) -> SinkWriter:
        """Create the writer of one slot and epoch, in the task. `context` says which ones, and has the schema."""
        ...

    def create_committer(self, context: CommitterContext, /) -> Committer:
        """Create the object that commits what writers have written. `context` has the schema, and opens staged data."""
        ...

    def describe(self) -> str:
        """Return a short description for `explain`."""
        ...


# A sink of a user needs no base class of ours. What it may have besides the methods of `Sink`, `SinkWriter` and `Committer` is
# looked up by name, here and nowhere else. As a call does it, so that an object that passes calls on to another one has the
# other one's methods: `isinstance` with a protocol does not see those in Python 3.12 and later.


def takes_rows(writer: object) -> TypeGuard[RowWriter]:
    return hook(writer, "write_rows") is not None


def closes(committer: object) -> TypeGuard[Closing]:
    return hook(committer, "close") is not None


def sweeps(committer: object) -> TypeGuard[Sweeping]:
    return hook(committer, "sweep") is not None


def lists_markers(committer: object) -> TypeGuard[Marking]:
    return hook(committer, "markers") is not None


def checks_target(committer: object) -> TypeGuard[Checking]:
    return hook(committer, "check_target") is not None


def cleans_up(sink: object) -> TypeGuard[CleansUp]:
    return hook(sink, "create_cleaner") is not None


def calls_of(
    committer: object, requests: Sequence[Request], epoch: Callable[[Request], EpochId]
) -> list[list[Request]]:
    """Split requests into committer calls: all in one, or without markers one epoch after the other."""
    if getattr(committer, "keeps_markers", True):
        return [list(requests)]
    # What such a target has accepted is not sent again, so a call must not fail after it has accepted an epoch.
    return [list(group) for _, group in groupby(requests, key=epoch)]


def prepare(sink: object, schema: Schema) -> None:
    """Let a sink do what must be done once before tasks write to it."""
    if (method := hook(sink, "prepare")) is not None:
        method(schema)


def publishes_in(sink: object) -> PublishesIn:
    """Return where the committer of a sink runs."""
    place = getattr(sink, "publishes_in", "driver")
    if place not in ("task", "driver"):
        raise GraphError(f"A sink publishes in the 'task' or in the 'driver', not in {place!r}.")
    return cast(PublishesIn, place)


def commits_small_in_driver(sink: object) -> bool:
    """Return whether the driver may commit for tasks while little output waits, so that it is visible sooner."""
    return bool(getattr(sink, "commits_small_in_driver", False))
