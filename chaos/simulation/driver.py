"""A simulated driver: the product's steps of a term of ownership, run in a simulated world.

What is written here has no order of its own. It stands for

- the threads at the edge of a term (`edge`, `sink_threads` and `ownership`), which carry out effects, post messages,
  and may die between any two of them;
- the thread that supervises attempts (`runtime.driver.supervisor`): it begins terms, carries out what a rescale yields when an
  attempt has ended, and begins again after a failure;
- a judge who looks at each effect before it is carried out, and knows what no driver knows (`_look`, `_see_entry`, `_check_…`).

`epochs` stands for Spark, `requests` for the operator, `rescaling` for the thread that ends an attempt, and `winding_down`
for the end of a run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count

from chaos.simulation.checks import WatchedCheckpoints, WrittenMetadata
from chaos.simulation.epochs import SimEpochs
from chaos.simulation.faults import CALM
from chaos.simulation.model import Epoch, Snapshot
from chaos.simulation.model_tasks import ModelTasks
from chaos.simulation.plan import SINK, SINKS, UNKEYED, JobPlan
from chaos.simulation.real_tasks import RealTasks
from chaos.simulation.requests import SimRequests
from chaos.simulation.rescaling import SimRescale
from chaos.simulation.tasks import Host, SimTasks, TaskStorage, publish
from chaos.simulation.winding_down import WindDown
from chaos.simulation.world import Process, World
from tidegate.checkpoint.completed import cleaner
from tidegate.checkpoint.coordination.coordinator import WakeAt
from tidegate.checkpoint.coordination.requests import CheckpointRequest
from tidegate.checkpoint.effects import Create, Delete, Effect, Get, Put, Sleep, Steps, expand
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import check_location, claim
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, EntryKind, Signature
from tidegate.checkpoint.job_log.foreign_output import Markers, foreign_output
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.metadata import CheckpointMetadata, MetadataError, checksum_in
from tidegate.checkpoint.output.committer_choice import CommitterChoice, CommitterLimits
from tidegate.checkpoint.output.release_plan import Backoff, CommitBatch, WaitingOutput
from tidegate.connectors.outcome import CommitOutcome, ForeignOutput
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.errors import CorruptState, EpochFailed, StorageError
from tidegate.core.ids import Lineage, TaskId, Uid
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.history import JobHistory, Signer
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.checkpoints.rescale import ClaimAgain, RescaleEffect, RestoreTasks
from tidegate.runtime.checkpoints.sink_threads import CommitResult, OutputStopped
from tidegate.runtime.checkpoints.term import RunningTerm
from tidegate.runtime.checkpoints.term_effects import StartCommit, StartSweep, T, TermEffect, TermSteps, Uncounted
from tidegate.runtime.epochs.job_description import JobDescription, TaskSink
from tidegate.runtime.exchange.messages import TaskCommitResult
from tidegate.storage import CorruptFile, ObjectMissing
from tidegate.storage.port import Nonce

PATIENCE_MS = 1_500
HEARTBEAT_MS = 400
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
EPOCH_MS = 1_767_225_600_000

BEGIN_MEANWHILE = 0.1
"""How often an epoch begins before what a message yields, if none runs: epochs have a thread of their own."""
NO_PLACE = 0.2
"""How often the tasks of a new parallelism cannot start."""
BACKOFF = Backoff(first_ms=100, greatest_ms=800)
"""Of a sink whose target does not answer."""


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
        self.in_doubt = {*self.in_doubt, nonce}
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
        self.at_rest = False
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
        self._last_number = 0
        """That of the last epoch of an earlier term."""
        self._asked = 0
        """How many requests its terms have made."""
        self._before_release: tuple[WaitingOutput, ...] | None = None
        """When an entry of the log has made output visible: what the release knew to wait before it."""
        self._owes_pin = False
        """Whether it has a checkpoint of its own, and has not tried to remove that pin."""

    def now(self) -> Instant:
        elapsed_ms = int(self.world.clock.now_ms)
        return Instant(MonotonicMs(elapsed_ms), WallMs(EPOCH_MS + elapsed_ms + self.process.wall_offset_ms))

    # the edge: what the product's threads do

    def run(self, steps: TermSteps[T], alone: bool = False) -> Steps[T]:
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
        before = self._epochs.running
        self._epochs.begin()
        if self._epochs.running is not before:
            self.world.tally.events["epochs begun in the middle of a message"] += 1

    def _begin(self, effect: TermEffect) -> Effect | None:
        """Begin what other threads do. Return the request to storage, if it is one."""
        match effect:
            case WakeAt():
                return None  # It wakes up anyway.
            case StartCommit(batch):
                self.world.about_to("before a commit begins")
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
            self._inbox.append(CommitResult(batch, outcomes, stopped, taken))

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
                snapshot = self._written.look(path, data, self._epochs.head, self.parallelism, waiting, superseded)
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
        begin = self._begin_term()
        while True:
            try:
                yield from begin
                return (yield from self._live())
            except (StorageError, EpochFailed):
                if world.rng.random() < 0.2:
                    raise
                begin = self._begin_again()

    def _live(self) -> Steps[str]:
        """Until the job ends. Return how."""
        while True:
            ended = yield from self._live_on()
            if ended is not None:
                return ended
            if (rescale := self._requests.end_of_attempt()) is not None:
                yield from self._rescale(rescale)

    # a rescale: what the product's supervisor carries out when the attempt has ended

    def _rescale(self, rescale: SimRescale) -> Steps[None]:
        last = self._epochs.head
        steps = rescale.steps.continue_in_new_term()
        continues = yield from expand(steps, partial(self._carry_out, rescale.parallelism))
        failure = rescale.steps.failure
        if not continues:
            if failure is not None:
                raise failure
            rescale.give_way()
            self.world.tally.events["rescales that gave way"] += 1
            return
        self._check_continued(last)
        self.world.tally.events["rescales in place" if failure is None else "rescales back"] += 1

    def _carry_out(self, asked: int, effect: RescaleEffect) -> Steps[bool]:
        """`asked`: the parallelism that the job is to have."""
        self.world.about_to(f"before {type(effect).__name__}")
        match effect:
            case ClaimAgain(parallelism):
                if self._requests.is_stopping:
                    return False
                if self._epochs.running is not None or not self._epochs.are_contained:
                    self.world.fail(
                        f"{self.process.name} ends an attempt, and its latest checkpoint lacks its last epoch"
                    )
                self.parallelism = parallelism
                yield from self._claim_again(asked=True)
            case RestoreTasks():
                faulty = self.world.odds != CALM and self.parallelism == asked
                yield from self._begin_term(can_start=not (faulty and self.world.start_rng.random() < NO_PLACE))
        return True

    def _check_continued(self, last: Epoch | None) -> None:
        """The new tasks have exactly what the old ones had. Epochs without rows do not count."""
        head = self._epochs.head
        restored = set() if head is None else {each.id for each in head.chain()}
        for epoch in () if last is None else last.chain():
            if epoch.id in restored:
                return
            if epoch.end > epoch.start:
                self.world.fail(f"{self.process.name} has been rescaled, and epoch {epoch.id} is lost")

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
        """A write has an outcome that nobody knows, or the job is rescaled. The thread of the loop ends."""
        self._signer.asked = asked
        self._requests.give_way()
        self._inbox.clear()
        self._last_number = self._epochs.number
        self.life += 1
        yield Sleep(self.world.rng.randrange(1, 500))
        entry = yield from self._term.claimed_again()
        yield from self._recover(entry, SimSigner(self))
        self.world.tally.events["claims again"] += 1

    def _begin_again(self) -> Steps[None]:
        """What the product's supervisor does when a term broke, and its restart strategy allows it."""
        yield from self._claim_again()
        yield from self._begin_term()

    def _begin_term(self, can_start: bool = True) -> Steps[None]:
        """`can_start`: whether there is a place for its tasks."""
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
        self._before_release = None
        host = self._host()
        self._tasks = tasks = self._make_tasks(host)
        self._epochs = SimEpochs(host, term, tasks, self.checkpoints, self._last_number, self.message, self._may_begin)
        self._requests = SimRequests(host, term, self._epochs, self, self.now, self._inbox.append)
        self._wind_down = WindDown(
            host,
            term,
            tasks,
            self._epochs,
            self._requests,
            self,
            rewind=self._rewind,
            asked=lambda: self._asked,
            now=self.now,
        )
        if not can_start:
            yield from self.run(term.begin(), alone=True)  # No attempt has begun, so no epoch does.
            raise EpochFailed("There is no place for the new tasks.")
        base = owned.store.entry.base
        self._restore(None if base is None else world.snapshots[base.checksum].metadata)
        yield from self.run(term.begin())

    def _live_on(self) -> Steps[str | None]:
        """One epoch at most, and what happens around it. Return how the term ends."""
        world = self.world
        calm = 3 if world.odds is CALM and not self.winding_down else 1
        takes_ms = int(calm * self.plan.epoch_ms * world.rng.uniform(0.5, 1.5))
        self._epochs.begin()
        if world.rng.random() < 0.5:
            # What the loop does while an epoch runs. It may take the job back: then the epoch is of no use.
            yield Sleep(takes_ms // 2)
            yield from self._loop()
            takes_ms -= takes_ms // 2
        yield Sleep(takes_ms)
        yield from self._read_inbox()
        if self._requests.stopped is None:
            running = self._epochs.running
            if world.chance(world.odds.rewind) or (
                running is not None and not (yield from self._epochs.try_epoch(running))
            ):
                yield from self._rewind()
        ticked_ms = world.clock.now_ms
        yield from self._loop()
        if self._epochs.running is None:
            if self._requests.stopped is None:
                pending = self._term.checkpointer.pending
                self.checkpoints.check_cadence(ticked_ms, pending, self._epochs.are_contained)
            if self._tasks.wants_epoch():
                yield from self._epochs.run_empty_epoch()
        return (yield from self._after_epoch())

    def _after_epoch(self) -> Steps[str | None]:
        requests = self._requests
        if (ended := requests.ends()) is not None:
            return ended
        while self.orders and requests.stopped is None:
            ended = yield from requests.obey(self.orders.popleft())
            if ended is not None:
                return ended
        if self.winding_down and not self.at_rest and requests.rescale is None:
            self.at_rest = yield from self._wind_down.proceed()
        return None

    def _may_begin(self) -> bool:
        return self._requests.lets_run and not (self.winding_down and self._epochs.ran)

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

    def _host(self) -> Host:
        term, life, store = self._term, self.life, self._owned.store

        def tell(message: object) -> None:
            if life == self.life:
                self._inbox.append(message)

        lowest: Callable[[], int] = lambda: term.checkpointer.in_flight().lowest_id  # noqa: E731
        return Host(self.world, self.plan, self.process, self.parallelism, store.term, tell, lowest)

    def _make_tasks(self, host: Host) -> SimTasks:
        if not self.plan.real_state:
            return ModelTasks(host, self._term.uploads)
        changelog = self._owned.history.config.changelog
        return RealTasks(host, self._term.uploads, self._owned.store.entry.lineage, changelog)

    # messages

    def _loop(self) -> Steps[None]:
        yield from self._read_inbox()
        yield from self.message(self._term.wake())

    def _read_inbox(self) -> Steps[None]:
        term = self._term
        while self._inbox:
            match self._inbox.popleft():
                case CommitResult() as result:
                    yield from self.message(term.output.on_result(result))
                case TaskCommitResult() as published:
                    yield from self.message(term.output.on_committed_by_tasks([published]))
                case CheckpointRequest() as request:
                    yield from self.message(term.checkpointer.request(request))
                case (TaskId() as task, item):
                    yield from self.message(term.checkpointer.on_upload(task, item))

    def message(self, steps: TermSteps[T], alone: bool = False) -> Steps[T]:
        """One message to the term, and what its driver sees of it."""
        result = yield from self.run(steps, alone)
        self._check_released("is done with a message")
        if self._owes_pin:
            self.world.fail(f"{self.process.name} has a checkpoint of its own, and leaves the pin on its origin")
        for savepoint in self._requests.take_savepoints():
            self.world.tally.events["savepoints"] += 1
            self.savepoints.append(savepoint)
        if self._owned.store.entry.kind is EntryKind.TERMINAL_SAVEPOINT and self._requests.stopped is None:
            yield from self._requests.wait_for_output()
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
        base = self._owned.store.entry.base
        snapshot = None if base is None else self.world.snapshots[base.checksum]
        self._check_return(snapshot, stored)
        try:
            self._epochs.restore(snapshot, base)
        except (ObjectMissing, CorruptFile, CorruptState, MetadataError) as error:
            self._check_superseded(error)
            self.world.fail(f"{self.process.name} cannot restore epoch {snapshot and snapshot.epoch.id}: {error}")
        if snapshot is not None:
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

    def _rewind(self) -> Steps[None]:
        """A host was lost, or too many checkpoints failed: back to the last checkpoint, within the same term."""
        self.world.tally.events["rewinds"] += 1
        self._requests.give_way()
        self._epochs.give_up()
        yield from self.run(self._term.checkpointer.on_rewind(), alone=True)
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
