"""Slots go where their state is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.ids import HostId
from tidegate.runtime.placement.permutation import Placed, Unplaceable, place, quotas

A, B, C = HostId("a"), HostId("b"), HostId("c")


def test_a_new_job_takes_partitions_as_they_come():
    assert place([A, A, B, B], [None] * 4) == Placed((0, 1, 2, 3))


@pytest.mark.feature("A12")
def test_an_undisturbed_job_keeps_its_places():
    assert place([A, B, A, B], [A, B, A, B]) == Placed((0, 1, 2, 3))


@pytest.mark.feature("A12")
def test_slots_move_with_their_state_when_the_anchor_fell_otherwise():
    assert place([B, B, A, A], [A, A, B, B]) == Placed((2, 3, 0, 1))


def test_a_slot_without_state_fills_what_is_left():
    assert place([A, B], [None, A]) == Placed((1, 0))


def test_slots_of_a_lost_host_are_unplaceable():
    assert place([A, A, A, A], [A, B, A, B]) == Unplaceable((1, 3), (B,))


def test_slots_beyond_the_partitions_of_their_host_are_unplaceable():
    assert place([A, B, B], [A, A, B]) == Unplaceable((1,), (A,))


@pytest.mark.feature("A12")
@given(st.data())
def test_a_placement_is_a_permutation_that_puts_every_slot_on_its_host(data):
    layout = data.draw(st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=40))
    shuffled = data.draw(st.permutations(layout))
    homes = [home if data.draw(st.booleans()) else None for home in shuffled]
    placed = place(layout, homes)
    assert isinstance(placed, Placed)
    assert sorted(placed.partitions) == list(range(len(layout)))
    assert all(home is None or layout[placed.partitions[slot]] == home for slot, home in enumerate(homes))
    assert all(placed.slots()[placed.partitions[slot]] == slot for slot in range(len(homes)))


@given(st.lists(st.sampled_from([A, B]), min_size=1, max_size=20), st.data())
def test_a_slot_is_unplaceable_only_if_its_host_is_short_of_partitions(layout, data):
    homes = data.draw(st.lists(st.sampled_from([A, B, C]), min_size=len(layout), max_size=len(layout)))
    short = {home for home in homes if homes.count(home) > layout.count(home)}
    result = place(layout, homes)
    assert isinstance(result, Unplaceable) == bool(short)
    if isinstance(result, Unplaceable):
        assert set(result.hosts) == short


def test_a_host_needs_as_many_partitions_as_the_level_with_most_state_there():
    assert quotas([[A, A, B, None], [A, B, B, A]]) == {A: 2, B: 2}


def test_slots_without_state_may_go_wherever_there_is_state():
    assert quotas([[None, None, B, None]]) == {B: 4}


@given(st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=20), st.data())
def test_a_layout_by_quota_has_a_place_for_every_task(homes, data):
    known = [home if data.draw(st.booleans()) or home == homes[0] else None for home in homes]
    layout = [host for host, number in quotas([known]).items() for _ in range(number)]
    assert len(layout) == len(homes)
    assert isinstance(place(data.draw(st.permutations(layout)), known), Placed)
