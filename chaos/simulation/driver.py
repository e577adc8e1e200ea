"""A simulated driver: the product's claim, store and coordinator, around simulated epochs and tasks."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, product

from chaos.simulation.faults import CALM
from chaos.simulation.model import Epoch, Snapshot, StateFile, key_groups, verify
from chaos.simulation.world import Process, World
from tidegate.checkpoint.claim import claim, claim_again, show_life
from tidegate.checkpoint.cleaner import Cleaner
from tidegate.checkpoint.committables import channel, commit
from tidegate.checkpoint.completed_store import CompletedCheckpointStore, Draft, NotPublished
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
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.log import ClaimLost
from tidegate.checkpoint.pending import PendingCheckpoint, Stage, UploadAck
from tidegate.checkpoint.pins import remove
from tidegate.checkpoint.release_plan import Backoff, Publication, ReleaseSchedule
from tidegate.checkpoint.requests import Request, RequestKind
from tidegate.checkpoint.start import Start
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.errors import StorageError
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Uid
from tidegate.storage.port import Nonce

PATIENCE_MS = 1_500
HEARTBEAT_MS = 400
SINK, OTHER, UNKEYED = Uid("sink"), Uid("other"), Uid("unkeyed")
SINKS = (SINK, OTHER, UNKEYED)
IN_TASKS = {SINK: True, UNKEYED: False}
"""Sinks that tasks publish to: each slot by itself, or one task for all slots. The driver publishes to the other one."""
STOP_MS = 3_000
"""How long a stop waits for its output."""
EPOCH_MS = 1_767_225_600_000


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


@dataclass(frozen=True)
class Published:
    """What became of a publication."""

    publication: Publication
    error: str | None = None


class SimDriver:
    def __init__(
        self, world: World, plan: JobPlan, process: Process, start: Start, force: bool, parallelism: int
    ) -> None:
        self.world = world
        self.plan = plan
        self.process = process
        self.parallelism = parallelism
        self.inbox: deque[UploadAck | int | Published] = deque()
        self.orders: deque[str] = deque()
        self.winding_down = False
        self.settled = False
        self.savepoints: list[CheckpointRef] = []
        self._start = start
        self._force = force
        self._head: Epoch | None = None
        self._version: list[tuple[StateFile, ...]] = []
        self._versions: dict[EpochId, list[tuple[StateFile, ...]]] = {}
        self._handles: dict[str, dict[str, str]] = {}
        self._uploaded: dict[tuple[int, int], UploadAck] = {}
        self._number = 0
        self._ran = False
        self._schedule = ReleaseSchedule(BACKOFF)
        self._stopped: tuple[CheckpointRef, Instant] | None = None
        """The savepoint that ended the job, and since when its output is waited for."""
        self._in_tasks: set[tuple[Uid, int, EpochId]] = set()
        """What tasks are at work to publish."""
        self._cleaning = False
        self._quiet_since: Instant | None = None
        self._attempt = 0
        self._hanging: set[tuple[int, int]] = set()
        """(checkpoint, task) whose upload never comes to an end."""
        self._triggered_ms: dict[int, float] = {}
        self._idle_since_ms: float | None = None
        self._life = 0
        """How often the job was claimed again by this process."""
        self._signed: set[Nonce] = set()
        self._beating = False
        self._releasing = True
        """False while the job is being claimed again: the product's loop, which starts publications, has ended by then."""

    @property
    def now(self) -> Instant:
        elapsed_ms = int(self.world.clock.now_ms)
        return Instant(MonotonicMs(elapsed_ms), WallMs(EPOCH_MS + elapsed_ms + self.process.wall_offset_ms))

    def sign(self) -> Signature:
        nonce = Nonce(self.world.serial(f"nonce-{self.process.name}"))
        self._signed.add(nonce)
        return Signature(nonce, self.process.name + (f".{self._life}" if self._life else ""), self.now.wall_ms)

    def main(self) -> Steps[str]:
        world, plan = self.world, self.plan
        mint: Callable[[], Lineage] = lambda: Lineage(world.serial("lineage"))  # noqa: E731
        self._entry = yield from claim(plan.layout, self._start, self.sign, mint, PATIENCE_MS, self._force)
        world.tally.events["claims"] += 1
        while True:
            try:
                return (yield from self._own())
            except StorageError:
                if world.rng.random() < 0.2:
                    raise
                self._entry = yield from self._claim_again()

    def _claim_again(self) -> Steps[Entry]:
        """A write has an outcome that nobody knows. A sweep or a publication that the life before began goes on beside, and its
        result is heard by nobody."""
        self._releasing = False
        self.inbox.clear()
        self._hanging.clear()
        self._schedule = ReleaseSchedule(BACKOFF)
        self._stopped = None
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

    def _newest(self) -> Entry:
        """The newest entry that this process knows to be its own."""
        store: CompletedCheckpointStore | None = getattr(self, "store", None)
        return self._entry if store is None or store.term < self._entry.term else store.entry

    def _own(self) -> Steps[str]:  # noqa: C901 a driver's whole life, read from top to bottom
        world, plan, entry = self.world, self.plan, self._entry
        world.note(self.process.name, f"owns term {entry.term}, base {entry.base and entry.base.metadata}")
        store = CompletedCheckpointStore(plan.layout, entry, world.read, self.sign, plan.num_retained)
        data = yield from store.recover()
        self.store, self.cleaner = store, Cleaner(store)
        self._releasing = True
        self._restore(data)
        tasks = [TaskId(1, Slot(n)) for n in range(self.parallelism)]
        coordinator = self.coordinator = Coordinator(plan.cadence, tasks, entry.last_id, entry.base)
        yield from self._act(coordinator.start(self.now, world.rng.randrange(plan.cadence.period_ms or 1)))
        if not self._beating:
            self._beating = True
            world.spawn(self.process, self._beat())
            world.spawn(self.process, self._release())
        while True:
            calm = 3 if world.odds is CALM and not self.winding_down else 1
            yield Sleep(int(calm * plan.epoch_ms * world.rng.uniform(0.5, 1.5)))
            while self.inbox:
                message = self.inbox.popleft()
                if isinstance(message, UploadAck):
                    yield from self._act(coordinator.acknowledge(message, self.now))
                elif isinstance(message, Published):
                    self._note(message)
                else:
                    reason = CheckpointFailureReason.CHECKPOINT_DECLINED
                    yield from self._act(coordinator.decline(message, reason, self.now))
            if self._stopped is None:
                if world.chance(world.odds.rewind):
                    yield from self._rewind()
                elif not self.winding_down or not self._ran:
                    yield from self._epoch()
            ticked_ms = world.clock.now_ms
            yield from self._act(coordinator.tick(self.now))
            if self._stopped is None:
                self._check_cadence(ticked_ms)
            self._remind()
            try:
                yield from store.record()
            except StorageError:
                pass
            else:
                if self._stopped is not None and (ended := self._stop(*self._stopped)):
                    return ended
            while self.orders and self._stopped is None:
                ended = yield from self._obey(self.orders.popleft())
                if ended:
                    return ended
            if self.winding_down and not self.settled:
                yield from self._settle()

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
        self._uploaded.clear()
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

    def _epoch(self) -> Steps[None]:
        world, rng, store = self.world, self.world.rng, self.store
        self._number += 1
        epoch = EpochId(store.term, self._number)
        start = 0 if self._head is None else self._head.end
        few = min(self.parallelism, 1 + int(rng.random() * 3))
        changed = rng.sample(range(self.parallelism), few)
        version = list(self._version)
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
        committables = []
        some = sorted(rng.sample(range(self.parallelism), min(self.parallelism, 3)))
        for sink, partition in product(SINKS, some):
            of_slot = key_groups(partition, self.parallelism, self.plan.groups)
            groups = range(self.plan.groups) if sink == UNKEYED else of_slot
            if of_slot and rng.random() < 0.4:
                paths = []
                for _ in range(2 if world.chance(world.odds.second_attempt) else 1):
                    self._attempt += 1
                    path = self.plan.layout.staged(epoch, sink, AttemptId(self._attempt), world.serial("rows"))
                    world.storage.apply_put(path, b"rows")
                    paths.append(path)
                made = Committable(
                    lineage=store.entry.lineage, sink=sink, slot=partition, epoch=epoch, payload=paths[-1].encode()
                )
                world.keys[channel(made), epoch] = frozenset(rng.choices(groups, k=2))
                committables.append(made)
        if world.chance(world.odds.rewind):
            world.tally.events["epochs thrown away"] += 1
            return  # the attempt is discarded; its files are orphans
        output = tuple((c.lineage, c.sink, c.slot) for c in committables)
        self._head = Epoch(
            epoch, self._head, store.entry.lineage, start, start + 1 + rng.randrange(9), frozenset(touched), output
        )
        self._ran = True
        self._version = version
        self._versions[epoch] = version
        store.ledger.accept(committables)
        world.tally.events["epochs"] += 1
        yield from self._act(self.coordinator.epoch_finished(epoch, True, self.now))

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
        yield from self._act(self.coordinator.abort_all(reason, self.now))
        base = self.store.entry.base
        self.store.ledger.rewind(self.store.term, base.epoch if base is not None else None)
        data: bytes | None = None
        if base is not None:
            data = yield Get(base.metadata)
        self._restore(data)

    # uploads

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
        for task in tasks:
            if (id, task) in self._hanging:
                continue
            if world.chance(world.odds.declined):
                self._tell(id)
                continue
            if world.chance(world.odds.unavailable):
                continue
            done = self._uploaded.get((id, task))
            if done is None or world.chance(world.odds.second_attempt):
                done = self._uploaded[id, task] = self._upload_task(id, request, task, version[task], reusable)
            self._tell(done)

    def _upload_task(
        self, id: int, request: Request, task: int, files: tuple[StateFile, ...], reusable: dict[str, str]
    ) -> UploadAck:
        self._attempt += 1
        name = TaskId(1, Slot(task))
        placed, new = [], []
        for file in files:
            path = reusable.get(file.name)
            if path is None:
                leaf = self.world.serial("f")
                path = self.plan.layout.shared(self.store.term, name, AttemptId(self._attempt), id, leaf)
                if request.kind.is_savepoint:
                    path = f"{request.target}/{leaf}"
                self.world.storage.apply_put(path, b"state")
                new.append(path)
            placed.append((file, path))
        return UploadAck(
            checkpoint_id=id,
            task=name,
            state=tuple(placed),
            new_files=tuple(new),
            state_size_bytes=len(placed),
            checkpointed_size_bytes=len(new),
        )

    def _tell(self, message: UploadAck | int) -> None:
        world = self.world
        copies = 2 if world.chance(world.odds.doubled_message) else 1
        if world.chance(world.odds.lost_message):
            copies -= 1
        life = self._life
        for _ in range(copies):
            world.clock.after(
                world.rng.uniform(1, 400), lambda: self.inbox.append(message) if life == self._life else None
            )

    def _remind(self) -> None:
        """Every epoch carries the question again to tasks that have not answered."""
        for pending in self.coordinator.pending:
            missing = [task.slot for task in pending.missing]
            if missing and self.world.rng.random() < 0.3:
                self._later(pending.id, pending.epoch, pending.base, pending.request, sorted(missing))

    # checkpoints

    def _act(self, actions: list[Action]) -> Steps[None]:
        self._note_triggered(actions)
        for action in actions:
            if isinstance(action, StartUpload):
                self._upload_all(action)
            elif isinstance(action, NotifyAborted) and action.reason is CheckpointFailureReason.CHECKPOINT_EXPIRED:
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

    def _note_triggered(self, actions: list[Action]) -> None:
        uploads = [action.id for action in actions if isinstance(action, StartUpload)]
        self._triggered_ms.update(dict.fromkeys(uploads, self.world.clock.now_ms))

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
        self, pending: PendingCheckpoint, committables: tuple[Committable, ...]
    ) -> tuple[Snapshot, bytes, str]:
        assert self._head is not None
        epoch = next((e for e in self._head.chain() if e.id == pending.epoch), None)
        if epoch is None:
            self.world.fail(f"checkpoint {pending.id} is of epoch {pending.epoch}, which was discarded")
        if pending.missing:
            self.world.fail(
                f"checkpoint {pending.id} is to be published without {sorted(map(str, pending.missing))[:3]}"
            )
        tasks = [pending.acks[TaskId(1, Slot(t))].state for t in range(self.parallelism)]
        snapshot = Snapshot(epoch, self.parallelism, tasks, committables)
        checksum = hashlib.sha256(f"{self.process.name} {self.store.term} {pending.id}".encode()).hexdigest()
        body = f'{{"checksum": "{checksum}"}}'.encode()
        self.world.snapshots[body] = snapshot
        return snapshot, body, checksum

    def _publish(self, pending: PendingCheckpoint) -> Steps[None]:
        store, coordinator = self.store, self.coordinator
        if pending.request.kind.is_savepoint:
            yield from self._publish_savepoint(pending)
            return
        snapshot, body, checksum = self._snapshot(pending, store.ledger.carried_by(pending.epoch))
        before = store.entry.retained
        try:
            ref = yield from store.publish(Draft(pending.id, pending.epoch, body, checksum, self.world.read("", body)))
        except NotPublished as error:
            yield from self._act(coordinator.publish_failed(pending.id, self.now, str(error)))
            return
        self.world.tally.events["checkpoints completed"] += 1
        self._handles[ref.metadata] = snapshot.handles
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
            self._stopped = ref, self.now
            self._schedule.hurry()
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
            for publication in self._schedule.begin(due, self.now, IN_TASKS):
                self.world.spawn(self.process, self._publish_output(publication))
            for publication in self._schedule.for_tasks(due, self.now, IN_TASKS):
                self._publish_in_task(publication)

    def _publish_in_task(self, publication: Publication) -> None:
        """A task does it in a process of its own, sooner or later, whether its driver still lives or not."""
        order = publication.sink, publication.committables[0].slot, publication.last
        if order in self._in_tasks:
            return
        self._in_tasks.add(order)
        task = Process(name=f"{self.process.name}-S{order[1]}", job=self.process.job)
        task.on_exit = lambda how: self._in_tasks.discard(order)
        delay = self.world.rng.uniform(1, 4_000 if self.world.chance(self.world.odds.slow_request * 4) else 100)
        self.world.clock.after(delay, lambda: self.world.spawn(task, self._publish_output(publication), main=True))

    def _publish_output(self, publication: Publication) -> Steps[None]:
        """One event for each committable: others publish, crash and sleep in between."""
        life, error = self._life, None
        try:
            for committable in publication.committables:
                yield from commit(Publication(publication.sink, (committable,)))
        except CommitFailed as failed:
            error = str(failed)
        if life == self._life:
            self.inbox.append(Published(publication, error))

    def _note(self, result: Published) -> None:
        sink = result.publication.sink
        if result.error is None:
            self._schedule.succeeded(sink, self.now)
            self.store.published(result.publication)
        else:
            self._schedule.failed(sink, result.error, self.now, self.world.rng.random())

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
        snapshot = world.snapshots[world.storage.objects[ref.metadata]]
        for epoch in snapshot.epoch.chain():
            for lane in epoch.output if epoch.lineage == lineage else ():
                if epoch.id not in visible[lane]:
                    world.fail(
                        f"{self.process.name} said that it stopped, and output of {lane} at {epoch.id} is missing"
                    )
        if snapshot.committables and self.plan.layout.committed(lineage, ref.term, ref.id) not in world.storage.objects:
            world.fail(f"{self.process.name} said that it stopped, and nothing records that its output is published")

    def _clean(self, sweep: bool) -> Steps[None]:
        """Runs beside the main thread."""
        world = self.world
        while True:
            try:
                in_flight = self.coordinator.in_flight()
                yield from self.cleaner.clean(in_flight)
                if sweep:
                    yield from self.cleaner.sweep(self.coordinator.in_flight())
                    world.tally.events["sweeps"] += 1
                if (yield from self.cleaner.dispose()):
                    world.tally.events["disposals"] += 1
            except StorageError:
                yield Sleep(300)
            else:
                break
        self._cleaning = False
        self._note_triggered(self.coordinator.cleaned(1_000, self.now))  # its tasks hear of it with the next reminder

    # the end

    def _obey(self, order: str) -> Steps[str | None]:
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
        if len(store.ledger) or self._cleaning or self.coordinator.pending:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = self.now
        elif self.now.since(self._quiet_since) > 1_200:  # uploads for subsumed checkpoints have landed
            yield from self.cleaner.clean(self.coordinator.in_flight())
            yield from self.cleaner.sweep(self.coordinator.in_flight())
            yield from self.cleaner.dispose()
            self.settled = True
            self.world.note(self.process.name, "settled")
