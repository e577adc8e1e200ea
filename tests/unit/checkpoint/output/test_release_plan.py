"""The order of publication: whatever waits, however a job was rescaled, wherever a target fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import LINE, committable
from tidegate.checkpoint.effects import Commit, CommitFailed
from tidegate.checkpoint.output.committables import Ledger, commit, marks
from tidegate.checkpoint.output.release_plan import (
    Backoff,
    Bounds,
    CommitBatch,
    ReleaseSchedule,
    commit_batches,
    summary,
)
from tidegate.checkpoint.output.sink_output import OutputUpTo
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.ids import EpochId, Term, Uid

KEYS = 12
LAST = EpochId(Term(1_000), 0)


def at(ms: int) -> Instant:
    return Instant(MonotonicMs(ms), WallMs(0))


def waits(*committables: Committable) -> OutputUpTo:
    return Ledger(committables).up_to(LAST)


@dataclass
class Waiting:
    """Output of several runs of a job, each at a parallelism of its own, and the keys in every part of it."""

    keys: dict[Committable, list[int]] = field(default_factory=dict)

    def add(self, epoch: EpochId, slots: dict[int, list[int]]) -> None:
        for slot, keys in slots.items():
            self.keys[Committable(lineage=LINE, sink=Uid("out"), slot=slot, epoch=epoch, payload=b"")] = keys


@st.composite
def waiting(draw: st.DrawFn, keyed: bool) -> Waiting:
    """Keyed: a key's slot follows from the parallelism. Unkeyed: it may be another in every epoch."""
    found = Waiting()
    for term in range(1, draw(st.integers(1, 3)) + 1):
        parallelism = draw(st.integers(1, 4))
        for number in range(1, draw(st.integers(0, 3)) + 1):
            slots: dict[int, list[int]] = {}
            for key in draw(st.sets(st.integers(0, KEYS - 1), min_size=1, max_size=4)):
                slot = key * parallelism // KEYS if keyed else draw(st.integers(0, parallelism - 1))
                slots.setdefault(slot, []).append(key)
            found.add(EpochId(Term(term), number), slots)
    return found


class Target:
    """Publishes one request after the other, skips by marker, and checks the order of every key."""

    def __init__(self, keys: dict[Committable, list[int]], failures: Iterable[bool]) -> None:
        self._keys, self._failures = keys, iter(failures)
        self._last: dict[int, EpochId] = {}
        self.published: set[Committable] = set()

    def take(self, each: Committable) -> None:
        if each in self.published:
            return
        if next(self._failures, False):
            raise CommitFailed("down")
        for key in self._keys[each]:
            before = self._last.get(key)
            assert before is None or before <= each.epoch, f"{each.epoch} of key {key} came after {before}"
            self._last[key] = each.epoch
        self.published.add(each)
        if next(self._failures, False):
            raise CommitFailed("the answer was lost")

    def run(self, effects: Iterator[Commit]) -> bool:
        try:
            for effect in effects:
                for each in effect.committables:
                    self.take(each)
        except CommitFailed:
            return False
        return True


@given(st.booleans().flatmap(waiting), st.lists(st.booleans(), max_size=40))
def test_no_older_value_of_a_key_is_committed_after_a_newer_one(found: Waiting, failures: list[bool]) -> None:
    ledger, target = Ledger(found.keys), Target(found.keys, failures)
    while len(ledger):
        for batch in commit_batches(ledger.waiting()):
            if target.run(commit(batch)):  # type: ignore[arg-type]
                ledger.confirm(marks(batch.committables))
    assert target.published == set(found.keys)


@given(st.data(), st.booleans(), st.lists(st.booleans(), max_size=40))
def test_tasks_that_commit_independently_twice_and_late_keep_the_order_of_every_key(
    data: st.DataObject, keyed: bool, failures: list[bool]
) -> None:
    found = data.draw(waiting(keyed))
    ledger, schedule, target = Ledger(found.keys), ReleaseSchedule(), Target(found.keys, failures)
    given_out: list[CommitBatch] = []
    while len(ledger):
        asked = schedule.for_tasks(ledger.up_to(LAST), at(0), {Uid("out"): keyed})
        given_out += asked
        order = data.draw(st.sampled_from(given_out))  # one of now, or one that some process has forgotten to carry out
        if target.run(commit(order)) and order in asked:  # type: ignore[arg-type]
            ledger.confirm(marks(order.committables))
    assert target.published == set(found.keys)


def test_a_stage_ends_with_its_term() -> None:
    found = [committable(1, 0), committable(1, 1), committable(2, 0), committable(1, 0, term=2)]
    ledger, lengths = Ledger(found), []
    while len(ledger):
        stage = [each for slot in ledger.up_to(LAST).stage(Uid("out"), 500) for each in slot]
        lengths.append(len(stage))
        ledger.confirm(marks(stage))
    assert lengths == [3, 1]


