"""Which output a history knows: that of its own claims, as far as its log has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.history import (
    MOST_CLAIMS,
    UNBOUNDED,
    ClaimedTerm,
    Claims,
    History,
    claimed,
    covers,
    hides,
    knows,
    learnt,
    reached,
)
from tidegate.core.ids import EpochId, Lineage, Term, ordinal, term_of

LINE = Lineage("line")
FIRST = Term(1)
LOST = term_of(2, 0xAAAA)
RESTORED = term_of(2, 0xBBBB)


def test_a_term_has_the_number_of_its_claim_and_people_see_only_that() -> None:
    epoch = EpochId(term_of(2, 0xFFFFFFFF), 15)
    assert (ordinal(epoch.term), str(epoch)) == (2, "2.15")
    assert epoch.name == f"{2 << 32 | 0xFFFFFFFF}.15"
    assert epoch.as_checkpoint_id == 1 << 32 | 15


def test_terms_of_earlier_versions_are_counts_and_come_before_all_others() -> None:
    assert ordinal(Term(7)) == 7
    assert Term(7) < term_of(8, 0)


@given(st.integers(1, 1 << 20), st.integers(0, (1 << 32) - 1))
def test_a_term_fits_into_a_database_and_into_a_double(number: int, bits: int) -> None:
    term = term_of(number, bits)
    assert term < 1 << 63
    assert float(term) == term
    assert ordinal(term) == number


def test_what_a_lost_history_wrote_after_the_backup_is_unknown() -> None:
    backup = reached(claimed((), FIRST), EpochId(FIRST, 10))
    assert knows(backup, EpochId(FIRST, 10))
    assert not knows(backup, EpochId(FIRST, 11))  # the run went on after the backup
    assert not knows(backup, EpochId(LOST, 1))  # and so did later ones
    assert not knows(claimed(backup, RESTORED), EpochId(LOST, 1))


def test_the_owners_own_output_is_known_before_the_log_contains_it() -> None:
    claims = claimed((), FIRST)
    assert not History(LINE, claims).knows(LINE, EpochId(FIRST, 1))
    assert History(LINE, claims, FIRST).knows(LINE, EpochId(FIRST, 1))


def test_output_that_precedes_its_checkpoint_is_known_by_its_term() -> None:
    claims = claimed((), FIRST, unbounded=True)
    assert claims == (ClaimedTerm(FIRST, UNBOUNDED),)
    assert knows(reached(claims, EpochId(FIRST, 3)), EpochId(FIRST, 99))
    assert not knows(claims, EpochId(LOST, 1))


def test_output_that_was_accepted_is_known_and_nothing_beyond_it() -> None:
    claims = learnt(claimed((), FIRST), EpochId(LOST, 7))
    assert knows(claims, EpochId(LOST, 7))
    assert not knows(claims, EpochId(LOST, 8))
    assert not knows(claims, EpochId(RESTORED, 1))


def test_a_history_of_an_earlier_version_knows_everything_before_its_first_claim() -> None:
    assert knows((), EpochId(Term(6), 99))
    assert knows(claimed((), term_of(8, 1)), EpochId(Term(6), 99))


@pytest.mark.parametrize("lineage", [Lineage("another")])
def test_only_the_lineage_of_the_job_is_checked(lineage: Lineage) -> None:
    assert History(lineage, claimed((), FIRST)).knows(LINE, EpochId(LOST, 1))


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=3 * MOST_CLAIMS), st.data())
def test_a_history_knows_all_its_claims_however_many_there_were(bits: list[int], data: st.DataObject) -> None:
    claims: tuple[ClaimedTerm, ...] = ()
    terms = [term_of(number, some) for number, some in enumerate(bits, 2)]
    for term in terms:
        claims = reached(claimed(claims, term), EpochId(term, 5))
    assert len(claims) <= MOST_CLAIMS
    assert all(knows(claims, EpochId(term, 5)) for term in terms)
    other = term_of(len(bits) + 1, data.draw(st.integers(0, (1 << 32) - 1).filter(lambda b: b != bits[-1])))
    assert not knows(claims, EpochId(other, 1))


def test_a_claim_that_is_dropped_takes_one_of_the_same_number_with_it() -> None:
    claims = learnt(claimed(claimed((), FIRST), RESTORED), EpochId(LOST, 7))
    for number in range(3, 3 + MOST_CLAIMS):
        claims = claimed(claims, term_of(number, number))
    assert knows(claims, EpochId(LOST, 7))
    assert knows(claims, EpochId(RESTORED, 7))


def test_an_accepted_claim_never_becomes_one_of_this_history() -> None:
    """However many claims follow, before output that waits is published."""
    waiting, marker = EpochId(RESTORED, 1), EpochId(term_of(4, 77), 9)
    claims = learnt(reached(claimed(claimed((), FIRST), RESTORED), waiting), marker, own=False)
    for number in range(5, 5 + 2 * MOST_CLAIMS):
        claims = claimed(claims, term_of(number, number))
        assert not covers(claims, marker, waiting)
        assert knows(claims, marker)
        assert not knows(claims, marker.next())
        assert knows(claims, waiting)


def test_a_lost_history_of_an_earlier_version_is_accepted_without_what_else_it_may_have_written() -> None:
    """Its terms are small numbers, which say nothing about their order among those of this version."""
    claims = learnt(claimed((), term_of(8, 1)), EpochId(Term(9), 4))
    assert [ordinal(each.term) for each in claims] == [8, 9]
    assert not knows(claims, EpochId(Term(8), 1))


class Past:
    """One line of claims with its output, which can be copied and continued twice. Knows what really happened."""

    def __init__(self, claims: Claims = (), epochs: tuple[EpochId, ...] = ()) -> None:
        self.claims = claims
        self.epochs = epochs

    def claim(self, bits: int, accepted: tuple[EpochId, ...] = ()) -> Past:
        claims = self.claims
        for epoch in accepted:
            claims = learnt(claims, epoch, own=False)
        number = max((ordinal(each.term) for each in claims), default=0) + 1
        return Past(claimed(claims, term_of(number, bits)), self.epochs)

    def run(self, count: int) -> Past:
        term = self.claims[-1].term
        last = max((each.number for each in self.epochs if each.term == term), default=0)
        new = tuple(EpochId(term, last + n) for n in range(1, count + 1))
        return Past(reached(self.claims, EpochId(term, last + count)), (*self.epochs, *new))


runs = st.lists(st.integers(0, 3), max_size=4)


def grown(past: Past, runs: list[int], bits: int) -> Past:
    for n, count in enumerate(runs):
        past = past.claim(bits + n)
        past = past.run(count) if count else past
    return past


@given(runs, runs, runs, st.integers(0, 2), st.booleans())
def test_a_marker_of_another_history_covers_no_output_that_this_one_alone_has(
    common: list[int], theirs: list[int], mine: list[int], more: int, is_copy: bool
) -> None:
    """Whatever both did since they were one, also if one of them first continued its run."""
    shared = grown(Past().claim(1).run(1), common, 100)
    continued = shared.run(more) if more else shared
    other = grown(shared if is_copy else continued, theirs, 200)
    lost = [each for each in other.epochs if each not in shared.epochs]
    own = grown(continued if is_copy else shared, mine, 300)
    for marker in lost:
        if knows(own.claims, marker):
            continue
        after = own.claim(400, (marker,)).run(1)
        for epoch in after.epochs:
            if epoch not in other.epochs:
                assert not covers(after.claims, marker, epoch)
                assert hides(after.claims, marker, epoch) == (
                    epoch <= marker or (ordinal(epoch.term), epoch.number) <= (ordinal(marker.term), marker.number)
                )


@given(runs)
def test_a_marker_of_the_own_history_covers_all_output_before_it(counts: list[int]) -> None:
    past = grown(Past().claim(1).run(2), counts, 100)
    for n, marker in enumerate(past.epochs):
        assert all(covers(past.claims, marker, epoch) == (m <= n) for m, epoch in enumerate(past.epochs))
        assert not any(hides(past.claims, marker, epoch) for epoch in past.epochs)


def test_the_claims_of_a_restored_log_are_not_hidden_by_a_later_claim_of_the_lost_one() -> None:
    """Restored with claim 1, it made the claims 2 and 3 while its target was away. The target has output of claim 4."""
    own = Past().claim(1).run(5).claim(2).run(1).claim(3).run(1)
    marker = EpochId(term_of(4, 77), 9)
    accepted = own.claim(5, (marker,))
    assert [ordinal(each.term) for each in accepted.claims] == [1, 2, 3, 4, 5]
    assert not any(covers(accepted.claims, marker, epoch) for epoch in own.epochs)
    assert all(hides(accepted.claims, marker, epoch) for epoch in own.epochs)


def test_claims_of_an_earlier_version_are_their_own() -> None:
    assert covers((), EpochId(Term(6), 1), EpochId(Term(5), 9))
    assert not covers((), EpochId(term_of(6, 1), 1), EpochId(term_of(6, 2), 1))
    assert hides((), EpochId(term_of(6, 1), 1), EpochId(term_of(6, 2), 1))


def test_claims_stored_without_an_owner_flag_can_be_read() -> None:
    import msgspec

    stored = msgspec.json.decode(b"[[1,10],[4294967297,-1]]", type=Claims)
    assert stored == (ClaimedTerm(Term(1), 10), ClaimedTerm(Term(1 << 32 | 1), UNBOUNDED))
    assert msgspec.json.decode(msgspec.json.encode(learnt(stored, EpochId(LOST, 3), own=False)), type=Claims)[-1] == (
        LOST, 3, False,
    )  # fmt: skip
