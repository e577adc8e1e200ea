"""The size of an epoch follows its target duration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.kafka.epoch_size import FIRST_ROWS, LEAST_ROWS, EpochSize


def lasting(size: EpochSize, rows_per_s: float, fixed_s: float) -> float:
    return fixed_s + size.limit / rows_per_s


@pytest.mark.feature("K8")
@given(st.floats(1_000, 1_000_000), st.floats(0.05, 0.5), st.floats(2, 30))
def test_epochs_approach_the_target_duration(rows_per_s, fixed_s, target_s):
    size = EpochSize(target_s)
    for _ in range(40):
        size = size.after(size.limit, lasting(size, rows_per_s, fixed_s))
    reachable = max(target_s, fixed_s + LEAST_ROWS / rows_per_s)
    assert lasting(size, rows_per_s, fixed_s) == pytest.approx(reachable, rel=0.2)


@pytest.mark.feature("K8")
def test_an_epoch_that_was_not_full_says_nothing_unless_it_was_slow():
    size = EpochSize(5.0)
    assert size.after(100, 0.2) is size
    assert size.after(100, 20.0).limit < FIRST_ROWS
    assert size.after(0, 1.0) is size


@pytest.mark.feature("K8")
def test_one_slow_epoch_halves_at_most_and_a_bound_holds():
    assert EpochSize(5.0, 80_000).after(80_000, 500.0).limit == 40_000
    assert EpochSize(5.0, 80_000, most_rows=50_000).limit == 50_000
    assert EpochSize(5.0, 80_000).after(80_000, 0.1).limit == 160_000
