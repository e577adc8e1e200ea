"""Numbers of states last as long as the lineage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import GraphError, StateError
from tidegate.core.ids import Uid
from tidegate.graph.state_ids import MAX_STATE_ID, assign

A, B, C = (Uid("a"), "x"), (Uid("a"), "y"), (Uid("b"), "x")
_names = st.lists(st.tuples(st.text(max_size=2).map(Uid), st.text(max_size=2)), max_size=8)


@pytest.mark.feature("A15", "I37")
def test_a_redeclared_state_keeps_its_number() -> None:
    first = assign({}, [A, B])
    without_b = assign(first, [A, C])
    assert assign(without_b, [C, B, A]) == {A: 1, B: 2, C: 3}


@pytest.mark.feature("A15")
@given(st.lists(_names, max_size=6))
def test_numbers_are_kept_and_never_given_twice(upgrades: list[list[tuple[Uid, str]]]) -> None:
    known: dict[tuple[Uid, str], int] = {}
    for declared in upgrades:
        now = dict(assign(known, declared))
        assert {state: now[state] for state in known} == known
        assert set(now) == set(known) | set(declared)
        assert sorted(now.values()) == list(range(1, len(now) + 1))
        known = now


def test_a_number_of_a_forgotten_state_is_still_taken() -> None:
    assert assign({A: 1, B: 7}, [C])[C] == 8


def test_the_numbers_run_out() -> None:
    assert assign({A: MAX_STATE_ID - 1}, [B])[B] == MAX_STATE_ID
    with pytest.raises(GraphError, match="65535 states"):
        assign({A: MAX_STATE_ID}, [B])


@pytest.mark.parametrize("known", [{A: 1, B: 1}, {A: 0}, {A: MAX_STATE_ID + 1}])
def test_damaged_numbers_are_not_used(known: dict[tuple[Uid, str], int]) -> None:
    with pytest.raises(StateError, match="contradict"):
        assign(known, [])
