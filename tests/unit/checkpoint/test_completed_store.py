"""A driver's time as the owner, step by step, with others acting in between."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.unit.checkpoint.history_kit import LAYOUT, LINE, PlainStorage, committable, release, signatures
from tidegate.checkpoint.claim import claim
from tidegate.checkpoint.completed_store import (
    CheckpointUnreadable,
    CompletedCheckpointStore,
    Draft,
    NotPublished,
    RunEnded,
)
from tidegate.checkpoint.contents import CheckpointContents
from tidegate.checkpoint.effects import Put
from tidegate.checkpoint.entry import CheckpointRef, Entry, RunOutcome
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.checkpoint.log import ClaimLost
from tidegate.checkpoint.metadata import Committable
from tidegate.checkpoint.metadata.errors import MetadataDamaged
from tidegate.checkpoint.pins import PinTooLate, place, remove
from tidegate.checkpoint.shared import InFlight
from tidegate.checkpoint.start import Start
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term, Uid

BODIES: dict[bytes, CheckpointContents] = {}


def owner(storage: PlainStorage, name: str, retained: int = 1, layout: JobLayout = LAYOUT) -> CompletedCheckpointStore:
    sign = signatures(name)
    entry = storage.run(claim(layout, Start(), lambda: next(sign), lambda: LINE, 1, force=True))
    assert isinstance(entry, Entry)
    store = CompletedCheckpointStore(layout, entry, lambda path, body: BODIES[body], lambda: next(sign), retained)
    storage.run(store.recover())
    storage.run(release(store))
    return store


def upload(storage: PlainStorage, store: CompletedCheckpointStore, id: int, name: str) -> str:
    path = LAYOUT.shared(store.term, TaskId(1, Slot(0)), AttemptId(1), id, name)
    storage.objects[path] = b"state"
    return path


def draft(
    store: CompletedCheckpointStore, id: int, files: Iterable[str] = (), output: Iterable[Committable] = ()
) -> Draft:
    store.ledger.accept(output)
    epoch = EpochId(store.term, id * 10)
    carried = store.ledger.carried_by(epoch)
    checksum = f"sha256:{store.entry.owner}-{store.term}-{id}".ljust(40, "0")
    body = json.dumps({"checksum": checksum}).encode()
    staged = frozenset(c.payload.decode() for c in carried)
    BODIES[body] = CheckpointContents(frozenset(files), staged, carried)
    return Draft(id, epoch, body, checksum, BODIES[body])


def publish(
    storage: PlainStorage, store: CompletedCheckpointStore, id: int, files: Iterable[str] = ()
) -> CheckpointRef:
    ref = storage.run(store.publish(draft(store, id, files)))
    assert isinstance(ref, CheckpointRef)
    return ref


def idle(id: int) -> InFlight:
    return InFlight(id)


def test_a_checkpoint_is_metadata_then_entry() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    ref = publish(storage, one, 1)
    assert ref.metadata == "job/chk-1/_metadata"
    assert list(storage.objects)[-2:] == [ref.metadata, LAYOUT.log(2)]
    assert one.entry.base == ref


@pytest.mark.feature("E14", "D27")
def test_only_the_newest_are_retained_and_the_rest_is_deleted_after_the_entry() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    a, b, c = (upload(storage, one, 1, name) for name in "abc")
    publish(storage, one, 1, [a, b])
    publish(storage, one, 2, [b])
    assert storage.run(one.clean(idle(3))) == 0
    publish(storage, one, 3, [b, c])
    storage.run(one.clean(idle(4)))
    assert a not in storage.objects
    assert {b, c} <= storage.objects.keys()
    assert [p for p in storage.objects if p.endswith("_metadata")] == ["job/chk-2/_metadata", "job/chk-3/_metadata"]


def test_who_loses_its_slot_stops_and_deletes_nothing() -> None:
    storage = PlainStorage()
    old = owner(storage, "old")
    file = upload(storage, old, 1, "a")
    new = owner(storage, "new")
    before = storage.objects.keys() - {LAYOUT.metadata(1)}
    with pytest.raises(ClaimLost) as lost:
        publish(storage, old, 1, [file])
    assert lost.value.winner == new.entry
    assert storage.objects.keys() - {LAYOUT.metadata(1)} == before


def test_a_predecessors_unpublished_metadata_is_not_taken_for_ones_own() -> None:
    storage = PlainStorage()
    old = owner(storage, "old")
    storage.objects[LAYOUT.metadata(1)] = draft(old, 1).metadata  # it died before its entry
    new = owner(storage, "new")
    ref = publish(storage, new, 1)
    assert ref.metadata == "job/chk-1.2/_metadata"
    storage.run(new.sweep(idle(2)))
    assert [p for p in storage.objects if p.endswith("_metadata")] == [ref.metadata]


def test_an_ex_owner_that_wakes_up_in_the_middle_of_a_sweep_harms_nobody() -> None:
    """Its list was made before it slept; meanwhile a successor has published from the same base."""
    storage = PlainStorage()
    old = owner(storage, "old")
    base, orphan = upload(storage, old, 1, "base"), upload(storage, old, 1, "orphan")
    publish(storage, old, 1, [base])
    sweep, answer = old.sweep(idle(2)), None
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


def test_files_that_a_pending_checkpoint_may_reuse_are_held() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    publish(storage, one, 2)
    storage.run(one.clean(InFlight(3, frozenset({first.metadata}))))
    assert file in storage.objects
    storage.run(one.clean(idle(4)))
    assert file not in storage.objects


def test_a_pin_placed_in_time_holds_and_one_placed_too_late_does_not() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    storage.run(place(LAYOUT, "reader", first, "copy"))
    publish(storage, one, 2)
    storage.run(one.clean(idle(3)))
    assert {file, first.metadata} <= storage.objects.keys()
    with pytest.raises(PinTooLate):
        storage.run(place(LAYOUT, "late", first, "copy"))
    storage.run(remove(LAYOUT, "reader"))
    storage.run(one.clean(idle(3)))
    assert not {file, first.metadata} & storage.objects.keys()


def test_a_pin_placed_while_a_sweep_runs_beside_a_publication_is_not_missed() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    storage.run(place(LAYOUT, "other", first, "makes the sweep read a pin"))
    sweep, answer = one.sweep(idle(2)), None
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


def test_output_becomes_visible_after_the_entry_and_its_rows_go_with_the_next_one() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    waits = committable(5)
    rows = waits.payload.decode()
    ref = storage.run(one.publish(draft(one, 1, output=[waits])))
    assert isinstance(ref, CheckpointRef)
    assert storage.committed == []
    assert one.shared.count(rows) == 1
    assert storage.run(release(one)) is True
    assert storage.committed == [waits]
    assert committed_record(ref.metadata) in storage.objects
    assert one.shared.count(rows) == 1
    publish(storage, one, 2)
    assert one.shared.count(rows) == 0


def test_an_ex_owner_does_not_take_rows_away_that_its_successor_carries_on() -> None:
    """It slept between its entry and its commit; the successor's target refused, so the rows wait in the next checkpoint."""
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    rows = LAYOUT.staged(EpochId(Term(1), 5), Uid("out"), AttemptId(1), "r")
    waits = Committable(lineage=LINE, sink=Uid("out"), partition=0, epoch=EpochId(Term(1), 5), payload=rows.encode())
    storage.objects[rows] = b"rows"
    ref = storage.run(one.publish(draft(one, 1, output=[waits])))
    assert isinstance(ref, CheckpointRef)
    storage.refused = {waits.epoch}
    two = owner(storage, "two", retained=2)
    publish(storage, two, 2)
    storage.refused.clear()
    assert storage.run(release(one)) is True  # it wakes up
    storage.run(one.clean(idle(2)))
    storage.run(one.sweep(idle(2)))
    assert rows in storage.objects


