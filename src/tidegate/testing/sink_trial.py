"""A job's side of the sink contract without Spark: epochs, checkpoints, drivers that die, and another one taking over.

    trial = SinkTrial(FileSink(str(folder)))
    trial.epoch(5, 5)                      # five rows in each of two slots
    with dies_at(step := 2):
        trial.checkpoint()                 # the driver dies at the third step it comes to
    trial.restart()                        # another one commits what the checkpoint carried, perhaps again

What is carried from checkpoint to checkpoint is decided by the code that decides it in a job.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint.committables import Ledger, marks
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.staging import JobStaging, read_staged
from tidegate.connectors.outcome import outcome_of
from tidegate.connectors.sink import (
    Committable,
    Committer,
    CommitterContext,
    Settled,
    Sink,
    SinkWriter,
    Sweeping,
    WriterContext,
    publishes_in,
)
from tidegate.core.faults import arm, reach
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid
from tidegate.graph.schema import Schema
from tidegate.testing.storage import MemoryStorage

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = Schema.parse("n bigint, name string")
"""Of the rows of every trial. `n` is different in each row."""

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
    """The process died here, as far as anybody can see. No `except Exception` holds it up."""


@dataclass(slots=True)
class Death:
    """What `dies_at` saw."""

    step: int
    reached: list[str] = field(default_factory=list)
    happened: bool = False


@contextmanager
def dies_at(step: int) -> Iterator[Death]:
    """Whoever comes to the fault point number `step`, counted from 0, dies there, and with it all that is inside.

    `happened` is false when the work was done before: then there are no further steps.
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
    """The fault point number `step`, counted from 0, raises `error` once: as a target that goes away for a moment would."""
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
    """Call `look` at every fault point, as a reader would who never takes his eyes off the target."""
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
    """Every fault point whose name begins with `prefix` raises `error`: as a target that is down would."""

    def reached(point: str, **context: Any) -> None:
        if point.startswith(prefix):
            raise error

    arm(reached)
    try:
        yield
    finally:
        arm(None)


