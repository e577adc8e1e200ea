"""The files of a job that has ended, found by who does not own it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.checkpoint.history_kit import (
    BODIES,
    LAYOUT,
    PlainStorage,
    committable,
    draft,
    final_savepoint,
    idle,
    owner,
    publish,
    upload,
)
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import CheckpointUnreadable, CompletedCheckpointStore
from tidegate.checkpoint.completed.ended_job import unneeded_files
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.job_log.entry import RunOutcome
from tidegate.checkpoint.job_log.pins import place
from tidegate.core.ids import AttemptId, EpochId, Uid


def found(storage: PlainStorage) -> set[str]:
    steps = unneeded_files(LAYOUT, lambda path, body: BODIES[body])
    files = storage.run(steps)
    assert isinstance(files, list)
    return set(files)


def stage(storage: PlainStorage, one: CompletedCheckpointStore, number: int) -> str:
    path = LAYOUT.staged(EpochId(one.term, number), Uid("out"), AttemptId(1), "rows")
    storage.objects[path] = b"rows"
    return path


def ended(storage: PlainStorage, one: CompletedCheckpointStore, keep: bool = True) -> None:
    storage.run(one.finish(RunOutcome.SUSPENDED if keep else RunOutcome.CANCELED, keep))


def test_what_an_ended_run_left_is_found_and_what_a_start_needs_is_not() -> None:
    storage = PlainStorage()
    first = owner(storage, "first")
    lost = {upload(storage, first, 1, "lost"), stage(storage, first, 3)}
    one = owner(storage, "one")
    needed = upload(storage, one, 1, "needed")
    lost |= {upload(storage, one, 1, "orphan"), upload(storage, one, 2, "pending"), stage(storage, one, 11)}
    ref = publish(storage, one, 1, [needed])
    assert found(storage) == set()  # it may publish checkpoint 2 out of files that no entry names
    ended(storage, one)
    before = dict(storage.objects)
    assert found(storage) == lost
    assert storage.objects == before
    for path in lost:
        del storage.objects[path]
    again = owner(storage, "again")
    assert again.entry.base == ref
    storage.run(Cleaner(again).sweep(idle(2)))
    assert needed in storage.objects


def test_the_next_owner_would_delete_the_same() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    publish(storage, one, 1, [upload(storage, one, 1, "needed")])
    for name in "abc":
        upload(storage, one, 1, name)
    stage(storage, one, 10)
    ended(storage, one)
    expected = found(storage)
    before = set(storage.objects)
    storage.run(Cleaner(owner(storage, "two")).sweep(idle(2)))
    assert before - set(storage.objects) == expected
    assert len(expected) == 4


def test_rows_that_a_terminal_savepoint_carries_are_needed() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    end = draft(one, 1, output=[replace(committable(5, term=one.term), payload=stage(storage, one, 5).encode())])
    storage.run(one.append_terminal_savepoint(final_savepoint(storage, end), end.contents))
    orphan = stage(storage, one, 6)
    assert found(storage) == {orphan}


def test_a_job_that_kept_no_checkpoint_leaves_everything() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    ref = publish(storage, one, 1, [file])
    ended(storage, one, keep=False)
    assert {file, ref.metadata} <= found(storage)
    storage.run(Cleaner(one).clean(idle(2)))
    late = upload(storage, one, 1, "late")
    assert found(storage) == {late}


def test_a_pinned_checkpoint_is_needed() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    file = upload(storage, one, 1, "a")
    first = publish(storage, one, 1, [file])
    storage.run(place(LAYOUT, "reader", first, "copy"))
    publish(storage, one, 2)
    ended(storage, one)
    assert not {file, first.metadata} & found(storage)


def test_nothing_is_found_while_a_snapshot_cannot_be_read() -> None:
    storage = PlainStorage()
    one = owner(storage, "one", retained=2)
    upload(storage, one, 1, "orphan")
    first = publish(storage, one, 1, [])
    publish(storage, one, 2, [])
    ended(storage, one)
    storage.objects[first.metadata] = b"damaged"
    with pytest.raises(CheckpointUnreadable):
        found(storage)


def test_nothing_is_found_if_a_driver_claims_the_job_meanwhile() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    publish(storage, one, 1)
    stage(storage, one, 10)
    ended(storage, one)
    steps = unneeded_files(LAYOUT, lambda path, body: BODIES[body])
    answer: object = None
    while type(effect := steps.send(answer)).__name__ != "ListNames" or effect.prefix != f"{LAYOUT.root}/pins":
        answer = storage.do(effect)
    owner(storage, "two")
    answer = storage.do(effect)
    assert storage.run(resumed(steps, answer)) == []


def resumed(steps: Steps[list[str]], answer: object) -> Steps[list[str]]:
    """The rest of a protocol that was interrupted before `answer`."""
    try:
        while True:
            answer = yield steps.send(answer)
    except StopIteration as end:
        return end.value
