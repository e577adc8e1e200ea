"""Tasks whose state is the product's: versions, change files, uploads, restores and the materializer are run, not modelled.

Only hosts are simulated: each is a folder that can be lost, and tasks move between them. Every epoch leaves a mark in each key
group that it changes, so what was restored can be compared with the epochs that were accepted, one by one and in order.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from chaos.simulation.faults import Crash
from chaos.simulation.model import Epoch, Snapshot
from chaos.simulation.world import Process, World
from tidegate.checkpoint.assignment import KeyedShare, TaskRestore, assign_key_groups
from tidegate.checkpoint.completed_store import CompletedCheckpointStore
from tidegate.checkpoint.coordinator import Action, Coordinator, StartUpload
from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.file_lists import objects_of, with_files
from tidegate.checkpoint.metadata import FileList, MetadataError, StoredFileList, TaskState
from tidegate.checkpoint.pending import PendingCheckpoint, UploadAck
from tidegate.checkpoint.task_part import read_part
from tidegate.checkpoint.version_restore import RestoreOrder, restore
from tidegate.checkpoint.version_upload import UploadOrder, VersionUpload, forget_uploads
from tidegate.core.clock import Instant
from tidegate.core.errors import CorruptState
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.checkpoints.materializer import Materializer
from tidegate.runtime.checkpoints.uploads import PendingUploads
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.runtime.task.attempt_state import tidy_versions
from tidegate.state.backends import backend_named
from tidegate.state.changelog import truncate, without_changelog
from tidegate.state.key_groups import range_of_slot
from tidegate.state.keys import key_group_range, state_prefix
from tidegate.state.port import VersionMissing
from tidegate.state.version import VersionId
from tidegate.storage import CorruptFile, ObjectMissing, Storage
from tidegate.storage.errors import StorageError

_STATE = 1
_FORGETS = 4
"""An epoch whose number is divisible by this removes the marks of earlier ones, as a range."""
Entries = dict[bytes, bytes]


class TaskStorage:
    """The simulated storage as tasks see it: writes may fail, be applied late, or lose their answer."""

    url = "sim://"

    def __init__(self, world: World) -> None:
        self._storage = world.storage

    def put(self, path: str, data: bytes) -> None:
        self._storage.put(path, data)

    def get(self, path: str) -> bytes:
        if path not in self._storage.objects:
            raise ObjectMissing.of(self.url, path)
        return self._storage.objects[path]

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get(path)[start : start + length]


@dataclass(frozen=True)
class Parts:
    """The tasks of a checkpoint, as the metadata has them."""

    tasks: tuple[TaskState, ...]


class TaskDriver(Protocol):
    """The driver of a term, as its tasks know it."""

    world: World
    plan: Any
    process: Process
    parallelism: int

    @property
    def now(self) -> Instant: ...
    def tell_failed(self, checkpoint_id: int, task: TaskId) -> None: ...
    def tell_stored(self, term: Term, version: VersionId, ack: UploadAck) -> None: ...


class RealTasks:
    """The tasks of one term."""

    def __init__(self, driver: TaskDriver, store: CompletedCheckpointStore, snapshot: Snapshot | None) -> None:
        world, rng = driver.world, driver.world.rng
        self._driver, self._world, self._store = driver, world, store
        self._layout, self._groups, self._width = driver.plan.layout, driver.plan.groups, driver.parallelism
        self._storage: Any = TaskStorage(world)
        self.changelog = rng.random() < 0.75
        self._backend = backend_named("hashmap+changelog" if self.changelog else "hashmap")
        config = SimpleNamespace(
            incremental=True,
            inline_threshold_bytes=rng.choice((0, 150, 2_000)),
            changelog=self.changelog,
            materialize_interval_ms=rng.choice((300, 1_500, 4_000, None)) if self.changelog else None,
            materialize_incrementally=rng.random() < 0.8,
            materialize_failures=rng.choice((0, 3)),
            inline_output_bytes=0,
            max_inline_output_bytes=0,
        )
        self.failed = False
        """Whether too many materializations have failed."""
        latch = SimpleNamespace(set=self._fail)
        self._ownership: Any = SimpleNamespace(
            store=store,
            history=SimpleNamespace(config=config),
            failure=latch,
            snapshot=None if snapshot is None else Parts(snapshot.parts),
        )
        self._job = JobDescription(
            job=self._layout.job,
            parallelism=self._width,
            max_parallelism=self._groups,
            backend="hashmap",
            levels=1,
            sources=(),
            operators=(),
            state_ids={},
            spark_version="",
        )
        output: Any = SimpleNamespace(for_tasks=())
        self.uploads = PendingUploads(self._ownership, self._job, output)
        self.versions: dict[TaskId, VersionId] = {}
        self._attempt = 0

    def attach(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        cleaning: Any = SimpleNamespace(expect_leftovers=lambda: None)  # The driver of the simulation sweeps anyway.
        self.materializer = Materializer(self._ownership, self._job, self.uploads, coordinator, cleaning=cleaning)

    def _fail(self, error: Exception, over: object) -> None:
        self.failed = True

    def _directory(self, slot: int, move: bool = False) -> Path:
        hosts, job, task = self._world.hosts, self._layout.job, TaskId(1, Slot(slot))
        return hosts.directory(hosts.host_of(job, slot, move), job, self._store.entry.lineage, task)

    # epochs

    def restore(self, snapshot: Snapshot | None, base: CheckpointRef | None, target: EpochId) -> None:
        """Raises `ObjectMissing`, or what else a task raises that cannot restore its state."""
        self.versions = {}
        rng = self._world.rng
        if snapshot is None:
            return
        stored = (base.term, base.id) if base is not None and base.owned else None
        found: Entries = {}
        for slot in range(self._width):
            directory = self._directory(slot, move=rng.random() < 0.2)
            attempt = VersionId(target, AttemptId(1))
            order = restore_order(snapshot, slot, self._width, self._groups, stored)
            made = run_restore(self._storage, directory, order, attempt)
            if made is not None:
                self.versions[order.plan.task] = made
                found |= content(directory, made, order.plan.key_groups)
        compare(self._world, snapshot, found)

    def run_epoch(self, epoch: EpochId, tries: int, work: CheckpointWork) -> Mapping[int, int]:
        """Have some tasks change their state. Return by key group the attempt that was accepted. Raises `VersionMissing`."""
        rng, world = self._world.rng, self._world
        changed = rng.sample(range(self._width), min(self._width, 1 + int(rng.random() * 3)))
        marks: dict[int, int] = {}
        self._sealed = dict(self.versions)
        for slot in changed:
            task, groups = TaskId(1, Slot(slot)), range_of_slot(Slot(slot), self._width, self._groups)
            group = rng.randint(*groups)
            attempts = [10 * tries] + ([10 * tries + 1] if world.chance(world.odds.second_attempt) else [])
            for attempt in attempts:
                target = VersionId(epoch, AttemptId(attempt))
                self._write(self._directory(slot), self.versions.get(task), target, group, groups)
                self._store_early(slot, work, target)
            marks[group] = rng.choice(attempts)
            self._sealed[task] = VersionId(epoch, AttemptId(marks[group]))
        for slot in set(range(self._width)).difference(changed):
            if (unchanged := self.versions.get(TaskId(1, Slot(slot)))) is not None:
                self._store_early(slot, work, unchanged)
        return marks

    def accept(self, snapshot: EpochSnapshot) -> EpochSnapshot:
        self.versions = self._sealed
        return replace(snapshot, versions=dict(self._sealed))

    def _write(
        self, directory: Path, base: VersionId | None, target: VersionId, group: int, groups: tuple[int, int]
    ) -> None:
        store = self._backend.begin(directory, base, target, groups)
        try:
            before = store.get(_key(group, "log")) or b""
            if target.epoch.number % _FORGETS == 0:
                store.delete_range(_key(group, "e"), _key(group, "f"))
            mark = f"{target.epoch}-{target.attempt}".encode()
            store.write([(_key(group, "log"), before + mark + b";"), (_key(group, f"e{target.epoch}"), mark)])
            store.seal()
        except BaseException:
            store.abandon()
            raise

    # checkpoint work

    def begin_epoch(self, empty: bool = False) -> CheckpointWork:
        """Return the work of the tasks. They begin with it sooner or later."""
        work = self.uploads.work(empty)[1]
        for slot in range(self._width):
            orders, keep, _ = work.of(Slot(slot))
            for order in orders:
                self._later(slot, order)
            delay = self._world.rng.uniform(1, 3_000 if self._world.chance(0.1) else 100)
            tidy = partial(
                self._tidy, self._directory(slot), self.versions.get(TaskId(1, Slot(slot))), keep, work, slot
            )
            self._world.clock.after(delay, tidy)
        return work

    def nudge(self) -> None:
        """An epoch without rows, if uploads wait for one."""
        if self.uploads.has_work() or self.holds:
            self.begin_epoch(empty=True)
            self.uploads.announcements.end_epoch()
            self.uploads.announcements.saw_end()

    def _tidy(
        self, directory: Path, base: VersionId | None, keep: tuple[VersionId, ...], work: CheckpointWork, slot: int
    ) -> None:
        if base is None or not directory.is_dir():
            return
        tidy_versions(self._backend, directory, self._store.term, base, keep)
        if work.truncated and (upto := work.truncated[slot]) is not None:
            self._world.tally.events["truncations"] += 1
            truncate(directory, upto)
        forget_uploads(directory, self._store.term, work.records)

    def _store_early(self, slot: int, work: CheckpointWork, version: VersionId) -> None:
        if work.early is not None:
            self._later(slot, work.early.order(Slot(slot), version))

    def _later(self, slot: int, order: UploadOrder) -> None:
        directory = self._directory(slot)
        self._world.clock.after(self._world.rng.uniform(5, 600), partial(self._upload, slot, directory, order))

    def _upload(self, slot: int, directory: Path, order: UploadOrder) -> None:
        """A process of the host does it, whether the driver still lives or not."""
        driver, world, task = self._driver, self._world, TaskId(1, Slot(slot))
        if not driver.process.alive and world.rng.random() < 0.5:
            return
        if world.chance(world.odds.declined):
            driver.tell_failed(order.checkpoint_id, task)
            return
        self._attempt += 1
        upload = VersionUpload(self._storage, self._layout, directory, task, self._store.term, order)
        try:
            manifest = self._backend.manifest(directory, order.version)
            with world.acting(Process(name=f"{driver.process.name}-{task}", job=driver.process.job)):
                part = upload.run(manifest, AttemptId(self._attempt), lambda: True, lambda: None)
        except (VersionMissing, CorruptState, StorageError, FileNotFoundError, Crash):
            return
        if part is not None:
            found = read_part(part)
            if found.state.backend.endswith("+changelog"):
                world.tally.events["tasks stored as changes"] += 1
            driver.tell_stored(self._store.term, found.state.version, found.acknowledges(order.checkpoint_id))

    # checkpoints, as `Checkpointer` has them

    def start_upload(self, action: StartUpload) -> list[UploadAck]:
        """Return the acknowledgements of tasks that have no state yet."""
        snapshot = self.uploads.latest
        assert snapshot is not None
        base = self._store.entry.base if action.base is not None else None
        changelog = self.changelog and base is not None
        tasks = frozenset(snapshot.versions)
        self.uploads.add(
            PendingUpload(
                id=action.id,
                snapshot=snapshot,
                tasks=tasks,
                sources=(),
                base={} if base is None else self.uploads.known(base),
                folder=action.request.target,
                changelog=changelog,
                materialized=self.uploads.offer(action.id) if changelog else {},
            )
        )
        return [
            UploadAck(checkpoint_id=action.id, task=task, state=self._empty(task, snapshot))
            for task in self._job.tasks
            if task not in tasks
        ]

    def _empty(self, task: TaskId, snapshot: EpochSnapshot) -> TaskState:
        groups = range_of_slot(task.slot, self._width, self._groups)
        version = VersionId(snapshot.epoch, AttemptId(0))
        return TaskState(task=task, key_groups=groups, backend="hashmap", version=version)

    def acknowledge(self, ack: UploadAck) -> list[Action]:
        driver, uploads, id = self._driver, self.uploads, ack.checkpoint_id
        if not uploads.awaits(id, ack.task):
            return []
        if not uploads.acknowledge(id, ack.task, ack.state):
            self._world.tally.events["acknowledgements of other attempts"] += 1
            return []
        if uploads.is_materialization(id):
            self._world.tally.events["tasks materialized"] += 1
            self.materializer.acknowledge(id, ack.state, driver.now)
            return []
        return self._coordinator.acknowledge(ack, driver.now)

    def completed(self, ref: CheckpointRef, pending: PendingCheckpoint, parts: tuple[TaskState, ...]) -> None:
        upload = self.uploads.get(pending.id)
        self.uploads.completed(ref, Parts(parts))  # type: ignore[arg-type]
        changes = {str(task): ack.change for task, ack in pending.acks.items() if ack.change is not None}
        self.materializer.completed(upload, changes)
        self._ownership.snapshot = Parts(parts)

    def go_back(self) -> None:
        self.uploads.forget_all()
        self.materializer.forget()
        self.failed = False

    @property
    def holds(self) -> bool:
        """Whether versions are stored, or being stored, that no checkpoint has yet."""
        return bool(self.uploads.materialized) or self.uploads.is_materialization(
            self._coordinator.in_flight().lowest_id
        )


def parts_of_checkpoint(
    world: World, root: str, states: list[TaskState], superseded: bool
) -> tuple[tuple[TaskState, ...], frozenset[str]]:
    """Return the tasks, and all objects that they need. `superseded`: another driver may have deleted some."""
    paths: set[str] = set()
    for state in states:
        try:
            files = with_files(_storage(world), root, state).files
        except MetadataError as error:
            if superseded:
                continue
            world.fail(f"the list of {state.task} cannot be read: {error}")
        assert isinstance(files, FileList)
        paths |= objects_of(root, files, state.files)
        if isinstance(state.files, StoredFileList) and state.files.base is not None:
            world.tally.events["lists of which only the changes are stored"] += 1
    return tuple(states), frozenset(paths)


def check_restore(world: World, snapshot: Snapshot, total: int, slots: list[int] | None = None) -> None:
    """Restore tasks of a checkpoint on a host that has nothing."""
    place = world.hosts.scratch()
    chosen = range(snapshot.parallelism) if slots is None else slots
    target = VersionId(EpochId(Term(10**6), 1), AttemptId(1))
    try:
        found: Entries = {}
        for slot in chosen:
            order = restore_order(snapshot, slot, snapshot.parallelism, total, None)
            try:
                made = run_restore(_storage(world), place / str(slot), order, target)
                if made is not None:
                    found |= content(place / str(slot), made, order.plan.key_groups)
            except (ObjectMissing, CorruptFile, CorruptState, MetadataError) as error:
                world.fail(f"epoch {snapshot.epoch.id} cannot be restored: {error}")
        groups = {g for s in chosen for g in _inclusive(range_of_slot(Slot(s), snapshot.parallelism, total))}
        compare(world, snapshot, found, groups)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def restore_order(
    snapshot: Snapshot, slot: int, width: int, total: int, stored: tuple[Term, int] | None
) -> RestoreOrder:
    task, old = TaskId(1, Slot(slot)), {state.task: state for state in snapshot.parts}
    shares = assign_key_groups(((state.task, state.key_groups) for state in snapshot.parts), width, total)[slot]
    plan = TaskRestore(
        task=task,
        key_groups=range_of_slot(Slot(slot), width, total),
        keyed=tuple(KeyedShare(source, groups, (_STATE,), True) for source, groups in shares),
        as_is=task if snapshot.parallelism == width else None,
        parallelism=width,
    )
    return RestoreOrder(
        plan=plan, sources=tuple(old[source] for source, _ in shares), root=snapshot.root, stored=stored
    )


def run_restore(storage: Any, directory: Path, order: RestoreOrder, target: VersionId) -> VersionId | None:
    if not any(len(state.files) or state.inline for state in order.sources):
        return None
    return restore(storage, directory, order, backend_named("hashmap"), {}, target)


def content(directory: Path, version: VersionId, groups: tuple[int, int]) -> Entries:
    reader = without_changelog(backend_named("hashmap")).begin(
        directory, version, VersionId(EpochId(Term(10**6), 2), AttemptId(1)), groups
    )
    try:
        return dict(reader.scan(*key_group_range(*groups)))
    finally:
        reader.abandon()


def compare(world: World, snapshot: Snapshot, found: Entries, groups: set[int] | None = None) -> None:
    """The state must be that of exactly the accepted epochs of its branch, in their order."""
    wanted = expected(snapshot.epoch, groups)
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            world.fail(
                f"key {key!r} of the state at epoch {snapshot.epoch.id} is {found.get(key)!r} and not {wanted.get(key)!r}"
            )


def expected(epoch: Epoch, groups: set[int] | None = None) -> Entries:
    found: Entries = {}
    for each in reversed(list(epoch.chain())):
        for group, attempt in each.marks.items():
            if groups is not None and group not in groups:
                continue
            if each.id.number % _FORGETS == 0:
                old = [key for key in found if _key(group, "e") <= key < _key(group, "f")]
                for key in old:
                    del found[key]
            mark = f"{each.id}-{attempt}".encode()
            found[_key(group, "log")] = found.get(_key(group, "log"), b"") + mark + b";"
            found[_key(group, f"e{each.id}")] = mark
    return found


def _key(group: int, name: str) -> bytes:
    return state_prefix(group, _STATE) + name.encode()


def _inclusive(groups: tuple[int, int]) -> range:
    return range(groups[0], groups[1] + 1)


def _storage(world: World) -> Storage:
    return TaskStorage(world)  # type: ignore[return-value]