def test_tasks_get_the_slots_of_a_stage_each_or_without_a_key_one_gets_all() -> None:
    found = [committable(1, 0), committable(1, 1), committable(2, 0), committable(1, 0, term=2)]
    by_slot = ReleaseSchedule().for_tasks(waits(*found), at(0), {Uid("out"): True})
    assert [each.committables for each in by_slot] == [(found[0], found[2]), (found[1],)]
    (together,) = ReleaseSchedule().for_tasks(waits(*found), at(0), {Uid("out"): False})
    assert together.committables == tuple(found)


def test_a_sink_that_failed_waits_longer_each_time_and_the_others_do_not_wait() -> None:
    schedule = ReleaseSchedule(Backoff(first_ms=100, greatest_ms=300, jitter=0.0))
    due = waits(committable(1), committable(1, sink="up"))
    assert [p.sink for p in schedule.begin(due, at(0))] == ["out", "up"]
    assert schedule.begin(due, at(0)) == []  # both are at work
    schedule.succeeded(Uid("up"), at(0))
    assert [schedule.failed(Uid("out"), "down", at(0), 0.5)] == [100]
    assert [p.sink for p in schedule.begin(due, at(99))] == ["up"]
    times = []
    for now in (100, 1_000, 10_000):
        assert [p.sink for p in schedule.begin(due, at(now))] == ["out"]
        times.append(schedule.failed(Uid("out"), "down", at(now), 0.5) - now)
    assert times == [200, 300, 300]
    assert schedule.wake_ms(at(10_000)) == 10_300
    assert [(str(w.sink), w.error) for w in summary(due, schedule)] == [("out", "down"), ("up", None)]
    schedule.hurry()
    assert [p.sink for p in schedule.begin(due, at(10_000))] == ["out"]
    schedule.succeeded(Uid("out"), at(10_000))
    assert schedule.failed(Uid("out"), "down again", at(0), 0.5) == 100


def test_a_sink_that_is_committing_again_has_no_wake_time() -> None:
    schedule = ReleaseSchedule(Backoff(first_ms=100, jitter=0.0))
    due, in_tasks = waits(committable(1), committable(1, sink="task")), {Uid("task"): True}
    for sink in ("out", "task"):
        schedule.failed(Uid(sink), "down", at(0), 0.5)
    assert schedule.wake_ms(at(0)) == 100
    assert [p.sink for p in schedule.begin(due, at(150), in_tasks)] == ["out"]
    assert [p.sink for p in schedule.for_tasks(due, at(150), in_tasks)] == ["task"]
    assert schedule.wake_ms(at(150)) is None


def test_a_committed_slot_does_not_end_the_backoff_after_the_failure_of_another() -> None:
    schedule = ReleaseSchedule(Backoff(first_ms=100, jitter=0.0))
    due, in_tasks = waits(committable(1), committable(1, 1)), {Uid("out"): True}
    assert len(schedule.for_tasks(due, at(0), in_tasks)) == 2
    schedule.failed(Uid("out"), "down", at(10), 0.5)
    schedule.succeeded(Uid("out"), at(20))
    assert schedule.for_tasks(waits(committable(1)), at(50), in_tasks) == []
    assert schedule.error(Uid("out")) == "down"
    assert len(schedule.for_tasks(waits(committable(1)), at(110), in_tasks)) == 1
    schedule.succeeded(Uid("out"), at(120))
    assert schedule.error(Uid("out")) is None


def test_the_wait_after_a_failure_has_a_random_part() -> None:
    backoff = Backoff(first_ms=1_000, jitter=0.2)
    assert (backoff.delay_ms(1, 0.0), backoff.delay_ms(1, 0.5), backoff.delay_ms(1, 0.999999)) == (800, 1_000, 1_200)
    assert backoff.delay_ms(500, 0.5) == 30_000


@pytest.mark.parametrize(("epochs", "size_bytes", "exceeded"), [(3, 99, False), (2, 99, True), (9, 20, True)])
def test_the_bound_counts_epochs_and_bytes_of_one_sink(epochs: int, size_bytes: int, exceeded: bool) -> None:
    due = [
        Committable(lineage=LINE, sink=Uid("out"), slot=slot, epoch=EpochId(Term(1), number), payload=b"", size_bytes=5)
        for slot in (0, 1)
        for number in (1, 2, 3)
    ]
    (found,) = summary(waits(*due), ReleaseSchedule())
    assert (found.epochs, found.size_bytes) == (3, 30)
    assert Bounds(epochs, size_bytes).exceeded_by(found) == exceeded
