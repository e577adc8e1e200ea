"""An epoch is accepted whole or not at all."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.core.ids import EpochId, Term
from tidegate.runtime.epochs.check import (
    Accepted,
    Broken,
    Damaged,
    Expected,
    Missed,
    misplaced_tasks,
    verify_epoch,
)
from tidegate.runtime.exchange.messages import Barrier, Fault, FaultKind, TaskAck, digest, encode

EPOCH = EpochId(Term(3), 7)
P = 2


def ack(level: int, slot: int, above: bytes, **changes) -> TaskAck:
    base = TaskAck(3, 7, level, slot, slot, 100 * level + slot, "h", f"3/v7-{100 * level + slot}", above, 5, 5)
    return msgspec.structs.replace(base, **changes)


def two_levels() -> list[TaskAck]:
    first = digest([(0, 100), (1, 101)])
    return [ack(1, 0, digest(())), ack(1, 1, digest(())), ack(2, 0, first), ack(2, 1, first)]


def rows(acks: list[TaskAck], senders=(0, 1), epoch=(3, 7)) -> list[bytes]:
    """Control rows of the last level; the acknowledgements travel in the first."""
    return [
        encode(Barrier(*epoch, 2, sender, 200 + sender, sender, 0, False, tuple(map(encode, acks)) if i == 0 else ()))  # type: ignore[call-arg]
        for i, sender in enumerate(senders)
    ]


def verdict(acks: list[TaskAck], **changes):
    return verify_epoch(Expected(EPOCH, 2, P, source_tasks=False), rows(acks, **changes))


@pytest.mark.feature("C14")
def test_a_whole_epoch_is_accepted():
    assert verdict(two_levels()) == Accepted(tuple(two_levels()))


@pytest.mark.feature("C14")
@pytest.mark.parametrize("lost", range(4))
def test_each_missing_acknowledgement_breaks_the_epoch(lost):
    acks = two_levels()
    del acks[lost]
    assert isinstance(verdict(acks), Broken)


@pytest.mark.feature("C14")
@pytest.mark.parametrize("doubled", range(4))
def test_each_double_acknowledgement_breaks_the_epoch(doubled):
    acks = two_levels()
    acks.append(acks[doubled])
    assert isinstance(verdict(acks), Broken)


@pytest.mark.feature("C14")
@pytest.mark.parametrize("senders", [(0,), (0, 0), (0, 1, 1), ()])
def test_the_last_level_answers_once_from_each_slot(senders):
    assert isinstance(verdict(two_levels(), senders=senders), Broken)


@pytest.mark.feature("C9", "C14")
def test_a_barrier_of_another_epoch_is_refused():
    assert isinstance(verdict(two_levels(), epoch=(3, 6)), Broken)
    assert isinstance(verdict(two_levels(), epoch=(2, 7)), Broken)


@pytest.mark.feature("C9", "C14")
def test_an_acknowledgement_of_another_epoch_is_refused():
    acks = two_levels()
    acks[1] = msgspec.structs.replace(acks[1], number=6)
    assert isinstance(verdict(acks), Broken)


@pytest.mark.feature("C3")
@pytest.mark.parametrize("reader", [2, 3])
def test_mixed_attempts_are_seen_by_their_digest(reader):
    acks = two_levels()
    acks[reader] = msgspec.structs.replace(acks[reader], digest=digest([(0, 100), (1, 999)]))
    found = verdict(acks)
    assert isinstance(found, Broken)
    assert "other attempts" in found.reason


@pytest.mark.feature("C3")
def test_all_readers_agreeing_on_another_attempt_than_acknowledged_is_seen_too():
    acks = two_levels()
    for reader in (2, 3):
        acks[reader] = msgspec.structs.replace(acks[reader], digest=digest([(0, 100), (1, 999)]))
    assert isinstance(verdict(acks), Broken)


@pytest.mark.feature("C14")
def test_partitions_beyond_the_parallelism_mean_that_the_anchor_was_not_zipped():
    acks = two_levels()
    acks[1] = msgspec.structs.replace(acks[1], partition=3)
    found = verdict(acks)
    assert isinstance(found, Broken)
    assert "anchor" in found.reason


def test_a_miss_explains_the_poison_below_it():
    acks = two_levels()
    acks[0] = msgspec.structs.replace(acks[0], fault=Fault(FaultKind.MISS, "not here"))
    acks[2] = msgspec.structs.replace(acks[2], fault=Fault(FaultKind.POISONED, "above"))
    assert verdict(acks) == Missed((acks[0],))


def test_a_damaged_version_is_distinguished_from_a_missing_one():
    acks = two_levels()
    acks[0] = msgspec.structs.replace(acks[0], fault=Fault(FaultKind.CORRUPT, "short file"))
    acks[1] = msgspec.structs.replace(acks[1], fault=Fault(FaultKind.MISS, "not here"))
    assert verdict(acks) == Damaged((acks[0],))


@pytest.mark.feature("C13", "C14")
@pytest.mark.parametrize("faulty", range(4))
def test_a_protocol_fault_breaks_the_epoch(faulty):
    acks = two_levels()
    acks[faulty] = msgspec.structs.replace(
        acks[faulty], fault=Fault(FaultKind.PROTOCOL, "3 rows were read, but 4 were sent")
    )
    assert "4 were sent" in verdict(acks).reason


@pytest.mark.feature("C3", "C6")
def test_source_tasks_are_held_against_each_other_by_digest():
    above = digest([(0, 1), (1, 2), (2, 3)])
    sources = [ack(0, i, digest(()), attempt=i + 1, partition=i) for i in range(3)]
    first = [ack(1, 0, above), ack(1, 1, above)]
    second = digest([(0, 100), (1, 101)])
    acks = [*sources, *first, ack(2, 0, second), ack(2, 1, second)]
    expected = Expected(EPOCH, 2, P, source_tasks=True)
    assert isinstance(verify_epoch(expected, rows(acks)), Accepted)
    acks[4] = msgspec.structs.replace(acks[4], digest=digest([(0, 1), (1, 2)]))
    assert isinstance(verify_epoch(expected, rows(acks)), Broken)


@pytest.mark.feature("A12")
def test_a_first_version_made_away_from_the_anchor_is_a_miss():
    acks = two_levels()
    assert misplaced_tasks(Accepted(tuple(acks)), ["h", "h"]) is None
    assert misplaced_tasks(Accepted(tuple(acks)), ["h", "other"]) == Missed((acks[1], acks[3]))
    acks = [msgspec.structs.replace(ack, version=None) for ack in acks]
    assert misplaced_tasks(Accepted(tuple(acks)), ["h", "other"]) is None
