"""Positions of a Kafka source: what lies between two of them, and how far an epoch goes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.kafka.positions import Range, advance, from_json, gaps, ranges, to_json

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
PLACES = st.tuples(st.sampled_from("ab"), st.integers(0, 12))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 1000))


@pytest.mark.feature("J11")
@given(OFFSETS)
def test_positions_are_restored_from_their_text_alone(offsets):
    text = json.dumps(to_json(offsets))
    assert from_json(json.loads(text)) == offsets
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == text


@pytest.mark.feature("J11")
def test_a_range_for_each_partition_with_rows():
    start, end = {A0: 5, A1: 7, B0: 0}, {A0: 9, A1: 7, B0: 3}
    assert ranges(start, end, {}) == [Range("a", 0, 5, 9), Range("b", 0, 0, 3)]


def test_a_new_partition_enters_without_rows_and_is_read_afterwards():
    start, latest = {A0: 5}, {A0: 6, A1: 4}
    end = advance(start, {}, latest, begin={A1: 0}, most_rows=None)
    assert end == {A0: 6, A1: 0}
    assert ranges(start, end, {}) == [Range("a", 0, 5, 6)]
    after = advance(end, {}, latest, begin={}, most_rows=None)
    assert ranges(end, after, {}) == [Range("a", 1, 0, 4)]


@pytest.mark.feature("K17", "N29", "O12")
@pytest.mark.parametrize(
    ("at", "words"),
    [
        ({A0: 3}, "deleted everything before 5"),
        ({A0: 30}, "ends at 20"),
        ({B0: 1}, "no longer exists"),
    ],
)
def test_missing_positions_are_reported(at, words):
    [told] = gaps(at, earliest={A0: 5}, latest={A0: 20})
    assert words in told


@pytest.mark.feature("K17")
@pytest.mark.parametrize("at", [5, 12, 20])
def test_positions_that_are_there_are_fine(at):
    assert gaps({A0: at}, {A0: 5}, {A0: 20}) == []


@pytest.mark.feature("J11", "N2")
@given(st.dictionaries(PLACES, st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1), st.integers(1, 300))
def test_epochs_are_bounded_and_every_row_is_read_eventually(places, most):
    at = {place: start for place, (start, _) in places.items()}
    latest = {place: start + more for place, (start, more) in places.items()}
    for _ in range(1 + sum(more for _, more in places.values())):
        end = advance(at, {}, latest, {}, most)
        rows = sum(end[place] - at[place] for place in at)
        assert rows <= most
        assert all(at[place] <= end[place] <= latest[place] for place in at)
        assert rows > 0 or at == latest
        at = end
    assert at == latest


@pytest.mark.feature("K17")
def test_where_loss_is_allowed_reading_continues_with_the_remaining_rows():
    start, earliest, latest = {A0: 3, A1: 50}, {A0: 5, A1: 0}, {A0: 9, A1: 4}
    end = advance(start, earliest, latest, {}, None)
    assert end == {A0: 9, A1: 4}
    assert ranges(start, end, earliest) == [Range("a", 0, 5, 9), Range("a", 1, 0, 4)]
