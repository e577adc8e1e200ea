"""Markers order as output does, and say no more than they know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.kafka.marker import MAX_PARTS, PartState, decide, decode, encode
from tidegate.core.errors import GraphError
from tidegate.core.ids import EpochId, Term

PLACES = st.tuples(
    st.builds(EpochId, st.integers(0, (1 << 20) - 1).map(Term), st.integers(0, (1 << 32) - 1)),
    st.integers(0, MAX_PARTS - 1),
)


@pytest.mark.feature("J28")
@given(PLACES, PLACES)
def test_later_output_has_a_greater_marker(one, other):
    assert (encode(*one) < encode(*other)) == (one < other)


@given(PLACES)
def test_a_marker_is_a_kafka_offset_that_contains_its_place(place):
    assert 0 <= encode(*place) < 1 << 63
    assert decode(encode(*place)) == place


@pytest.mark.parametrize("place", [(1 << 20, 0, 0), (1, 1 << 32, 0), (1, 1, MAX_PARTS)])
def test_a_place_without_room_is_refused_instead_of_wrapped(place):
    term, number, part = place
    with pytest.raises(GraphError, match="cannot be encoded as a marker"):
        encode(EpochId(Term(term), number), part)


@pytest.mark.feature("N28")
@pytest.mark.parametrize(
    ("marker", "age_ms", "found"),
    [
        (10, 0, PartState.COMMITTED),
        (11, 10**9, PartState.COMMITTED),
        (9, 10**9, PartState.WAITING),
        (None, 999, PartState.WAITING),
        (None, 1000, PartState.UNKNOWN),
    ],
)
def test_no_marker_is_no_answer_once_the_broker_may_have_forgotten_it(marker, age_ms, found):
    assert decide(marker, expected=10, age_ms=age_ms, retention_ms=1000) is found
