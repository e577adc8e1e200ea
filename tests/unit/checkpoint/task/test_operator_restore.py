"""Operator state through storage: uploaded with its task, counted in the metadata, and dealt out to another parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.checkpoint.files.task_part import decode_part
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    Distribution,
    OperatorInfo,
    SnapshotKind,
    StateInfo,
    TaskState,
    codec,
)
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.task.version_restore import RestoreOrder, restore
from tidegate.checkpoint.task.version_upload import UploadOrder, VersionUpload
from tidegate.core.errors import CorruptState
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.graph.states import StateKind, StateSpec
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import key_group_range, state_prefix
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage

WIDTHS = (1, 2, 3, 8)
UID, LAYOUT = Uid("op"), JobLayout("job")
SPECS = (
    StateSpec(name="dealt", kind=StateKind.LIST, value=int, distribution=Distribution.SPLIT),
    StateSpec(name="shared", kind=StateKind.LIST, value=str, distribution=Distribution.UNION),
    StateSpec(name="rules", kind=StateKind.MAP, value=int, map_key=str, distribution=Distribution.BROADCAST),
)
IDS = {"dealt": 5, "shared": 6, "rules": 7}
KEYED = 9


class Job:
    """All tasks of one level: what they write, upload and bring back."""

    def __init__(self, root: Path, backend: str) -> None:
        self.root, self.storage = root, LocalStorage(root / "storage")
        self.backend, self.number = backend_named(backend), 0
        self.versions: dict[int, VersionId | None] = {}

    def directory(self, slot: int) -> Path:
        return self.root / f"life-{self.life}" / str(slot)

    def begin(self, parallelism: int) -> None:
        self.parallelism, self.life = parallelism, self.number
        self.versions = dict.fromkeys(range(parallelism))

    def open(self, slot: int):
        self.number += 1
        target = VersionId(EpochId(Term(1), self.number), AttemptId(self.number))
        groups = range_of_slot(slot, self.parallelism, 128)
        store = self.backend.begin(self.directory(slot), self.versions[slot], target, groups)
        return store, OperatorStates(store, SPECS, IDS.__getitem__)

    def write(self, slot: int, dealt: list[int], shared: list[str]) -> None:
        store, states = self.open(slot)
        states.lists["dealt"].update(dealt)
        states.lists["shared"].update(shared)
        states.set_writable(True)
        states.maps["rules"].put_all({"a": 1, "b": 2})
        states.flush()
        first, last = range_of_slot(slot, self.parallelism, 128)
        store.write([(state_prefix(group, KEYED) + b"k", b"\x01") for group in range(first, last + 1)])
        self.versions[slot] = store.seal(states.held()).version

    def read(self, slot: int) -> dict[str, object]:
        store, states = self.open(slot)
        found = {name: state.stored() for name, state in states.all.items()}
        found["groups"] = [int.from_bytes(key[:2], "big") for key, _ in store.scan(*key_group_range(0, 127))]
        store.abandon()
        return found

    def checkpoint(self) -> CheckpointMetadata:
        tasks: list[TaskState] = []
        self.number += 1
        for slot, version in self.versions.items():
            assert version is not None
            order = UploadOrder(
                checkpoint_id=self.number, version=version, base=None, inline_threshold=0, inline_total=0
            )
            task = TaskId(1, Slot(slot))
            upload = VersionUpload(self.storage, LAYOUT, self.directory(slot), task, Term(1), order)
            manifest = self.backend.manifest(self.directory(slot), version)
            part = upload.run(manifest, version.attempt, lambda: True, lambda: None)
            assert part is not None
            tasks.append(decode_part(part)[0])
        spread = {spec.name: spec.distribution for spec in SPECS}
        states = tuple(
            StateInfo(name=name, id=id, kind="list", value={}, map_key=None, namespace=None, distribution=spread[name])
            for name, id in IDS.items()
        )
        states += (StateInfo(name="n", id=KEYED, kind="value", value={}),)
        return CheckpointMetadata(
            job="job",
            lineage=Lineage("l"),
            checkpoint_id=1,
            term=Term(1),
            epoch=EpochId(Term(1), 1),
            kind=SnapshotKind.CHECKPOINT,
            triggered_ms=0,
            completed_ms=0,
            tidegate_version="",
            spark_version="",
            max_parallelism=128,
            parallelism=self.parallelism,
            clock_ms=0,
            operators=(OperatorInfo(UID, 1, self.parallelism, "", None, states),),
            tasks=tuple(tasks),
        )

    def restore(self, snapshot: CheckpointMetadata, parallelism: int) -> None:
        self.begin(parallelism)
        old = {task.task: task for task in snapshot.tasks}
        for plan in plan_restore(snapshot, RestoreTarget(128, parallelism, {UID: 1})):
            self.number += 1
            target = VersionId(EpochId(Term(1), self.number), AttemptId(self.number))
            order = RestoreOrder(
                plan=plan, sources=tuple(old[each] for each in plan.sources), root=LAYOUT.root, stored=None
            )
            slot = plan.task.slot
            self.versions[slot] = restore(self.storage, self.directory(slot), order, self.backend, {}, target)


def elements(slot: int) -> tuple[list[int], list[str]]:
    return [slot * 100 + n for n in range(slot + 3)], [f"s{slot}"] * (slot % 2 + 1)


@pytest.mark.feature("A7", "A26", "A27", "A29", "N15")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("before", WIDTHS)
@pytest.mark.parametrize("after", WIDTHS)
def test_every_kind_of_operator_state_is_redistributed(tmp_path, backend, before, after):
    job = Job(tmp_path, backend)
    job.begin(before)
    for slot in range(before):
        job.write(slot, *elements(slot))
    job.restore(job.checkpoint(), after)
    found = [job.read(slot) for slot in range(after)]
    dealt = [each["dealt"] for each in found]
    assert sorted(n for share in dealt for n in share) == sorted(n for slot in range(before) for n in elements(slot)[0])  # type: ignore[attr-defined]
    if before == after:
        assert dealt == [elements(slot)[0] for slot in range(before)]
    else:
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    everyone = [word for slot in range(before) for word in elements(slot)[1]]
    assert [each["shared"] for each in found] == [everyone] * after
    assert [each["rules"] for each in found] == [{"a": 1, "b": 2}] * after
    assert [group for each in found for group in each["groups"]] == list(range(128))  # type: ignore[attr-defined]


@pytest.mark.feature("A26")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("widths", [(2, 3, 2), (1, 2, 1), (3, 8, 1), (2, 3, 8)])
def test_two_rescales_without_writes_in_between_keep_the_state(tmp_path, backend, widths):
    """Tasks that got no element hold none, also where the files they took over had some."""
    job = Job(tmp_path, backend)
    job.begin(widths[0])
    for slot in range(widths[0]):
        job.write(slot, [slot], [])
    for width in widths[1:]:
        job.restore(job.checkpoint(), width)
    found = [job.read(slot)["dealt"] for slot in range(widths[-1])]
    assert sorted(n for share in found for n in share) == list(range(widths[0]))  # type: ignore[attr-defined]


@pytest.mark.feature("A27", "A28")
@pytest.mark.parametrize("after", WIDTHS)
def test_a_union_state_does_not_grow_without_writes(tmp_path, after):
    job = Job(tmp_path, "hashmap")
    job.begin(3)
    for slot in range(3):
        job.write(slot, *elements(slot))
    for width in (after, 2, after):
        job.restore(job.checkpoint(), width)
    assert [sorted(job.read(slot)["shared"]) for slot in range(after)] == [["s0", "s1", "s1", "s2"]] * after


@pytest.mark.feature("A28")
def test_once_a_task_writes_its_union_list_that_is_what_it_holds(tmp_path):
    job = Job(tmp_path, "rocksdb")
    job.begin(2)
    for slot in range(2):
        job.write(slot, [], [f"old-{slot}"])
    job.restore(job.checkpoint(), 3)
    for slot in range(3):
        job.write(slot, [], [f"new-{slot}"])
        assert job.read(slot)["shared"] == [f"new-{slot}"]
    job.restore(job.checkpoint(), 1)
    assert job.read(0)["shared"] == ["new-0", "new-1", "new-2"]


@pytest.mark.feature("A7", "A26")
def test_the_counts_are_in_the_metadata_and_survive_it(tmp_path):
    job = Job(tmp_path, "hashmap")
    job.begin(1)
    job.write(0, [1, 2, 3], ["x"])
    (task,) = job.checkpoint().tasks
    assert {(each.state, each.count) for each in task.elements} == {(5, 3), (6, 1)}
    job.restore(job.checkpoint(), 2)
    again = codec.decode(codec.encode(job.checkpoint()))
    assert [{(e.state, e.count) for e in t.elements} for t in again.tasks] == [{(5, 2), (6, 1)}, {(5, 1), (6, 0)}]


def test_a_list_shorter_than_counted_is_refused(tmp_path):
    job = Job(tmp_path, "hashmap")
    job.begin(1)
    job.write(0, [1, 2, 3], [])
    store, states = job.open(0)
    states.lists["dealt"].update([1])
    states.flush()
    job.versions[0] = store.seal({5: 3}).version
    with pytest.raises(CorruptState, match="Start from another checkpoint"):
        job.restore(job.checkpoint(), 2)
