"""What travels to a task: its own work, whatever the others do, or nothing at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from tests.unit.checkpoint.output.test_ledger_model import steps_of
from tidegate.checkpoint.files.shared import Boundary, orphans
from tidegate.checkpoint.layout import FileScope, JobLayout
from tidegate.checkpoint.task.assignment import TaskRestore
from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.checkpoint.task.version_upload import EarlyUpload, Stored, UploadOrder
from tidegate.connectors.sink import Committable
from tidegate.core.errors import ProtocolViolation, StorageError
from tidegate.core.faults import arm
from tidegate.core.ids import AttemptId, EpochId, HostId, Lineage, Slot, TaskId, Term, Uid
from tidegate.runtime.epochs import epoch_frame, sent_assignments
from tidegate.runtime.epochs.sent_assignments import SentAssignments
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork, CommitOrder, TaskAssignment
from tidegate.runtime.exchange.task_parts import PackedAssignment, pack
from tidegate.runtime.task.background_upload import range_reader
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage

EPOCH = EpochId(Term(3), 7)
SINK = Uid("out")


def version(number: int) -> VersionId:
    return VersionId(EpochId(Term(3), number), AttemptId(1))


def order(slot: int) -> UploadOrder:
    base = Stored(Term(2), 5, bytes([slot % 250]) * 8)
    return UploadOrder(checkpoint_id=6, version=version(slot + 1), base=base, inline_threshold=10, inline_total=20)


def output(slot: int, epochs: int) -> CommitOrder:
    waiting = tuple(
        Committable(lineage=Lineage("line"), sink=SINK, slot=Slot(slot), epoch=EpochId(Term(3), n + 1), payload=b"rows")
        for n in range(epochs)
    )
    return CommitOrder(SINK, slot, waiting)


def restore_of(slot: int) -> RestoreOrder:
    return RestoreOrder(
        plan=TaskRestore(task=TaskId(1, Slot(slot)), key_groups=(0, 1)), sources=(), root="job", stored=(Term(2), 5)
    )


def assignment(slots: int, work: CheckpointWork | None = None, archive: Archive | None = None) -> TaskAssignment:
    """The partitions serve the slots the other way round."""
    return TaskAssignment(
        job="job",
        lineage=Lineage("line"),
        epoch=EPOCH,
        parallelism=slots,
        max_parallelism=slots,
        program=b"program",
        slots=tuple(Slot(slot) for slot in reversed(range(slots))),
        salts=(),
        versions=tuple(version(slot + 1) for slot in range(slots)),
        backend="hashmap",
        backend_options={},
        local_dir=None,
        senders=0,
        archive=archive,
        work=work or full_work(slots),
        wake=tuple(slot % 2 == 0 for slot in range(slots)),
    )


def full_work(slots: int, epochs: int = 1) -> CheckpointWork:
    return CheckpointWork(
        uploads=tuple((order(slot),) for slot in range(slots)),
        every_upload=tuple((TaskId(1, Slot(slot)), order(slot)) for slot in range(slots)),
        keep=tuple((version(slot + 1),) for slot in range(slots)),
        records=((Term(2), 5),),
        commits=tuple((output(slot, epochs),) for slot in range(slots)),
        early=EarlyUpload(
            checkpoint_id=8,
            bases=tuple(Stored(Term(2), slot, b"") for slot in range(slots)),
            inline_threshold=0,
            inline_total=0,
        ),
        truncated=tuple(version(slot) for slot in range(slots)),
        wait_ms=9,
    )


def host_of(task: TaskId) -> HostId:
    return HostId(f"host-{task.slot % 2}")


def nothing(path: str, start: int, length: int) -> bytes:
    raise AssertionError("nothing is stored")


def in_worker(packed: PackedAssignment) -> PackedAssignment:
    return cloudpickle.loads(cloudpickle.dumps(packed))


def test_a_task_gets_the_work_of_its_own_slot() -> None:
    whole = assignment(4)
    packed = in_worker(pack(whole, host_of))
    for partition, slot in enumerate(whole.slots):
        own = packed.open(partition, nothing)
        assert own.versions[slot] == whole.versions[slot]
        assert own.wake[slot] == whole.wake[slot]
        assert own.work.of(slot) == whole.work.of(slot)
        assert own.work.commits[slot] == whole.work.commits[slot]
        assert own.work.truncated[slot] == whole.work.truncated[slot]
        assert own.work.early is not None
        assert whole.work.early is not None
        assert own.work.early.order(slot, version(9)) == whole.work.early.order(slot, version(9))
        assert (own.work.records, own.work.wait_ms) == (whole.work.records, whole.work.wait_ms)
        assert own.work.host_uploads is not None
        assert {task.slot for task, _ in own.work.host_uploads.on(HostId("host-1"))} == {1, 3}


def test_a_task_that_looks_for_the_work_of_another_slot_finds_none() -> None:
    own = pack(assignment(3), host_of).open(0, nothing)
    for look in (lambda: own.versions[0], lambda: own.work.of(Slot(1)), lambda: own.work.commits[0]):
        with pytest.raises(ProtocolViolation):
            look()


def test_a_task_refuses_a_part_of_another_slot_or_of_another_epoch() -> None:
    packed = pack(assignment(3), host_of)
    exchanged = replace(packed, parts=packed.parts[::-1])
    with pytest.raises(ProtocolViolation, match="slot 2"):
        exchanged.open(0, nothing)
    late = replace(packed, shared=replace(packed.shared, epoch=EPOCH.next()))
    with pytest.raises(ProtocolViolation, match=r"3\.8"):
        late.open(0, nothing)
    other_orders = replace(packed, orders=packed.orders[::-1])
    with pytest.raises(ProtocolViolation):
        other_orders.open(0, nothing)


@pytest.mark.parametrize("epochs", [0, 3])
def test_what_a_task_opens_does_not_grow_with_the_other_slots(epochs: int) -> None:
    """Once it took 0.09 s per task at 1,000 slots, and seconds with a backlog of output."""

    def opened(slots: int) -> int:
        packed = pack(assignment(slots, full_work(slots, max(1, epochs))), host_of)
        data = cloudpickle.dumps(epoch_frame._runner("run_level", packed, "level 1"))
        run = cloudpickle.loads(data)
        inside: Any = next(cell.cell_contents for cell in run.__closure__ if not isinstance(cell.cell_contents, str))
        return steps_of(lambda: (cloudpickle.loads(data), inside.open(0, nothing)))

    assert opened(200) < 1.2 * opened(2)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
    st.booleans(),
)
def test_orders_arrive_whether_they_are_sent_or_stored(slots: list[tuple[int, bool]], stored: bool) -> None:
    work = CheckpointWork(
        commits=tuple((output(slot, epochs),) if epochs else () for slot, (epochs, _) in enumerate(slots)),
        restores=tuple(restore_of(slot) if restores else None for slot, (_, restores) in enumerate(slots)),
    )
    packed, objects = pack(assignment(len(slots), work), host_of), dict[str, bytes]()
    if stored:
        packed, objects["orders"] = packed.stored_at("orders")
        assert packed.orders_bytes == 0

    def read(path: str, start: int, length: int) -> bytes:
        return objects[path][start : start + length]

    for partition, slot in enumerate(packed.shared.slots):
        own = in_worker(packed).open(partition, read)
        assert own.work.commits[slot] == work.commits[slot]
        assert own.work.of(slot)[2] == work.restores[slot]


def test_damaged_orders_are_refused() -> None:
    packed, content = pack(assignment(2), host_of).stored_at("orders")
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(ProtocolViolation, match="not those that were stored"):
        packed.open(0, lambda path, start, length: damaged[start : start + length])


def test_without_storage_a_task_commits_nothing_and_never_begins_without_its_state() -> None:
    def fails(path: str, start: int, length: int) -> bytes:
        raise StorageError("s3://bucket", path, "down")

    work = CheckpointWork(commits=((output(0, 1),), (output(1, 1),)), restores=(restore_of(0), None))
    packed, _ = pack(assignment(2, work), host_of).stored_at("orders")
    assert packed.open(0, fails).work.commits[1] == ()
    with pytest.raises(StorageError):
        packed.open(1, fails)


# -- the driver --------------------------------------------------------------------------------------------------------

PLACED: Any = SimpleNamespace(host_of=host_of)


class Refusing(LocalStorage):
    def put(self, path: str, data: bytes) -> None:
        raise StorageError(self.url, path, "refused")


def objects_in(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(sent_assignments, "_INLINE_BYTES", 1_000)
    return Archive(f"file://{tmp_path}")


def test_long_orders_wait_in_storage_until_the_epoch_has_ended(archive: Archive, tmp_path: Path) -> None:
    sent = SentAssignments("job", archive)
    packed = sent.send(assignment(50, archive=archive), PLACED)
    assert (packed.orders, len(objects_in(tmp_path))) == ((), 1)
    own = in_worker(packed).open(7, range_reader(archive))
    assert own.work.commits[42] == (output(42, 1),)
    sent.send(assignment(50, archive=archive), PLACED)
    assert len(objects_in(tmp_path)) == 2  # another try of the epoch: attempts of the first one may still run
    sent.send(replace(assignment(2, CheckpointWork(), archive), epoch=EPOCH.next()), PLACED)
    assert objects_in(tmp_path) == {}
    with pytest.raises(StorageError):  # a late attempt
        packed._packed_orders(Slot(0), range_reader(archive))


def test_short_orders_are_sent(archive: Archive, tmp_path: Path) -> None:
    packed = SentAssignments("job", archive).send(assignment(2, CheckpointWork(), archive), PLACED)
    assert packed.path is None
    assert objects_in(tmp_path) == {}


def test_orders_are_sent_if_storage_does_not_accept_them(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_assignments, "open_storage", lambda url, **options: Refusing(url.removeprefix("file://")))
    sent = SentAssignments("job", archive)
    packed = sent.send(assignment(50, archive=archive), PLACED)
    assert packed.open(7, nothing).work.commits[42] == (output(42, 1),)
    sent.discard()


def test_orders_that_a_crash_leaves_are_swept_with_the_staged_rows_of_their_epoch(
    archive: Archive, tmp_path: Path
) -> None:
    class Killed(BaseException):
        pass

    def kill(point: str, **context: object) -> None:
        if point == "assignment.1-stored":
            raise Killed

    arm(kill)
    try:
        with pytest.raises(Killed):
            SentAssignments("job", archive).send(assignment(50, archive=archive), PLACED)
    finally:
        arm(None)
    layout, (left,) = JobLayout("job"), objects_in(tmp_path)
    found = layout.parse(left)
    assert found is not None
    assert (found.scope, found.term, found.number) == (FileScope.TASKOWNED, EPOCH.term, EPOCH.number)
    running, later = (Boundary(EPOCH.term, 5, 6, epoch) for epoch in (EpochId(EPOCH.term, 6), EPOCH))
    assert orphans(layout, [left], running, ()) == ()
    assert orphans(layout, [left], later, ()) == (left,)


class Undeletable(LocalStorage):
    def delete(self, paths: Any) -> None:
        raise StorageError(self.url, "", "refused")


def test_orders_that_cannot_be_deleted_do_not_stop_the_job_and_are_swept(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_assignments, "open_storage", lambda url, **_: Undeletable(url.removeprefix("file://")))
    sent = SentAssignments("job", archive)
    sent.send(assignment(50, archive=archive), PLACED)
    sent.discard()
    (left,) = objects_in(tmp_path)
    assert orphans(JobLayout("job"), [left], Boundary(EPOCH.term, 5, 6, EPOCH), ()) == (left,)
    sent.discard()  # nothing is tried again: the sweep has it


def test_a_crash_after_orders_were_deleted_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    reached = []
    sent = SentAssignments("job", archive)
    sent.send(assignment(50, archive=archive), PLACED)

    def kill(point: str, **context: object) -> None:
        reached.append(point)
        raise KeyboardInterrupt

    arm(kill)
    try:
        with pytest.raises(KeyboardInterrupt):
            sent.discard()
    finally:
        arm(None)
    assert reached == ["assignment.3-deleted"]
    assert objects_in(tmp_path) == {}
