"""A simulated driver: the product's claim, store and coordinator, around simulated epochs and tasks."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count, product
from pathlib import Path

from chaos.simulation.faults import CALM, Crash
from chaos.simulation.model import Epoch, Handles, Snapshot, StateFile, key_groups, verify
from chaos.simulation.target import INLINE
from chaos.simulation.tasks import RealTasks, check_restore, parts_of_checkpoint
from chaos.simulation.world import Process, World
from tidegate.checkpoint import entry as entries
from tidegate.checkpoint.announcements import Announced, Announcements
from tidegate.checkpoint.claim import check_location, claim, claim_again, show_life
from tidegate.checkpoint.cleaner import Cleaner
from tidegate.checkpoint.committables import channel, commit
from tidegate.checkpoint.completed_store import CompletedCheckpointStore, Draft, NotPublished, divided_output
from tidegate.checkpoint.contents import CheckpointContents
from tidegate.checkpoint.coordinator import (
    Action,
    Cadence,
    Coordinator,
    DiscardFiles,
    FailJob,
    NotifyAborted,
    Publish,
    StartUpload,
)
from tidegate.checkpoint.effects import CommitFailed, Delete, Get, Put, Sleep, Steps
from tidegate.checkpoint.entry import CheckpointRef, Entry, RunOutcome, Signature
from tidegate.checkpoint.failure import CheckpointFailureReason
from tidegate.checkpoint.foreign_output import Markers, foreign_output
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.log import ClaimLost, trim
from tidegate.checkpoint.metadata import AnyFileList, FileList, MetadataError, StoredFileList, StoredOutput
from tidegate.checkpoint.metadata import StateFile as MetadataFile
from tidegate.checkpoint.pending import PendingCheckpoint, Stage, UploadAck
from tidegate.checkpoint.pins import PinTooLate, place, remove
from tidegate.checkpoint.publisher_choice import PublisherChoice, PublisherLimits
from tidegate.checkpoint.release_plan import Backoff, Publication, ReleaseSchedule
from tidegate.checkpoint.requests import Request, RequestKind
from tidegate.checkpoint.start import Start
from tidegate.checkpoint.stored_acks import StoredAcks
from tidegate.checkpoint.task_part import ListChange, list_digest
from tidegate.connectors.outcome import ForeignOutput
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.errors import CorruptState, StorageError
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.state.port import VersionMissing
from tidegate.state.version import VersionId
from tidegate.storage import CorruptFile, ObjectMissing
from tidegate.storage.port import Nonce

PATIENCE_MS = 1_500
HEARTBEAT_MS = 400
SINK, OTHER, UNKEYED = Uid("sink"), Uid("other"), Uid("unkeyed")
SINKS = (SINK, OTHER, UNKEYED)
IN_TASKS = {SINK: True, UNKEYED: False}
"""Sinks that tasks publish to: each slot by itself, or one task for all slots. The driver publishes to the other one, and to
these while little waits."""
PUBLISHER = PublisherLimits(small_bytes=6, stay_ms=200, first_rest_ms=100, longest_rest_ms=400)
INLINE_OUTPUT = (0, 500, 0, 2_000)
"""How much output that waits since the last checkpoint stays in the metadata, in turn. One committable has about 250 bytes."""
SLICES = (1, 3, 64, 1_000)
"""How many tasks a slice of a sweep has, in turn."""
STOP_MS = 3_000
"""How long a stop waits for its output."""
EPOCH_MS = 1_767_225_600_000


SMALL = 100
"""Up to this many tasks, the state is checked before it is published, and not only when it is restored."""
LATE_LOOP = 0.2
"""How often the next epoch begins before the loop has seen the end of the last one."""
FEW_ACKS = 20
"""About how many tasks store their acknowledgement instead of sending it, at most."""
RESCALED = "rescaled"
"""How a term ends whose job continues with another parallelism."""
BACKOFF = Backoff(first_ms=100, greatest_ms=800)
"""Of a sink whose target does not answer."""


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


@dataclass(frozen=True)
class Part:
    """What a task has made durable, and of which version: attempts of one epoch may do so for the same checkpoint."""

    term: Term
    version: VersionId
    ack: UploadAck


@dataclass
class RunningEpoch:
    """An epoch from its beginning to the try that is accepted."""

    id: EpochId
    early: Announced | None
    bases: dict[int, Handles]
    """The files of the checkpoint that was the latest when it began: file name → path."""
    tries: int = 0
    work: CheckpointWork | None = None
    """If tasks are real."""


@dataclass(frozen=True)
class UploadFailed:
    """A task cannot store its version."""

    checkpoint_id: int
    task: TaskId


@dataclass(frozen=True)
class Published:
    """What became of a publication."""

    publication: Publication
    error: str | ForeignOutput | None = None
    by_driver: bool = False


class SimDriver:
    def __init__(
        self, world: World, plan: JobPlan, process: Process, start: Start, force: bool, parallelism: int
    ) -> None:
        self.world = world
        self.plan = plan
        self.process = process
        self.parallelism = parallelism
        self.inbox: deque[Part | UploadFailed | int | Published] = deque()
        self.orders: deque[str] = deque()
        self.winding_down = False
        self.settled = False
        self.savepoints: list[CheckpointRef] = []
        self.accepts = False
        """Whether the user accepts output that the log does not know."""
        self.tasks: RealTasks | None = None
        self.offers_again = False
        """Whether it begins a new line of history after the job was copied, and publishes what the abandoned one owes. Its
        operator knows that."""
        self.is_copy = False
        """Whether it finds the log of another place, and nobody has said that this is meant."""
        self._start = start
        self._force = force
        self._head: Epoch | None = None
        self._version: list[tuple[StateFile, ...]] = []
        self._versions: dict[EpochId, list[tuple[StateFile, ...]]] = {}
        self._accepted: dict[EpochId, EpochSnapshot] = {}
        self._handles: dict[str, dict[int, Handles]] = {}
        self._uploaded: dict[tuple[int, int, VersionId], UploadAck] = {}
        """What tasks have noted on local disk."""
        self._running: RunningEpoch | None = None
        self._announced: dict[int, EpochId] = {}
        self._number = 0
        self._ran = False
        self._schedule = ReleaseSchedule(BACKOFF)
        self._choice = PublisherChoice(IN_TASKS, PUBLISHER)
        self._stopped: tuple[CheckpointRef, Instant] | None = None
        """The savepoint that ended the job, and since when its output is waited for."""
        self._in_tasks: set[tuple[Uid, int, EpochId]] = set()
        """What tasks are at work to publish."""
        self._unasked: set[Uid] = set()
        """Sinks whose targets were away when the driver looked for markers, and have taken nothing since."""
        self._cleaning = False
        self._quiet_since: Instant | None = None
        self._attempt = 0
        self._rescale_to: int | None = None
        """The parallelism that the job continues with, once a checkpoint contains its last epoch."""
        self._hanging: set[tuple[int, int]] = set()
        """(checkpoint, task) whose upload never comes to an end."""
        self._triggered_ms: dict[int, float] = {}
        self._idle_since_ms: float | None = None
        self._life = 0
        """How often the job was claimed again by this process."""
        self._signed: set[Nonce] = set()
        self._beating = False
        self._entry: Entry | None = None
        self._releasing = True
        """False while the job is being claimed again: the product's loop, which starts publications, has ended by then."""

    @property
    def claim(self) -> Entry | None:
        """The last claim that it won. None: none yet."""
        return self._entry

    @property
    def now(self) -> Instant:
        elapsed_ms = int(self.world.clock.now_ms)
        return Instant(MonotonicMs(elapsed_ms), WallMs(EPOCH_MS + elapsed_ms + self.process.wall_offset_ms))

    def sign(self) -> Signature:
        nonce = Nonce(self.world.serial(f"nonce-{self.process.name}"))
        self._signed.add(nonce)
        # Small folders, so that they are deleted while rivals sleep; versions need not agree about their size.
        entries.SLOTS_PER_FOLDER = self.world.folder_rng.choice((1, 1, 2, 3))
        owner = self.process.name + (f".{self._life}" if self._life else "")
        return Signature(nonce, owner, self.now.wall_ms, random_bits=self.world.term_rng.getrandbits(32))

    def main(self) -> Steps[str]:
        world, plan = self.world, self.plan
        mint: Callable[[], Lineage] = lambda: Lineage(world.serial("lineage"))  # noqa: E731
        yield from check_location(plan.layout, self._start)
        yield from self._check_targets()
        self._entry = yield from claim(plan.layout, self._start, self.sign, mint, PATIENCE_MS, self._force)
        if self.is_copy:
            world.fail(f"{self.process.name} continues a copy of the job's directory")
        world.tally.events["claims"] += 1
        if self.offers_again:
            lines = {entry.lineage for entry in world.watch(plan.layout).log} - {self._entry.lineage}
            world.target(self.process.job).abandon(lines, world.storage)
        if self.accepts:
            world.watch(plan.layout).excuse(self._entry)
        while True:
            try:
                ended = yield from self._own()
                if self._rescale_to is None or ended != RESCALED:
                    return ended
                reach("rescale.3-ended")
                self.parallelism, self._rescale_to = self._rescale_to, None
                self._entry = yield from self._claim_again()
                world.watch(plan.layout).excuse(self._entry)
                reach("rescale.4-claimed")
                world.tally.events["rescales in place"] += 1
            except StorageError:
                if world.rng.random() < 0.2:
                    raise
                self._entry = yield from self._claim_again()

    def _check_targets(self) -> Steps[None]:
        """What the product does before a claim. A target that is away is asked before its first commit."""
        if self._start.fresh:
            return
        target = self.world.target(self.process.job)
        self._unasked = {sink for sink in SINKS if target.is_away(sink, self.world.storage)}
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

    def _claim_again(self) -> Steps[Entry]:
        """A write has an outcome that nobody knows. A sweep or a publication that the life before began goes on beside, and its
        result is heard by nobody."""
        self._releasing = False
        self.inbox.clear()
        self._hanging.clear()
        self._schedule = ReleaseSchedule(BACKOFF)
        self._choice = PublisherChoice(IN_TASKS, PUBLISHER)
        self._stopped = None
        self._rescale_to = None
        self._triggered_ms.clear()
        self._idle_since_ms = None
        for left in (2, 1, 0):
            self._life += 1
            yield Sleep(self.world.rng.randrange(1, 500))
            try:
                entry = yield from claim_again(self.plan.layout, self._newest(), self._signed, self.sign)
            except StorageError:
                if not left:
                    raise
            else:
                break
        self.world.tally.events["claims again"] += 1
        return entry

    def _hold_again(self, base: CheckpointRef | None) -> Steps[None]:
        """Pin what a fork begins from, if another start of it has removed the pin since: that one had a checkpoint of its own."""
        if self.plan.origin is None or base is None:
            return
        origin, pin = self.plan.origin
        if not base.metadata.startswith(f"{origin.root}/") or (yield Get(origin.pin(pin))) is not None:
            return
        held = replace(base, owned=True)
        try:
            yield from place(origin, pin, held, "simulated")
        except PinTooLate:
            return
        self.world.watch(origin).pin(pin, held)

    def _newest(self) -> Entry:
        """The newest entry that this process knows to be its own."""
        store: CompletedCheckpointStore | None = getattr(self, "store", None)
        assert self._entry is not None
        return self._entry if store is None or store.term < self._entry.term else store.entry

    def _own(self) -> Steps[str]:  # noqa: C901 a driver's whole life, read from top to bottom
        world, plan, entry = self.world, self.plan, self._entry
        assert entry is not None
        self.process.history = entry.history
        world.note(self.process.name, f"owns term {entry.term}, base {entry.base and entry.base.metadata}")
        world.watch(plan.layout).check_won(entry)
        yield from self._hold_again(entry.base)
        inline_bytes = INLINE_OUTPUT[entry.slot % len(INLINE_OUTPUT)]
        store = CompletedCheckpointStore(plan.layout, entry, world.read, self.sign, plan.num_retained, inline_bytes)
        data = yield from store.recover()
        self.store, self.cleaner = store, Cleaner(store, SLICES[entry.term % len(SLICES)])
        self._releasing = True
        if plan.real_state:
            self.tasks = RealTasks(self, store, None if data is None else world.snapshots[data])
        self._restore(data)
        tasks = [TaskId(1, Slot(n)) for n in range(self.parallelism)]
        epochs = self._announcements = Announcements() if self.tasks is None else self.tasks.uploads.announcements
        self._running, self._announced = None, {}
        self._acks = StoredAcks(plan.layout, store.term)
        coordinator = self.coordinator = Coordinator(
            plan.cadence, tasks, entry.last_id, entry.base, epochs.withdraw, epochs.epoch_runs
        )
        if self.tasks is not None:
            self.tasks.attach(coordinator)
        yield from self._act(coordinator.start(self.now, world.rng.randrange(plan.cadence.period_ms or 1)))
        if not self._beating:
            self._beating = True
            world.spawn(self.process, self._beat())
            world.spawn(self.process, self._release())
        while True:
            calm = 3 if world.odds is CALM and not self.winding_down else 1
            takes_ms = int(calm * plan.epoch_ms * world.rng.uniform(0.5, 1.5))
            self._begin_epoch()
            if world.rng.random() < 0.5:
                # What the loop does while an epoch runs. It may take the job back: then the epoch is of no use.
                yield Sleep(takes_ms // 2)
                yield from self._read_inbox()
                yield from self._read_acks()
                yield from self._act(coordinator.tick(self.now))
                takes_ms -= takes_ms // 2
            yield Sleep(takes_ms)
            yield from self._read_inbox()
            yield from self._read_acks()
            if self._stopped is None:
                if world.chance(world.odds.rewind):
                    yield from self._rewind()
                elif self._running is not None:
                    yield from self._try_epoch(self._running)
            ticked_ms = world.clock.now_ms
            yield from self._act(coordinator.tick(self.now))
            if self._stopped is None and not epochs.epoch_runs():
                self._check_cadence(ticked_ms)
            self._remind()
            try:
                yield from store.record()
            except StorageError:
                pass
            else:
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

    def _read_inbox(self) -> Steps[None]:
        while self.inbox:
            message = self.inbox.popleft()
            if isinstance(message, Part):
                yield from self._acknowledge(message)
            elif isinstance(message, Published):
                self._note(message)
            elif isinstance(message, UploadFailed):
                yield from self._upload_failed(message)
            else:
                reason = CheckpointFailureReason.CHECKPOINT_DECLINED
                yield from self._act(self.coordinator.decline(message, reason, self.now))

    def _read_acks(self) -> Steps[None]:
        """The acknowledgements that tasks have stored while an epoch runs."""
        now_ms = self.now.monotonic_ms
        expiring = [pending.id for pending in self.coordinator.pending if pending.deadline_ms <= now_ms]
        for _, stored in (yield from self._acks.new(now_ms, expiring)):
            part = self.world.parts[stored]
            if part.term != self.store.term:
                self.world.fail(f"{self.process.name} read an acknowledgement of term {part.term}, not of its own")
            self.world.tally.events["acknowledgements through storage"] += 1
            yield from self._acknowledge(part)

    def _acknowledge(self, part: Part) -> Steps[None]:
        """Only what was accepted counts, as in the product's `PendingUploads`. Tasks know uploads by their term: the end of one
        that an earlier term ordered is reported to nobody."""
        if part.term != self.store.term:
            return
        if self.tasks is not None:
            yield from self._act(self.tasks.acknowledge(part.ack))
            return
        pending = next((p for p in self.coordinator.pending if p.id == part.ack.checkpoint_id), None)
        snapshot = None if pending is None else self._accepted.get(pending.epoch)
        if snapshot is None or snapshot.contains(part.ack.task, part.version):
            yield from self._act(self.coordinator.acknowledge(part.ack, self.now))
        else:
            self.world.tally.events["acknowledgements of other attempts"] += 1

    def _upload_failed(self, failed: UploadFailed) -> Steps[None]:
        assert self.tasks is not None
        if not self.tasks.uploads.is_materialization(failed.checkpoint_id):
            reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
            yield from self._act(self.coordinator.decline(failed.checkpoint_id, reason, self.now))
            return
        self.world.tally.events["materializations failed"] += 1
        self.tasks.materializer.fail(failed.checkpoint_id, failed.task, "simulated", self.now)
        if self.tasks.failed:
            yield from self._rewind()

    def _beat(self) -> Steps[None]:
        """Runs beside the main thread."""
        for beat in count(1):
            yield Sleep(HEARTBEAT_MS)
            mine = self._newest()
            try:
                yield from show_life(self.plan.layout, mine, beat)
            except StorageError:
                pass
            except ClaimLost as lost:
                if lost.winner.nonce not in self._signed:
                    raise

    # epochs

    def _restore(self, data: bytes | None) -> None:
        self.world.tally.events["restores"] += 1
        self._version = [() for _ in range(self.parallelism)]
        self._head = None
        self._ran = False
        self._versions.clear()
        self._accepted.clear()
        self._uploaded.clear()
        if self.tasks is not None:
            self._restore_real(None if data is None else self.world.snapshots[data])
            return
        if data is None:
            return
        snapshot = self.world.snapshots[data]
        for task in snapshot.tasks:
            for _, path in task:
                if path not in self.world.storage.objects:
                    newest = self.world.watch(self.plan.layout).newest
                    if newest is not None and newest.term > self.store.term:
                        raise ClaimLost(self.store.term, newest)  # a successor has gone on and cleaned up
                    self.world.fail(f"{self.process.name} restores epoch {snapshot.epoch.id} and {path} is missing")
        verify(snapshot, self.plan.groups)
        self._head = snapshot.epoch
        if snapshot.parallelism != self.parallelism:
            self.world.tally.events["rescales"] += 1
        for task in range(self.parallelism):
            mine = key_groups(task, self.parallelism, self.plan.groups)
            olds = {g * snapshot.parallelism // self.plan.groups for g in mine}
            covers: dict[str, dict[int, tuple[EpochId, ...]]] = {}
            for old in sorted(olds):
                theirs = key_groups(old, snapshot.parallelism, self.plan.groups)
                for file, _ in snapshot.tasks[old]:  # of a file that two tasks link, each owns its own key groups
                    covers.setdefault(file.name, {}).update({g: e for g, e in file.covers.items() if g in theirs})
            self._version[task] = tuple(StateFile(name, groups) for name, groups in covers.items())
        base = self.store.entry.base
        if base is not None:
            self._handles[base.metadata] = snapshot.handles

    def _restore_real(self, snapshot: Snapshot | None) -> None:
        assert self.tasks is not None
        self._number += 1
        try:
            self.tasks.restore(snapshot, self.store.entry.base, EpochId(self.store.term, self._number))
        except (ObjectMissing, CorruptFile, CorruptState, MetadataError) as error:
            newest = self.world.watch(self.plan.layout).newest
            if newest is not None and newest.term > self.store.term:
                raise ClaimLost(self.store.term, newest) from error  # a successor has gone on and cleaned up
            self.world.fail(f"{self.process.name} cannot restore epoch {snapshot and snapshot.epoch.id}: {error}")
        if snapshot is not None:
            self._head = snapshot.epoch
            self.world.tally.events["rescales"] += snapshot.parallelism != self.parallelism

    def _begin_epoch(self) -> None:
        """Unless one runs already: the loop may be late, or a try was thrown away."""
        if self._running is not None or self._stopped is not None or (self.winding_down and self._ran):
            return
        if self._rescale_to is not None:
            return
        store, world = self.store, self.world
        work = None
        if self.tasks is None:
            early = self._announcements.begin_epoch(empty=False)
        else:
            work = self.tasks.begin_epoch()
            early = None if work.early is None else Announced(work.early.checkpoint_id, incremental=False)
        self._number += 1
        epoch, base = EpochId(store.term, self._number), store.entry.base
        if early is not None:
            world.tally.events["announcements"] += 1
            if early.id in self._announced:
                world.fail(f"checkpoint {early.id} was announced to epoch {self._announced[early.id]} and to {epoch}")
            if self.coordinator.pending:
                world.fail(
                    f"checkpoint {early.id} was announced while {self.coordinator.pending[0].id} was in progress"
                )
            self._announced[early.id] = epoch
        known = {} if base is None or early is None or not early.incremental else self._handles[base.metadata]
        self._running = RunningEpoch(epoch, early, known, work=work)

    def _try_epoch(self, running: RunningEpoch) -> Steps[None]:
        world, rng, store = self.world, self.world.rng, self.store
        running.tries += 1
        epoch = running.id
        start = 0 if self._head is None else self._head.end
        if self.tasks is not None and world.chance(world.odds.rewind):
            world.hosts.lose_one()
        version, touched, marks = list(self._version), list[int](), dict[int, int]()
        if self.tasks is None:
            touched = self._change(epoch, version)
        else:
            assert running.work is not None
            try:
                marks |= self.tasks.run_epoch(epoch, running.tries, running.work)
            except VersionMissing:
                yield from self._rewind()
                return
            except Crash:
                world.tally.events["tasks that died"] += 1
                return  # the epoch is tried again
            touched = list(marks)
        committables = self._stage(epoch)
        sealed = VersionId(epoch, AttemptId(running.tries))
        if running.early is not None and self.tasks is None:
            self._upload_early(running.early, sealed, version, running.bases)
        if world.chance(world.odds.rewind):
            world.tally.events["epochs thrown away"] += 1
            return  # the attempt is discarded; its files are orphans, and the epoch is tried again
        output = tuple((c.lineage, c.sink, c.slot) for c in committables)
        world.use_epoch(store.entry.lineage, epoch)
        self._head = Epoch(
            epoch, self._head, store.entry.lineage, start, start + 1 + rng.randrange(9), frozenset(touched), output,
            marks,
        )  # fmt: skip
        self._ran = True
        self._version = version
        self._versions[epoch] = version
        names = (TaskId(1, Slot(task)) for task in range(self.parallelism))
        announced = None if running.early is None else running.early.id
        snapshot = EpochSnapshot(epoch, dict.fromkeys(names, sealed), None, Path(), Clocks(), announced)
        if self.tasks is not None:
            snapshot = self.tasks.accept(snapshot)
        self._accepted[epoch] = snapshot
        store.ledger.accept(committables)
        world.tally.events["epochs"] += 1
        self._running = None
        if self.tasks is None:
            self._announcements.end_epoch()
        else:
            self.tasks.uploads.ended(snapshot)
        if world.rng.random() < LATE_LOOP:
            world.tally.events["epochs begun before the end of the last was seen"] += 1
            self._begin_epoch()
        if self.tasks is None:
            self._announcements.saw_end()
        else:
            self.tasks.uploads.saw(snapshot)
        actions = self.coordinator.epoch_finished(epoch, True, self.now, announced)
        self._announcements.settle(announced)
        if self.tasks is not None and not self.winding_down:
            self.tasks.materializer.on_epoch(self.now)
        yield from self._act(actions)

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
                    lineage=self.store.entry.lineage, sink=sink, slot=partition, epoch=epoch, payload=paths[-1].encode(),
                    size_bytes=1,
                )  # fmt: skip
                world.keys[channel(made), epoch] = frozenset(rng.choices(groups, k=2))
                committables.append(made)
        return committables

    def _change(self, epoch: EpochId, version: list[tuple[StateFile, ...]]) -> list[int]:
        """Change the state of some tasks. Return the key groups."""
        world, rng = self.world, self.world.rng
        few = min(self.parallelism, 1 + int(rng.random() * 3))
        changed = rng.sample(range(self.parallelism), few)
        touched: list[int] = []
        for task in changed:
            groups = key_groups(task, self.parallelism, self.plan.groups)
            if not groups:
                continue
            group = rng.choice(groups)
            touched.append(group)
            fresh = StateFile(world.serial("sst"), {group: (epoch,)})
            files = (*version[task], fresh)
            version[task] = (self._compact(files, groups),) if rng.random() < 0.3 else files
        return touched

    def _compact(self, files: Iterable[StateFile], groups: range) -> StateFile:
        merged: dict[int, tuple[EpochId, ...]] = {}
        for file in files:
            for group, epochs in file.covers.items():
                if group in groups:
                    merged[group] = merged.get(group, ()) + epochs
        return StateFile(self.world.serial("sst"), merged)

    def _rewind(self) -> Steps[None]:
        """A host was lost: back to the last checkpoint, within the same term."""
        self.world.tally.events["rewinds"] += 1
        reason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
        self._running = None
        aborted = self.coordinator.abort_all(reason, self.now)
        if self.tasks is None:
            yield from self._act(aborted)
            self._announcements.abandon_epoch()
        else:
            # What is announced after it must not start from a version that is no longer spared.
            self.tasks.go_back()
            yield from self._act(aborted)
            if self.world.chance(self.world.odds.rewind * 10):
                self.world.hosts.lose_one()
        base = self.store.entry.base
        self.store.ledger.rewind(self.store.term, base.epoch if base is not None else None)
        data: bytes | None = None
        if base is not None:
            data = yield Get(base.metadata)
        self._restore(data)

    # uploads

    def tell_failed(self, checkpoint_id: int, task: TaskId) -> None:
        life = self._life
        failed = UploadFailed(checkpoint_id, task)
        self.world.clock.after(50, lambda: self.inbox.append(failed) if life == self._life else None)

    def tell_stored(self, term: Term, version: VersionId, ack: UploadAck) -> None:
        self._tell(Part(term, version, ack))

    def _upload_all(self, action: StartUpload) -> None:
        if self.world.chance(self.world.odds.hanging_upload):
            self._hanging.add((action.id, self.world.rng.randrange(self.parallelism)))
        size = max(1, self.parallelism // 50)
        for first in range(0, self.parallelism, size):
            tasks = range(first, min(first + size, self.parallelism))
            self._later(action.id, action.epoch, action.base, action.request, tasks)

    def _later(self, id: int, epoch: EpochId, base: str | None, request: Request, tasks: Iterable[int]) -> None:
        delay, life = self.world.rng.uniform(5, 600), self._life
        self.world.clock.after(
            delay, lambda: self._upload(id, epoch, base, request, tasks) if life == self._life else None
        )

    def _upload(self, id: int, epoch: EpochId, base: str | None, request: Request, tasks: Iterable[int]) -> None:
        """A task puts what the base does not have into storage, whether its driver still lives or not."""
        world = self.world
        if not self.process.alive and world.rng.random() < 0.5:
            return
        version = self._versions.get(epoch)
        if version is None:
            return
        reusable = self._handles.get(base, {}) if base is not None else {}
        accepted = self._accepted[epoch].versions
        for task in tasks:
            if (id, task) in self._hanging:
                continue
            if world.chance(world.odds.declined):
                self._tell(id)
                continue
            if world.chance(world.odds.unavailable):
                continue
            sealed = accepted[TaskId(1, Slot(task))]
            done = self._uploaded.get((id, task, sealed))
            if done is None or world.chance(world.odds.second_attempt):
                done = self._upload_task(id, request.target, task, version[task], reusable.get(task, Handles()))
                self._uploaded[id, task, sealed] = done
            self._tell(Part(self.store.term, sealed, done))

    def _upload_early(
        self, early: Announced, sealed: VersionId, version: list[tuple[StateFile, ...]], reusable: dict[int, Handles]
    ) -> None:
        """Each task stores the version that it has sealed, sooner or later, whatever becomes of its try, epoch and driver."""
        term, size, uploaded = self.store.term, max(1, self.parallelism // 50), self._uploaded

        def store(tasks: Iterable[int]) -> None:
            for task in tasks:
                if self.world.chance(self.world.odds.unavailable) or (early.id, task, sealed) in uploaded:
                    continue
                done = uploaded[early.id, task, sealed] = self._upload_task(
                    early.id, None, task, version[task], reusable.get(task, Handles()), term
                )
                self._tell(Part(term, sealed, done))

        for first in range(0, self.parallelism, size):
            tasks = range(first, min(first + size, self.parallelism))
            self.world.clock.after(self.world.rng.uniform(5, 600), lambda tasks=tasks: store(tasks))

    def _upload_task(
        self, id: int, folder: str | None, task: int, files: tuple[StateFile, ...], base: Handles,
        term: Term | None = None,
    ) -> UploadAck:  # fmt: skip
        self._attempt += 1
        name = TaskId(1, Slot(task))
        placed, new = [], []
        for file in files:
            path = base.paths.get(file.name)
            if path is None:
                leaf = self.world.serial("f")
                path = self.plan.layout.shared(term or self.store.term, name, AttemptId(self._attempt), id, leaf)
                if folder is not None:
                    path = f"{folder}/{leaf}"
                self.world.storage.apply_put(path, b"state")
                new.append(path)
            placed.append((file, path))
        root = self._root(folder)
        listed = self._place_list(id, folder, term or self.store.term, name, placed, base, new)
        before = set(base.paths.values()) if base.files is not None else set()
        if isinstance(base.files, StoredFileList) and base.files != listed:
            before.add(f"{root}/{base.files.path}")
        released = before - {path for _, path in placed}
        digest = None if base.files is None else list_digest(base.files)
        return UploadAck(
            checkpoint_id=id,
            task=name,
            state=(tuple(placed), listed),
            new_files=tuple(new),
            change=ListChange(digest, tuple(new), tuple(released)),
            state_size_bytes=len(placed),
            checkpointed_size_bytes=len(new),
        )

    def _root(self, folder: str | None) -> str:
        return self.plan.layout.root if folder is None else folder

    def _place_list(
        self,
        id: int,
        folder: str | None,
        term: Term,
        task: TaskId,
        placed: list[tuple[StateFile, str]],
        base: Handles,
        new: list[str],
    ) -> AnyFileList:
        """The list of a task's files. Every other task stores it as an object of its own, if it has changed."""
        root, version = self._root(folder), VersionId(EpochId(term, 1), AttemptId(1))
        files = FileList(
            MetadataFile(file.name, path.removeprefix(f"{root}/"), 5, "sha256:00", version, id) for file, path in placed
        )
        same = base.files is not None and {file.name: path for file, path in placed} == base.paths
        if same and base.files is not None:
            return base.files
        if folder is not None or task.slot % 2 or not placed:
            return files
        path = self.plan.layout.shared(term, task, AttemptId(self._attempt), id, self.world.serial("files"))
        self.world.storage.apply_put(path, files.packed)
        new.append(path)
        return StoredFileList.of(files, path.removeprefix(f"{root}/"))

    def _tell(self, message: Part | int) -> None:
        world = self.world
        if isinstance(message, Part) and world.rng.random() < min(0.3, FEW_ACKS / self.parallelism):
            world.clock.after(world.rng.uniform(1, 400), lambda: self._store_ack(message))
            return
        copies = 2 if world.chance(world.odds.doubled_message) else 1
        if world.chance(world.odds.lost_message):
            copies -= 1
        life = self._life
        for _ in range(copies):
            world.clock.after(
                world.rng.uniform(1, 400), lambda: self.inbox.append(message) if life == self._life else None
            )

    def _store_ack(self, part: Part) -> None:
        """No epoch has taken it to the driver."""
        name = self.world.serial("ack")
        self.world.parts[name.encode()] = part
        path = self.plan.layout.ack(part.term, part.ack.checkpoint_id, part.ack.task, name)
        self.world.storage.apply_put(path, name.encode())

    def _remind(self) -> None:
        """Every epoch carries the question again to tasks that have not answered."""
        if self.tasks is not None:
            if self._running is None and self._stopped is None:
                self.tasks.nudge()
            return
        for pending in self.coordinator.pending:
            missing = [task.slot for task in pending.missing]
            if missing and self.world.rng.random() < 0.3:
                self._later(pending.id, pending.epoch, pending.base, pending.request, sorted(missing))

    # checkpoints

    def _act(self, actions: list[Action]) -> Steps[None]:
        self._note_triggered(actions)
        for action in actions:
            if isinstance(action, StartUpload):
                self._check_begun(action)
                self._acks.watch(action.id, self.now.monotonic_ms)
                if self.tasks is None:
                    self._upload_all(action)
                else:
                    for ack in self.tasks.start_upload(action):
                        yield from self._act(self.coordinator.acknowledge(ack, self.now))
            elif isinstance(action, NotifyAborted):
                if self.tasks is not None:
                    self.tasks.uploads.forget(action.id)
                if action.reason is CheckpointFailureReason.CHECKPOINT_EXPIRED:
                    self._check_expired(action.id)
            elif isinstance(action, Publish):
                yield from self._publish(action.pending)
            elif isinstance(action, DiscardFiles):
                try:
                    yield Delete(action.paths)
                except StorageError:
                    pass
            elif isinstance(action, FailJob):
                yield from self._rewind()
                return
        self._acks.watch_only(pending.id for pending in self.coordinator.pending)
        self._announce()

    def _announce(self) -> None:
        """As the product's `Checkpointer` does it after everything that the coordinator decides."""
        id, base = self.coordinator.announce(self.plan.epoch_ms, self.now), self.store.entry.base
        incremental = base is not None and base.owned
        announced = None if id is None else Announced(id, incremental)
        if announced is not None and self.tasks is not None:
            changelog = incremental and self.tasks.changelog
            offered = self.tasks.uploads.materialized if changelog else {}
            announced = Announced(id, incremental, False, changelog, materialized=offered)
        self._announcements.announce(announced)

    def _check_begun(self, begun: StartUpload) -> None:
        stored = self._announced.get(begun.id)
        if stored is not None and stored != begun.epoch:
            self.world.fail(
                f"checkpoint {begun.id} is of epoch {begun.epoch}; tasks of {stored} have stored files for it"
            )
        if stored is not None:
            self.world.tally.events["checkpoints stored early"] += 1
        elif begun.request.kind is RequestKind.PERIODIC and self._running is not None:
            self.world.fail(f"checkpoint {begun.id} began while epoch {self._running.id} was running")

    def _note_triggered(self, actions: list[Action]) -> None:
        begun = [action for action in actions if isinstance(action, StartUpload)]
        self._triggered_ms.update(dict.fromkeys((each.id for each in begun), self.world.clock.now_ms))
        if any(each.request.kind is not RequestKind.SAVEPOINT for each in begun):
            self._idle_since_ms = None

    def _check_cadence(self, now_ms: float) -> None:
        """After a tick: nothing has outlived its timeout, and what is due has begun, whatever the wall clock shows and
        whatever savepoint is under way, unless it ends the job."""
        cadence = self.plan.cadence
        for pending in self.coordinator.pending:
            age_ms = now_ms - self._triggered_ms[pending.id]
            if pending.stage is not Stage.PUBLISHING and age_ms > cadence.timeout_ms + 1:
                self.world.fail(f"checkpoint {pending.id} is {age_ms:.0f} ms old and has not expired")
        base = self.store.entry.base
        saved = self._head is None or not self._ran or (base is not None and base.epoch == self._head.id)
        busy = any(p.request.kind is not RequestKind.SAVEPOINT for p in self.coordinator.pending)
        if saved or self._cleaning or busy:
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        elif now_ms - self._idle_since_ms > (cadence.period_ms or 0) + cadence.pause_ms + 1:
            self.world.fail(f"no checkpoint began for {now_ms - self._idle_since_ms:.0f} ms although epochs finished")

    def _check_expired(self, checkpoint_id: int | None) -> None:
        assert checkpoint_id is not None
        age_ms = self.world.clock.now_ms - self._triggered_ms[checkpoint_id]
        if age_ms < self.plan.cadence.timeout_ms - 1:
            self.world.fail(f"checkpoint {checkpoint_id} expired after {age_ms:.0f} ms")

    def _snapshot(
        self,
        pending: PendingCheckpoint,
        committables: tuple[Committable, ...],
        stored_output: tuple[StoredOutput, ...] = (),
    ) -> tuple[Snapshot, bytes, str]:
        assert self._head is not None
        epoch = next((e for e in self._head.chain() if e.id == pending.epoch), None)
        if epoch is None:
            self.world.fail(f"checkpoint {pending.id} is of epoch {pending.epoch}, which was discarded")
        if pending.missing:
            self.world.fail(
                f"checkpoint {pending.id} is to be published without {sorted(map(str, pending.missing))[:3]}"
            )
        states = [pending.acks[TaskId(1, Slot(t))].state for t in range(self.parallelism)]
        root = self._root(pending.request.target)
        if self.tasks is None:
            lists = tuple((f"L1-S{t}", files) for t, (_, files) in enumerate(states) if len(files))
            snapshot = Snapshot(epoch, self.parallelism, [task for task, _ in states], committables, lists, root)
            if self.parallelism <= SMALL:
                verify(snapshot, self.plan.groups)
        else:
            superseded = self._is_superseded()  # then files may be gone, and its publication fails
            parts, paths = parts_of_checkpoint(self.world, root, states, superseded)
            lists = tuple((str(part.task), part.files) for part in parts if len(part.files))
            snapshot = Snapshot(epoch, self.parallelism, [], committables, lists, root, paths=paths, parts=parts)
            if not superseded:
                check_restore(self.world, snapshot, self.plan.groups, [self.world.rng.randrange(self.parallelism)])
        snapshot.stored_output = stored_output
        checksum = hashlib.sha256(f"{self.process.name} {self.store.term} {pending.id}".encode()).hexdigest()
        body = f'{{"checksum": "{checksum}"}}'.encode()
        self.world.snapshots[body] = snapshot
        return snapshot, body, checksum

    def _is_superseded(self) -> bool:
        """Whether another driver has claimed the job since."""
        newest = self.world.watch(self.plan.layout).newest
        return newest is not None and newest.term > self.store.term

    def _publish(self, pending: PendingCheckpoint) -> Steps[None]:
        store, coordinator = self.store, self.coordinator
        if pending.request.kind.is_savepoint:
            yield from self._publish_savepoint(pending)
            return
        output = divided_output(store, pending.id, pending.epoch, shares=not pending.request.full)
        snapshot, body, checksum = self._snapshot(pending, output.inline, output.refs)
        self._check_output(pending.epoch, self.world.contents(body, output.objects))
        before = store.entry.retained
        changes = {str(task): ack.change for task, ack in pending.acks.items()}
        try:
            ref = yield from store.publish(
                Draft(
                    id=pending.id,
                    epoch=pending.epoch,
                    metadata=body,
                    checksum=checksum,
                    contents=self.world.contents(body, output.objects),
                    changes=changes,
                    objects=output.new,
                )
            )
        except NotPublished as error:
            yield from self._act(coordinator.publish_failed(pending.id, self.now, str(error)))
            return
        self.world.tally.events["checkpoints completed"] += 1
        self.world.tally.events["objects with waiting output"] += len(output.new)
        self.world.tally.events["checkpoints that refer to earlier output"] += len(output.objects) > len(output.new)
        self.world.watch(self.plan.layout).check_won(store.entry)
        self._handles[ref.metadata] = snapshot.handles
        if self.tasks is not None:
            self.tasks.completed(ref, pending, snapshot.parts)
        dropped = [old.id for old in before if old not in store.entry.retained]
        yield from self._act(coordinator.published(pending.id, ref, dropped, self.now))
        if self.plan.origin is not None:
            origin, pin = self.plan.origin
            self.world.watch(origin).unpin(pin)
            try:
                yield from remove(origin, pin)
            except StorageError:
                pass
        if not self._cleaning:
            self._cleaning = True
            self.world.spawn(self.process, self._clean(self.world.rng.random() < 0.5))

    def _check_output(self, epoch: EpochId, contents: CheckpointContents) -> None:
        """A checkpoint carries what waits, each once, wherever it is."""
        carried = Counter((channel(c), c.epoch) for c in contents.committables)
        waiting = Counter((channel(c), c.epoch) for c in self.store.ledger.carried_by(epoch))
        if carried != waiting:
            self.world.fail(
                f"a checkpoint of {epoch} carries {carried - waiting} too much and lacks {waiting - carried}"
            )

    def _publish_savepoint(self, pending: PendingCheckpoint) -> Steps[None]:
        """All files are the savepoint's own, and so are copies of the rows that wait."""
        store, world, target = self.store, self.world, pending.request.target
        copies = []
        for c in store.ledger.carried_by(pending.epoch):
            path = f"{target}/{world.serial('rows')}"
            world.storage.apply_put(path, b"rows")
            copies.append(
                Committable(lineage=c.lineage, sink=c.sink, slot=c.slot, epoch=c.epoch, payload=path.encode())
            )
        _, body, checksum = self._snapshot(pending, tuple(copies))
        path = f"{target}/_metadata"
        ref = CheckpointRef(
            id=pending.id,
            term=store.term,
            epoch=pending.epoch,
            lineage=store.entry.lineage,
            metadata=path,
            checksum=checksum,
            owned=False,
        )
        try:
            yield Put(path, body)
        except StorageError:
            yield from self._act(self.coordinator.publish_failed(pending.id, self.now))
            return
        if pending.request.kind is RequestKind.TERMINAL_SAVEPOINT:
            yield from store.publish_terminal(ref, world.read("", body))
            world.watch(self.plan.layout).check_won(store.entry)
            self._stopped = ref, self.now
            self._schedule.hurry()
        if self.tasks is not None:
            self.tasks.uploads.forget(pending.id)
        world.tally.events["savepoints"] += 1
        self.savepoints.append(ref)
        if pending.request.kind is not RequestKind.TERMINAL_SAVEPOINT:
            store.follow_savepoint(ref, world.read("", body))
        yield from self._act(self.coordinator.published(pending.id, ref, (), self.now))

    def _release(self) -> Steps[None]:
        """Runs beside the main thread, and begins a thread for each publication: nobody waits for a target."""
        while True:
            yield Sleep(20)
            if not self._releasing:
                continue
            due = self.store.due()
            by_driver = self._choice.of_driver(due, self._schedule.busy, self.now)
            in_tasks = {sink: stable for sink, stable in IN_TASKS.items() if sink not in by_driver}
            for publication in self._schedule.begin(due, self.now, in_tasks):
                self.world.tally.events["publications by the driver"] += publication.sink in IN_TASKS
                self.world.spawn(
                    self.process, self._publish_output(self._compared(publication), self._life, by_driver=True)
                )
            for publication in self._schedule.for_tasks(due, self.now, in_tasks):
                self._publish_in_task(self._compared(publication))

    def _compared(self, publication: Publication) -> Publication:
        """As the product's `OutputRelease` does it."""
        if publication.sink not in self._unasked:
            return publication
        self.world.tally.events["publications that ask the target first"] += 1
        return replace(publication, compare_with=self.store.entry.history)

    def _publish_in_task(self, publication: Publication) -> None:
        """A task does it in a process of its own, sooner or later, whether its driver still lives or not."""
        order = publication.sink, publication.committables[0].slot, publication.last
        if order in self._in_tasks:
            return
        self._in_tasks.add(order)
        task = Process(name=f"{self.process.name}-S{order[1]}", job=self.process.job, history=self.process.history)
        task.on_exit = lambda how: self._in_tasks.discard(order)
        delay = self.world.rng.uniform(1, 4_000 if self.world.chance(self.world.odds.slow_request * 4) else 100)
        steps = self._publish_output(publication, self._life)
        self.world.clock.after(delay, lambda: self.world.spawn(task, steps, main=True))

    def _publish_output(self, publication: Publication, life: int, by_driver: bool = False) -> Steps[None]:
        """One event for each committable: others publish, crash and sleep in between. The result is for the claim that asked."""
        error: str | ForeignOutput | None = None
        try:
            for committable in publication.committables:
                yield from commit(replace(publication, committables=(committable,)))
        except CommitFailed as failed:
            error = str(failed)
        except ForeignOutput as foreign:
            error = foreign
        if life == self._life:
            self.inbox.append(Published(publication, error, by_driver))

    def _note(self, result: Published) -> None:
        sink = result.publication.sink
        if isinstance(result.error, ForeignOutput):
            raise result.error  # the job stops
        if result.error is None:
            self._unasked.discard(sink)
            self._schedule.succeeded(sink, self.now, by_tasks=not result.by_driver)
            self.store.published(result.publication)
            if result.by_driver:
                self._choice.succeeded(sink)
        else:
            if result.by_driver:
                self._choice.failed(sink, self.now)
            self._schedule.failed(sink, result.error, self.now, self.world.rng.random(), by_tasks=not result.by_driver)

    def _stop(self, ref: CheckpointRef, since: Instant) -> str | None:
        """How a stop answers, when it can: with success only if all its output is published."""
        if not self.store.due():
            self.world.tally.events["stops with savepoint"] += 1
            self._check_stopped(ref)
            return "stopped"
        if self.now.since(since) > STOP_MS:
            self.world.tally.events["stops that failed, with output waiting"] += 1
            return "stop failed"
        return None

    def _check_stopped(self, ref: CheckpointRef) -> None:
        world, lineage = self.world, self.store.entry.lineage
        visible = world.target(self.process.job).visible
        # By its content: a driver that has claimed the savepoint meanwhile may have deleted it.
        snapshot = world.snapshots[f'{{"checksum": "{ref.checksum}"}}'.encode()]
        for epoch in snapshot.epoch.chain():
            for lane in epoch.output if epoch.lineage == lineage else ():
                if epoch.id not in visible[lane]:
                    world.fail(
                        f"{self.process.name} said that it stopped, and output of {lane} at {epoch.id} is missing"
                    )
        if ref.metadata not in world.storage.objects:
            return  # … and its record with it
        if snapshot.committables and self.plan.layout.committed(lineage, ref.term, ref.id) not in world.storage.objects:
            world.fail(f"{self.process.name} said that it stopped, and nothing records that its output is published")

    def _clean(self, sweep: bool) -> Steps[None]:
        """Runs beside the main thread."""
        world = self.world
        while True:
            try:
                in_flight = self.coordinator.in_flight()
                yield from self.cleaner.clean(in_flight)
                if acks := (yield from self._acks.settled(in_flight.lowest_id)):
                    yield Delete(acks)
                if sweep or self.cleaner.wants_sweep:
                    yield from self.cleaner.sweep(self.coordinator.in_flight())
                    world.tally.events["sweeps"] += 1
                if (yield from self.cleaner.dispose()):
                    world.tally.events["disposals"] += 1
                world.tally.events["entries of the log deleted"] += yield from self.cleaner.trim_log()
            except StorageError:
                yield Sleep(300)
            else:
                break
        self._cleaning = False
        self._note_triggered(self.coordinator.cleaned(1_000, self.now))  # its tasks hear of it with the next reminder

    # the end

    def _is_saved(self) -> bool:
        """Whether the latest checkpoint contains all epochs. If none is under way that will, the rescale has failed."""
        base, head = self.store.entry.base, self._head
        if self._running is not None:
            return False
        if head is None or (base is not None and base.epoch == head.id):
            return True
        if not any(pending.epoch == head.id for pending in self.coordinator.pending):
            self._rescale_to = None
            self.world.tally.events["rescales that failed"] += 1
        return False

    def _obey(self, order: str) -> Steps[str | None]:
        if order.startswith("rescale "):
            reach("rescale.1-asked")
            self._rescale_to = int(order.removeprefix("rescale "))
            request = Request(kind=RequestKind.MANUAL, at_ms=self.now.monotonic_ms, forced=True)
            yield from self._act(self.coordinator.request(request, self.now))
            return None
        kind = {"savepoint": RequestKind.SAVEPOINT, "stop": RequestKind.TERMINAL_SAVEPOINT}.get(order)
        if kind is not None:
            target = f"savepoints/{self.world.serial('savepoint')}"
            yield from self._act(
                self.coordinator.request(Request(kind=kind, at_ms=self.now.monotonic_ms, target=target), self.now)
            )
            return None
        if order == "cancel":
            yield from self._act(self.coordinator.close(self.now))
            yield from self.store.finish(RunOutcome.CANCELED, keep=True)
            self.world.watch(self.plan.layout).check_won(self.store.entry)
            self.world.tally.events["cancels"] += 1
        return order

    def _settle(self) -> Steps[None]:
        """Faults have stopped: save the last epoch, release everything, sweep, and be done."""
        base, store = self.store.entry.base, self.store
        if self.world.storage.below(self.plan.layout.pins):
            return  # a fork still reads from us
        if not self._ran or self._head is None or base is None or base.epoch != self._head.id or not base.owned:
            if not self.coordinator.pending:
                yield from self._act(
                    self.coordinator.request(Request(kind=RequestKind.MANUAL, at_ms=self.now.monotonic_ms), self.now)
                )
            return
        if self.tasks is not None and self.tasks.holds and not self.coordinator.pending:
            self._quiet_since = None
            if self.tasks.uploads.materialized:  # a checkpoint is needed that they are part of
                request = Request(kind=RequestKind.MANUAL, at_ms=self.now.monotonic_ms)
                yield from self._act(self.coordinator.request(request, self.now))
        elif len(store.ledger) or self._cleaning or self.coordinator.pending:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = self.now
        elif self.now.since(self._quiet_since) > 1_200:  # uploads for subsumed checkpoints have landed
            yield from self.cleaner.clean(self.coordinator.in_flight())
            while self.cleaner.is_sweeping:  # one that began earlier
                yield from self.cleaner.sweep(self.coordinator.in_flight())
            yield from self.cleaner.sweep(self.coordinator.in_flight())
            while self.cleaner.is_sweeping:
                yield from self.cleaner.sweep(self.coordinator.in_flight())
            yield from self.cleaner.dispose()
            yield from trim(self.plan.layout, store.entry)
            self.settled = True
            self.world.note(self.process.name, "settled")
