"""A driver's time as the owner, step by step, with others acting in between."""

from __future__ import annotations

import pytest

from tests.unit.checkpoint.history_kit import (
    BODIES,
    LAYOUT,
    LINE,
    PlainStorage,
    committable,
    draft,
    final_savepoint,
    idle,
    owner,
    publish,
    release,
    signatures,
    upload,
)
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import (
    CheckpointNotCompleted,
    CheckpointUnreadable,
    CompletedCheckpointStore,
    RunEnded,
)
from tidegate.checkpoint.effects import Put
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.job_log.claim import claim
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, RunOutcome
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import committed_record
from tidegate.checkpoint.metadata.errors import MetadataDamaged


def test_a_checkpoint_is_metadata_then_entry() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    ref = publish(storage, one, 1)
    assert ref.metadata == "job/chk-1/_metadata"
    assert list(storage.objects)[-2:] == [ref.metadata, LAYOUT.log(2, 2)]
    assert one.entry.base == ref


@pytest.mark.feature("F32", "F33")
def test_files_are_referenced_from_the_completion_of_a_checkpoint_until_it_is_dropped() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    a, b, c = (upload(storage, one, 1, name) for name in "abc")
    pending = draft(one, 1, [a, b])
    assert one.shared.counts() == {}
    storage.run(one.append_checkpoint(pending))
    publish(storage, one, 2, [a, c])
    assert one.shared.counts() == {a: 2, b: 1, c: 1}
    publish(storage, one, 3, [c])
    assert (one.shared.counts(), b in one.shared.unreferenced()) == ({a: 1, c: 2}, True)
    assert owner(storage, "two", retained=2).shared.counts() == {a: 1, c: 2}


@pytest.mark.feature("F32")
def test_files_of_a_checkpoint_that_did_not_complete_are_not_referenced() -> None:
    storage = PlainStorage()
    old = owner(storage, "old")
    file = upload(storage, old, 1, "a")
    owner(storage, "new")
    with pytest.raises(ClaimLost):
        publish(storage, old, 1, [file])
    assert old.shared.counts() == {}


def test_driver_that_loses_a_log_slot_stops_without_deleting_files() -> None:
    storage = PlainStorage()
    old = owner(storage, "old")
    file = upload(storage, old, 1, "a")
    new = owner(storage, "new")
    before = storage.objects.keys() - {LAYOUT.metadata(1)}
    with pytest.raises(ClaimLost) as lost:
        publish(storage, old, 1, [file])
    assert lost.value.winner == new.entry
    assert storage.objects.keys() - {LAYOUT.metadata(1)} == before


@pytest.mark.feature("E16")
def test_a_predecessors_unpublished_metadata_is_not_taken_for_ones_own() -> None:
    storage = PlainStorage()
    old = owner(storage, "old")
    storage.objects[LAYOUT.metadata(1)] = draft(old, 1).metadata  # it died before its entry
    new = owner(storage, "new")
    ref = publish(storage, new, 1)
    assert ref.metadata == "job/chk-1.2/_metadata"
    storage.run(Cleaner(new).sweep(idle(2)))
    assert [p for p in storage.objects if p.endswith("_metadata")] == [ref.metadata]


@pytest.mark.feature("J17", "J21")
def test_output_becomes_visible_after_the_entry_and_its_staged_rows_are_deleted_with_the_next() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    waits = committable(5)
    rows = waits.payload.decode()
    ref = storage.run(one.append_checkpoint(draft(one, 1, output=[waits])))
    assert isinstance(ref, CheckpointRef)
    assert storage.committed == []
    assert one.shared.count(rows) == 1
    assert storage.run(release(one)) is True
    assert storage.committed == [waits]
    assert committed_record(ref.metadata) in storage.objects
    assert one.shared.count(rows) == 1
    publish(storage, one, 2)
    assert one.shared.count(rows) == 0


@pytest.mark.feature("J21")
def test_what_a_target_did_not_take_is_carried_on() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    waits = committable(5)
    storage.refused = {waits.epoch}
    ref = storage.run(one.append_checkpoint(draft(one, 1, output=[waits])))
    assert isinstance(ref, CheckpointRef)
    assert storage.run(release(one)) is False
    assert committed_record(ref.metadata) not in storage.objects
    assert draft(one, 2).contents.committables == (waits,)


@pytest.mark.feature("J21", "J26")
def test_a_successor_commits_what_its_predecessor_could_not() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    storage.run(one.append_checkpoint(draft(one, 1, output=[committable(5)])))  # and dies
    two = owner(storage, "two")
    assert storage.committed == [committable(5)]
    assert draft(two, 2).contents.committables == ()
    owner(storage, "three")
    assert storage.committed == [committable(5)]  # the record says so; not even a repeat


def test_a_rollback_still_commits_the_output_of_the_abandoned_line() -> None:
    """What once completed becomes visible, in order; otherwise the rollback's own output would overtake it for ever."""
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    older = publish(storage, one, 1)
    storage.run(one.append_checkpoint(draft(one, 2, output=[committable(5)])))  # and dies before it commits
    sign = signatures("two")
    steps = claim(LAYOUT, Start(source=older), lambda: next(sign), lambda: LINE, 1, force=True)
    entry = storage.run(steps)
    assert isinstance(entry, Entry)
    assert entry.base == older
    two = CompletedCheckpointStore(LAYOUT, entry, lambda path, body: BODIES[body], lambda: next(sign), 2)
    storage.refused = {committable(5).epoch}
    storage.run(two.recover())
    assert draft(two, 3).contents.committables == (committable(5),)
    two.ledger.rewind(two.term, older.epoch)
    assert draft(two, 3).contents.committables == (committable(5),)
    publish(storage, two, 3)
    assert two.entry.owed == ()


