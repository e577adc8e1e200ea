"""What a trace shows of a checkpoint, of a start, and of an epoch."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.config.choices import SpanDetail
from tidegate.events.event import (
    CheckpointEvent,
    EpochEvent,
    JobInitializationEvent,
    LevelTime,
    RestoredTask,
    SpanTime,
    TaskCheckpoint,
)
from tidegate.reporters.span_tree import SpanTree, checkpoint_span, epoch_span, initialization_span


def task(level: int, slot: int, **more: int) -> TaskCheckpoint:
    usual = {"acked_ms": 1_300, "start_delay_ms": 100, "sync_ms": 0, "async_ms": 200, "full_size_bytes": 50}
    return TaskCheckpoint(level=level, slot=slot, **{**usual, "checkpointed_size_bytes": 5, **more})


def checkpoint(**more: Any) -> CheckpointEvent:
    usual: dict[str, Any] = {
        "checkpoint_id": 3, "checkpoint_type": "Checkpoint", "status": "COMPLETED", "epoch": "1.7", "triggered_ms": 1_000,
        "duration_ms": 400, "checkpointed_size_bytes": 15, "full_size_bytes": 150, "last_ack_ms": 1_300,
        "tasks": (task(1, 0), task(1, 1, async_ms=150), task(2, 0)),
    }  # fmt: skip
    return CheckpointEvent(job="orders", at_ms=1_400, **{**usual, **more})


def names(tree: SpanTree) -> list[Any]:
    return [tree.name, *([[names(child) for child in tree.children]] if tree.children else [])]


def test_one_span_has_the_sums_and_maxima_of_all_tasks() -> None:
    span = checkpoint_span(checkpoint(), SpanDetail.SPAN_PER_CHECKPOINT)
    assert (span.name, span.start_ms, span.end_ms, span.children, span.error) == ("Checkpoint", 1_000, 1_400, (), None)
    assert span.attributes["checkpointId"] == 3
    assert span.attributes["checkpointedSize"] == 15
    assert span.attributes["fullSize"] == 150
    assert span.attributes["MaxAsyncCheckpointDurationMs"] == 200
    assert span.attributes["SumAsyncCheckpointDurationMs"] == 550


def test_values_by_level_come_in_arrays() -> None:
    span = checkpoint_span(checkpoint(), SpanDetail.SPAN_PER_CHECKPOINT_WITH_TASKS)
    assert span.attributes["perTaskSumAsyncCheckpointDurationMs"] == [350, 200]
    assert span.children == ()


def test_levels_have_child_spans_and_tasks_below_them_with_their_phases() -> None:
    levels = checkpoint_span(checkpoint(), SpanDetail.CHILDREN_SPANS_PER_TASK)
    assert names(levels) == ["Checkpoint", [["Checkpoint_Task"], ["Checkpoint_Task"], ["Publish"]]]
    tasks = checkpoint_span(checkpoint(), SpanDetail.CHILDREN_SPANS_PER_SUBTASK)
    subtask = ["Checkpoint_Subtask", [["StartDelay"], ["Upload"]]]
    levels_with_tasks = [["Checkpoint_Task", [subtask, subtask]], ["Checkpoint_Task", [subtask]], ["Publish"]]
    assert names(tasks) == ["Checkpoint", levels_with_tasks]
    upload = tasks.children[0].children[0].children[1]
    assert (upload.start_ms, upload.end_ms) == (1_100, 1_300)


@pytest.mark.parametrize("detail", SpanDetail)
def test_a_failed_checkpoint_says_why(detail: SpanDetail) -> None:
    event = checkpoint(status="FAILED", failure_reason="CHECKPOINT_EXPIRED", failure_message="too late", tasks=())
    span = checkpoint_span(event, detail)
    assert span.error == "too late"
    assert span.attributes["failureReason"] == "CHECKPOINT_EXPIRED"
    assert span.children == ()


def test_the_initialization_span_has_bytes_downloaded_and_found_on_local_disk() -> None:
    tasks = (
        RestoredTask(
            level=1, slot=0, restore_ms=100, download_ms=80, remote_bytes=1_000, local_bytes=0, memory_bytes=7
        ),
        RestoredTask(level=1, slot=1, restore_ms=20, download_ms=0, remote_bytes=0, local_bytes=500, memory_bytes=0),
    )
    event = JobInitializationEvent(
        job="orders",
        at_ms=2_000,
        started_ms=1_000,
        duration_ms=1_000,
        checkpoint_id=7,
        full_size_bytes=1_500,
        tasks=tasks,
    )
    found = initialization_span(event).attributes
    assert (found["checkpointId"], found["fullSize"]) == (7, 1_500)
    assert (found["MaxInitializeStateDurationMs"], found["SumInitializeStateDurationMs"]) == (100, 120)
    assert (found["MaxDownloadStateDurationMs"], found["SumRestoreStateDurationMs"]) == (80, 40)
    assert (found["SumRestoredStateSizeBytes.REMOTE"], found["SumRestoredStateSizeBytes.LOCAL_DISK"]) == (1_000, 500)


def test_an_epoch_contains_planning_its_levels_and_the_users_spans() -> None:
    level = LevelTime(level=1, started_ms=1_050, duration_ms=900, tasks=2, busy_ms=700, idle_ms=50, held_ms=20)
    used = SpanTime(operator="totals", name="parse", level=1, count=5, total_ms=30, max_ms=9, longest_task_ms=20)
    event = EpochEvent(
        job="orders", at_ms=2_000, epoch="1.7", started_ms=1_000, duration_ms=1_000, plan_ms=40, run_ms=950, rows_in=5, tries=1,
        levels=(level,), spans=(used,),
    )  # fmt: skip
    span = epoch_span(event)
    assert names(span) == ["Epoch", [["Plan"], ["Level 1", [["parse"]]]]]
    plan, first = span.children
    assert (plan.start_ms, plan.end_ms) == (1_010, 1_050)
    (parse,) = first.children
    assert (parse.start_ms, parse.end_ms, parse.attributes["count"]) == (1_050, 1_070, 5)


@pytest.mark.parametrize("ahead_ms", [-5_000, 5_000])
def test_a_host_with_another_clock_does_not_stretch_the_epoch(ahead_ms: int) -> None:
    level = LevelTime(level=1, started_ms=1_050 + ahead_ms, duration_ms=900, tasks=1, busy_ms=1, idle_ms=0, held_ms=0)
    event = EpochEvent(
        job="orders", at_ms=2_000, epoch="1.7", started_ms=1_000, duration_ms=1_000, plan_ms=4, run_ms=9, rows_in=5, tries=1,
        levels=(level,),
    )  # fmt: skip
    _, first = epoch_span(event).children
    assert 1_000 <= first.start_ms <= first.end_ms <= 2_000