class SinkTrial:
    """One job with one sink. `expected` is every row that readers must find once, per slot in the order of epochs."""

    def __init__(self, sink: Sink, uid: str = "out", parallelism: int = 2) -> None:
        self.sink, self.uid, self.parallelism = sink, Uid(uid), parallelism
        self.storage, self.layout = MemoryStorage(), JobLayout("trial")
        self._begin()

    def _begin(self) -> None:
        self.lineage = Lineage(uuid.uuid4().hex)
        self.at = EpochId(Term(1), 0)
        self.ledger = Ledger()
        self.completed: list[Committable] = []
        """What checkpoints carried: all that a driver may commit once more, if the records of it are lost."""
        self.expected: list[Row] = []
        self.epoch_by_number: dict[int, EpochId] = {}
        """The first column of each accepted row → the epoch that made it, the last one where several did."""
        self._open: list[tuple[EpochId, list[Row]]] = []
        self.committer = self.new_committer()

    def new_committer(self) -> Committer:
        """As another process would make it: of a sink that came there pickled."""
        return self._sink().create_committer(CommitterContext(SCHEMA, partial(self._read)))

    def _sink(self) -> Sink:
        travelled: Sink = pickle.loads(pickle.dumps(self.sink))
        return travelled

    def _read(self, token: str) -> bytes:
        reach("trial.read")
        return read_staged(self.storage, token)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def epoch(self, *counts: int) -> list[Row]:
        """An accepted epoch with so many new rows in each slot. Answer: the rows."""
        return self.epoch_of(*(new_rows(count) for count in counts))

    def epoch_of(self, *slots: Sequence[Row]) -> list[Row]:
        """An accepted epoch with these rows in each slot; one slot may fail after another has prepared."""
        self.at = self.at.next()
        found = [self.attempt(slot, rows) for slot, rows in enumerate(slots)]
        self.accept(found, [row for rows in slots for row in rows])
        return self._open[-1][1]

    def accept(self, prepared: Sequence[Committable | None], rows: list[Row]) -> None:
        """The attempts whose rows count. What others of the epoch did is thrown away."""
        self.ledger.accept(each for each in prepared if each is not None)
        self._open.append((self.at, rows))
        self.epoch_by_number |= {row[0]: self.at for row in rows}

    def attempt(self, slot: int, rows: Sequence[Row]) -> Committable | None:
        """One attempt of one task in the present epoch. Dying in it leaves whatever the writer left."""
        staging, writer = self.open_writer(slot)
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            if part:
                writer.write(batch_of(part))
        reach("trial.written")
        payload = writer.prepare_commit()
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
        staging = JobStaging(storage=self.storage, layout=self.layout, epoch=self.at, sink=self.uid, attempt=attempt)
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
        """A checkpoint is complete; nothing is committed yet."""
        self.expected += [row for _, rows in self._open for row in rows]
        self._open = []
        known = {(c.slot, c.epoch) for c in self.completed}
        self.completed += [c for c in self.ledger.carried_by(self.at) if (c.slot, c.epoch) not in known]

    def checkpoint(self) -> bool:
        """Complete a checkpoint and release what it carries. Answer: whether the target took all of it."""
        self.complete()
        return self.release()

    def release(self) -> bool:
        """Offer all that waits, in one call. Answer: whether the target took all of it."""
        carried = self.ledger.carried_by(self.at)
        if not carried:
            return True
        try:
            reach("trial.commit-begins")
            self.committer.commit(in_order(carried))
            reach("trial.commit-ends")
        except Exception as error:
            if outcome_of(error).stops_the_job:
                raise
            return False
        self.ledger.confirm(marks(carried))
        return True

    def requests(self) -> list[Committable]:
        """Everything that was ever complete, as one long list that a forgetful driver would commit again."""
        return in_order(self.completed)

    def small_calls(self) -> list[list[Committable]]:
        """The same in as many calls as a runtime may make: each request by itself if tasks publish, else each epoch."""
        if publishes_in(self.sink) == "task":
            return [[request] for request in self.requests()]
        return [list(found) for _, found in itertools.groupby(self.requests(), lambda request: request.epoch)]

    def rewind(self) -> None:
        """The same driver goes back to the newest checkpoint: epochs after it never were. Their numbers stay used."""
        done = [c.epoch for c in self.completed]
        self.ledger.rewind(self.at.term, max(done, default=None))
        self._open = []

    def restart(self, parallelism: int | None = None) -> bool:
        """Another driver claims the job, with a new term. Epochs after the newest checkpoint never were, and all that
        is complete is committed, again where that had been done: the records of it are lost. Answer: all was taken."""
        self.parallelism = parallelism or self.parallelism
        self._open = []
        self.at = EpochId(Term(self.at.term + 1), 0)
        self.ledger = Ledger(self.completed)
        self.committer = self.new_committer()
        return self.release()

    def rescale(self, parallelism: int) -> bool:
        """As `restart`, where the records of what was published are kept: only what waits is offered."""
        self.parallelism = parallelism
        self._open = []
        self.at = EpochId(Term(self.at.term + 1), 0)
        self.ledger = Ledger(self.ledger.carried_by(self.at))
        self.committer = self.new_committer()
        return self.release()

    def start_from(self, carried: Sequence[Committable]) -> bool:
        """Another driver starts from a savepoint that carried these. What was published since stays published."""
        self.completed = list(carried)
        return self.restart()

    def cold_start(self) -> None:
        """A job of the same name begins from nothing, under a lineage of its own."""
        self._begin()

    def sweep(self, waiting: Sequence[Committable] = (), upto: EpochId | None = None) -> bool:
        """What the runtime does after clean-up, where the committer offers it, up to an epoch (None: the present one).
        Answer: whether the committer offers it."""
        if not isinstance(self.committer, Sweeping):
            return False
        self.committer.sweep(Settled(self.lineage, self.uid, upto or self.at, tuple(waiting)))
        return True


def new_rows(count: int) -> list[Row]:
    """Rows that were never used, with names that are hard to write down."""
    return [(n, NAMES[n % len(NAMES)]) for n in itertools.islice(_numbers, count)]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    from tidegate.graph.columns import batch_from_rows

    return batch_from_rows(rows, SCHEMA)


def in_order(committables: Iterable[Committable]) -> list[Committable]:
    """In the order in which a committer is given them."""
    return sorted(committables, key=lambda c: (c.epoch, c.slot))


SinkFactory = Callable[[], Sink]
