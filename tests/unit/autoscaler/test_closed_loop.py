"""The autoscaler and a job that it scales, as a closed loop: it settles, keeps up and catches up."""

from __future__ import annotations

import re
from dataclasses import replace
from math import cos, pi
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.autoscaler.queue_model import Drive, QueueJob
from tidegate.autoscaler.decision import DecisionKind
from tidegate.config.autoscaler import AutoscalerConfig

MINUTE = 60_000
QUICK = AutoscalerConfig(
    window_ms=3 * MINUTE,
    stabilization_ms=MINUTE,
    catch_up_ms=10 * MINUTE,
    restart_ms=MINUTE,
    scale_down_interval_ms=10 * MINUTE,
)
"""All durations are a few times shorter than the defaults, and stand in about the same proportion."""


@st.composite
def jobs(draw: st.DrawFn) -> tuple[float, dict[str, Any]]:
    """A rate that needs at most 40 slots, and everything else about the job.

    It begins with at least a fourth of them: without a limit, an epoch of a job that is slower than that takes hours, and
    nothing can be decided before it ends. A limit leaves room for four times the rows that arrive in the shortest epoch:
    otherwise it would hold the job back before the parallelism does, and that is only known once it was reached.
    """
    levels = tuple(draw(st.lists(st.sampled_from([0.0002, 0.001, 0.005]), min_size=1, max_size=3)))
    need = draw(st.floats(0.1, 40))
    rate = need / sum(levels)
    overhead_s, every_s = draw(st.floats(2, 6)), draw(st.sampled_from([0.0, 5.0, 20.0]))
    room = draw(st.one_of(st.none(), st.floats(4, 20)))
    return rate, {
        "levels_s": levels,
        "overhead_s": overhead_s,
        "every_s": every_s,
        "most_rows": None if room is None else int(1 + rate * max(overhead_s, every_s) * room),
        "parallelism": draw(st.integers(max(1, round(need / 4)), 60)),
        "restart_s": draw(st.floats(5, 60)),
        "spread": draw(st.floats(0, 0.15)),
        "tells_backlog": room is not None or draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }


@settings(max_examples=25, deadline=None)
@given(jobs())
def test_a_constant_load_is_met_by_one_step_up_or_by_steps_down(found: tuple[float, dict[str, Any]]) -> None:
    rate, chosen = found
    drive = Drive(QueueJob(arrivals=lambda second: rate, **chosen), QUICK).run(hours=2)
    # Down after up: it had needed more for the backlog. Several down: each removes 60 % at most.
    assert re.fullmatch("u?d*", drive.directions)
    assert drive.job.backlog <= rate * 60


@settings(max_examples=15, deadline=None)
@given(jobs(), st.sampled_from([1, -1]))
def test_a_load_that_changes_slowly_in_one_direction_is_followed_in_that_direction(
    found: tuple[float, dict[str, Any]], direction: int
) -> None:
    rate, chosen = found

    def arrivals(second: float) -> float:
        passed = min(1.0, second / 7200)
        return rate * (0.3 + 0.7 * (passed if direction > 0 else 1 - passed))

    # It begins with what the first load needs.
    first = arrivals(0) * sum(chosen["levels_s"])
    chosen["parallelism"] = max(1, round(first / QUICK.target + 0.5))
    drive = Drive(QueueJob(arrivals=arrivals, **{**chosen, "most_rows": None}), QUICK).run(hours=2.5)
    assert set(drive.directions) <= ({"u"} if direction > 0 else {"d"})
    assert drive.job.backlog <= rate * 60


def test_a_daily_load_is_followed_without_extra_changes_of_direction() -> None:
    def arrivals(second: float) -> float:
        return 5_000 * (1 - 0.7 * cos(2 * pi * second / 86_400))

    drive = Drive(QueueJob(arrivals=arrivals, parallelism=4, every_s=10.0), AutoscalerConfig()).run(hours=48)
    assert re.fullmatch("u+d+u+d+", drive.directions)
    assert max(each.recommended for each in drive.scalings) <= 18
    assert min(each.recommended for each in drive.scalings) >= 2