def test_what_a_target_did_not_take_is_carried_on() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    waits = committable(5)
    storage.refused = {waits.epoch}
    ref = storage.run(one.publish(draft(one, 1, output=[waits])))
    assert isinstance(ref, CheckpointRef)
    assert storage.run(release(one)) is False
    assert committed_record(ref.metadata) not in storage.objects
    assert draft(one, 2).contents.committables == (waits,)


@pytest.mark.feature("J21", "H2")
def test_a_successor_commits_what_its_predecessor_could_not() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    storage.run(one.publish(draft(one, 1, output=[committable(5)])))  # and dies
    two = owner(storage, "two")
    assert storage.committed == [committable(5)]
    assert draft(two, 2).contents.committables == ()
    owner(storage, "three")
    assert storage.committed == [committable(5)]  # the record says so; not even a repeat


def test_a_rollback_still_commits_what_it_turns_away_from() -> None:
    """What once completed becomes visible, in order; otherwise the rollback's own output would overtake it for ever."""
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    older = publish(storage, one, 1)
    storage.run(one.publish(draft(one, 2, output=[committable(5)])))  # and dies before it commits
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


def test_a_damaged_base_is_an_error_and_a_damaged_older_one_is_named() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    older, base = publish(storage, one, 1), publish(storage, one, 2)
    del storage.objects[older.metadata]
    assert owner(storage, "two", retained=2).unreadable == [older]
    storage.objects[base.metadata] = b"something else"
    with pytest.raises(CheckpointUnreadable, match="chk-2"):
        owner(storage, "three", retained=2)


