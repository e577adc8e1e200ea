"""What is decided from given samples."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.autoscaler.queue_model import level
from tidegate.autoscaler.decider import ScalingDecider
from tidegate.autoscaler.decision import DecisionKind, ScalingDecision
from tidegate.autoscaler.epoch_sample import EpochSample, LevelSample, SampleCollector
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.config.choices import BusyTimeAggregator, ParallelismAlignment

MINUTE = 60_000
AT_ONCE = AutoscalerConfig(window_ms=2 * MINUTE, stabilization_ms=0, scale_down_interval_ms=0, restart_ms=0)


def minute(number: int, **given: Any) -> EpochSample:
    """One epoch that took a minute with 6,000 rows, for half of which its only level was busy."""
    chosen: dict[str, Any] = {
        "from_ms": number * MINUTE,
        "to_ms": (number + 1) * MINUTE,
        "last_began_ms": number * MINUTE,
        "running_since_ms": 0,
        "parallelism": 4,
        "rows_in": 6_000,
        "largest_epoch": 6_000,
        "levels": (level(1, 6_000, 30),),
        "pending_rows": 0,
        "working_ms": MINUTE // 2,
    }
    return EpochSample(**{**chosen, **given})


def decided(config: AutoscalerConfig = AT_ONCE, groups: int = 128, minutes: int = 2, **given: Any) -> ScalingDecision:
    decider = ScalingDecider(config, groups)
    return [decider.observe(minute(each, **given)) for each in range(minutes)][-1]


def busy(seconds: float, **given: Any) -> ScalingDecision:
    return decided(levels=(level(1, 6_000, seconds),), **given)


def test_rates_follow_from_rows_and_busy_time() -> None:
    found = decided().evaluation
    assert found is not None
    assert (found.read_rate, found.target_data_rate, found.load, found.true_processing_rate) == (100, 100, 0.5, 200)
    assert found.rate_at(8) == 400
    assert found.parallelism_for(100 / 0.7) == pytest.approx(4 * 0.5 / 0.7)


@pytest.mark.parametrize(
    ("seconds", "kind", "recommended"),
    [
        (66, DecisionKind.SCALE_UP, 8),  # 4 × 1.1 / 0.7 = 6.3, and 8 of 128 key groups is the next that divides them
        (59, DecisionKind.BALANCED, 4),
        (42, DecisionKind.BALANCED, 4),
        (25, DecisionKind.BALANCED, 4),
        (23, DecisionKind.SCALE_DOWN, 3),
        (3, DecisionKind.SCALE_DOWN, 2),
    ],
)
def test_the_boundaries_of_utilization_decide_whether_and_the_target_how_far(
    seconds: float, kind: DecisionKind, recommended: int
) -> None:
    decision = busy(seconds, config=replace(AT_ONCE, alignment=ParallelismAlignment.OFF))
    if kind is DecisionKind.SCALE_UP:
        decision = busy(seconds, config=replace(AT_ONCE, alignment=ParallelismAlignment.EVENLY_SPREAD))
    assert (decision.kind, decision.recommended) == (kind, recommended)


@pytest.mark.parametrize(
    ("mode", "groups", "aligned"),
    [
        (ParallelismAlignment.OFF, 120, 7),
        (ParallelismAlignment.EVENLY_SPREAD, 120, 8),
        (ParallelismAlignment.EVENLY_SPREAD, 7, 7),
        (ParallelismAlignment.EVENLY_SPREAD, 127, 127),
        (ParallelismAlignment.BALANCED, 127, 8),
        (ParallelismAlignment.BALANCED, 5, 5),
    ],
)
def test_a_parallelism_is_fitted_to_the_key_groups(mode: ParallelismAlignment, groups: int, aligned: int) -> None:
    assert busy(66, config=replace(AT_ONCE, alignment=mode), groups=groups).recommended == aligned


@given(
    st.integers(1, 300), st.integers(1, 400), st.floats(0.001, 3000), st.sampled_from(list(ParallelismAlignment)),
    st.integers(1, 50), st.integers(50, 400),
)  # fmt: skip
def test_a_recommendation_is_always_within_its_limits(
    parallelism: int, groups: int, seconds: float, mode: ParallelismAlignment, least: int, most: int
) -> None:
    parallelism = min(parallelism, groups)
    config = replace(AT_ONCE, alignment=mode, min_parallelism=least, max_parallelism=most)
    found = busy(seconds, config=config, groups=groups, parallelism=parallelism)
    assert min(parallelism, least) <= found.recommended <= min(groups, max(parallelism, most))
    assert found.recommended >= (1 - config.scale_down_factor) * parallelism - 1e-6


def test_scaling_down_waits_and_then_uses_the_highest_need_of_the_interval() -> None:
    config = replace(AT_ONCE, scale_down_interval_ms=5 * MINUTE, alignment=ParallelismAlignment.OFF, window_ms=MINUTE)
    decider = ScalingDecider(config, 128)
    loads = [3, 3, 10, 3, 3, 3, 3, 3]
    decisions = [
        decider.observe(minute(n, parallelism=20, levels=(level(1, 6_000, each),))) for n, each in enumerate(loads)
    ]
    assert [each.kind for each in decisions[1:6]] == [DecisionKind.DELAYED] * 5
    assert (decisions[6].kind, decisions[6].recommended) == (DecisionKind.SCALE_DOWN, 8)


def test_a_need_for_more_starts_the_wait_again() -> None:
    config = replace(AT_ONCE, scale_down_interval_ms=3 * MINUTE, window_ms=MINUTE)
    decider = ScalingDecider(config, 128)
    loads = [3, 3, 3, 66, 3, 3, 3, 3]
    kinds = [decider.observe(minute(n, levels=(level(1, 6_000, each),))).kind for n, each in enumerate(loads)]
    assert DecisionKind.SCALE_DOWN not in kinds[:7]


def test_backlog_raises_the_target_and_forbids_scaling_down() -> None:
    behind = decided(pending_rows=180_000)
    found = behind.evaluation
    assert found is not None
    assert found.is_processing_backlog
    assert found.catch_up_data_rate == 100
    assert behind.kind is not DecisionKind.SCALE_DOWN
    assert busy(1, pending_rows=180_000).kind is not DecisionKind.SCALE_DOWN


def test_backlog_that_grows_counts_as_arriving_rows() -> None:
    decider = ScalingDecider(AT_ONCE, 128)
    for each in range(3):
        decision = decider.observe(minute(each, pending_rows=each * 3_000))
    assert decision.evaluation is not None
    assert decision.evaluation.target_data_rate == 150


def test_epochs_that_grow_reveal_rows_that_arrive_faster_than_they_are_read() -> None:
    """Each epoch reads all that arrived during the one before, and takes twice as long: 100 rows/s arrive, 50 are read."""
    decider, start = ScalingDecider(AT_ONCE, 128), 0
    for length in (1, 2, 4, 8):
        rows = length * 50 * 60
        end = start + length * MINUTE
        decision = decider.observe(
            minute(0, from_ms=start, to_ms=end, last_began_ms=start, rows_in=rows, working_ms=length * MINUTE)
        )
        start = end
    assert decision.evaluation is not None
    assert decision.evaluation.target_data_rate == pytest.approx(100)
    assert decision.evaluation.lag == pytest.approx(8 * 60 * 100)


def test_what_a_job_reads_while_it_catches_up_is_all_it_can_do() -> None:
    """Busy time alone would say 600 rows/s; the epochs, without a pause, read 100. What is besides busy time is no overhead of
    epochs here: that would be the same for a smaller one."""
    found = busy(10, pending_rows=60_000, working_ms=MINUTE).evaluation
    assert found is not None
    assert found.true_processing_rate == pytest.approx(100)


def test_what_an_epoch_takes_besides_its_rows_counts_only_if_its_rows_are_limited() -> None:
    limited, free = decided(pending_rows=1, working_ms=MINUTE).evaluation, decided(working_ms=MINUTE).evaluation
    assert limited is not None
    assert free is not None
    assert (limited.fixed_s, limited.true_processing_rate) == (pytest.approx(0.005), pytest.approx(100))
    assert (free.fixed_s, free.true_processing_rate) == (0, 200)


def test_the_time_of_the_source_stage_does_not_depend_on_the_parallelism() -> None:
    found = decided(levels=(level(0, 6_000, 12), level(1, 6_000, 18))).evaluation
    assert found is not None
    assert found.true_processing_rate == pytest.approx(200)
    assert found.rate_at(8) == pytest.approx(6_000 / (12 + 9))
    assert found.rate_at(4_000_000) == pytest.approx(500, rel=0.001)


def test_a_job_that_its_source_stage_holds_back_is_not_scaled_in_vain() -> None:
    decision = decided(levels=(level(0, 6_000, 60), level(1, 6_000, 8)))
    assert (decision.kind, decision.recommended) == (DecisionKind.NOT_SCALABLE, 4)


def test_a_restart_begins_a_new_window() -> None:
    decider = ScalingDecider(replace(AT_ONCE, stabilization_ms=MINUTE), 128)
    kinds = [decider.observe(minute(each)).kind for each in range(3)]
    kinds += [decider.observe(minute(each, running_since_ms=3 * MINUTE)).kind for each in range(3, 6)]
    assert [str(kind) for kind in kinds] == ["STABILIZING", "COLLECTING", "BALANCED"] * 2


def test_tasks_that_measure_nothing_lead_to_no_decision() -> None:
    assert decided(levels=()).kind is DecisionKind.UNMEASURED


def test_an_idle_job_is_scaled_down() -> None:
    assert decided(rows_in=0, levels=(level(1, 0, 0.01),)).recommended == 2


def test_the_longest_restart_is_remembered_within_its_limit() -> None:
    config = replace(AT_ONCE, tracks_restarts=True, restart_limit_ms=90_000, restart_ms=7)
    decider = ScalingDecider(config, 128)
    assert decider.restart_ms == 7
    for each in range(2):
        decision = decider.observe(minute(each, levels=(level(1, 6_000, 66),)))
    decider.scaled(decision, 2 * MINUTE)
    decider.observe(minute(3, running_since_ms=2 * MINUTE + 30_000, parallelism=decision.recommended))
    assert decider.restart_ms == 30_000
    decider.scaled(decision, 4 * MINUTE)
    decider.observe(minute(8, running_since_ms=8 * MINUTE, parallelism=decision.recommended))
    assert decider.restart_ms == 90_000


@pytest.mark.parametrize("blocks", [True, False])
def test_an_ineffective_scale_up_blocks_the_next_one_if_configured(blocks: bool) -> None:
    decider = ScalingDecider(replace(AT_ONCE, blocks_ineffective=blocks), 128)
    for each in range(2):
        first = decider.observe(minute(each, levels=(level(1, 6_000, 66),)))
    decider.scaled(first, 2 * MINUTE)
    after = {"running_since_ms": 2 * MINUTE, "parallelism": first.recommended, "levels": (level(1, 6_000, 65),)}
    for each in range(2, 4):
        second = decider.observe(minute(each, **after))
    assert second.kind is (DecisionKind.INEFFECTIVE if blocks else DecisionKind.SCALE_UP)
    assert second.gain is not None
    assert second.gain[1] < 0.1 * second.gain[0]


@pytest.mark.parametrize(
    ("aggregator", "load"),
    [(BusyTimeAggregator.MAX, 0.5), (BusyTimeAggregator.AVG, 0.3), (BusyTimeAggregator.MIN, 0.1)],
)
def test_the_aggregator_chooses_the_task(aggregator: BusyTimeAggregator, load: float) -> None:
    skewed = LevelSample(level=1, rows_in=6_000, busy_max_ms=30_000, busy_min_ms=6_000, busy_avg_ms=18_000)
    found = decided(replace(AT_ONCE, aggregator=aggregator), levels=(skewed,)).evaluation
    assert found is not None
    assert found.load == load


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_epochs_are_combined_without_losing_any(lengths: list[int]) -> None:
    collector, start, found = SampleCollector(600_000), 0, []
    for length in lengths:
        end = start + length * 1000
        found.append(
            collector.add(
                minute(0, from_ms=start, to_ms=end, last_began_ms=start, rows_in=length, largest_epoch=length)
            )
        )
        start = end
    whole = [each for each in found if each is not None]
    assert all(each.duration_ms >= 10_000 for each in whole)
    assert all(a.to_ms == b.from_ms for a, b in pairwise(whole))
    covered = whole[-1].to_ms // 1000 if whole else 0
    assert sum(each.rows_in for each in whole) == covered
    assert sum(lengths) - covered < 10


def test_an_epoch_that_reads_nothing_does_not_move_the_time_up_to_which_rows_were_read() -> None:
    joined = minute(0).plus(minute(1, rows_in=0, pending_rows=None))
    assert (joined.to_ms, joined.last_began_ms, joined.pending_rows) == (2 * MINUTE, 0, 0)


def test_epochs_of_two_attempts_are_not_combined() -> None:
    collector = SampleCollector(60 * 90_000)
    assert collector.add(minute(0)) is None
    other = collector.add(minute(1, running_since_ms=MINUTE))
    assert other is None
    joined = collector.add(minute(2, running_since_ms=MINUTE))
    assert joined is not None
    assert (joined.from_ms, joined.rows_in, joined.epochs) == (MINUTE, 12_000, 2)
