"""A simulated driver: the product's steps of a term of ownership, run in a simulated world.

What is written here stands for Spark (epochs, attempts, tasks), for the operator, and for the threads at the edge of a term:
they carry out effects, post messages, and may die between any two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import count, product
from pathlib import Path
from random import Random

from chaos.simulation.checks import WatchedCheckpoints, WrittenMetadata
from chaos.simulation.faults import CALM, Crash
from chaos.simulation.model import Epoch, Snapshot, key_groups
from chaos.simulation.model_tasks import ModelTasks
from chaos.simulation.real_tasks import RealTasks
from chaos.simulation.target import INLINE
from chaos.simulation.tasks import Host, SimTasks, TaskStorage, publish
from chaos.simulation.world import Process, World
from tidegate.checkpoint.completed import cleaner
from tidegate.checkpoint.coordination.coordinator import WakeAt
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.timing import Cadence
from tidegate.checkpoint.effects import Create, Delete, Effect, Get, Put, Sleep, Steps
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import check_location, claim
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, EntryKind, RunOutcome, Signature
from tidegate.checkpoint.job_log.foreign_output import Markers, foreign_output
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, MetadataError, checksum_in
from tidegate.checkpoint.output.committables import channel
from tidegate.checkpoint.output.committer_choice import CommitterChoice, CommitterLimits
from tidegate.checkpoint.output.release_plan import Backoff, CommitBatch, WaitingOutput
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.reading import read_options
from tidegate.connectors.outcome import CommitOutcome, ForeignOutput
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.errors import CorruptState, StorageError
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, EpochId, Lineage, TaskId, Uid
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.history import JobHistory, Signer
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.checkpoints.sink_threads import OutputStopped, PublishResult
from tidegate.runtime.checkpoints.term import RunningTerm
from tidegate.runtime.checkpoints.term_effects import StartCommit, StartSweep, T, TermEffect, TermSteps, Uncounted
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription, TaskSink
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.runtime.exchange.messages import TaskCommitResult
from tidegate.state.port import VersionMissing
from tidegate.storage import CorruptFile, ObjectMissing
from tidegate.storage.port import Nonce

PATIENCE_MS = 1_500
HEARTBEAT_MS = 400
SINK, OTHER, UNKEYED = Uid("sink"), Uid("other"), Uid("unkeyed")
SINKS = (SINK, OTHER, UNKEYED)
TASK_SINKS = {
    SINK: TaskSink(level=1, stable=True, small_by_driver=True),
    UNKEYED: TaskSink(level=1, stable=False, small_by_driver=True),
}
"""Sinks that tasks publish to: each slot by itself, or one task for all slots. The driver publishes to the other one, and to
these while little waits."""
PUBLISHER = CommitterLimits(small_bytes=6, stay_ms=200, first_rest_ms=100, longest_rest_ms=400)
INLINE_OUTPUT = (0, 500, 0, 2_000)
"""How much output that waits since the last checkpoint stays in the metadata, in turn. One committable has about 250 bytes."""
SLICES = (1, 3, 64, 1_000)
"""How many tasks a slice of a sweep has, in turn. Of thousands of tasks more, or a sweep would take hours."""
MOST_SLICES = 50
STOP_MS = 3_000
"""How long a stop waits for its output."""
EPOCH_MS = 1_767_225_600_000

LATE_LOOP = 0.2
"""How often the next epoch begins before the loop has seen the end of the last one."""
BEGIN_MEANWHILE = 0.1
"""How often an epoch begins before what a message yields, if none runs: epochs have a thread of their own."""
RESCALED = "rescaled"
"""How a term ends whose job continues with another parallelism."""
BACKOFF = Backoff(first_ms=100, greatest_ms=800)
"""Of a sink whose target does not answer."""
_OPTIONS = CheckpointConfig.of(read_options({}))


@dataclass(frozen=True)
class JobPlan:
    """What stays the same for one job of one seed."""

    layout: JobLayout
    groups: int
    cadence: Cadence
    num_retained: int
    epoch_ms: int
    origin: tuple[JobLayout, str] | None = None
    """For a fork: whose checkpoint it began from, and the pin that holds it."""
    real_state: bool = False
    """Whether tasks have real state, instead of a model of it."""

    def config(self, rng: Random) -> CheckpointConfig:
        cadence = self.cadence
        config = replace(
            _OPTIONS,
            interval_ms=cadence.interval_ms,
            timeout_ms=cadence.timeout_ms,
            min_pause_ms=cadence.min_pause_ms,
            max_concurrent=cadence.max_concurrent,
            tolerable_failures=cadence.tolerable_failures,
            num_retained=self.num_retained,
            incremental=True,
            parallel_cleaning=False,
        )
        if not self.real_state:
            return config
        changelog = rng.random() < 0.75
        return replace(
            config,
            inline_threshold_bytes=rng.choice((0, 150, 2_000)),
            changelog=changelog,
            materialize_interval_ms=rng.choice((300, 1_500, 4_000, None)) if changelog else None,
            materialize_incrementally=rng.random() < 0.8,
            materialize_failures=rng.choice((0, 3)),
        )


@dataclass
class RunningEpoch:
    """An epoch from its beginning to the try that is accepted."""

    id: EpochId
    work: CheckpointWork
    is_empty: bool
    """Whether it has no rows."""
    tries: int = 0

    @property
    def announced(self) -> int | None:
        return None if self.work.early is None else self.work.early.checkpoint_id


class SimSigner(Signer):
    """Signs with nonces and terms that follow from the seed."""

    def __init__(self, driver: SimDriver, asked: bool = False) -> None:
        super().__init__(driver)
        self._driver = driver
        self.asked = asked
        """Whether somebody asked for the claims that are signed."""

    def sign_again(self) -> Signature:
        driver, world = self._driver, self._driver.world
        nonce = Nonce(world.serial(f"nonce-{driver.process.name}"))
        self.unsettled = {*self.unsettled, nonce}
        driver.signed.add(nonce)
        if self.asked:
            world.watch(driver.plan.layout).asked_for.add(nonce)
        # Small folders, so that they are deleted while rivals sleep; versions need not agree about their size.
        entries.SLOTS_PER_FOLDER = world.folder_rng.choice((1, 1, 2, 3))
        owner = driver.process.name + (f".{driver.life}" if driver.life else "")
        return Signature(nonce, owner, driver.now().wall_ms, random_bits=world.term_rng.getrandbits(32))


class SimSinks:
    """The sinks of a job, as the release of their output knows them."""

    def __init__(self) -> None:
        self.uids = SINKS
        self.unasked: set[Uid] = set()


class SimDriver:
    def __init__(
        self, world: World, plan: JobPlan, process: Process, start: Start, force: bool, parallelism: int
    ) -> None:
        self.world = world
        self.plan = plan
        self.process = process
        self.parallelism = parallelism
        self.orders: deque[str] = deque()
        self.winding_down = False
        self.settled = False
        self.savepoints: list[CheckpointRef] = []
        self.accepts = False
        """Whether the user accepts output that the log does not know."""
        self.offers_again = False
        """Whether it begins a new line of history after the job was copied, and publishes what the abandoned one owes. Its
        operator knows that."""
        self.is_copy = False
        """Whether it finds the log of another place, and nobody has said that this is meant."""
        self.claim: Entry | None = None
        """The last claim that it won. None: none yet."""
        self.life = 0
        """How often the job was claimed again by this process."""
        self.signed: set[Nonce] = set()
        self._start = start
        self._force = force
        self._inbox: deque[object] = deque()
        self._sinks = SimSinks()
        self._written = WrittenMetadata(world, plan.layout, plan.groups, plan.real_state)
        self._head: Epoch | None = None
        self._running: RunningEpoch | None = None
        self._number = 0
        self._ran = False
        self._requests: list[Future[CheckpointRef]] = []
        """The savepoints that its operator waits for."""
        self._stopped: tuple[CheckpointRef, Instant, Future[None]] | None = None
        """The savepoint that ended the job, since when its output is waited for, and the answer to that."""
        self._quiet_since: Instant | None = None
        self._attempt = 0
        self._asked = 0
        """How many requests its terms have made."""
        self._before_release: tuple[WaitingOutput, ...] | None = None
        """When an entry of the log has made output visible: what the release knew to wait before it."""
        self._owes_pin = False
        """Whether it has a checkpoint of its own, and has not tried to remove that pin."""
        self._rescale_to: int | None = None
        """The parallelism that the job continues with, once a checkpoint contains its last epoch."""

    def now(self) -> Instant:
        elapsed_ms = int(self.world.clock.now_ms)
        return Instant(MonotonicMs(elapsed_ms), WallMs(EPOCH_MS + elapsed_ms + self.process.wall_offset_ms))

    # the edge: what the product's threads do

    def _run(self, steps: TermSteps[T], alone: bool = False) -> Steps[T]:
        """Run steps of the term in the simulated world. `alone`: the thread that runs epochs waits for them."""
        answer: object = None
        error: Exception | None = None
        while True:
            waiting = self._term.output.waiting
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                self._see_entry(waiting)
                result: T = end.value
                return result
            self._see_entry(waiting)
            answer, error = None, None
            if not alone and self.world.epoch_rng.random() < BEGIN_MEANWHILE:
                self._begin_meanwhile()
            request = self._begin(effect)
            if request is None:
                continue
            self._asked += 1
            try:
                answer = yield request
            except Exception as problem:
                error = problem
            if isinstance(request, Delete) and (pin := self.process.pin) in request.paths and pin is not None:
                self._removed_pin(pin, error)

    def _removed_pin(self, pin: str, error: Exception | None) -> None:
        """The term has asked storage to remove its pin. If storage did not, it asks again with its next checkpoint."""
        self._owes_pin = False
        if error is None:
            self.process.pin = None
            self.world.removed_pins.add(pin)

    def _begin_meanwhile(self) -> None:
        before = self._running
        self._begin_epoch()
        if self._running is not before:
            self.world.tally.events["epochs begun in the middle of a message"] += 1

    def _begin(self, effect: TermEffect) -> Effect | None:
        """Begin what other threads do. Return the request to storage, if it is one."""
        match effect:
            case WakeAt():
                return None  # It wakes up anyway.
            case StartCommit(batch):
                self._maybe_crash("before a commit begins")
                self.world.tally.events["publications by the driver"] += batch.sink in TASK_SINKS
                self.world.tally.events["publications that ask the target first"] += bool(batch.compare_with)
                self.world.spawn(self.process, self._commit(batch, self.life))
                return None
            case StartSweep():
                self.world.tally.events["sweeps of targets"] += 1
                return None
            case Uncounted(request):
                return request
            case _:
                self._check_released(f"asks for {effect}")
                self._look(effect)
                return effect

    def _maybe_crash(self, where: str) -> None:
        if self.world.chance(self.world.odds.crash_at_io):
            self.world.tally.crashes[where] += 1
            raise Crash

    def _commit(self, batch: CommitBatch, life: int) -> Steps[None]:
        """The thread of a sink. The result is for the term that asked."""
        taken, error = yield from publish(batch)
        stopped: Exception | None = error
        if isinstance(error, ForeignOutput):
            first = batch.committables[0].epoch
            stopped = OutputStopped(batch.sink, "simulated", first, CommitOutcome.FAILED_KNOWN, error)
            stopped.__cause__ = error
        outcomes = tuple(CommitOutcome.COMMITTED for _ in taken)
        if life == self.life:
            self._inbox.append(PublishResult(batch, outcomes, stopped, taken))

    def _beat(self, term: OwnedTerm, life: int) -> Steps[None]:
        """The thread of the heartbeat."""
        for beat in count(1):
            yield Sleep(HEARTBEAT_MS)
            if life != self.life:
                return
            try:
                yield from term.show_life(beat)
            except StorageError:
                pass
            except ClaimLost:
                if life == self.life:
                    raise

    def _check_released(self, what: str) -> None:
        """Output of a completed checkpoint is released before anything else is asked for: what follows may take long, and may be
        the last that the driver does."""
        before, self._before_release = self._before_release, None
        # If nothing waits any more, it may be the same empty tuple.
        if before is not None and before is self._term.output.waiting and self._owned.store.due():
            self.world.fail(f"{self.process.name} {what} and has not released the output of its checkpoint")

    def _look(self, effect: Effect) -> None:
        """Check what the term is about to do."""
        match effect:
            case Create(path, data) | Put(path, data) if path.endswith("/_metadata"):
                waiting = self._owned.store.ledger.carried_by(self.world.metadata(data).epoch)
                superseded = self._is_superseded()
                snapshot = self._written.look(path, data, self._head, self.parallelism, waiting, superseded)
                self.world.snapshots[checksum_in(data)] = snapshot
            case Get(path) if path in self.world.acks:
                term = self.world.acks[path]
                self.world.tally.events["acknowledgements through storage"] += 1
                if term != self._owned.store.term:
                    self.world.fail(f"{self.process.name} read an acknowledgement of term {term}, not of its own")
            case Delete(paths) if self.plan.origin is not None:
                origin, pin = self.plan.origin
                if origin.pin(pin) in paths:
                    self.world.watch(origin).unpin(pin)

    def _is_superseded(self) -> bool:
        """Whether another driver has claimed the job since."""
        newest = self.world.watch(self.plan.layout).newest
        return newest is not None and newest.term > self._owned.store.term

    def _check_superseded(self, missing: Exception | None = None) -> None:
        """Something is gone. Raises `ClaimLost` if a successor may have cleaned it up."""
        newest = self.world.watch(self.plan.layout).newest
        if newest is not None and self._is_superseded():
            raise ClaimLost(self._owned.store.term, newest) from missing

    # the life of a driver

    def main(self) -> Steps[str]:
        world, plan = self.world, self.plan
        signer = SimSigner(self, asked=self.accepts)
        mint: Callable[[], Lineage] = lambda: Lineage(world.serial("lineage"))  # noqa: E731
        yield from check_location(plan.layout, self._start)
        yield from self._check_targets()
        entry = yield from claim(plan.layout, self._start, signer.sign, mint, PATIENCE_MS, self._force)
        if self.is_copy:
            world.fail(f"{self.process.name} continues a copy of the job's directory")
        world.tally.events["claims"] += 1
        self.claim = entry
        if self.offers_again:
            lines = {each.lineage for each in world.watch(plan.layout).log} - {entry.lineage}
            world.target(self.process.job).abandon(lines, world.storage)
        yield from self._recover(entry, signer)
        while True:
            try:
                ended = yield from self._own()
                if self._rescale_to is None or ended != RESCALED:
                    return ended
                reach("rescale.3-ended")
                self.parallelism, self._rescale_to = self._rescale_to, None
                yield from self._claim_again(asked=True)
                reach("rescale.4-claimed")
                world.tally.events["rescales in place"] += 1
            except StorageError:
                if world.rng.random() < 0.2:
                    raise
                yield from self._claim_again()

    def _check_targets(self) -> Steps[None]:
        """What the product does before a claim. A target that is away is asked before its first commit."""
        if self._start.fresh:
            return
        target = self.world.target(self.process.job)
        self._sinks.unasked = {sink for sink in SINKS if target.is_away(sink, self.world.storage)}
        markers: Callable[[Lineage], Markers] = lambda lineage: target.markers(lineage, self.world.storage)  # noqa: E731
        foreign = yield from foreign_output(self.plan.layout, markers, self._start.source)
        for sink, epochs in foreign.items():
            if not self.accepts:
                raise ForeignOutput(sink, epochs)
            self.world.tally.events["output of a lost history accepted"] += 1
        accepted = tuple(epoch for epochs in foreign.values() for epoch in epochs)
        if accepted:
            target.accept(self.world.storage)
        self._start = replace(self._start, accepted=accepted)

    def _recover(self, entry: Entry, signer: SimSigner) -> Steps[None]:
        """What the product's `Ownership` does, which shows life meanwhile."""
        plan, world = self.plan, self.world
        history = JobHistory(TaskStorage(world), plan.layout, plan.config(world.rng), clock=self)  # type: ignore[arg-type]
        inline_bytes = INLINE_OUTPUT[entry.slot % len(INLINE_OUTPUT)]
        term = OwnedTerm(history, entry, signer, inline_bytes)
        self.process.history = entry.history
        world.note(self.process.name, f"owns term {entry.term}, base {entry.base and entry.base.metadata}")
        world.watch(plan.layout).check_won(entry)
        world.spawn(self.process, self._beat(term, self.life))
        yield from term.recover()
        self._owned = term
        self._signer = signer
        self._seen = self.claim = entry
        world.leave_pin(self.process)
        self._owes_pin = False
        if plan.origin is not None and entry.base is not None:
            origin, pin = plan.origin
            if entry.base.metadata.startswith(f"{origin.root}/") and origin.pin(pin) in world.storage.objects:
                world.watch(origin).pin(pin, replace(entry.base, owned=True))
                self.process.pin = origin.pin(pin)
                world.left_pins.discard(origin.pin(pin))

    def _claim_again(self, asked: bool = False) -> Steps[None]:
        """A write has an outcome that nobody knows, or the job is rescaled. The thread of the loop has ended."""
        self._signer.asked = asked
        self._term.checkpointer.abort()
        self._inbox.clear()
        self._stopped = None
        self._rescale_to = None
        for left in (2, 1, 0):
            self.life += 1
            yield Sleep(self.world.rng.randrange(1, 500))
            try:
                entry = yield from self._owned.claimed_again()
                yield from self._recover(entry, SimSigner(self))
            except StorageError:
                if not left:
                    raise
            else:
                break
        self.world.tally.events["claims again"] += 1

    def _own(self) -> Steps[str]:
        world, plan, owned = self.world, self.plan, self._owned
        self.checkpoints = WatchedCheckpoints(world, plan.cadence)
        slice = SLICES[owned.store.term % len(SLICES)]
        cleaner.TASKS_OF_A_SWEEP = max(slice, self.parallelism // MOST_SLICES)
        self._term = term = RunningTerm(
            owned,
            self._job(),
            self._sinks,
            self.checkpoints,
            backoff=BACKOFF,
            choice=CommitterChoice(TASK_SINKS, PUBLISHER),
            chance=world.rng.random,
        )
        self._running = None
        self._before_release = None
        self._requests.clear()
        self._tasks = self._make_tasks()
        base = owned.store.entry.base
        self._restore(None if base is None else world.snapshots[base.checksum].metadata)
        yield from self._run(term.begin())
        while True:
            ended = yield from self._live_on()
            if ended is not None:
                return ended

    def _live_on(self) -> Steps[str | None]:
        """One epoch at most, and what happens around it. Return how the term ends."""
        world = self.world
        calm = 3 if world.odds is CALM and not self.winding_down else 1
        takes_ms = int(calm * self.plan.epoch_ms * world.rng.uniform(0.5, 1.5))
        self._begin_epoch()
        if world.rng.random() < 0.5:
            # What the loop does while an epoch runs. It may take the job back: then the epoch is of no use.
            yield Sleep(takes_ms // 2)
            yield from self._loop()
            takes_ms -= takes_ms // 2
        yield Sleep(takes_ms)
        yield from self._read_inbox()
        if self._stopped is None:
            if world.chance(world.odds.rewind):
                yield from self._rewind()
            elif self._running is not None:
                yield from self._try_epoch(self._running)
        ticked_ms = world.clock.now_ms
        yield from self._loop()
        if self._running is None:
            if self._stopped is None:
                self.checkpoints.check_cadence(ticked_ms, self._term.checkpointer.pending, self._is_contained())
            if self._tasks.wants_epoch():
                yield from self._run_empty_epoch()
        return (yield from self._after_epoch())

    def _after_epoch(self) -> Steps[str | None]:
        if self._stopped is not None and (ended := self._stop(*self._stopped)):
            return ended
        if self._rescale_to is not None and self._is_saved():
            reach("rescale.2-saved")
            return RESCALED
        while self.orders and self._stopped is None:
            ended = yield from self._obey(self.orders.popleft())
            if ended:
                return ended
        if self.winding_down and not self.settled:
            yield from self._settle()
        return None

    def _job(self) -> JobDescription:
        return JobDescription(
            job=self.plan.layout.job,
            parallelism=self.parallelism,
            max_parallelism=self.plan.groups,
            backend="hashmap",
            levels=1,
            sources=(),
            operators=(),
            state_ids={},
            spark_version="4.2.0",
            task_sinks=TASK_SINKS,
            sink_levels=frozenset({1}),
        )

    def _make_tasks(self) -> SimTasks:
        term, life, store = self._term, self.life, self._owned.store

        def tell(message: object) -> None:
            if life == self.life:
                self._inbox.append(message)

        lowest: Callable[[], int] = lambda: term.checkpointer.in_flight().lowest_id  # noqa: E731
        host = Host(self.world, self.plan, self.process, self.parallelism, store.term, tell, lowest)
        if not self.plan.real_state:
            return ModelTasks(host, term.uploads)
        changelog = self._owned.history.config.changelog
        return RealTasks(host, term.uploads, store.entry.lineage, changelog)

    # messages

    def _loop(self) -> Steps[None]:
        yield from self._read_inbox()
        yield from self._message(self._term.wake())

    def _read_inbox(self) -> Steps[None]:
        term = self._term
        while self._inbox:
            match self._inbox.popleft():
                case PublishResult() as result:
                    yield from self._message(term.output.on_result(result))
                case TaskCommitResult() as published:
                    yield from self._message(term.output.on_published_by_tasks([published]))
                case (TaskId() as task, item):
                    yield from self._message(term.checkpointer.on_upload(task, item))

    def _message(self, steps: TermSteps[T], alone: bool = False) -> Steps[T]:
        """One message to the term, and what its driver sees of it."""
        result = yield from self._run(steps, alone)
        self._check_released("is done with a message")
        if self._owes_pin:
            self.world.fail(f"{self.process.name} has a checkpoint of its own, and leaves the pin on its origin")
        for answer in [each for each in self._requests if each.done()]:
            self._requests.remove(answer)
            if answer.exception() is None:
                self.world.tally.events["savepoints"] += 1
                self.savepoints.append(answer.result())
        if self._owned.store.entry.kind is EntryKind.TERMINAL_SAVEPOINT and self._stopped is None:
            yield from self._wait_for_output()
        yield from self._check_failure()
        return result

    def _see_entry(self, waiting: tuple[WaitingOutput, ...]) -> None:
        """Whether the term has won an entry of the log. `waiting`: what the release knew to wait before it."""
        entry = self._owned.store.entry
        if entry is self._seen:
            return
        self._seen = entry
        base = entry.base
        if entry.kind in (EntryKind.CHECKPOINT, EntryKind.TERMINAL_SAVEPOINT) and self._owned.store.due():
            self._before_release = waiting
        self.world.watch(self.plan.layout).check_won(entry)
        if entry.kind in (EntryKind.CHECKPOINT, EntryKind.TERMINAL_SAVEPOINT):
            self._owes_pin = self.process.pin is not None
        if entry.kind is EntryKind.CHECKPOINT and base is not None:
            self.world.tally.events["checkpoints completed"] += 1
            contents = self._owned.store.contents[base.metadata]
            self.world.tally.events["checkpoints with objects of waiting output"] += bool(contents.output)
            self._tasks.completed(base, self.world.snapshots[base.checksum])

    def _wait_for_output(self) -> Steps[None]:
        """The savepoint that ends the job is in the log. Whoever stops it waits for its output."""
        ref = self._owned.store.entry.base
        assert ref is not None
        answer: Future[None] = Future()
        self._stopped = ref, self.now(), answer
        yield from self._run(self._term.output.complete_when_published(answer))

    def _check_failure(self) -> Steps[None]:
        """What ends an attempt of the job, or the job."""
        error = self._owned.failure.error
        if error is None:
            return
        if isinstance(error, CheckpointsFailed):
            yield from self._rewind()
        elif isinstance(error, OutputStopped):
            raise (
                error.__cause__
                if isinstance(error.__cause__, ForeignOutput)
                else ForeignOutput(error.sink, (error.epoch,))
            )
        else:
            raise error

    # epochs

    def _restore(self, stored: CheckpointMetadata | None) -> None:
        """Begin with what the term returns to. `stored`: what is in the checkpoint that the log names. None: it names none."""
        self.world.tally.events["restores"] += 1
        self._head = None
        self._ran = False
        self._number += 1
        base = self._owned.store.entry.base
        snapshot = None if base is None else self.world.snapshots[base.checksum]
        self._check_return(snapshot, stored)
        try:
            self._tasks.restore(snapshot, base, EpochId(self._owned.store.term, self._number))
        except (ObjectMissing, CorruptFile, CorruptState, MetadataError) as error:
            self._check_superseded(error)
            self.world.fail(f"{self.process.name} cannot restore epoch {snapshot and snapshot.epoch.id}: {error}")
        if snapshot is not None:
            self._head = snapshot.epoch
            self.world.tally.events["rescales"] += snapshot.parallelism != self.parallelism

    def _check_return(self, snapshot: Snapshot | None, stored: CheckpointMetadata | None) -> None:
        """The product restores what the term remembers. That is the checkpoint that the log names."""
        point = self._owned.restore_point()
        if point.snapshot != stored:
            remembered = None if point.snapshot is None else point.snapshot.epoch
            named = None if stored is None else stored.epoch
            self.world.fail(f"{self.process.name} returns to epoch {remembered}, and its log names one of {named}")
        if snapshot is not None and point.root != snapshot.root:
            self.world.fail(f"{self.process.name} reads files below {point.root}, and they are below {snapshot.root}")

    def _begin_epoch(self) -> None:
        """Unless one runs already: the loop may be late, or a try was thrown away."""
        if self._running is not None or self._stopped is not None or (self.winding_down and self._ran):
            return
        if self._rescale_to is not None:
            return
        self._start_epoch(empty=False)

    def _start_epoch(self, empty: bool) -> RunningEpoch:
        work = self._tasks.begin_epoch(empty)
        self._number += 1
        epoch = EpochId(self._owned.store.term, self._number)
        self._running = running = RunningEpoch(epoch, work, empty)
        self.checkpoints.epoch_begins(epoch)
        if running.announced is not None:
            self.checkpoints.announce(running.announced, epoch, self._term.checkpointer.pending)
        return running

    def _try_epoch(self, running: RunningEpoch) -> Steps[None]:
        world, rng, store = self.world, self.world.rng, self._owned.store
        running.tries += 1
        epoch = running.id
        start = 0 if self._head is None else self._head.end
        if self.plan.real_state and world.chance(world.odds.rewind):
            world.hosts.lose_one()
        try:
            touched, marks = self._tasks.run_epoch(epoch, running.tries, running.work)
        except VersionMissing:
            yield from self._rewind()
            return
        except Crash:
            world.tally.events["tasks that died"] += 1
            return  # the epoch is tried again
        committables = self._stage(epoch)
        if world.chance(world.odds.rewind):
            world.tally.events["epochs thrown away"] += 1
            return  # the attempt is discarded; its files are orphans, and the epoch is tried again
        self._head = Epoch(
            id=epoch,
            parent=self._head,
            lineage=store.entry.lineage,
            start=start,
            end=start + 1 + rng.randrange(9),
            touched=frozenset(touched),
            output=tuple(channel(each) for each in committables),
            marks=marks,
        )
        self._ran = True
        world.tally.events["epochs"] += 1
        yield from self._finish_epoch(running, tuple(committables))

    def _run_empty_epoch(self) -> Steps[None]:
        """An epoch without rows: uploads, or output that tasks publish, wait for one."""
        running = self._start_epoch(empty=True)
        self._tasks.run_empty_epoch(running.work)
        running.tries = 1
        end = 0 if self._head is None else self._head.end
        lineage = self._owned.store.entry.lineage
        self._head = Epoch(running.id, self._head, lineage, end, end, frozenset(), ())
        self.world.tally.events["epochs without rows"] += 1
        yield from self._finish_epoch(running, ())

    def _finish_epoch(self, running: RunningEpoch, committables: tuple[Committable, ...]) -> Steps[None]:
        """The epoch was accepted."""
        world, epoch = self.world, running.id
        world.use_epoch(self._owned.store.entry.lineage, epoch)
        snapshot = self._tasks.accept(EpochSnapshot(epoch, {}, None, Path(), Clocks(), running.announced))
        self._running = None
        self.checkpoints.epoch_ends()
        self._term.uploads.ended(snapshot, sum(len(each.payload) for each in committables))
        report = EpochReport(
            epoch=epoch,
            rows_in=0 if running.is_empty else 1,
            tries=running.tries,
            duration_ms=self.plan.epoch_ms,
            plan_ms=0,
            job_ms=0,
            operators={},
            hosts={},
            committables=committables,
        )
        if world.rng.random() < LATE_LOOP:
            world.tally.events["epochs begun before the end of the last was seen"] += 1
            self._begin_epoch()
        moved = not running.is_empty
        yield from self._message(self._term.checkpointer.on_epoch(report, snapshot, moved, output=True, drains=False))

    def _stage(self, epoch: EpochId) -> list[Committable]:
        """Stage output of some slots."""
        world, rng = self.world, self.world.rng
        committables: list[Committable] = []
        some = sorted(rng.sample(range(self.parallelism), min(self.parallelism, 3)))
        for sink, partition in product(SINKS, some):
            of_slot = key_groups(partition, self.parallelism, self.plan.groups)
            groups = range(self.plan.groups) if sink == UNKEYED else of_slot
            if of_slot and rng.random() < 0.4:
                paths = [INLINE] if rng.random() < 0.3 else []  # Few rows are in the committable.
                attempts = 2 if world.chance(world.odds.second_attempt) else 1
                for _ in range(0 if paths else attempts):
                    self._attempt += 1
                    path = self.plan.layout.staged(epoch, sink, AttemptId(self._attempt), world.serial("rows"))
                    world.storage.apply_put(path, b"rows")
                    paths.append(path)
                made = Committable(
                    lineage=self._owned.store.entry.lineage,
                    sink=sink,
                    slot=partition,
                    epoch=epoch,
                    payload=paths[-1].encode(),
                    staged=() if paths[-1] == INLINE else (paths[-1],),
                    size_bytes=1,
                )
                world.keys[channel(made), epoch] = frozenset(rng.choices(groups, k=2))
                committables.append(made)
        return committables

    def _rewind(self) -> Steps[None]:
        """A host was lost, or too many checkpoints failed: back to the last checkpoint, within the same term."""
        self.world.tally.events["rewinds"] += 1
        self._running = None
        self.checkpoints.epoch_ends()
        yield from self._run(self._term.checkpointer.on_rewind(), alone=True)
        if self.plan.real_state and self.world.chance(self.world.odds.rewind * 10):
            self.world.hosts.lose_one()
        base = self._owned.store.entry.base
        if base is None:
            self._restore(None)
            return
        data: bytes | None = yield Get(base.metadata)
        if data is None:
            self._check_superseded()
            self.world.fail(f"{self.process.name} goes back, and {base.metadata} is missing")
        self._restore(self.world.metadata(data))

    # the operator

    def _is_contained(self) -> bool:
        """Whether the latest checkpoint contains all epochs that changed something."""
        base = self._owned.store.entry.base
        if self._head is None or not self._ran:
            return True
        for epoch in self._head.chain():
            if base is not None and epoch.id == base.epoch:
                return True
            if epoch.end > epoch.start:
                return False
        return True

    def _is_saved(self) -> bool:
        """Whether the latest checkpoint contains all epochs. If none is under way that will, the rescale has failed."""
        if self._running is not None:
            return False
        if self._is_contained():
            return True
        if not self._term.checkpointer.pending:
            self._rescale_to = None
            self.world.tally.events["rescales that failed"] += 1
        return False

    def _ask(self, kind: RequestKind, target: str | None = None, forced: bool = False) -> Steps[Future[CheckpointRef]]:
        token = self.world.serial("request")
        answer = self._term.answers.expect(token)
        at_ms = self.now().monotonic_ms
        request = CheckpointRequest(kind=kind, at_ms=at_ms, token=token, forced=forced, target=target)
        if target is not None:
            self._requests.append(answer)
        yield from self._message(self._term.checkpointer.request(request))
        return answer

    def _obey(self, order: str) -> Steps[str | None]:
        if order.startswith("rescale "):
            reach("rescale.1-asked")
            self._rescale_to = int(order.removeprefix("rescale "))
            yield from self._ask(RequestKind.MANUAL, forced=True)
            return None
        kind = {"savepoint": RequestKind.SAVEPOINT, "stop": RequestKind.TERMINAL_SAVEPOINT}.get(order)
        if kind is not None:
            yield from self._ask(kind, f"savepoints/{self.world.serial('savepoint')}")
            return None
        if order == "cancel":
            yield from self._message(self._term.checkpointer.finish(RunOutcome.CANCELED, keep=True), alone=True)
            self.world.tally.events["cancels"] += 1
        return order

    def _stop(self, ref: CheckpointRef, since: Instant, answer: Future[None]) -> str | None:
        """How a stop answers, when it can: with success only if all its output is published."""
        if answer.done() and answer.exception() is None:
            self.world.tally.events["stops with savepoint"] += 1
            self._check_stopped(ref)
            return "stopped"
        if answer.done() or self.now().since(since) > STOP_MS:
            self.world.tally.events["stops that failed, with output waiting"] += 1
            return "stop failed"
        return None

    def _check_stopped(self, ref: CheckpointRef) -> None:
        world, lineage = self.world, self._owned.store.entry.lineage
        visible = world.target(self.process.job).visible
        # By its content: a driver that has claimed the savepoint meanwhile may have deleted it.
        for epoch in world.epoch_of(ref).chain():
            for lane in epoch.output if epoch.lineage == lineage else ():
                if epoch.id not in visible[lane]:
                    world.fail(
                        f"{self.process.name} said that it stopped, and output of {lane} at {epoch.id} is missing"
                    )
        if ref.metadata not in world.storage.objects:
            return  # … and its record with it
        carries = world.metadata(world.storage.objects[ref.metadata]).committables
        if carries and self.plan.layout.committed(lineage, ref.term, ref.id) not in world.storage.objects:
            world.fail(f"{self.process.name} said that it stopped, and nothing records that its output is published")

    def _holds_origin(self) -> Steps[bool]:
        """Whether the pin is still there on what the job, a fork, began from, although it has a checkpoint of its own."""
        assert self.plan.origin is not None
        assert self.claim is not None
        origin, pin = self.plan.origin
        if origin.pin(pin) not in self.world.storage.objects:
            return False
        if self.process.pin is not None:
            # This term has placed it or found it. If storage did not remove it, the next checkpoint tries again.
            if not self._term.checkpointer.pending:
                yield from self._ask(RequestKind.MANUAL)
            return True
        if origin.pin(pin) not in self.world.left_pins:
            self.world.fail(f"{self.process.name} finds a pin on its origin, and no term that held it has ended")
        # A term ended before it had removed it. The operator sees it, and takes it away.
        self.world.tally.events["pins that a term left when it ended"] += 1
        self.world.watch(origin).unpin(pin)
        self.world.storage.apply_delete([origin.pin(pin)])
        return False

    def _settle(self) -> Steps[None]:
        """Faults have stopped: save the last epoch, release everything, sweep, and be done."""
        store, checkpointer = self._owned.store, self._term.checkpointer
        base = store.entry.base
        if self.plan.origin is not None and base is not None and base.owned and (yield from self._holds_origin()):
            return
        if self.world.storage.below(self.plan.layout.pins):
            return  # a fork still reads from us
        if not self._ran or base is None or not self._is_contained() or not base.owned:
            if not checkpointer.pending:
                yield from self._ask(RequestKind.MANUAL)
            return
        if self._tasks.holds and not checkpointer.pending:
            self._quiet_since = None
            if self._term.uploads.materialized:  # a checkpoint is needed that they are part of
                yield from self._ask(RequestKind.MANUAL)
        elif len(store.ledger) or checkpointer.pending or self._running is not None:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = self.now()
        elif self.now().since(self._quiet_since) > 1_200:  # uploads for subsumed checkpoints have landed
            yield from self._clean_to_the_end()
            self.settled = True
            self.world.note(self.process.name, "settled")

    def _clean_to_the_end(self) -> Steps[None]:
        """Nothing moves any more. Have the term clean up what there is to clean up, with all its parts."""
        store = self._owned.store
        acks, lowest_id = self.plan.layout.all_acks(store.term), self._term.checkpointer.in_flight().lowest_id
        ended = [path for path in self.world.storage.below(acks) if self._number_of(path) < lowest_id]
        yield from self._clean_until_quiet()
        if left := [path for path in ended if path in self.world.storage.objects]:
            self.world.fail(
                f"{self.process.name} has cleaned up, and acknowledgements stay that nobody needs: {left[:5]}"
            )
        # Files may have landed after the sweeps for which there was a reason. Whatever goes back gives the next reason.
        yield from self._rewind()
        self._ran = True  # Nothing is lost: the checkpoint contains all.
        yield from self._clean_until_quiet()

    def _number_of(self, path: str) -> int:
        file = self.plan.layout.parse(path)
        assert file is not None
        return file.number

    def _clean_until_quiet(self) -> Steps[None]:
        """As after so many checkpoints, each with a slice of a sweep."""
        for _ in range(2 * self.parallelism + 100):
            before = self._asked
            yield from self._message(self._term.checkpointer.clean())
            if self._asked - before <= 1:  # It looks for stored acknowledgements every time.
                return
        self.world.fail(f"{self.process.name} cleans up and comes to no end")