def test_an_end_without_retention_gives_the_checkpoints_up_before_it_deletes_them() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    ref = publish(storage, one, 1, [file])
    storage.run(one.finish(RunOutcome.CANCELED, keep=False))
    assert one.entry.retained == ()
    storage.run(one.clean(idle(2)))
    assert not {file, ref.metadata} & storage.objects.keys()
    with pytest.raises(RunEnded):
        publish(storage, one, 2)


def test_an_end_gives_nothing_up_that_still_owes_output() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    storage.run(one.publish(draft(one, 1, output=[committable(5)])))
    storage.run(one.finish(RunOutcome.CANCELED, keep=False))
    assert [ref.id for ref in one.entry.retained] == [1]


def test_a_savepoint_that_ends_the_job_is_the_base_of_the_next_run_and_commits_after_its_entry() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    waits = committable(5)
    end = draft(one, 1, output=[waits])
    ref = CheckpointRef(
        id=1,
        term=Term(1),
        epoch=end.epoch,
        lineage=LINE,
        metadata="savepoints/x/_metadata",
        checksum=end.checksum,
        owned=False,
    )
    storage.objects[ref.metadata] = end.metadata
    storage.run(one.publish_terminal(ref, end.contents))  # and dies before it commits
    assert storage.committed == []
    two = owner(storage, "two")
    assert two.entry.base == ref
    assert storage.committed == [waits]
    assert committed_record(ref.metadata) not in storage.objects  # the savepoint is the user's


def test_an_older_checkpoint_cannot_be_published_after_a_newer_one() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    late = draft(one, 1)
    newer = publish(storage, one, 2)
    with pytest.raises(NotPublished, match="too late"):
        storage.run(one.publish(late))
    assert one.entry.base == newer


def test_rows_of_a_final_savepoint_stay_until_their_target_took_them() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    rows = LAYOUT.staged(EpochId(one.term, 5), Uid("out"), AttemptId(1), "rows")
    storage.objects[rows] = b"rows"
    waits = replace(committable(5), payload=rows.encode())
    end = draft(one, 1, output=[waits])
    ref = CheckpointRef(
        id=1,
        term=Term(1),
        epoch=end.epoch,
        lineage=LINE,
        metadata="savepoints/x/_metadata",
        checksum=end.checksum,
        owned=False,
    )
    storage.objects[ref.metadata] = end.metadata
    storage.run(one.publish_terminal(ref, end.contents))  # and dies before it commits
    storage.refused = {waits.epoch}
    two = owner(storage, "two")
    storage.run(two.sweep(idle(2)))
    assert rows in storage.objects


def test_a_finished_job_that_owes_output_is_suspended_and_its_next_start_commits() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    storage.run(one.publish(draft(one, 1, output=[committable(5)])))
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


def test_output_is_settled_once_no_checkpoint_without_a_record_carries_it() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    first = committable(10)
    storage.refused = {first.epoch}
    storage.run(one.publish(draft(one, 1, output=[first])))
    assert not storage.run(release(one))
    assert first in one.unsettled()
    storage.refused = set()
    storage.run(one.publish(draft(one, 2)))
    steps = release(one)
    for effect in steps:
        storage.do(effect)
        if isinstance(effect, Put):
            break  # it dies when only the first one is recorded
    assert first in one.unsettled()  # the second one is retained, and nobody noted that it is committed
    assert storage.run(release(one))
    assert {committed_record(LAYOUT.metadata(id)) for id in (1, 2)} <= storage.objects.keys()
    for id in (3, 4):
        publish(storage, one, id)
        storage.run(one.clean(idle(id + 1)))
    assert first not in one.unsettled()
