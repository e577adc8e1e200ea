"""The five answers of someone on call, in every situation of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.driver.run_kit import TASK_LINE, run_report
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason as Reason
from tidegate.checkpoint.coordination.statistics import (
    CheckpointStats,
    CheckpointStatsCounts,
    CheckpointStatsSnapshot,
    CheckpointStatus,
    Restored,
)
from tidegate.config import CheckpointConfig, Checkpointing, read_options
from tidegate.core.ids import EpochId, Term
from tidegate.runtime.monitoring.health import OVERDUE_INTERVALS, Tone, answers, end_text, rates
from tidegate.runtime.monitoring.run_report import (
    BacklogSample,
    EpochLine,
    FailureLine,
    RunEnd,
    RunReport,
    SinkLine,
    SourceLine,
)

NOW = 1_700_000_000_000
SECOND = 1_000
HOUR = 3_600_000
CONFIG = CheckpointConfig.of(read_options(Checkpointing(dir="/c", interval="10 s").to_options()))
FAILURE = FailureLine(at_ms=NOW - 5 * SECOND, kind="UserCodeError", message="…", restarted=True)


def checkpoint(number: int, age_ms: int, failure: Reason | None = None) -> CheckpointStats:
    at = NOW - age_ms
    return CheckpointStats(
        id=number, epoch=EpochId(Term(3), number), status=CheckpointStatus.FAILED if failure else CheckpointStatus.COMPLETED,
        is_savepoint=False, trigger_timestamp=at - 500, latest_ack_timestamp=at, num_subtasks=2, num_acknowledged_subtasks=2,
        state_size_bytes=9, checkpointed_size_bytes=9, end_to_end_ms=500, failure=failure,
        failure_timestamp=at if failure else -1,
    )  # fmt: skip


def statistics(
    completed: CheckpointStats | None = None,
    failed: CheckpointStats | None = None,
    restored: Restored | None = None,
) -> CheckpointStatsSnapshot:
    return CheckpointStatsSnapshot(
        counts=CheckpointStatsCounts(),
        latest_completed=completed, latest_savepoint=None, latest_failed=failed, latest_restored=restored,
        summary=dict.fromkeys(("checkpointed_size", "state_size", "end_to_end_duration")), in_progress=(), history=(),
    )  # fmt: skip


def epoch(age_ms: int, rows: int = 500, duration_ms: int = 1_000) -> EpochLine:
    counts = {"totals": (rows, rows)} if rows else {}
    return EpochLine(
        epoch="3.1", ended_ms=NOW - age_ms, duration_ms=duration_ms, rows_in=rows, tries=1, phases={}, operators=counts
    )


def report(**changes: Any) -> RunReport:
    """A healthy job with a checkpoint every 10 seconds, and rows that none contains yet."""
    healthy = {
        "started_ms": NOW - 60 * SECOND, "written_ms": NOW, "epochs": (epoch(1000), epoch(0)), "checkpoint_config": CONFIG,
        "checkpoints": statistics(checkpoint(7, 4 * SECOND)), "unprotected_since_ms": NOW - 3 * SECOND,
    }  # fmt: skip
    return run_report(**healthy | changes)


RESTORED = Restored(id=7, restore_timestamp=NOW - SECOND, is_savepoint=False, external_path="/c/chk-7")
RESTS = (replace(TASK_LINE, busy=0.0, idle=1.0, held=0.0),)
IDLE = {
    "started_ms": NOW - 2 * HOUR, "epochs": (epoch(HOUR + SECOND), epoch(HOUR, rows=0)),
    "checkpoints": statistics(checkpoint(7, HOUR)),
    "unprotected_since_ms": None, "tasks": RESTS,
    "sources": (SourceLine(source="lines", event_time_lag_ms=HOUR, pending_rows=0),),
}  # fmt: skip
HELD = {
    "started_ms": NOW - 2 * HOUR, "held_by": "out",
    "sinks": (SinkLine(sink="out", guarantee="EXACTLY_ONCE", waiting_epochs=9),),
    "epochs": (epoch(HOUR),), "unprotected_since_ms": None, "checkpoints": statistics(checkpoint(7, HOUR)), "tasks": RESTS,
    "sources": (SourceLine(source="lines", event_time_lag_ms=HOUR),),
}  # fmt: skip
ENDED = {
    "ended_ms": NOW - 5 * SECOND,
    "epochs": (epoch(7 * SECOND), epoch(6 * SECOND)),
    "checkpoints": statistics(checkpoint(7, 9 * SECOND)),
}
SITUATIONS: dict[str, tuple[dict[str, Any], tuple[tuple[str, str], ...]]] = {
    "running": (
        {},
        (("ok", "Healthy"), ("ok", "Yes"), ("ok", "4 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "idle": (
        IDLE,
        (("ok", "Healthy"), ("ok", "Idle"), ("ok", "3600 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "starting": (
        {
            "status": "INITIALIZING", "started_ms": NOW - 5 * SECOND, "epochs": (), "tasks": (), "states": (), "sources": (),
            "checkpoints": statistics(), "unprotected_since_ms": None,
        },
        (("none", "Starting"), ("none", "No epoch"), ("none", "None yet"), ("none", "No task"), ("none", "None")),
    ),
    "in its first epoch": (
        {"epochs": (), "tasks": (), "unprotected_since_ms": None, "running_since_ms": NOW - 15 * SECOND},
        (("none", "Starting"), ("none", "No epoch yet"), ("ok", "4 s"), ("none", "No task"), ("none", "None")),
    ),
    "started": (
        {"epochs": (), "tasks": (), "checkpoints": statistics(), "unprotected_since_ms": None},
        (("ok", "Healthy"), ("none", "No epoch yet"), ("none", "None yet"), ("none", "No task"), ("none", "None")),
    ),
    "restarted with a new driver": (
        {"epochs": (), "tasks": RESTS, "checkpoints": statistics(restored=RESTORED), "unprotected_since_ms": None},
        (("ok", "Healthy"), ("none", "No epoch yet"), ("none", "None yet"), ("none", "L1-S0"), ("none", "None")),
    ),
    "restarted by its driver": (
        {
            "failures": (FAILURE,), "restarts": 1,
            "checkpoints": statistics(
                checkpoint(7, 8 * SECOND), checkpoint(8, 5 * SECOND, Reason.CHECKPOINT_COORDINATOR_SUSPEND)
            ),
        },
        (("warn", "Restarted"), ("ok", "Yes"), ("ok", "8 s"), ("none", "L1-S0"), ("warn", "UserCodeError")),
    ),
    "restarted by its driver while idle": (
        {
            **IDLE, "failures": (FAILURE,), "restarts": 1,
            "checkpoints": statistics(
                checkpoint(7, HOUR), checkpoint(8, 5 * SECOND, Reason.CHECKPOINT_COORDINATOR_SUSPEND)
            ),
        },
        (("warn", "Restarted"), ("ok", "Idle"), ("ok", "3600 s"), ("none", "L1-S0"), ("warn", "UserCodeError")),
    ),
    "restarting": (
        {"status": "RESTARTING", "failures": (FAILURE,)},
        (("bad", "Restarting"), ("none", "Not running"), ("none", "4 s"), ("none", "L1-S0"), ("bad", "UserCodeError")),
    ),
    "held by a sink": (
        HELD,
        (("warn", "Reads nothing"), ("bad", "Held by out"), ("ok", "3600 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "held by a sink that fails": (
        {**HELD, "sinks": (SinkLine(sink="out", guarantee="EXACTLY_ONCE", waiting_epochs=9, error="refused"),)},
        (("bad", "Output fails"), ("bad", "Held by out"), ("ok", "3600 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "failed": (
        {**ENDED, "status": "FAILED", "failures": (replace(FAILURE, restarted=False),)},
        (("bad", "Failed"), ("none", "Not running"), ("none", "9 s"), ("none", "L1-S0"), ("bad", "UserCodeError")),
    ),
    "driver killed": (
        {**ENDED, "status": "LOST", "ended_ms": None, "written_ms": NOW - 5 * SECOND},
        (("bad", "Driver gone"), ("none", "Not running"), ("none", "9 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "stopped with a savepoint": (
        {"status": "FINISHED", "end": RunEnd.SAVEPOINT, "end_place": "/s/savepoint-1", "ended_ms": NOW},
        (("none", "Stopped with savepoint"), ("none", "Not running"), ("none", "4 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "stopped": (
        {"status": "CANCELED", "end": RunEnd.STOPPED, "ended_ms": NOW},
        (("none", "Stopped"), ("none", "Not running"), ("none", "4 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "checkpoints fail": (
        {"checkpoints": statistics(checkpoint(7, HOUR), checkpoint(8, SECOND, Reason.IO_EXCEPTION))},
        (("bad", "Checkpoints fail"), ("ok", "Yes"), ("bad", "3600 s"), ("none", "L1-S0"), ("bad", "Checkpoint #8")),
    ),
    "checkpoint late": (
        {"unprotected_since_ms": NOW - 45 * SECOND, "checkpoints": statistics(checkpoint(7, 46 * SECOND))},
        (("warn", "Checkpoint late"), ("ok", "Yes"), ("warn", "46 s"), ("none", "L1-S0"), ("none", "None")),
    ),
    "without checkpoints": (
        {"checkpoints": None, "checkpoint_config": None, "unprotected_since_ms": None},
        (("ok", "Healthy"), ("ok", "Yes"), ("none", "Off"), ("none", "L1-S0"), ("none", "None")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_five_answers_in_every_situation(situation: str) -> None:
    changes, expected = SITUATIONS[situation]
    found = answers(report(**changes), NOW)
    ages = [each.answer if each.answer_at_ms is None else f"{(NOW - each.answer_at_ms) // 1000} s" for each in found]
    assert tuple(zip([str(each.tone) for each in found], ages)) == expected


@given(idle_ms=st.integers(0, 10**10))
def test_a_job_whose_rows_are_all_checkpointed_is_never_late_however_long_it_is_idle(idle_ms: int) -> None:
    found = answers(report(**IDLE), NOW + idle_ms)
    assert [each.tone for each in found[:3]] == [Tone.OK] * 3


@given(age_ms=st.integers(0, 10**6), checkpoint_age_ms=st.integers(0, 10**6))
def test_a_checkpoint_is_late_by_the_age_of_the_work_that_none_contains(age_ms: int, checkpoint_age_ms: int) -> None:
    job = report(unprotected_since_ms=NOW - age_ms, checkpoints=statistics(checkpoint(7, checkpoint_age_ms)))
    is_late = age_ms > OVERDUE_INTERVALS * 10 * SECOND + 10 * SECOND
    assert answers(job, NOW)[0].answer == ("Checkpoint late" if is_late else "Healthy")
    assert answers(job, NOW)[2].tone == (Tone.WARN if is_late else Tone.OK)


@given(ages_ms=st.lists(st.integers(0, 10**6), max_size=20), later_ms=st.integers(0, 10**6))
def test_rates_are_0_a_minute_after_the_last_epoch(ages_ms: list[int], later_ms: int) -> None:
    job = report(epochs=tuple(epoch(age) for age in sorted(ages_ms, reverse=True)), operators={"totals": (1, 1)})
    now, then = rates(job, NOW), rates(job, NOW + 60 * SECOND + later_ms)
    assert now.rows_in >= 0
    assert now.rows_in == pytest.approx(now.operators["totals"][0])
    assert (then.rows_in, then.operators) == (0, {"totals": (0, 0)})


def test_rates_are_those_of_the_last_minute_and_not_of_the_last_epochs() -> None:
    job = report(epochs=(epoch(HOUR, rows=1_000_000), epoch(SECOND, rows=500)))
    assert rates(job, NOW).rows_in == 250
    assert rates(job, NOW + 8 * SECOND).rows_in == 50


def test_rows_of_an_epoch_that_runs_for_minutes_do_not_lower_the_rates() -> None:
    job = report(epochs=(epoch(300 * SECOND, rows=5_000),), running_since_ms=NOW - 299 * SECOND)
    assert rates(job, NOW).rows_in == 2_500
    assert answers(job, NOW)[1].answer == "Yes"


def test_a_lag_that_grows_with_every_epoch_means_falling_behind() -> None:
    growing = tuple(BacklogSample(pending_rows=None, lag_ms=lag) for lag in range(1000, 7000, 1000))
    steady = (*growing[:-1], BacklogSample(pending_rows=None, lag_ms=900))
    assert answers(report(backlog=growing), NOW)[1].answer == "Falling behind"
    assert answers(report(backlog=steady), NOW)[1].answer == "Yes"
    assert answers(report(backlog=growing[1:]), NOW)[1].answer == "Yes"


def test_rows_that_wait_in_a_source_mean_that_a_job_is_not_idle() -> None:
    waiting = (SourceLine(source="lines", pending_rows=3),)
    assert answers(report(**{**IDLE, "sources": waiting}), NOW)[1].answer == "Yes"


def test_the_slowest_task_is_the_busiest_and_its_rows_are_compared_with_its_level() -> None:
    def task(name: str, level: int, busy: float, rows: int) -> Any:
        return replace(TASK_LINE, task=name, level=level, busy=busy, rows_in=rows)

    tasks = (task("L1-S0", 1, 0.4, 10), task("L1-S1", 1, 0.8, 90), task("L2-S0", 2, 0.4, 10))
    found = answers(report(tasks=tasks), NOW)[3]
    assert (found.answer, found.detail) == ("L1-S1", "80 % busy · 1.8× the mean rows")


def test_a_restored_job_says_what_it_started_from() -> None:
    job = report(checkpoints=statistics(restored=RESTORED), unprotected_since_ms=None)
    assert answers(job, NOW)[2].detail == "started from checkpoint #7"


def test_a_checkpoint_before_the_rows_of_a_long_epoch_does_not_contain_every_row() -> None:
    every_row = "contains every row"
    assert every_row in answers(report(unprotected_since_ms=None), NOW)[2].detail
    assert every_row in answers(report(unprotected_since_ms=None, running_since_ms=NOW - SECOND), NOW)[2].detail
    assert (
        every_row not in answers(report(unprotected_since_ms=None, running_since_ms=NOW - 15 * SECOND), NOW)[2].detail
    )


def test_a_savepoint_that_ended_the_job_is_named() -> None:
    job = report(status="FINISHED", end=RunEnd.SAVEPOINT, end_place="/s/savepoint-1", ended_ms=NOW)
    assert answers(job, NOW)[0].detail == "/s/savepoint-1"


@pytest.mark.parametrize(
    ("status", "end", "text"),
    [
        ("RUNNING", None, None),
        ("RESTARTING", None, None),
        ("FINISHED", RunEnd.SAVEPOINT, "Stopped with savepoint"),
        ("CANCELED", RunEnd.STOPPED, "Stopped"),
        ("CANCELED", RunEnd.CANCELED, "Canceled"),
        ("FINISHED", RunEnd.INPUT, "Finished"),
        ("CANCELED", None, "Stopped"),
        ("FAILED", None, "Failed"),
        ("LOST", None, "Driver gone"),
    ],
)
def test_a_run_that_was_only_stopped_is_not_called_canceled(status: str, end: RunEnd | None, text: str | None) -> None:
    assert end_text(report(status=status, end=end)) == text
