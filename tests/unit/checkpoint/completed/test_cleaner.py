"""Deleting what checkpoints no longer need, step by step, while other drivers publish, claim and pin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.checkpoint.history_kit import (
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
    upload,
)
from tidegate.checkpoint.completed.cleaner import Cleaner, CleaningSkipped
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.job_log.pins import PinTooLate, place, remove
from tidegate.checkpoint.layout import committed_record
from tidegate.checkpoint.metadata.errors import MetadataDamaged
from tidegate.connectors.sink import Committable
from tidegate.core.ids import AttemptId, EpochId, Term, Uid


@pytest.mark.feature("D27", "E14", "F33", "N12")
def test_only_the_newest_are_retained_and_the_rest_is_deleted_after_the_entry() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    a, b, c = (upload(storage, one, 1, name) for name in "abc")
    publish(storage, one, 1, [a, b])
    publish(storage, one, 2, [b])
    assert storage.run(Cleaner(one).clean(idle(3))) == 0
    publish(storage, one, 3, [b, c])
    storage.run(Cleaner(one).clean(idle(4)))
    assert a not in storage.objects
    assert {b, c} <= storage.objects.keys()
    assert [p for p in storage.objects if p.endswith("_metadata")] == ["job/chk-2/_metadata", "job/chk-3/_metadata"]


@pytest.mark.feature("F33")
def test_a_dropped_checkpoint_with_committed_output_leaves_no_files() -> None:
    """Each checkpoint with output has a record. A run that goes on for months does not wait for a sweep."""
    storage = PlainStorage()
    one = owner(storage, "one")
    ref = storage.run(one.append_checkpoint(draft(one, 1, output=[committable(5)])))
    assert isinstance(ref, CheckpointRef)
    assert storage.run(release(one)) is True
    assert committed_record(ref.metadata) in storage.objects
    publish(storage, one, 2)
    storage.run(Cleaner(one).clean(idle(3)))
    assert [path for path in storage.objects if path.startswith("job/chk-1/")] == []


def test_a_former_owner_that_wakes_up_during_a_sweep_does_no_harm() -> None:
    """Its list was made before it slept; meanwhile a successor has published from the same base."""
    storage = PlainStorage()
    old = owner(storage, "old")
    base, orphan = upload(storage, old, 1, "base"), upload(storage, old, 1, "orphan")
    publish(storage, old, 1, [base])
    sweep, answer = Cleaner(old).sweep(idle(2)), None
    while True:
        effect = sweep.send(answer)
        if type(effect).__name__ == "Delete":
            break
        answer = storage.do(effect)
    new = owner(storage, "new")  # … old sleeps right before its delete
    added = upload(storage, new, 2, "added")
    ref = publish(storage, new, 2, [base, added])
    storage.do(effect)
    assert {base, added, ref.metadata} <= storage.objects.keys()
    assert orphan not in storage.objects


@pytest.mark.feature("E8")
def test_files_that_a_pending_checkpoint_may_reuse_are_held() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    publish(storage, one, 2)
    storage.run(Cleaner(one).clean(InFlight(3, frozenset({first.metadata}))))
    assert file in storage.objects
    storage.run(Cleaner(one).clean(idle(4)))
    assert file not in storage.objects


def test_a_pin_placed_in_time_holds_and_one_placed_too_late_does_not() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    storage.run(place(LAYOUT, "reader", first, "copy"))
    publish(storage, one, 2)
    storage.run(Cleaner(one).clean(idle(3)))
    assert {file, first.metadata} <= storage.objects.keys()
    with pytest.raises(PinTooLate):
        storage.run(place(LAYOUT, "late", first, "copy"))
    storage.run(remove(LAYOUT, "reader"))
    storage.run(Cleaner(one).clean(idle(3)))
    assert not {file, first.metadata} & storage.objects.keys()


def test_nothing_is_cleaned_while_a_pinned_snapshot_cannot_be_read() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    storage.run(place(LAYOUT, "reader", first, "copy"))
    publish(storage, one, 2)

    def unreadable(path: str, body: bytes) -> CheckpointContents:
        raise MetadataDamaged("it is not a whole _metadata file")

    readable, one.read = one.read, unreadable
    with pytest.raises(CleaningSkipped, match="which is pinned, cannot be read"):
        storage.run(Cleaner(one).clean(idle(3)))
    assert file in storage.objects
    one.read = readable
    storage.run(remove(LAYOUT, "reader"))
    storage.run(Cleaner(one).clean(idle(3)))
    assert file not in storage.objects


def test_a_pin_placed_during_a_sweep_and_a_completion_is_found() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    storage.run(place(LAYOUT, "other", first, "makes the sweep read a pin"))
    sweep, answer = Cleaner(one).sweep(idle(2)), None
    while True:
        effect = sweep.send(answer)
        if getattr(effect, "prefix", "") == LAYOUT.pins:
            break
        answer = storage.do(effect)
    answer = storage.do(effect)
    storage.run(remove(LAYOUT, "other"))
    storage.run(place(LAYOUT, "reader", first, "copy"))  # held: the checkpoint is still retained
    publish(storage, one, 2)  # … and is dropped now
    try:
        while True:
            answer = storage.do(sweep.send(answer))
    except StopIteration:
        pass
    assert file in storage.objects


def test_an_ex_owner_does_not_take_rows_away_that_its_successor_carries_on() -> None:
    """It slept between its entry and its commit; the successor's target refused, so the rows wait in the next checkpoint."""
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    rows = LAYOUT.staged(EpochId(Term(1), 5), Uid("out"), AttemptId(1), "r")
    waits = Committable(lineage=LINE, sink=Uid("out"), slot=0, epoch=EpochId(Term(1), 5), payload=rows.encode())
    storage.objects[rows] = b"rows"
    ref = storage.run(one.append_checkpoint(draft(one, 1, output=[waits])))
    assert isinstance(ref, CheckpointRef)
    storage.refused = {waits.epoch}
    two = owner(storage, "two", retained=2)
    publish(storage, two, 2)
    storage.refused.clear()
    assert storage.run(release(one)) is True  # it wakes up
    storage.run(Cleaner(one).clean(idle(2)))
    storage.run(Cleaner(one).sweep(idle(2)))
    assert rows in storage.objects


def test_rows_of_a_final_savepoint_stay_until_their_target_took_them() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    rows = LAYOUT.staged(EpochId(one.term, 5), Uid("out"), AttemptId(1), "rows")
    storage.objects[rows] = b"rows"
    waits = replace(committable(5), payload=rows.encode())
    end = draft(one, 1, output=[waits])
    ref = final_savepoint(storage, end)
    storage.run(one.append_terminal_savepoint(ref, end.contents))  # and dies before it commits
    storage.refused = {waits.epoch}
    two = owner(storage, "two")
    storage.run(Cleaner(two).sweep(idle(2)))
    assert rows in storage.objects
