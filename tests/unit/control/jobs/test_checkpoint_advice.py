"""The parts of a slow checkpoint, and what to do about the longest."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from tests.unit.runtime.monitoring.test_progress import EPOCH, TASK
from tidegate.checkpoint.coordination.coordinator import Coordinator
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.statistics import CheckpointStats
from tidegate.checkpoint.coordination.timing import Cadence, Timing
from tidegate.checkpoint.files.task_part import UploadAck
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.control.jobs.checkpoint_advice import SLOW_MS, checkpoint_advice
from tidegate.control.jobs.checkpoint_report import (
    checkpoint_statistics,
    statistics_by_level,
    statistics_with_subtasks,
)
from tidegate.control.messages.checkpoints import CompletedSubtaskCheckpointStatistics
from tidegate.core.ids import Lineage, Slot, TaskId, Term
from tidegate.testing.clock import at

OTHER = TaskId(1, Slot(1))


def checkpoint(*, epoch_ms: int, upload_ms: int, size: int = 4_100_000, snapshot_ms: int = 0) -> CheckpointStats:
    """A checkpoint whose task acknowledges when its upload and the epoch in progress are over. Another task needs no time."""
    made = Coordinator(Timing(Cadence(None)), [TASK, OTHER])
    made.epoch_finished(EPOCH, True, at(0))
    made.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=1_000), at(1_000))
    (pending,) = made.pending
    for task, took_ms, after_ms in ((OTHER, 0, 1), (TASK, upload_ms, epoch_ms)):
        ack = UploadAck(
            checkpoint_id=pending.id,
            task=task,
            state=None,
            new_files=(),
            state_size_bytes=80_200_000,
            checkpointed_size_bytes=size,
            async_ms=took_ms,
            sync_ms=snapshot_ms if task == TASK else 0,
        )
        made.acknowledge(ack, at(1_000 + after_ms))
    done = CheckpointRef(id=pending.id, term=Term(3), epoch=EPOCH, lineage=Lineage("l"), metadata="m", checksum="c")
    made.on_completed(pending.id, done, (), at(1_000 + epoch_ms))
    completed = made.statistics.latest_completed
    assert completed is not None
    return completed


@pytest.mark.feature("K2")
def test_the_checkpoint_history_shows_the_delays_of_each_task() -> None:
    held = statistics_with_subtasks(checkpoint(epoch_ms=15_000, upload_ms=400), [1], "level-1")
    assert held is not None
    slow, quick = held.subtasks
    assert isinstance(slow, CompletedSubtaskCheckpointStatistics)
    assert isinstance(quick, CompletedSubtaskCheckpointStatistics)
    assert (slow.start_delay, quick.start_delay) == (14_600, 1)
    assert (slow.alignment.duration, slow.alignment.buffered) == (0, 0)  # There is no alignment.
    assert (held.summary.start_delay.min, held.summary.start_delay.max) == (1, 14_600)


@pytest.mark.feature("K6")
def test_the_three_parts_of_a_checkpoint_add_up_to_its_duration() -> None:
    taken = checkpoint(epoch_ms=15_000, upload_ms=400, snapshot_ms=600)
    (slow,) = (task for task in taken.tasks if task.task == TASK)
    assert (slow.start_delay_ms, slow.sync_ms, slow.async_ms, slow.end_to_end_ms) == (14_000, 600, 400, 15_000)


@pytest.mark.feature("K6", "K2")
def test_advice_for_a_checkpoint_that_waits_for_a_long_epoch_is_shorter_epochs() -> None:
    advice = checkpoint_advice(checkpoint(epoch_ms=15_000, upload_ms=400))
    assert advice is not None
    assert advice.startswith("Task L1-S0 waited for the end of an epoch for 14.6 of its 15.0 s.")
    assert "target_epoch_duration" in advice
    assert "Upload less" not in advice


@pytest.mark.feature("K6")
def test_advice_for_a_slow_upload_is_smaller_or_faster_uploads() -> None:
    advice = checkpoint_advice(checkpoint(epoch_ms=15_000, upload_ms=14_000, size=2_500_000_000))
    assert advice is not None
    assert advice.startswith("Task L1-S0 uploaded 2,500.0 MB for 14.0 of its 15.0 s.")
    assert "execution.checkpointing.incremental" in advice
    assert "target_epoch_duration" not in advice


@pytest.mark.feature("K6")
def test_a_fast_checkpoint_needs_no_advice() -> None:
    assert checkpoint_advice(checkpoint(epoch_ms=SLOW_MS - 1, upload_ms=10)) is None
    assert checkpoint_advice(checkpoint(epoch_ms=SLOW_MS, upload_ms=10)) is not None


@pytest.mark.feature("K6")
def test_rest_gives_advice_for_a_single_checkpoint_and_not_in_lists() -> None:
    stats = checkpoint(epoch_ms=15_000, upload_ms=400)
    assert checkpoint_statistics(stats, statistics_by_level(stats, [1])).advice == checkpoint_advice(stats)
    assert checkpoint_statistics(stats).advice is UNSET
    fast = checkpoint(epoch_ms=40, upload_ms=4)
    assert checkpoint_statistics(fast, statistics_by_level(fast, [1])).advice is UNSET
