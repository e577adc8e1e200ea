"""Restart strategies on a hand-moved clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.restart_strategy import (
    ExponentialDelay,
    FailureHistory,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    Restart,
    RestartStrategy,
    on_failure,
)


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def replay(strategy: RestartStrategy, *failures_ms: int) -> list[int | str]:
    """The delay after each failure, or "give up"."""
    history, told = FailureHistory(), []
    for now_ms in failures_ms:
        history, decision = on_failure(strategy, history, now_ms, middle)
        told.append(decision.delay_ms if isinstance(decision, Restart) else "give up")
    return told


@pytest.mark.feature("H7")
def test_none_gives_up_at_once() -> None:
    assert replay(NoRestart(), 0) == ["give up"]


@pytest.mark.feature("H9")
def test_fixed_delay_allows_its_attempts_and_no_more() -> None:
    assert replay(FixedDelay(), 10, 20) == [1_000, "give up"]
    assert replay(FixedDelay(attempts=3, delay_ms=50), 0, 10**9, 2 * 10**9, 3 * 10**9) == [50, 50, 50, "give up"]
    assert replay(FixedDelay(attempts=0), 0) == ["give up"]


@pytest.mark.feature("H10")
@pytest.mark.parametrize(
    ("failures_ms", "told"),
    [
        ((0, 60_000), [1_000, "give up"]),  # exactly an interval apart is still within it
        ((0, 60_001), [1_000, 1_000]),
        ((0, 60_001, 120_002), [1_000, 1_000, 1_000]),
        ((0, 60_001, 60_002), [1_000, 1_000, "give up"]),
    ],
)
def test_failure_rate_looks_back_one_interval(failures_ms: tuple[int, ...], told: list[int | str]) -> None:
    assert replay(FailureRate(), *failures_ms) == told


@pytest.mark.feature("H10")
def test_failure_rate_of_three_refuses_the_fourth() -> None:
    strategy = FailureRate(max_failures=3, interval_ms=100, delay_ms=7)
    assert replay(strategy, 0, 40, 80, 100) == [7, 7, 7, "give up"]
    assert replay(strategy, 0, 40, 80, 101, 141) == [7, 7, 7, 7, 7]


def test_exponential_delay_grows_to_its_limit() -> None:
    strategy = ExponentialDelay(jitter=0)
    failures = [k * 100_000 for k in range(1, 14)]
    grown = [1000, 1500, 2250, 3375, 5062, 7593, 11390, 17085, 25628, 38443, 57665, 60000, 60000]
    assert replay(strategy, *failures) == grown


def test_a_failure_before_the_restart_is_merged_into_it() -> None:
    strategy = ExponentialDelay(jitter=0)
    assert replay(strategy, 0, 400, 1_000, 1_001) == [1_000, 600, 0, 1_500]
    _, decision = on_failure(strategy, FailureHistory(attempts=1, restart_at_ms=1_000), 400, middle)
    assert decision == Restart(at_ms=1_000, delay_ms=600, merged=True)


def test_a_period_without_failures_resets_the_delay() -> None:
    strategy = ExponentialDelay(jitter=0, reset_ms=10_000)
    assert replay(strategy, 0, 1_001, 2_501 + 9_999)[-1] == 2_250
    assert replay(strategy, 0, 1_001, 2_501 + 10_000)[-1] == 1_000


def test_exponential_delay_gives_up_after_its_attempts_unless_reset() -> None:
    strategy = ExponentialDelay(jitter=0, attempts=2, reset_ms=10_000)
    assert replay(strategy, 0, 5_000, 9_000) == [1_000, 1_500, "give up"]
    assert replay(strategy, 0, 5_000, 30_000, 34_000) == [1_000, 1_500, 1_000, 1_500]


def test_the_final_error_names_the_option_and_its_limit() -> None:
    _, decision = on_failure(FixedDelay(attempts=2), FailureHistory(attempts=2), 0, middle)
    assert decision == GiveUp("Restarts are used up: restart-strategy.fixed-delay.attempts allows 2.")


@given(
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.floats(1.0001, 1e6),
    st.floats(0, 1),
    st.integers(0, 10**7),
    st.integers(0, 2**32),
)
def test_jitter_never_leaves_the_bounds(
    initial: int, more: int, multiplier: float, jitter: float, attempts: int, seed: int
) -> None:
    strategy = ExponentialDelay(initial, initial + more, multiplier, 3_600_000, jitter)
    history = FailureHistory(attempts=attempts, restart_at_ms=0)
    _, decision = on_failure(strategy, history, 1, random.Random(seed).uniform)
    assert isinstance(decision, Restart)
    assert initial <= decision.delay_ms <= initial + more


@given(st.floats(0.01, 0.5), st.integers(0, 2**32))
def test_jitter_stays_within_its_share_of_the_delay(jitter: float, seed: int) -> None:
    strategy = ExponentialDelay(1_000, 10**9, 2.0, 3_600_000, jitter)
    _, decision = on_failure(strategy, FailureHistory(attempts=5, restart_at_ms=0), 1, random.Random(seed).uniform)
    assert isinstance(decision, Restart)
    assert 32_000 * (1 - jitter) - 1 <= decision.delay_ms <= 32_000 * (1 + jitter)


@given(st.lists(st.integers(0, 10**6), max_size=30), st.integers(0, 5), st.integers(1, 10**5))
def test_failure_rate_agrees_with_counting(gaps: list[int], allowed: int, interval_ms: int) -> None:
    strategy, history, now_ms, seen = FailureRate(allowed, interval_ms), FailureHistory(), 0, []
    for gap in gaps:
        now_ms += gap
        seen.append(now_ms)
        history, decision = on_failure(strategy, history, now_ms, middle)
        recent = sum(1 for at in seen if now_ms - at <= interval_ms)
        assert isinstance(decision, GiveUp) == (recent > allowed)
