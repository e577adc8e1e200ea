"""The ledger against a model that rebuilds everything, and what its answers cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.checkpoint.history_kit import LINE
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.metadata import CommittedMark
from tidegate.checkpoint.output.committables import Carried, Channel, Ledger, channel, marks
from tidegate.checkpoint.output.committer_choice import CommitterChoice
from tidegate.checkpoint.output.release_plan import ReleaseSchedule, commit_batches, summary
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

NOW = Instant(MonotonicMs(0), WallMs(0))


class RebuildingLedger:
    """The ledger as it was: one dictionary, rebuilt by everything that removes something."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[Channel, EpochId], Committable] = {}
        self.forgotten: set[tuple[Channel, EpochId]] = set()

    def accept(self, committables: Iterable[Committable]) -> None:
        for committable in committables:
            self.waiting.setdefault((channel(committable), committable.epoch), committable)

    def up_to(self, epoch: EpochId) -> list[Committable]:
        return [c for c in self.waiting.values() if c.epoch <= epoch]

    def confirm(self, committed: Iterable[CommittedMark]) -> None:
        last: dict[Channel, EpochId] = {}
        for mark in committed:
            key = (mark.lineage, mark.sink, mark.partition)
            last[key] = max(last.get(key, mark.epoch), mark.epoch)
        self.waiting = {
            key: c for key, c in self.waiting.items() if key[0] not in last or c.epoch > last[key[0]]
        }  # fmt: skip

    def rewind(self, term: Term, epoch: EpochId | None) -> None:
        self.waiting = {
            key: c
            for key, c in self.waiting.items()
            if c.epoch.term != term or (epoch is not None and c.epoch <= epoch)
        }

    def forget(self, sink: Uid) -> None:
        self.forgotten |= {key for key, c in self.waiting.items() if c.sink == sink}
        self.waiting = {key: c for key, c in self.waiting.items() if c.sink != sink}

    def stage(self, sink: Uid, epoch: EpochId, most: int) -> list[list[Committable]]:
        """The first output of each slot in the first term that waits."""
        ordered = sorted((c for c in self.up_to(epoch) if c.sink == sink), key=lambda c: (c.epoch, c.slot))
        slots: dict[int, list[Committable]] = {}
        for committable in ordered:
            if committable.epoch.term == ordered[0].epoch.term:
                slots.setdefault(committable.slot, []).append(committable)
        return [some[:most] for some in slots.values()]


def committable(lineage: str, sink: str, slot: int, term: int, number: int, size_bytes: int = 1) -> Committable:
    return Committable(
        lineage=Lineage(lineage),
        sink=Uid(sink),
        slot=Slot(slot),
        epoch=EpochId(Term(term), number),
        payload=b"rows" * size_bytes,
        size_bytes=size_bytes,
    )


