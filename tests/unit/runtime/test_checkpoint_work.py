"""What tasks are told about checkpoints besides their rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.version_upload import Stored
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term
from tidegate.runtime.checkpoint_work import plan_checkpoint_work
from tidegate.runtime.clocks import Clocks
from tidegate.runtime.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.job_description import JobDescription
from tidegate.state.version import VersionId

SHAPE = JobDescription("job", 2, 128, "rocksdb", 1, (), (), {}, "4.3.0")
TERM = Term(3)
ZERO, ONE = (TaskId(1, Slot(s)) for s in (0, 1))
BASE = CheckpointRef(7, Term(2), EpochId(Term(2), 9), Lineage("l"), "job/chk-7/_metadata", "c")


def version(number: int) -> VersionId:
    return VersionId(EpochId(TERM, number), AttemptId(number))


def snapshot(number: int) -> EpochSnapshot:
    return EpochSnapshot(
        EpochId(TERM, number), {ZERO: version(number), ONE: version(number)}, None, Path("/q"), Clocks()
    )


def plan(uploading=(), cuts=(), kept=None, stored=(None, {}), empty=False):
    return plan_checkpoint_work(SHAPE, TERM, uploading, cuts, kept or {}, stored, 100, empty)[1]


def test_only_tasks_that_have_not_answered_are_told_again() -> None:
    work = plan([PendingUpload(8, snapshot(5), None, frozenset({ONE}), ())])
    assert [[order.checkpoint_id for order in orders] for orders in work.uploads] == [[], [8]]
    assert work.wait_ms == 50
    assert plan([PendingUpload(8, snapshot(5), None, frozenset({ONE}), ())], empty=True).wait_ms == 500


@pytest.mark.feature("D20")
def test_files_are_reused_only_out_of_the_very_base_the_checkpoint_was_told() -> None:
    pending = PendingUpload(8, snapshot(5), BASE, frozenset({ZERO, ONE}), ())
    digests = {ZERO: b"digest"}
    zero, one = plan([pending], stored=(BASE, digests)).uploads
    assert zero[0].base == Stored(Term(2), 7, b"digest")
    assert one[0].base is None, "nothing is known of this task's files in the base"
    full = PendingUpload(8, snapshot(5), None, frozenset({ZERO, ONE}), ())
    assert plan([full], stored=(BASE, digests)).uploads[0][0].base is None, "without incremental"


def test_versions_that_may_still_be_needed_are_kept() -> None:
    work = plan([PendingUpload(8, snapshot(5), None, frozenset(), ())], [snapshot(6), snapshot(7)], {ZERO: version(2)})
    assert set(work.keep[0]) == {version(n) for n in (2, 5, 6, 7)}
    assert set(work.keep[1]) == {version(n) for n in (5, 6, 7)}
    assert work.records == ((TERM, 8),)