@pytest.mark.feature("H2")
def test_a_damaged_base_is_an_error_and_a_damaged_older_one_is_named() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    older, base = publish(storage, one, 1), publish(storage, one, 2)
    del storage.objects[older.metadata]
    assert owner(storage, "two", retained=2).unreadable == [older]
    storage.objects[base.metadata] = b"something else"
    with pytest.raises(CheckpointUnreadable, match="chk-2"):
        owner(storage, "three", retained=2)


@pytest.mark.feature("D14")
def test_an_end_with_retention_keeps_every_retained_checkpoint_and_its_files() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=3)
    files = [upload(storage, one, n, name) for n, name in enumerate("abc", 1)]
    refs = [publish(storage, one, n, [file]) for n, file in enumerate(files, 1)]
    storage.run(one.finish(RunOutcome.CANCELED, keep=True))
    storage.run(Cleaner(one).clean(idle(4)))
    assert one.entry.retained == tuple(refs)
    assert {*files, *(ref.metadata for ref in refs)} <= storage.objects.keys()


@pytest.mark.feature("D15", "E13")
def test_an_end_without_retention_gives_the_checkpoints_up_before_it_deletes_them() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    ref = publish(storage, one, 1, [file])
    storage.run(one.finish(RunOutcome.CANCELED, keep=False))
    assert one.entry.retained == ()
    storage.run(Cleaner(one).clean(idle(2)))
    assert not {file, ref.metadata} & storage.objects.keys()
    with pytest.raises(RunEnded):
        publish(storage, one, 2)


def test_an_end_keeps_checkpoints_with_uncommitted_output() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    storage.run(one.append_checkpoint(draft(one, 1, output=[committable(5)])))
    storage.run(one.finish(RunOutcome.CANCELED, keep=False))
    assert [ref.id for ref in one.entry.retained] == [1]


@pytest.mark.feature("I3", "I14")
def test_a_savepoint_that_ends_the_job_is_the_base_of_the_next_run_and_commits_after_its_entry() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    waits = committable(5)
    end = draft(one, 1, output=[waits])
    ref = final_savepoint(storage, end)
    storage.run(one.append_terminal_savepoint(ref, end.contents))  # and dies before it commits
    assert storage.committed == []
    two = owner(storage, "two")
    assert two.entry.base == ref
    assert storage.committed == [waits]
    assert committed_record(ref.metadata) not in storage.objects  # the savepoint is the user's


@pytest.mark.feature("C10")
def test_an_older_checkpoint_cannot_be_completed_after_a_newer_one() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    late = draft(one, 1)
    newer = publish(storage, one, 2)
    with pytest.raises(CheckpointNotCompleted, match="too late"):
        storage.run(one.append_checkpoint(late))
    assert one.entry.base == newer


def test_a_finished_job_with_uncommitted_output_is_suspended_and_its_next_start_commits() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    storage.run(one.append_checkpoint(draft(one, 1, output=[committable(5)])))
    storage.run(one.finish(RunOutcome.FINISHED, keep=False))
    assert one.entry.outcome is RunOutcome.SUSPENDED
    owner(storage, "two")
    assert storage.committed == [committable(5)]


def test_a_retained_checkpoint_whose_metadata_is_damaged_inside_is_named_and_not_fatal() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    older, base = publish(storage, one, 1), publish(storage, one, 2)

    def read(path: str, body: bytes) -> CheckpointContents:
        if path == older.metadata:
            raise MetadataDamaged("cut short")
        return BODIES[body]

    sign = signatures("two")
    entry = storage.run(claim(LAYOUT, Start(), lambda: next(sign), lambda: LINE, 1, force=True))
    assert isinstance(entry, Entry)
    two = CompletedCheckpointStore(LAYOUT, entry, read, lambda: next(sign), 2)
    storage.run(two.recover())
    assert (two.unreadable, two.entry.base) == ([older], base)


def test_output_is_final_once_no_checkpoint_without_a_record_carries_it() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    first = committable(10)
    storage.refused = {first.epoch}
    storage.run(one.append_checkpoint(draft(one, 1, output=[first])))
    assert not storage.run(release(one))
    assert first in one.uncommitted_output()
    storage.refused = set()
    storage.run(one.append_checkpoint(draft(one, 2)))
    steps = release(one)
    for effect in steps:
        storage.do(effect)
        if isinstance(effect, Put):
            break  # it dies when only the first one is recorded
    assert first in one.uncommitted_output()  # the second one is retained, and nobody noted that it is committed
    assert storage.run(release(one))
    assert {committed_record(LAYOUT.metadata(id)) for id in (1, 2)} <= storage.objects.keys()
    for id in (3, 4):
        publish(storage, one, id)
        storage.run(Cleaner(one).clean(idle(id + 1)))
    assert first not in one.uncommitted_output()