EPOCHS = st.builds(EpochId, st.integers(1, 3).map(Term), st.integers(1, 4))
SINKS = st.sampled_from(["files", "table"])
COMMITTABLES = st.builds(
    committable, st.sampled_from([LINE, "other"]), SINKS, st.integers(0, 2), st.integers(1, 3), st.integers(1, 4),
    st.integers(0, 9),
)  # fmt: skip


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.model = Ledger(), RebuildingLedger()
        self.carried: list[Carried] = []

    @rule(some=st.lists(COMMITTABLES, max_size=8))
    def accept(self, some: list[Committable]) -> None:
        # As in a run: no epoch is numbered twice, so what once left is not accepted again.
        known = {(channel(c), c.epoch) for each in self.carried for c in each.contents.committables}
        some = [c for c in some if (channel(c), c.epoch) not in known]
        self.ledger.accept(some)
        self.model.accept(some)

    @rule(epoch=EPOCHS)
    def checkpoint(self, epoch: EpochId) -> None:
        carried = self.ledger.carried_by(epoch)
        assert len(carried) == len(set(carried))
        assert set(carried) == set(self.model.up_to(epoch))
        self.carried.append(Carried(CheckpointContents(frozenset(), frozenset(), carried)))

    @rule(some=st.lists(COMMITTABLES, max_size=4))
    def confirm(self, some: list[Committable]) -> None:
        told = [CommittedMark(c.lineage, c.sink, c.slot, c.epoch) for c in some]
        self.ledger.confirm(told)
        self.model.confirm(told)

    @rule(term=st.integers(1, 3).map(Term), number=st.none() | st.integers(1, 4))
    def rewind(self, term: Term, number: int | None) -> None:
        epoch = None if number is None else EpochId(term, number)
        self.ledger.rewind(term, epoch)
        self.model.rewind(term, epoch)

    @rule(sink=SINKS.map(Uid))
    def forget(self, sink: Uid) -> None:
        self.ledger.forget(sink)
        self.model.forget(sink)

    @rule(epoch=EPOCHS, most=st.integers(1, 3))
    def ask(self, epoch: EpochId, most: int) -> None:
        due, expected = self.ledger.up_to(epoch), commit_batches(self.model.up_to(epoch))
        assert due.waiting_sinks() == [each.sink for each in expected]
        assert bool(due) == bool(expected)
        assert due.first() == min((each.committables[0].epoch for each in expected), default=None)
        assert due.newest() == max((each.last for each in expected), default=None)
        assert [(w.sink, w.epochs, w.size_bytes, w.since) for w in summary(due, ReleaseSchedule())] == [
            (each.sink, len({c.epoch for c in each.committables}), sum(c.size_bytes for c in each.committables),
             each.committables[0].epoch)
            for each in expected
        ]  # fmt: skip
        for each in expected:
            assert _places(due.of(each.sink)) == _places(each.committables)
            assert _places(due.of(each.sink, most)) == _places(each.committables[:most])
            assert set(due.of(each.sink)) == set(each.committables)
            stage = due.stage(each.sink, most)
            assert [_places(some) for some in stage] == [
                _places(some) for some in self.model.stage(each.sink, epoch, most)
            ]

    @invariant()
    def same(self) -> None:
        waiting = self.ledger.waiting()
        assert len(self.ledger) == len(waiting) == len(self.model.waiting)
        assert set(waiting) == set(self.model.waiting.values())
        assert self.ledger.sinks() == sorted({c.sink for c in waiting})
        assert self.ledger.payload_bytes == sum(len(c.payload) for c in waiting)
        for each in self.carried:
            content = each.contents.committables
            held = any((channel(c), c.epoch) in self.model.waiting for c in content)
            assert self.ledger.holds(content) == each.is_in(self.ledger) == held
            forgotten = any((channel(c), c.epoch) in self.model.forgotten for c in content)
            assert self.ledger.has_forgotten(content) == forgotten


def _places(some: Iterable[Committable]) -> list[tuple[EpochId, int]]:
    """Of two lineages in one epoch and slot, either may come first."""
    return [(c.epoch, c.slot) for c in some]


TestLedgerAgainstModel = LedgerMachine.TestCase
TestLedgerAgainstModel.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def steps_of(act: Callable[[], object]) -> int:
    """Return how many instructions of Python it takes. Unlike a time, the same on every machine."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def backlog(slots: int, epochs: int) -> Ledger:
    return Ledger(committable(LINE, "out", slot, 1, n) for n in range(1, epochs + 1) for slot in range(slots))


def first_of(slot: int) -> tuple[CommittedMark, ...]:
    return marks([committable(LINE, "out", slot, 1, 1)])


@pytest.mark.parametrize(("slots", "epochs"), [(200, 2), (2, 200), (50, 50)])
def test_a_result_costs_what_it_confirms_however_much_waits(slots: int, epochs: int) -> None:
    small, great = backlog(2, 2), backlog(slots, epochs)
    few = steps_of(lambda: small.confirm(first_of(1)))
    many = steps_of(lambda: great.confirm(first_of(1)))
    assert many < 3 * few  # a search among the epochs of its slot


def test_questions_about_a_sink_cost_its_epochs_and_not_its_slots() -> None:
    def ask(ledger: Ledger) -> None:
        due = ledger.up_to(EpochId(Term(1), 50))
        summary(due, ReleaseSchedule())
        CommitterChoice([Uid("out")]).of_driver(due, (), NOW)
        assert due
        due.first()
        due.newest()

    narrow, wide = backlog(2, 20), backlog(200, 20)
    assert steps_of(lambda: ask(wide)) == steps_of(lambda: ask(narrow))


def test_a_checkpoint_reads_each_committable_once_while_they_are_committed() -> None:
    slots, epochs = 20, 20
    ledger = backlog(slots, epochs)
    carried = Carried(CheckpointContents(frozenset(), frozenset(), ledger.waiting()))
    total, once = 0, steps_of(lambda: ledger.holds(ledger.waiting()[:1]))
    for slot in reversed(range(slots)):
        for number in range(1, epochs + 1):
            ledger.confirm(marks([committable(LINE, "out", slot, 1, number)]))
            total += steps_of(lambda: carried.is_in(ledger))
    assert not carried.is_in(ledger)
    assert total < 4 * once * slots * epochs
