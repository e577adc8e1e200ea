"""A log that is restored from a backup, or copied: no claim repeats a name, and foreign output can be accepted."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from tests.unit.checkpoint.history_kit import LAYOUT, LINE, PlainStorage, ref
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import claim, claim_again
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, Signature
from tidegate.checkpoint.job_log.foreign_output import foreign_output
from tidegate.checkpoint.job_log.log import path_of
from tidegate.checkpoint.job_log.start import Refuse, Resume, Start, StartFresh, decide
from tidegate.core.history import covers, knows, last_of_terms
from tidegate.core.ids import EpochId, Lineage, Term, Uid, ordinal, term_of
from tidegate.storage.port import Nonce

_serial = count(1)


def sign() -> Signature:
    number = next(_serial)
    return Signature(Nonce(f"nonce-{number:016d}"), "driver", number, random_bits=number * 7919)


def taking(storage: PlainStorage, start: Start | None = None) -> Entry:
    entry = storage.run(claim(LAYOUT, start or Start(), sign, lambda: Lineage("line"), 5_000, force=True))
    assert isinstance(entry, Entry)
    return entry


def copied(storage: PlainStorage) -> PlainStorage:
    copy = PlainStorage()
    copy.objects = dict(storage.objects)
    return copy


def test_the_claim_of_a_restored_log_has_a_term_that_the_lost_one_never_had() -> None:
    monday = PlainStorage()
    taking(monday)
    backup = copied(monday)
    lost, restored = taking(monday), taking(backup)
    assert ordinal(lost.term) == ordinal(restored.term) == 2
    assert lost.term != restored.term
    assert not knows(restored.claims, EpochId(lost.term, 1))


def test_the_first_claim_of_a_job_is_1() -> None:
    assert taking(PlainStorage()).term == 1


def test_a_checkpoint_extends_the_epochs_that_the_log_knows_of_its_term() -> None:
    first = entries.claim(None, sign(), LINE, None)
    done = entries.checkpoint(first, sign(), ref(1), 1)
    assert done.claims == ((1, 10, True),)
    assert entries.from_bytes(entries.to_bytes(done), "here") == done


def test_a_claim_leaps_above_output_that_is_accepted() -> None:
    storage = PlainStorage()
    taking(storage)
    foreign = EpochId(term_of(9, 1), 4)
    entry = taking(storage, Start(accepted=(foreign,)))
    assert ordinal(entry.term) == 10
    assert entry.history.knows(entry.lineage, foreign)
    assert not entry.history.knows(entry.lineage, foreign.next())
    paths = (LAYOUT.log(1), path_of(LAYOUT, entry))
    entries.fold(entries.from_bytes(storage.objects[path], path) for path in paths)


def test_a_log_of_an_earlier_version_learns_its_claims_with_the_next_one() -> None:
    old = replace(entries.claim(None, sign(), LINE, None), term=Term(6), claims=())
    entry = entries.claim(old, sign(), LINE, None)
    assert ordinal(entry.term) == 7
    assert knows(entry.claims, EpochId(Term(6), 1_000))
    assert not knows(entry.claims, EpochId(term_of(7, 0), 1))


def test_a_savepoint_of_the_lineage_makes_its_epoch_known() -> None:
    savepoint = replace(ref(3, term=term_of(4, 2), owned=False), lineage=LINE)
    entry = entries.claim(entries.claim(None, sign(), LINE, None), sign(), LINE, savepoint)
    assert knows(entry.claims, savepoint.epoch)
    assert ordinal(entry.term) == 5


def test_a_job_claimed_again_keeps_its_mode() -> None:
    storage = PlainStorage()
    entry = taking(storage, Start(unbounded=True))
    again = storage.run(claim_again(LAYOUT, entry, (), sign))
    assert isinstance(again, Entry)
    assert [each.last for each in again.claims] == [-1, -1]


def test_an_older_log_learns_what_a_newer_savepoint_carries() -> None:
    """The log was restored with claim 1. An idle slot has a marker of claim 2, whose last output the savepoint carries."""
    storage = PlainStorage()
    taking(storage)
    idle, last = EpochId(term_of(2, 5), 8), EpochId(term_of(4, 2), 30)
    source = replace(ref(3, owned=False), term=last.term, epoch=last, lineage=Lineage("line"))
    storage.objects[source.metadata] = b""
    found = storage.run(foreign_output(LAYOUT, lambda lineage: {Uid("out"): [idle]}, source))
    assert found == {"out": (idle,)}, "the epoch of the savepoint alone does not tell"
    assert storage.run(foreign_output(LAYOUT, lambda lineage: {Uid("out"): [idle]}, source, (idle, last))) == {}
    entry = taking(storage, Start(source=source, carried=(idle, last)))
    assert knows(entry.claims, idle)
    assert not knows(entry.claims, idle.next())
    assert covers(entry.claims, last, idle)
    assert ordinal(entry.term) == 5


def test_the_last_epoch_of_each_term_is_learnt() -> None:
    epochs = [EpochId(Term(1), 3), EpochId(Term(2), 1), EpochId(Term(1), 9), EpochId(Term(2), 4)]
    assert last_of_terms(epochs) == (EpochId(Term(1), 9), EpochId(Term(2), 4))


def resumed(before: Entry) -> Entry:
    return entries.claim(before, sign(), before.lineage, before.base)


def with_checkpoint(owner: Entry, id: int, number: int) -> Entry:
    epoch = EpochId(owner.term, number)
    return entries.checkpoint(owner, sign(), replace(ref(id), term=owner.term, epoch=epoch, lineage=owner.lineage), 3)


def savepoint_of(owner: Entry, number: int) -> CheckpointRef:
    epoch = EpochId(owner.term, number)
    return replace(ref(7, owned=False), term=owner.term, epoch=epoch, lineage=owner.lineage)


BACKUP = with_checkpoint(entries.claim(None, sign(), LINE, None), 1, 10)


def test_a_savepoint_of_a_lost_history_is_refused_once_the_log_has_gone_on() -> None:
    """It carries output that was never published, and the markers of this history would cover it."""
    second = with_checkpoint(resumed(BACKUP), 2, 4)
    third = resumed(second)
    carried = (EpochId(second.term, 4), EpochId(third.term, 8))
    start = Start(source=savepoint_of(third, 9), carried=carried)
    assert isinstance(decide(BACKUP, start), Resume), "a log that is only older learns what happened"
    restored = with_checkpoint(resumed(resumed(with_checkpoint(resumed(BACKUP), 2, 3))), 3, 7)
    decision = decide(restored, start)
    assert isinstance(decision, Refuse)
    assert "--fresh" in decision.what_to_do
    assert isinstance(decide(restored, replace(start, fresh=True)), StartFresh)


def test_a_savepoint_that_carries_output_of_a_lost_claim_is_refused() -> None:
    """The savepoint itself is of the common past, by its term."""
    lost = resumed(BACKUP)
    start = Start(source=savepoint_of(BACKUP, 10), carried=(EpochId(lost.term, 2),))
    assert isinstance(decide(resumed(BACKUP), start), Refuse)


def test_a_savepoint_of_a_claim_that_went_on_after_the_backup_is_refused() -> None:
    start = Start(source=savepoint_of(BACKUP, 12))
    assert isinstance(decide(BACKUP, start), Resume)
    assert isinstance(decide(resumed(BACKUP), start), Refuse)
    assert isinstance(decide(resumed(BACKUP), Start(source=savepoint_of(BACKUP, 10))), Resume)
