"""The job's side of the sink contract without Spark: epochs, checkpoints, and drivers that die and are replaced.

    trial = SinkTrial(FileSink(str(folder)))
    trial.epoch(5, 5)                      # five rows in each of two slots
    with dies_at(step := 2):
        trial.checkpoint()                 # the driver dies at the third step it reaches
    trial.restart()                        # another driver commits what the checkpoint carried, possibly again

The same code as in a job decides what is carried from checkpoint to checkpoint.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.committables import Ledger, marks
from tidegate.checkpoint.output.staging import InlineRoom, JobStaging, StagedReader
from tidegate.connectors.outcome import outcome_of
from tidegate.connectors.sink import (
    Committable,
    Committer,
    CommitterContext,
    Settled,
    Sink,
    SinkWriter,
    WriterContext,
    prepare,
    prepared_payload,
    publishes_in,
    sweeps,
)
from tidegate.core.faults import arm, reach
from tidegate.core.history import History, claimed, learnt, reached
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid, ordinal, term_of
from tidegate.schema.schema import Schema
from tidegate.testing.storage import MemoryStorage

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = Schema.parse("n bigint, name string")
"""The schema of the rows of every trial. `n` is different in each row."""

NAMES = (
    "plain",
    "",
    None,
    "tab\tand\nlines\r\n",
    "quotes \"' and , ; |",
    "back\\slash \\N \\.\n\\.\n",
    "grün 潮",
    "NULL",
)

Row = tuple[int, str | None]

_numbers = itertools.count(1)
_attempts = itertools.count(1)


class Killed(BaseException):
    """Simulates the death of the process. No `except Exception` catches it."""


@dataclass(slots=True)
class Death:
    """What `dies_at` observed."""

    step: int
    reached: list[str] = field(default_factory=list)
    happened: bool = False


@contextmanager
def dies_at(step: int) -> Iterator[Death]:
    """The process that reaches fault point number `step`, counted from 0, dies there, with everything inside the block.

    `happened` is false if the work was done before that: then there are no further steps.
    """
    death = Death(step)

    def reached(point: str, **context: Any) -> None:
        death.reached.append(point)
        if len(death.reached) == step + 1:
            raise Killed(point)

    arm(reached)
    try:
        yield death
    except Killed:
        death.happened = True
    finally:
        arm(None)


@contextmanager
def error_at(step: int, error: Exception) -> Iterator[Death]:
    """Fault point number `step`, counted from 0, raises `error` once: like a target that is briefly unavailable."""
    fault = Death(step)

    def reached(point: str, **context: Any) -> None:
        fault.reached.append(point)
        if len(fault.reached) == step + 1:
            fault.happened = True
            raise error

    arm(reached)
    try:
        yield fault
    finally:
        arm(None)


@contextmanager
def watching(look: Callable[[], object]) -> Iterator[None]:
    """Call `look` at every fault point, like a reader that watches the target all the time."""
    one_at_a_time = threading.Lock()

    def reached(point: str, **context: Any) -> None:
        with one_at_a_time:
            look()

    arm(reached)
    try:
        yield
    finally:
        arm(None)


@contextmanager
def failing(prefix: str, error: Exception) -> Iterator[None]:
    """Every fault point whose name begins with `prefix` raises `error`: like a target that is down."""

    def reached(point: str, **context: Any) -> None:
        if point.startswith(prefix):
            raise error

    arm(reached)
    try:
        yield
    finally:
        arm(None)


@dataclass(frozen=True, slots=True)
class Release:
    """Whether the target accepted everything: true in a condition if it did. A failed assertion shows the error of the sink."""

    refused_by: Exception | None = None

    def __bool__(self) -> bool:
        return self.refused_by is None

    def __repr__(self) -> str:
        if self.refused_by is None:
            return "accepted"
        at = traceback.extract_tb(self.refused_by.__traceback__)[-1]
        return f"refused: {self.refused_by!r}, raised in {at.name} at {at.filename}:{at.lineno}"


class SinkTrial:
    """One job with one sink. `expected` is every row that readers must find once, per slot in epoch order."""

    def __init__(self, sink: Sink, uid: str = "out", parallelism: int = 2) -> None:
        self.sink = sink
        self.uid = Uid(uid)
        self.parallelism = parallelism
        self.storage = MemoryStorage()
        self.layout = JobLayout("trial")
        self.inlines = True
        """Whether every other attempt has its rows in the committable, as those of a job that are few."""
        self._begin()

    def _begin(self) -> None:
        self.lineage = Lineage(uuid.uuid4().hex)
        self.at = EpochId(Term(1), 0)
        self.claims = claimed((), self.at.term)
        self.ledger = Ledger()
        self.completed: list[Committable] = []
        """What checkpoints carried: everything that a driver may commit again if its records are lost."""
        self.expected: list[Row] = []
        self.epoch_by_number: dict[int, EpochId] = {}
        """The first column of each accepted row → the epoch that produced it, the last one if several did."""
        self._open: list[tuple[EpochId, list[Row]]] = []
        prepare(self._sink(), SCHEMA)
        self.committer = self.new_committer()

    def new_committer(self) -> Committer:
        """Create a committer as another process would: from a pickled sink."""
        context = CommitterContext(SCHEMA, self._read, self._staged.check, lambda: self.history)
        return self._sink().create_committer(context)

    @property
    def _staged(self) -> StagedReader:
        return StagedReader(self.storage, self.layout, self.uid)

    @property
    def history(self) -> History:
        """What the driver of the job knows."""
        return History(self.lineage, self.claims, self.at.term)

    def _sink(self) -> Sink:
        # As in a job, where the sink travels to tasks: what cannot be pickled fails here, and no attribute is shared.
        travelled: Sink = pickle.loads(pickle.dumps(self.sink))
        return travelled

    def _read(self, token: str) -> bytes:
        reach("trial.read")
        return self._staged.read(token)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def epoch(self, *counts: int) -> list[Row]:
        """Run an accepted epoch with this many new rows in each slot. Return the rows."""
        return self.epoch_of(*(new_rows(count) for count in counts))

    def epoch_of(self, *slots: Sequence[Row]) -> list[Row]:
        """Run an accepted epoch with these rows in each slot; one slot may fail after another has prepared."""
        self.at = self.at.next()
        found = [self.attempt(slot, rows) for slot, rows in enumerate(slots)]
        self.accept(found, [row for rows in slots for row in rows])
        return self._open[-1][1]

    def accept(self, prepared: Sequence[Committable | None], rows: list[Row]) -> None:
        """Accept the attempts whose rows count. Other attempts of the epoch are discarded."""
        self.ledger.accept(each for each in prepared if each is not None)
        self._open.append((self.at, rows))
        self.epoch_by_number |= {row[0]: self.at for row in rows}

    def attempt(self, slot: int, rows: Sequence[Row]) -> Committable | None:
        """Run one attempt of one task in the current epoch. Dying in it leaves whatever the writer left."""
        staging, writer = self.open_writer(slot)
        # In two calls, as tasks write batch by batch.
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            if part:
                writer.write(batch_of(part))
        reach("trial.written")
        payload = prepared_payload(writer, str(self.uid))
        reach("trial.prepared")
        if payload is None:
            return None
        return Committable(
            lineage=self.lineage,
            sink=self.uid,
            slot=Slot(slot),
            epoch=self.at,
            payload=payload,
            staged=tuple(staging.paths),
        )

    def open_writer(self, slot: int) -> tuple[JobStaging, SinkWriter]:
        attempt = AttemptId(next(_attempts))
        # In a job, few rows wait in the committable and others in storage. Every sink is tried with both.
        room = InlineRoom(1 << 20 if self.inlines and (self.at.number + slot) % 2 else 0)
        staging = JobStaging(
            storage=self.storage, layout=self.layout, epoch=self.at, sink=self.uid, attempt=attempt, room=room
        )
        context = WriterContext(
            lineage=self.lineage,
            sink=self.uid,
            epoch=self.at,
            slot=Slot(slot),
            attempt=attempt,
            schema=SCHEMA,
            staging=staging,
        )
        return staging, self._sink().create_writer(context)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Complete a checkpoint; nothing is committed yet."""
        self.expected += [row for _, rows in self._open for row in rows]
        self._open = []
        # Output that waits longer is carried by every checkpoint in between.
        known = {(c.slot, c.epoch) for c in self.completed}
        self.completed += [c for c in self.ledger.carried_by(self.at) if (c.slot, c.epoch) not in known]
        self.claims = reached(self.claims, self.at)

    def checkpoint(self) -> Release:
        """Complete a checkpoint and release what it carries."""
        self.complete()
        return self.release()

    def release(self) -> Release:
        """Commit everything that waits, in one call. Raises an error of the sink that would end the job."""
        carried = self.ledger.carried_by(self.at)
        if not carried:
            return Release()
        try:
            reach("trial.commit-begins")
            self.committer.commit(in_order(carried))
            reach("trial.commit-ends")
        except Exception as error:
            if outcome_of(error).stops_the_job:
                raise
            return Release(refused_by=error)  # The output stays in the ledger, and the next call offers it again.
        self.ledger.confirm(marks(carried))
        return Release()

    def requests(self) -> list[Committable]:
        """Everything that was ever complete, as one long list that a driver without records would commit again."""
        return in_order(self.completed)

    def small_calls(self) -> list[list[Committable]]:
        """The same in as many calls as a runtime may make: each request by itself if tasks publish, else each epoch."""
        if publishes_in(self.sink) == "task":
            return [[request] for request in self.requests()]
        return [list(found) for _, found in itertools.groupby(self.requests(), lambda request: request.epoch)]

    def rewind(self) -> None:
        """Return to the latest checkpoint in the same driver: epochs after it are discarded. Their numbers are not reused."""
        done = [c.epoch for c in self.completed]
        self.ledger.rewind(self.at.term, max(done, default=None))
        self._open = []

    def restart(self, parallelism: int | None = None) -> Release:
        """Let another driver claim the job, with a new term. Epochs after the latest checkpoint are discarded,
        and everything complete is committed, again if that was already done: the records of it are lost.
        """
        self.parallelism = parallelism or self.parallelism
        self._open = []
        self.claim()
        self.ledger = Ledger(self.completed)
        self.committer = self.new_committer()
        return self.release()

    def rescale(self, parallelism: int) -> Release:
        """Like `restart`, but the records of what was published are kept: only what waits is committed."""
        self.parallelism = parallelism
        self._open = []
        self.claim()
        self.ledger = Ledger(self.ledger.carried_by(self.at))
        self.committer = self.new_committer()
        return self.release()

    def claim(self, accepted: Sequence[EpochId] = ()) -> None:
        """Begin a new term, as a driver does that claims the job. `accepted` is output of another history in the target."""
        for epoch in sorted(accepted):
            self.claims = learnt(self.claims, epoch, own=False)
        # The random part keeps terms of a restored directory apart from those that its backup did not know.
        number = max(ordinal(each.term) for each in self.claims) + 1
        self.at = EpochId(term_of(number, uuid.uuid4().int), 0)
        self.claims = claimed(self.claims, self.at.term)

    def start_from(self, carried: Sequence[Committable]) -> Release:
        """Let another driver start from a savepoint that carried these. What was published since stays published."""
        self.completed = list(carried)
        return self.restart()

    def cold_start(self) -> None:
        """Start a job of the same name from nothing, with a new lineage."""
        self._begin()

    def sweep(self, waiting: Sequence[Committable] = (), upto: EpochId | None = None) -> bool:
        """What the runtime does after clean-up, where the committer offers it, up to an epoch (None: the present one).
        Return whether the committer offers it."""
        if not sweeps(self.committer):
            return False
        self.committer.sweep(Settled(self.lineage, self.uid, upto or self.at, tuple(waiting)))
        return True


def new_rows(count: int) -> list[Row]:
    """Return rows that were never used, with names that are hard to encode."""
    return [(n, NAMES[n % len(NAMES)]) for n in itertools.islice(_numbers, count)]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    from tidegate.schema.columns import batch_from_rows

    return batch_from_rows(rows, SCHEMA)


def in_order(committables: Iterable[Committable]) -> list[Committable]:
    """In the order in which a committer is given them."""
    return sorted(committables, key=lambda c: (c.epoch, c.slot))


SinkFactory = Callable[[], Sink]
