"""Committables: carried until COMMITTED, in order, never dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import PlainStorage, committable
from tidegate.checkpoint.effects import CommitFailed
from tidegate.checkpoint.output.committables import Ledger, commit, in_order, marks, read_record, record
from tidegate.checkpoint.output.release_plan import commit_batches
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Term


def at(number: int, term: int = 1) -> EpochId:
    return EpochId(Term(term), number)


@pytest.mark.feature("H5", "J20")
def test_a_checkpoint_carries_everything_up_to_its_epoch_that_no_record_covers() -> None:
    ledger = Ledger()
    ledger.accept([committable(1), committable(2), committable(3), committable(3, partition=1)])
    assert ledger.carried_by(at(2)) == (committable(1), committable(2))
    ledger.confirm(marks(ledger.carried_by(at(2))))
    assert set(ledger.carried_by(at(9))) == {committable(3), committable(3, partition=1)}


@pytest.mark.feature("J20")
def test_a_failed_checkpoint_drops_nothing() -> None:
    ledger = Ledger([committable(1), committable(2)])
    assert ledger.carried_by(at(1)) == (committable(1),)  # this checkpoint times out
    assert ledger.carried_by(at(2)) == (committable(1), committable(2))


@pytest.mark.feature("H5")
def test_output_of_discarded_epochs_is_forgotten() -> None:
    older = committable(7, term=1)
    ledger = Ledger([older, committable(1, term=2), committable(2, term=2)])
    ledger.rewind(Term(2), at(1, 2))
    assert ledger.waiting() == (older, committable(1, term=2))
    ledger.rewind(Term(2), None)
    assert ledger.waiting() == (older,)


@pytest.mark.feature("J26")
def test_a_target_that_refuses_holds_back_its_own_sink_only() -> None:
    storage = PlainStorage()
    storage.refused = {at(2)}
    waiting = [committable(3), committable(1), committable(2), committable(5, partition=1), committable(4, sink="up")]
    down, up = commit_batches(waiting)
    with pytest.raises(CommitFailed):
        storage.run(commit(down))
    storage.run(commit(up))
    assert storage.committed == [committable(1), committable(4, sink="up")]


def test_after_a_rescale_old_output_goes_first_under_its_old_partition() -> None:
    waiting = [committable(1, 7, term=2), committable(90, 7, term=1), committable(1, 0, term=2)]
    assert [[c.epoch for c in lane] for lane in in_order(waiting).values()] == [[at(90), at(1, 2)], [at(1, 2)]]
    (all_of_it,) = commit_batches(waiting)
    assert [(c.epoch, c.slot) for c in all_of_it.committables] == [(at(90), 7), (at(1, 2), 0), (at(1, 2), 7)]


@pytest.mark.feature("J26")
@given(st.lists(st.builds(committable, st.integers(1, 6), st.integers(0, 2), st.integers(1, 2))))
def test_a_record_covers_exactly_what_was_committed(waiting: list[Committable]) -> None:
    ledger = Ledger(waiting)
    ledger.confirm(read_record(record(waiting)))
    assert len(ledger) == 0
    ledger.accept([committable(7, 0, term=2)])
    assert len(ledger) == 1


@pytest.mark.feature("J26")
@given(st.permutations([1, 2, 3]))
def test_records_cover_up_to_the_newest_of_them_in_whatever_order_they_are_read(order: list[int]) -> None:
    ledger = Ledger([committable(n) for n in range(1, 5)])
    ledger.confirm([mark for n in order for mark in marks([committable(n)])])
    assert ledger.waiting() == (committable(4),)
