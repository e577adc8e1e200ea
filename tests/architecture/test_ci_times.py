"""CI ends within its budget, in the newest runs that somebody recorded."""

from __future__ import annotations

from tests.tiers.budgets import MOST_S, PARTS_S, PHASES_S, WHOLE_S
from tests.tiers.parts import CI
from tests.tiers.run import SIDE_BY_SIDE
from tests.tiers.times import exceeded, recorded


def test_the_budgets_of_all_phases_fit_into_what_a_change_may_wait():
    assert sum(PHASES_S.values()) <= MOST_S


def test_the_budgets_of_all_parts_fit_into_that_of_the_tests():
    assert sum(PARTS_S.values()) <= SIDE_BY_SIDE * PHASES_S["tests"]


def test_every_part_has_a_budget():
    names = {part.name for part in CI}
    assert PARTS_S.keys() == names
    assert WHOLE_S.keys() == names


def test_recorded_runs_keep_within_their_budgets():
    assert exceeded(recorded()) == []
