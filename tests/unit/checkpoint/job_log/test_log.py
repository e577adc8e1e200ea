"""The log: what an entry may follow, and what it costs to find the end of a long one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import LAYOUT, PlainStorage, claimed, ref, signatures
from tidegate.checkpoint.effects import Get, ListFolders
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import Entry, LogCorrupt, RunOutcome
from tidegate.checkpoint.job_log.log import append, history, newest, path_of
from tidegate.storage.port import Won

SIGN = signatures()


def write(storage: PlainStorage, *written: Entry) -> None:
    for entry in written:
        storage.objects[path_of(LAYOUT, entry)] = entries.to_bytes(entry)


def grown(length: int) -> list[Entry]:
    log = [claimed()]
    while len(log) < length:
        log.append(entries.checkpoint(log[-1], next(SIGN), ref(log[-1].last_id + 1), 2))
    return log


def test_the_newest_entry_says_all_that_the_whole_history_says() -> None:
    log = grown(6)
    log.append(entries.end(log[-1], next(SIGN), RunOutcome.SUSPENDED, keep=True))
    log.append(claimed(log[-1], log[-1].base))
    assert entries.fold(log) == log[-1]
    assert log[-1].term == 2
    assert [kept.id for kept in log[-1].retained] == [4, 5]
    assert log[-1].base == ref(5)


def test_entries_come_back_from_bytes_as_they_were() -> None:
    entry = grown(4)[-1]
    assert entries.from_bytes(entries.to_bytes(entry), "log") == entry


@given(length=st.integers(0, 300), hint=st.integers(0, 400))
def test_the_end_is_found_from_any_hint(length: int, hint: int) -> None:
    storage = PlainStorage()
    write(storage, *grown(length) if length else ())
    found = storage.run(newest(LAYOUT, hint))
    assert found is None if length == 0 else isinstance(found, Entry) and found.slot == length


class Years:
    """A log of a million entries, of which the last thousands exist, and only when they are read."""

    LENGTH = 1_000_000

    def __init__(self) -> None:
        self.reads = 0

    def run(self, hint: int) -> object:
        steps, answer = newest(LAYOUT, hint), None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as end:
                return end.value
            self.reads += 1
            if isinstance(effect, ListFolders):
                answer = [f"{folder:012d}" for folder in (998_002, 999_002)]
                continue
            assert isinstance(effect, Get)
            folder, slot = (int(part) for part in effect.path.split("/")[-2:])
            exists = folder <= slot < folder + 1_000 and slot <= self.LENGTH
            answer = entries.to_bytes(replace(claimed(), slot=slot, folder=folder)) if exists else None


@pytest.mark.parametrize(("hint", "reads"), [(Years.LENGTH, 5), (Years.LENGTH - 100, 19), (0, 22), (2_000_000, 23)])
def test_the_end_of_a_log_of_years_costs_few_reads(hint: int, reads: int) -> None:
    log = Years()
    found = log.run(hint)
    assert isinstance(found, Entry)
    assert found.slot == Years.LENGTH
    assert log.reads <= reads


def test_a_slot_has_one_winner_and_the_loser_sees_him() -> None:
    storage = PlainStorage()
    first, second = claimed(owner="first"), claimed(owner="second")
    assert storage.run(append(LAYOUT, first)) == Won()
    assert storage.run(append(LAYOUT, second)) == first
    assert storage.run(append(LAYOUT, first)) == Won()


def _wrong(log: list[Entry]) -> dict[str, Entry]:
    last = log[-1]
    good = entries.checkpoint(last, next(SIGN), ref(last.last_id + 1), 2)
    return {
        "a gap": replace(good, slot=good.slot + 1),
        "another folder": replace(good, folder=good.slot),
        "a folder for the next entry that cannot hold it": replace(good, next_folder=good.slot + 2),
        "another term": replace(good, term=entries.Term(7)),
        "an old id": replace(good, base=last.base, retained=last.retained),
        "another lineage": replace(good, lineage=entries.Lineage("other")),
        "a savepoint of an older epoch": entries.terminal_savepoint(
            last, next(SIGN), replace(ref(9), epoch=ref(1).epoch)
        ),
        "a claim of an old term": replace(claimed(last, last.base), term=last.term),
        "a claim that forgets": replace(claimed(last, last.base), retained=()),
        "a claim from what is gone": claimed(last, ref(1)),
    }


@pytest.mark.parametrize("what", _wrong(grown(5)))
def test_fold_refuses(what: str) -> None:
    log = grown(5)
    with pytest.raises(LogCorrupt):
        entries.fold([*log, _wrong(log)[what]])


def test_nothing_follows_an_end_but_a_claim() -> None:
    log = grown(3)
    log.append(entries.end(log[-1], next(SIGN), RunOutcome.CANCELED, keep=True))
    assert entries.fold([*log, claimed(log[-1], log[-1].base)])
    with pytest.raises(LogCorrupt, match="follows the end"):
        entries.fold([*log, entries.checkpoint(log[-1], next(SIGN), ref(9), 1)])


def test_a_missing_or_damaged_entry_is_not_overlooked() -> None:
    storage = PlainStorage()
    write(storage, *grown(4))
    assert len(storage.run(history(LAYOUT, 4))) == 4  # type: ignore[arg-type]
    storage.objects[LAYOUT.log(3, 2)] = b"{}"
    with pytest.raises(LogCorrupt):
        storage.run(history(LAYOUT, 4))
    del storage.objects[LAYOUT.log(3, 2)]
    with pytest.raises(LogCorrupt, match="missing"):
        storage.run(history(LAYOUT, 4))


def test_a_forks_terms_begin_above_its_origins() -> None:
    assert claimed(base=ref(3, term=41, owned=False)).term == 42


def test_a_claim_keeps_the_output_of_the_line_it_leaves_but_not_that_of_a_forks_origin() -> None:
    log = grown(4)
    assert claimed(log[-1], log[-1].retained[0]).owed == (log[-1].base,)
    assert claimed(log[-1], log[-1].base).owed == ()
    origin = ref(3, owned=False, lineage=entries.Lineage("another"))
    assert claimed(claimed(base=origin)).owed == ()


def test_another_lineage_keeps_the_output_of_its_base_and_logs_older_than_that_rule_are_read() -> None:
    log = grown(4)
    other = entries.claim(log[-1], next(SIGN), entries.Lineage("another"), log[-1].base)
    assert other.owed == (log[-1].base,)
    assert entries.fold([*log, other])
    assert entries.fold([*log, replace(other, owed=())])
    with pytest.raises(LogCorrupt, match="forgets output"):
        entries.fold([*log, replace(other, owed=(), base=log[-1].retained[0])])
