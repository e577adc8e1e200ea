"""A log that is found elsewhere than it was written: a copy beside the original is refused, unless the user says otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.checkpoint.history_kit import LAYOUT, PlainStorage, ref, signatures
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import check_location, claim, claim_again
from tidegate.checkpoint.job_log.entry import Entry
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.job_log.start import DirectoryMoved, Start
from tidegate.core.ids import Lineage

HERE, THERE = "s3://here/job", "s3://there/job"
SIGN = signatures()
NEW = iter(f"line-{n}" for n in range(1, 99))


def taking(storage: PlainStorage, start: Start) -> Entry:
    steps = claim(LAYOUT, start, lambda: next(SIGN), lambda: Lineage(next(NEW)), 5_000, force=True)
    entry = storage.run(steps)
    assert isinstance(entry, Entry)
    return entry


def started(location: str = HERE) -> tuple[PlainStorage, Entry]:
    storage = PlainStorage()
    return storage, taking(storage, Start(location=location))


def test_a_copy_is_refused_by_name_and_nothing_is_written() -> None:
    storage, _ = started()
    before = dict(storage.objects)
    with pytest.raises(DirectoryMoved) as refused:
        taking(storage, Start(location=THERE))
    assert storage.objects == before
    told = str(refused.value)
    assert HERE in told
    assert THERE in told
    assert "--fresh -s" in told
    assert "--accept-moved-directory" in told


def test_it_is_refused_before_the_targets_are_asked() -> None:
    storage, _ = started()
    with pytest.raises(DirectoryMoved):
        storage.run(check_location(LAYOUT, Start(location=THERE)))
    for start in (Start(location=HERE), Start(location=THERE, fresh=True), Start(location=THERE, accepts_move=True)):
        storage.run(check_location(LAYOUT, start))
    PlainStorage().run(check_location(LAYOUT, Start(location=THERE)))


def test_a_move_that_is_accepted_is_known_to_later_starts_and_not_to_the_old_place() -> None:
    storage, first = started()
    moved = taking(storage, Start(location=THERE, accepts_move=True))
    assert (moved.location, moved.lineage) == (THERE, first.lineage)
    assert taking(storage, Start(location=THERE)).location == THERE
    with pytest.raises(DirectoryMoved):
        taking(storage, Start(location=HERE))


def test_a_fork_of_a_copy_is_a_new_line_of_history_in_its_own_place() -> None:
    storage, first = started()
    fork = taking(storage, Start(location=THERE, fresh=True))
    assert fork.lineage != first.lineage
    assert fork.location == THERE


def test_a_fork_of_a_copy_leaves_the_output_that_waits_to_the_original() -> None:
    """It would write under the markers of the original, which publishes the same."""
    for start, owes in ((Start(location=THERE, fresh=True), 0), (Start(location=HERE, fresh=True), 1),
                        (Start(location=THERE, fresh=True, accepts_move=True), 1)):  # fmt: skip
        storage, first = started()
        done = entries.checkpoint(first, next(SIGN), ref(1, lineage=first.lineage), 1)
        storage.objects[LAYOUT.log(done.slot, done.folder)] = entries.to_bytes(done)
        storage.objects[ref(1).metadata] = b""
        fork = taking(storage, start)
        assert len(fork.owed) == owes
        entries.fold([first, done, fork])


def test_a_log_without_a_place_learns_it() -> None:
    storage, first = started("")
    assert first.location == ""
    assert taking(storage, Start(location=HERE)).location == HERE


def test_every_entry_of_a_run_keeps_the_place() -> None:
    storage, first = started()
    again = storage.run(claim_again(LAYOUT, first, (), lambda: next(SIGN)))
    assert isinstance(again, Entry)
    assert again.location == HERE
    ended = entries.end(again, next(SIGN), entries.RunOutcome.CANCELED, keep=True)
    assert ended.location == HERE
    assert entries.from_bytes(entries.to_bytes(ended), "here") == ended


def test_a_copy_whose_original_ended_is_refused_as_well() -> None:
    storage, first = started()
    end = entries.end(first, next(SIGN), entries.RunOutcome.SUSPENDED, keep=True)
    storage.objects[LAYOUT.log(end.slot, end.folder)] = entries.to_bytes(end)
    found = storage.run(newest(LAYOUT))
    assert found == end
    with pytest.raises(DirectoryMoved):
        taking(storage, Start(location=THERE))


def test_an_entry_of_an_earlier_version_has_no_place() -> None:
    _, first = started()
    data = entries.to_bytes(replace(first, location="")).replace(b',"location":""', b"")
    assert b"location" not in data
    assert entries.from_bytes(data, "here").location == ""


def forked_copy() -> tuple[PlainStorage, Entry, Entry]:
    """A job that started from a claimed savepoint, and the fork of a copy of its directory."""
    storage = PlainStorage()
    given = replace(ref(9, owned=False, lineage="another"), metadata="file:///sp/savepoint/_metadata", claimed=True)
    storage.objects[given.metadata] = b""
    first = taking(storage, Start(source=given, location=HERE))
    done = entries.checkpoint(first, next(SIGN), ref(10, lineage=first.lineage), 3)
    storage.objects[LAYOUT.log(done.slot, done.folder)] = entries.to_bytes(done)
    storage.objects[ref(10).metadata] = b""
    fork = taking(storage, Start(source=done.base, location=THERE, fresh=True))
    entries.fold([first, done, fork])
    return storage, done, fork


def test_a_fork_of_a_copy_leaves_claimed_savepoints_to_the_original() -> None:
    """They lie outside the directory: the copy would delete them when it drops them."""
    _, done, fork = forked_copy()
    assert any(each.claimed for each in done.retained)
    assert not any(each.claimed for each in fork.retained)
    later = entries.checkpoint(fork, next(SIGN), replace(ref(11), term=fork.term, lineage=fork.lineage), 1)
    assert later.disposing == ()
    entries.check(fork, later, "later")


def test_a_fork_of_a_copy_keeps_a_savepoint_that_was_given_to_it() -> None:
    storage, _ = started()
    given = replace(ref(9, owned=False, lineage="another"), metadata="file:///sp/savepoint/_metadata", claimed=True)
    storage.objects[given.metadata] = b""
    assert taking(storage, Start(source=given, location=THERE, fresh=True)).retained == (given,)


def test_a_fork_of_a_copy_does_not_return_to_the_history_of_the_original() -> None:
    storage, done, fork = forked_copy()
    assert fork.here_since == fork.term
    with pytest.raises(DirectoryMoved, match="another line of history"):
        taking(storage, Start(source=done.base, location=THERE))
    # Later claims of the copy know it, too; and it continues its own history.
    again = taking(storage, Start(location=THERE))
    assert (again.lineage, again.here_since) == (fork.lineage, fork.term)
    with pytest.raises(DirectoryMoved):
        taking(storage, Start(source=done.base, location=THERE))
    assert taking(storage, Start(source=done.base, location=THERE, fresh=True)).lineage != done.lineage
    assert taking(storage, Start(source=done.base, location=THERE, accepts_move=True)).lineage == done.lineage


def test_what_is_no_copy_returns_to_its_earlier_line() -> None:
    storage, first = started()
    done = entries.checkpoint(first, next(SIGN), ref(1, lineage=first.lineage), 3)
    storage.objects[LAYOUT.log(done.slot, done.folder)] = entries.to_bytes(done)
    storage.objects[ref(1).metadata] = b""
    taking(storage, Start(source=done.base, location=HERE, fresh=True))
    assert taking(storage, Start(source=done.base, location=HERE)).lineage == first.lineage