@settings(max_examples=15, deadline=None)
@given(jobs(), st.floats(60, 3600))
def test_backlog_is_processed_within_the_catch_up_duration(
    found: tuple[float, dict[str, Any]], behind_s: float
) -> None:
    rate, chosen = found
    if chosen["most_rows"] is not None:
        chosen["most_rows"] *= 4  # Otherwise no parallelism would be enough for an hour of backlog.
    job = QueueJob(arrivals=lambda second: rate, backlog=rate * behind_s, **chosen)
    # More than any backlog needs: what a limit holds back is not caught up with in time.
    drive = Drive(job, replace(QUICK, max_parallelism=100_000), key_groups=100_000).run(hours=0.2)
    while not drive.scalings and drive.job.now_s < 7200:
        drive.run(hours=0.02)
    ups = [each for each in drive.scalings if each.recommended > each.parallelism]
    if not ups:
        return  # It was large enough.
    free = 1 - rate * sum(job.levels_s) / job.parallelism
    assert free > 0.1
    # What arrives in two epochs of a job that keeps up.
    little = rate * 2 * max(job.every_s, job.overhead_s / free) + 30 * rate
    # The speed may have been measured in a fast epoch, and those that follow may be slow.
    luck = (1 + job.spread) / (1 - job.spread)
    latest_s = job.since_s + luck * QUICK.catch_up_ms / 1000
    while job.backlog > little:
        assert job.now_s <= latest_s
        drive.run(hours=0.001)


@pytest.mark.parametrize(
    ("limits", "parallelism"),
    [({"max_parallelism": 6}, 6), ({"max_parallelism": 2}, 4), ({"scale_up_factor": 0.5}, 6), ({}, 15)],
)
def test_limits_are_respected(limits: dict[str, Any], parallelism: int) -> None:
    """A job that already exceeds a limit stays where it is."""
    job = QueueJob(arrivals=lambda second: 8_000, parallelism=4, most_rows=100_000)
    drive = Drive(job, replace(QUICK, **limits)).run(hours=0.1)
    reached = [each.recommended for each in drive.scalings]
    if parallelism == 4:
        assert reached == []
    elif limits:
        assert reached == [parallelism]
    else:
        assert reached[0] >= parallelism


def test_a_step_down_removes_no_more_than_its_share_and_stops_at_the_minimum() -> None:
    job = QueueJob(arrivals=lambda second: 100, parallelism=60, every_s=5.0)
    drive = Drive(job, replace(QUICK, min_parallelism=8)).run(hours=2)
    assert [each.recommended for each in drive.scalings] == [24, 10, 8]


def test_nothing_is_decided_before_the_window_is_full() -> None:
    job = QueueJob(arrivals=lambda second: 50_000, parallelism=1, most_rows=10_000)
    drive = Drive(job, AutoscalerConfig()).run(hours=19.5 / 60)
    assert drive.scalings == []
    assert {each.kind for each in drive.decisions} == {DecisionKind.STABILIZING, DecisionKind.COLLECTING}
    assert drive.run(hours=0.05).directions == "u"


def test_no_rows_means_no_decision() -> None:
    drive = Drive(QueueJob(arrivals=lambda second: 0, parallelism=4), QUICK).run(hours=2)
    assert drive.decisions == []


def test_scaling_up_that_does_not_help_is_not_repeated() -> None:
    """There are four cores, so more tasks wait for each other."""
    job = {"arrivals": lambda second: 8_000, "parallelism": 4, "slots": 4, "most_rows": 20_000}
    blocked = Drive(QueueJob(**job), replace(QUICK, blocks_ineffective=True)).run(hours=1)  # type: ignore[arg-type]
    assert blocked.directions == "u"
    assert blocked.decisions[-1].kind in (DecisionKind.INEFFECTIVE, DecisionKind.NOT_SCALABLE)


def test_levels_share_the_time_so_each_adds_to_the_need() -> None:
    """Two levels that are busy for 45 % of the time each leave no room, though neither would be too small on its own."""
    both = Drive(QueueJob(arrivals=lambda second: 900, parallelism=1, levels_s=(0.0005, 0.0005)), QUICK).run(hours=0.1)
    one = Drive(QueueJob(arrivals=lambda second: 900, parallelism=1, levels_s=(0.001,)), QUICK).run(hours=0.1)
    first, second = both.decisions[-1].evaluation, one.decisions[-1].evaluation
    assert first is not None
    assert second is not None
    assert first.load == pytest.approx(second.load, rel=0.01) == pytest.approx(0.9, rel=0.02)
    assert [each.load for each in first.levels] == [pytest.approx(0.45, rel=0.02)] * 2
    assert both.decisions[-1].aligned == one.decisions[-1].aligned == 2


def test_without_acting_the_same_recommendation_stays() -> None:
    job = QueueJob(arrivals=lambda second: 3_000, parallelism=2, most_rows=50_000)
    drive = Drive(job, QUICK, acts=False).run(hours=0.2)
    last = drive.decisions[-1]
    assert (last.kind, job.parallelism) == (DecisionKind.SCALE_UP, 2)
    assert last.recommended > 4
