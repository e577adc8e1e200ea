"""What tasks are told about checkpoints besides their rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.task.version_upload import Stored
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term
from tidegate.runtime.checkpoints.checkpoint_work import UploadState, plan_checkpoint_work
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.state.version import VersionId

SHAPE = JobDescription(
    job="job",
    parallelism=2,
    max_parallelism=128,
    backend="rocksdb",
    levels=1,
    sources=(),
    operators=(),
    state_ids={},
    spark_version="4.3.0",
)
TERM = Term(3)
ZERO, ONE = (TaskId(1, Slot(s)) for s in (0, 1))
BASE = CheckpointRef(
    id=7, term=Term(2), epoch=EpochId(Term(2), 9), lineage=Lineage("l"), metadata="job/chk-7/_metadata", checksum="c"
)


def version(number: int) -> VersionId:
    return VersionId(EpochId(TERM, number), AttemptId(number))


def snapshot(number: int) -> EpochSnapshot:
    return EpochSnapshot(
        EpochId(TERM, number), {ZERO: version(number), ONE: version(number)}, None, Path("/q"), Clocks()
    )


def plan(uploading=(), cuts=(), kept=None, stored=(None, {}), empty=False):
    state = UploadState(uploading=uploading, snapshots=cuts, kept=kept or {}, latest=stored)
    return plan_checkpoint_work(SHAPE, TERM, state, inline_bytes=100, is_empty=empty)[1]


@pytest.mark.feature("C5", "C22")
def test_the_order_with_the_id_of_a_checkpoint_goes_to_every_task_of_every_level() -> None:
    """It asks for the version that the checkpoint took, while newer ones exist."""
    tasks = [TaskId(level, Slot(slot)) for level in (1, 2, 3) for slot in (0, 1)]
    taken, newer = (replace(snapshot(n), versions=dict.fromkeys(tasks, version(n))) for n in (5, 6))
    pending = PendingUpload(id=8, snapshot=taken, tasks=frozenset(tasks), sources=())
    state = UploadState(uploading=[pending], snapshots=[newer])
    work = plan_checkpoint_work(replace(SHAPE, levels=3), TERM, state, inline_bytes=100, is_empty=False)
    told = {TaskId(level, Slot(slot)): work[level].uploads[slot] for level in (1, 2, 3) for slot in (0, 1)}
    assert {task: [(order.checkpoint_id, order.version) for order in orders] for task, orders in told.items()} == {
        task: [(8, version(5))] for task in tasks
    }


@pytest.mark.feature("C5", "C10")
def test_each_of_several_checkpoints_asks_for_its_own_version() -> None:
    pending = [
        PendingUpload(id=id, snapshot=snapshot(number), tasks=frozenset({ZERO, ONE}), sources=())
        for id, number in ((8, 5), (9, 6))
    ]
    for orders in plan(pending).uploads:
        assert [(order.checkpoint_id, order.version) for order in orders] == [(8, version(5)), (9, version(6))]


@pytest.mark.feature("C2", "C5", "C11", "C24")
def test_only_tasks_that_have_not_answered_are_asked_again() -> None:
    work = plan([PendingUpload(id=8, snapshot=snapshot(5), tasks=frozenset({ONE}), sources=())])
    assert [[order.checkpoint_id for order in orders] for orders in work.uploads] == [[], [8]]
    assert work.wait_ms == 50
    assert (
        plan([PendingUpload(id=8, snapshot=snapshot(5), tasks=frozenset({ONE}), sources=())], empty=True).wait_ms == 500
    )


@pytest.mark.feature("D20", "F31")
def test_files_are_reused_from_the_base_of_the_checkpoint() -> None:
    """It is the latest one when the checkpoint begins. That another one completes meanwhile changes nothing: clean-up spares
    the files of the base, and tasks may have reused them already. Its records stay on the hosts."""
    base = Stored(Term(2), 7, b"digest")
    pending = PendingUpload(id=8, snapshot=snapshot(5), tasks=frozenset({ZERO, ONE}), sources=(), base={ZERO: base})
    newer = replace(BASE, id=9, metadata="job/chk-9/_metadata")
    for latest in (BASE, newer):
        work = plan([pending], stored=(latest, {ZERO: b"digest", ONE: b"other"}))
        zero, one = work.uploads
        assert zero[0].base == base
        assert one[0].base is None, "nothing is known of this task's files in the base"
        assert (Term(2), 7) in work.records
    full = PendingUpload(id=8, snapshot=snapshot(5), tasks=frozenset({ZERO, ONE}), sources=())
    assert plan([full], stored=(BASE, {ZERO: b"digest"})).uploads[0][0].base is None, "without incremental"


@pytest.mark.feature("C25", "H11")
def test_versions_that_may_still_be_needed_are_kept() -> None:
    work = plan(
        [PendingUpload(id=8, snapshot=snapshot(5), tasks=frozenset(), sources=())],
        [snapshot(6), snapshot(7)],
        {ZERO: version(2)},
    )
    assert set(work.keep[0]) == {version(n) for n in (2, 5, 6, 7)}
    assert set(work.keep[1]) == {version(n) for n in (5, 6, 7)}
    assert work.records == ((TERM, 8),)


@pytest.mark.feature("D29")
@pytest.mark.parametrize(("tasks", "total"), [(2, 256 << 10), (32, 256 << 10), (64, 128 << 10), (1_024, 8 << 10)])
def test_what_all_tasks_inline_stays_within_eight_megabytes(tasks: int, total: int) -> None:
    pending = PendingUpload(id=8, snapshot=snapshot(5), tasks=frozenset({ZERO}), sources=())
    job = replace(SHAPE, parallelism=tasks, max_parallelism=1_024)
    state = UploadState(uploading=[pending])
    (order,) = plan_checkpoint_work(job, TERM, state, inline_bytes=100, is_empty=False)[1].uploads[0]
    assert (order.inline_threshold, order.inline_total) == (100, total)
