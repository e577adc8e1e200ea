"""Tasks whose state is the product's: versions, change files, uploads and restores are run, not modelled.

Only hosts are simulated: each is a folder that can be lost, and tasks move between them. Every epoch leaves a mark in each key
group that it changes, so what was restored can be compared with the epochs that were accepted, one by one and in order.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from chaos.simulation.faults import Crash
from chaos.simulation.model import Epoch, Snapshot
from chaos.simulation.tasks import Host, SimTasks, TaskStorage
from chaos.simulation.world import Process, World
from tidegate.checkpoint.files.task_part import read_part
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.metadata import MetadataError
from tidegate.checkpoint.task.assignment import KeyedShare, TaskRestore, assign_key_groups
from tidegate.checkpoint.task.version_restore import RestoreOrder, restore
from tidegate.checkpoint.task.version_upload import UploadOrder, VersionUpload, forget_uploads
from tidegate.core.errors import CorruptState
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.uploads import PendingUploads
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.runtime.task.attempt_state import tidy_versions
from tidegate.state.backends import WITH_CHANGELOG, backend_named
from tidegate.state.changelog import truncate, without_changelog
from tidegate.state.keys.entry_keys import key_group_range, state_prefix
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.port import VersionMissing
from tidegate.state.version import VersionId
from tidegate.storage import CorruptFile, ObjectMissing, Storage
from tidegate.storage.errors import StorageError

_STATE = 1
_FORGETS = 4
"""An epoch whose number is divisible by this removes the marks of earlier ones, as a range."""
Entries = dict[bytes, bytes]


class RealTasks(SimTasks):
    """The tasks of one term."""

    def __init__(self, host: Host, uploads: PendingUploads, lineage: Lineage, changelog: bool) -> None:
        super().__init__(host, uploads)
        self._lineage = lineage
        self._storage: Any = TaskStorage(host.world)
        self._backend = backend_named("hashmap+changelog" if changelog else "hashmap")
        self.versions: dict[TaskId, VersionId] = {}
        self._sealed: dict[TaskId, VersionId] = {}
        self._attempt = 0

    def _directory(self, slot: int, move: bool = False) -> Path:
        hosts, job, task = self.world.hosts, self.layout.job, TaskId(1, Slot(slot))
        return hosts.directory(hosts.host_of(job, slot, move), job, self._lineage, task)

    def place(self, slot: int, order: UploadOrder) -> Path:
        return self._directory(slot)

    # epochs

    def restore(self, snapshot: Snapshot | None, base: CheckpointRef | None, target: EpochId) -> None:
        self.versions = {}
        rng = self.world.rng
        if snapshot is None:
            return
        stored = (base.term, base.id) if base is not None and base.owned else None
        found: Entries = {}
        for slot in range(self.width):
            directory = self._directory(slot, move=rng.random() < 0.2)
            attempt = VersionId(target, AttemptId(1))
            order = restore_order(snapshot, slot, self.width, self.groups, stored)
            made = run_restore(self._storage, directory, order, attempt)
            if made is not None:
                self.versions[order.plan.task] = made
                found |= content(directory, made, order.plan.key_groups)
        compare(self.world, snapshot, found)

    def run_epoch(self, epoch: EpochId, tries: int, work: CheckpointWork) -> tuple[list[int], Mapping[int, int]]:
        """Raises `VersionMissing` if the version to start from is on no host."""
        rng, world = self.world.rng, self.world
        changed = rng.sample(range(self.width), min(self.width, 1 + int(rng.random() * 3)))
        marks: dict[int, int] = {}
        self._sealed = dict(self.versions)
        for slot in changed:
            task, groups = TaskId(1, Slot(slot)), range_of_slot(Slot(slot), self.width, self.groups)
            group = rng.randint(*groups)
            attempts = [10 * tries] + ([10 * tries + 1] if world.chance(world.odds.second_attempt) else [])
            for attempt in attempts:
                target = VersionId(epoch, AttemptId(attempt))
                self._write(self._directory(slot), self.versions.get(task), target, group, groups)
                self.store_early(work, [(slot, target)])
            marks[group] = rng.choice(attempts)
            self._sealed[task] = VersionId(epoch, AttemptId(marks[group]))
        rest = set(range(self.width)).difference(changed)
        unchanged = [(slot, self.versions.get(TaskId(1, Slot(slot)))) for slot in rest]
        self.store_early(work, [(slot, version) for slot, version in unchanged if version is not None])
        return list(marks), marks

    def run_empty_epoch(self, work: CheckpointWork) -> None:
        self._sealed = dict(self.versions)
        self.store_early(work, [(int(task.slot), version) for task, version in self.versions.items()])

    def accept(self, snapshot: EpochSnapshot) -> EpochSnapshot:
        self.versions = self._sealed
        return replace(snapshot, versions=dict(self._sealed))

    def completed(self, ref: CheckpointRef, snapshot: Snapshot) -> None:
        changed = sum(state.backend.endswith(WITH_CHANGELOG) for state in snapshot.parts)
        self.world.tally.events["tasks stored as changes"] += changed

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
        work = super().begin_epoch(empty)
        for slot in range(self.width):
            delay = self.world.rng.uniform(1, 3_000 if self.world.chance(0.1) else 100)
            base = self.versions.get(TaskId(1, Slot(slot)))
            tidy = partial(self._tidy, self._directory(slot), base, work.of(Slot(slot))[1], work, slot)
            self.world.clock.after(delay, tidy)
        return work

    def _tidy(
        self, directory: Path, base: VersionId | None, keep: tuple[VersionId, ...], work: CheckpointWork, slot: int
    ) -> None:
        if base is None or not directory.is_dir():
            return
        tidy_versions(self._backend, directory, self.host.term, base, keep)
        if work.truncated and (upto := work.truncated[slot]) is not None:
            self.world.tally.events["truncations"] += 1
            truncate(directory, upto)
        forget_uploads(directory, self.host.term, work.records)

    def upload(self, slot: int, order: UploadOrder, place: Path) -> None:
        world, task = self.world, TaskId(1, Slot(slot))
        if world.chance(world.odds.declined):
            self.world.tally.events["uploads that failed"] += 1
            self.fail(order.checkpoint_id, slot)
            return
        self._attempt += 1
        upload = VersionUpload(self._storage, self.layout, place, task, self.host.term, order)
        driver = self.host.process
        try:
            manifest = self._backend.manifest(place, order.version)
            with world.acting(Process(name=f"{driver.name}-{task}", job=driver.job)):
                part = upload.run(manifest, AttemptId(self._attempt), lambda: True, lambda: None)
        except (VersionMissing, CorruptState, StorageError, FileNotFoundError, Crash):
            return
        if part is not None:
            read_part(part)
            self.stored(order.checkpoint_id, slot, part)

    @property
    def holds(self) -> bool:
        return bool(self.uploads.materialized) or self.uploads.is_materialization(self.host.lowest_id())


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
