"""Tasks whose state is only modelled: every file knows which epochs it contains. There may be ten thousand of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from chaos.simulation.model import Handles, Snapshot, StateFile, key_groups, verify
from chaos.simulation.tasks import Host, SimTasks
from tidegate.checkpoint.files.task_part import ListChange, encode_part, list_digest
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.metadata import AnyFileList, FileList, StoredFileList, TaskState
from tidegate.checkpoint.metadata import StateFile as MetadataFile
from tidegate.checkpoint.task.version_upload import UploadOrder
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.uploads import PendingUploads
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.version import VersionId
from tidegate.storage import ObjectMissing, checksum_of

_BODY = b"state"
_CHECKSUM = checksum_of(_BODY)
Files = tuple[StateFile, ...]


class ModelTasks(SimTasks):
    """The tasks of one term."""

    def __init__(self, host: Host, uploads: PendingUploads) -> None:
        super().__init__(host, uploads)
        self._files: list[Files] = [() for _ in range(self.width)]
        self._sealed: list[Files] = []
        self._version: VersionId | None = None
        """Of the last epoch that was accepted. None: there is no state."""
        self._new_version: VersionId | None = None
        self._of_version: dict[VersionId, list[Files]] = {}
        self._handles: dict[tuple[Term, int], dict[int, Handles]] = {}
        """By term and id of a completed checkpoint: what the next one may reuse."""
        self._uploaded: dict[tuple[int, int, VersionId], bytes] = {}
        """What tasks have noted on local disk."""
        self._hanging: dict[int, int] = {}
        """By checkpoint: the task whose upload never comes to an end, or -1."""
        self._attempt = 0

    # epochs

    def restore(self, snapshot: Snapshot | None, base: CheckpointRef | None, target: EpochId) -> None:
        self._files = [() for _ in range(self.width)]
        self._of_version.clear()
        self._uploaded.clear()
        self._version = None
        if snapshot is None:
            return
        objects = self.world.storage.objects
        for task in snapshot.tasks:
            for _, path in task:
                if path not in objects:
                    raise ObjectMissing.of("sim://", path)
        verify(snapshot, self.groups)
        for slot in range(self.width):
            mine = key_groups(slot, self.width, self.groups)
            olds = {g * snapshot.parallelism // self.groups for g in mine}
            covers: dict[str, dict[int, tuple[EpochId, ...]]] = {}
            for old in sorted(olds):
                theirs = key_groups(old, snapshot.parallelism, self.groups)
                for file, _ in snapshot.tasks[old]:  # of a file that two tasks link, each owns its own key groups
                    covers.setdefault(file.name, {}).update({g: e for g, e in file.covers.items() if g in theirs})
            self._files[slot] = tuple(StateFile(name, groups) for name, groups in covers.items())
        self._note(VersionId(target, AttemptId(1)), self._files)
        if base is not None:
            self._handles[base.term, base.id] = snapshot.handles

    def run_epoch(self, epoch: EpochId, tries: int, work: CheckpointWork) -> tuple[list[int], Mapping[int, int]]:
        self._sealed = list(self._files)
        touched = self._change(epoch, self._sealed)
        version = self._new_version = VersionId(epoch, AttemptId(tries))
        self._of_version[version] = self._sealed
        self.store_early(work, ((slot, version) for slot in range(self.width)))
        return touched, {}

    def run_empty_epoch(self, work: CheckpointWork) -> None:
        self._sealed = self._files
        version = self._new_version = self._version
        if version is not None:
            self.store_early(work, ((slot, version) for slot in range(self.width)))

    def accept(self, snapshot: EpochSnapshot) -> EpochSnapshot:
        self._files = self._sealed
        self._version = self._new_version
        if self._version is None:
            return snapshot
        tasks = (TaskId(1, Slot(slot)) for slot in range(self.width))
        return replace(snapshot, versions=dict.fromkeys(tasks, self._version))

    def _note(self, version: VersionId, files: list[Files]) -> None:
        self._version = version
        self._of_version[version] = files

    def completed(self, ref: CheckpointRef, snapshot: Snapshot) -> None:
        self._handles[ref.term, ref.id] = snapshot.handles

    def _change(self, epoch: EpochId, version: list[Files]) -> list[int]:
        """Change the state of some tasks. Return the key groups."""
        rng = self.world.rng
        few = min(self.width, 1 + int(rng.random() * 3))
        touched: list[int] = []
        for slot in rng.sample(range(self.width), few):
            groups = key_groups(slot, self.width, self.groups)
            if not groups:
                continue
            group = rng.choice(groups)
            touched.append(group)
            fresh = StateFile(self.world.serial("sst"), {group: (epoch,)})
            files = (*version[slot], fresh)
            version[slot] = (self._compact(files, groups),) if rng.random() < 0.3 else files
        return touched

    def _compact(self, files: Iterable[StateFile], groups: range) -> StateFile:
        merged: dict[int, tuple[EpochId, ...]] = {}
        for file in files:
            for group, epochs in file.covers.items():
                if group in groups:
                    merged[group] = merged.get(group, ()) + epochs
        return StateFile(self.world.serial("sst"), merged)

    # checkpoint work

    def place(self, slot: int, order: UploadOrder) -> Files | None:
        """What is uploaded is decided now: the job may have gone back when the upload comes to its end."""
        files = self._of_version.get(order.version)
        return None if files is None else files[slot]

    def upload(self, slot: int, order: UploadOrder, place: Files | None) -> None:
        world, id = self.world, order.checkpoint_id
        if id not in self._hanging:
            hangs = world.chance(world.odds.hanging_upload)
            self._hanging[id] = world.rng.randrange(self.width) if hangs else -1
        if place is None or self._hanging[id] == slot:
            return
        world.tally.events["uploads of discarded epochs"] += order.version not in self._of_version
        if world.chance(world.odds.declined):
            self.fail(id, slot)
            return
        if world.chance(world.odds.unavailable):
            return
        key = id, slot, order.version
        part = self._uploaded.get(key)
        if part is None or world.chance(world.odds.second_attempt):
            base = Handles()
            if order.base is not None:
                base = self._handles[order.base.term, order.base.checkpoint_id].get(slot, base)
            part = self._uploaded[key] = self._store(slot, order, place, base)
        self.stored(id, slot, part)

    def _store(self, slot: int, order: UploadOrder, files: Files, base: Handles) -> bytes:
        """Put what the base does not have into storage. Return the part of the task."""
        self._attempt += 1
        id, folder, term = order.checkpoint_id, order.folder, self.host.term
        task = TaskId(1, Slot(slot))
        placed: list[tuple[StateFile, str]] = []
        new: list[str] = []
        for file in files:
            path = base.paths.get(file.name)
            if path is None:
                leaf = self.world.serial("f")
                path = self.layout.shared(term, task, AttemptId(self._attempt), id, leaf)
                if folder is not None:
                    path = f"{folder}/{leaf}"
                self.world.storage.apply_put(path, _BODY)
                new.append(path)
            placed.append((file, path))
        listed = self._place_list(order, task, placed, base, new)
        root = self.layout.root if folder is None else folder
        before = set(base.paths.values()) if base.files is not None else set()
        if isinstance(base.files, StoredFileList) and base.files != listed:
            before.add(f"{root}/{base.files.path}")
        released = before - {path for _, path in placed}
        state = TaskState(
            task=task,
            key_groups=range_of_slot(task.slot, self.width, self.groups),
            backend="hashmap",
            version=order.version,
            files=listed,
        )
        self.world.modelled[task, order.version, list_digest(listed)] = tuple(placed)
        digest = None if base.files is None else list_digest(base.files)
        return encode_part(state, ListChange(digest, tuple(new), tuple(released)))

    def _place_list(
        self,
        order: UploadOrder,
        task: TaskId,
        placed: list[tuple[StateFile, str]],
        base: Handles,
        new: list[str],
    ) -> AnyFileList:
        """The list of a task's files. Every other task stores it as an object of its own, if it has changed."""
        id, folder = order.checkpoint_id, order.folder
        root = self.layout.root if folder is None else folder
        version = VersionId(EpochId(self.host.term, 1), AttemptId(1))
        files = FileList(
            MetadataFile(file.name, path.removeprefix(f"{root}/"), len(_BODY), _CHECKSUM, version, id)
            for file, path in placed
        )
        if base.files is not None and {file.name: path for file, path in placed} == base.paths:
            return base.files
        if folder is not None or task.slot % 2 or not placed:
            return files
        path = self.layout.shared(self.host.term, task, AttemptId(self._attempt), id, self.world.serial("files"))
        self.world.storage.apply_put(path, files.packed)
        new.append(path)
        return StoredFileList.of(files, path.removeprefix(f"{root}/"))
