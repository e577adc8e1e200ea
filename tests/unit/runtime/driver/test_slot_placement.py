"""Slots on the hosts of their state, over all levels of a job."""

from __future__ import annotations

import pytest

from tidegate.core.ids import HostId, Partition, Slot
from tidegate.runtime.driver.slot_placement import SlotHomes
from tidegate.runtime.placement.permutation import Placed, Unplaceable

A, B, GONE = HostId("a"), HostId("b"), HostId("gone")


def placed(*partitions: int) -> Placed:
    return Placed(tuple(Partition(each) for each in partitions))


@pytest.mark.feature("A12")
def test_every_level_is_placed_on_the_hosts_of_its_versions():
    homes = SlotHomes(((A, B), (B, A)), required=True)
    assert homes.place([A, B]) == (placed(0, 1), placed(1, 0))


def test_a_slot_whose_host_is_gone_has_no_place():
    homes = SlotHomes(((A, B), (GONE, B)), required=True)
    assert homes.place([A, B]) == Unplaceable((Slot(0),), (GONE,))


@pytest.mark.feature("H11")
def test_a_slot_that_only_prefers_a_host_is_placed_on_another():
    homes = SlotHomes(((B, GONE),), required=False)
    assert homes.place([A, B]) == (placed(1, 0),)


@pytest.mark.feature("H11")
def test_preferred_hosts_with_too_few_partitions_keep_as_many_slots_as_they_can():
    homes = SlotHomes(((B, B, B),), required=False)
    assert homes.place([A, B, B]) == (placed(0, 1, 2),)
