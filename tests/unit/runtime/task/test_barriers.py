"""A task believes its input only when every sender's barrier came and the rows add up."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.core.ids import EpochId, Term
from tidegate.runtime.exchange.messages import Barrier, FaultKind, encode
from tidegate.runtime.task.barriers import BarrierTracker


def barrier(sender: int, rows: int = 3, **changes) -> bytes:
    return encode(msgspec.structs.replace(Barrier(1, 5, 1, sender, 40 + sender, 0, rows, False), **changes))


def tracker(rows: int, *barriers: bytes, senders: int | None = 2) -> BarrierTracker:
    found = BarrierTracker(epoch=EpochId(Term(1), 5), level=2, slot=0, senders=senders)
    for raw in barriers:
        found.control(raw)
    found.rows = rows
    return found


@pytest.mark.feature("C12", "C17")
def test_all_barriers_and_all_rows():
    assert tracker(6, barrier(0), barrier(1)).fault() is None


@pytest.mark.feature("C12", "C17")
def test_a_missing_barrier_is_named():
    fault = tracker(3, barrier(0)).fault()
    assert fault.kind is FaultKind.PROTOCOL
    assert "[1]" in fault.text


@pytest.mark.feature("C8", "C9", "C22")
@pytest.mark.parametrize("rows", [5, 7, 0])
def test_a_wrong_number_of_rows(rows):
    assert tracker(rows, barrier(0), barrier(1)).fault().kind is FaultKind.PROTOCOL


@pytest.mark.feature("C9", "C17")
def test_two_barriers_of_one_sender():
    assert "two barriers" in tracker(9, barrier(0), barrier(1), barrier(1)).fault().text
    assert "two barriers" in tracker(6, barrier(1), barrier(1)).fault().text


@pytest.mark.feature("C9", "C17")
@pytest.mark.parametrize("wrong", [{"number": 4}, {"term": 2}, {"target": 1}, {"level": 0}])
def test_a_barrier_of_another_epoch_level_or_task(wrong):
    assert tracker(6, barrier(0), barrier(1, **wrong)).fault().kind is FaultKind.PROTOCOL


@pytest.mark.feature("C13", "C22")
def test_a_poisoned_barrier_poisons_the_input():
    assert tracker(3, barrier(0), barrier(1, rows=0, poisoned=True)).fault().kind is FaultKind.POISONED


@pytest.mark.feature("C8", "C9")
def test_where_the_number_of_senders_is_unknown_their_rows_still_count():
    assert tracker(6, barrier(0), barrier(7), senders=None).fault() is None
    assert tracker(5, barrier(0), barrier(7), senders=None).fault().kind is FaultKind.PROTOCOL


@pytest.mark.feature("C21")
def test_plain_sql_sends_no_barriers():
    assert tracker(6, senders=0).fault() is None


@pytest.mark.feature("C3")
def test_attempts_have_different_digests():
    one, same = tracker(6, barrier(0), barrier(1)), tracker(6, barrier(1), barrier(0))
    other = tracker(6, barrier(0), barrier(1, attempt=99))
    assert one.digest() == same.digest() != other.digest()
