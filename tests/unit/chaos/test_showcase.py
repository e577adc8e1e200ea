"""Which processes of the showcase die, and where."""

from __future__ import annotations

from collections import Counter

from chaos.showcase import STEPS, Kind, plan_kills


def test_every_kind_dies_equally_often_some_at_a_step_and_some_at_random():
    planned = plan_kills(30, seed=4)
    assert Counter(kind for kind, _ in planned) == dict.fromkeys(Kind, 6)
    for kind in Kind:
        steps = [step for each, step in planned if each is kind]
        assert steps.count(None) == (3 if kind in STEPS else 6)
        assert all(step is None or step in STEPS[kind] for step in steps)
    assert planned == plan_kills(30, seed=4)
    assert planned != plan_kills(30, seed=5)


def test_kills_can_be_of_one_kind_only():
    assert {kind for kind, _ in plan_kills(4, seed=1, only="broker")} == {Kind.BROKER}
