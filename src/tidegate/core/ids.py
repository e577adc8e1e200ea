"""The identifiers of tidegate, each with its own type. Together they are the glossary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

Uid = NewType("Uid", str)
"""The permanent name of an operator, a source or a sink. Chosen by the user; state and positions are stored under
it."""

Lineage = NewType("Lineage", str)
"""Identifies a line of history: generated when a job is created, new for a fork. With the epoch it identifies output
permanently."""

Term = NewType("Term", int)
"""Identifies a claim of a job. Every run of a driver has its own; it only grows, across restarts and rollbacks.

The high bits count the claims (`ordinal`), the low 32 bits are random: a job that is restored from a backup counts the same
number again, and nothing that its new claim names may have the name of something that the lost history wrote. The first claim
of a job is 1, since its lineage is new. Terms of earlier versions of tidegate are counts without random bits.
"""

_RANDOM_BITS: Final = 32


def term_of(ordinal: int, random_bits: int | None) -> Term:
    """Return the term of the claim with this number. None: without random bits, for tests."""
    if random_bits is None:
        return Term(ordinal)
    # The count is in the high bits, so terms of one history are ordered by their claims, whatever the random bits are.
    return Term(ordinal << _RANDOM_BITS | random_bits & (1 << _RANDOM_BITS) - 1)


def ordinal(term: Term | int) -> int:
    """Return the number of a claim, as people see it."""
    # A small number is a count without random bits: of a test, or of an earlier version.
    return term if term < 1 << _RANDOM_BITS else term >> _RANDOM_BITS


Slot = NewType("Slot", int)
"""Index of a share of the key groups, 0 to parallelism - 1. Placement decides which Spark partition serves it."""

Partition = NewType("Partition", int)
"""Index of a Spark partition of a level, 0 to parallelism - 1."""

AttemptId = NewType("AttemptId", int)
"""Spark's `taskAttemptId`: unique in one Spark application, so unique within a term."""

HostId = NewType("HostId", str)
"""Identifies a local state root: the UUID stored in it and the boot id of its machine."""

KeyGroup = NewType("KeyGroup", int)
"""The smallest unit of keyed state distribution, 0 to max parallelism - 1."""


@dataclass(frozen=True, slots=True, order=True)
class EpochId:
    """One pass of data through the whole graph. Ordered; never reused, across restarts, rollbacks and upgrades."""

    term: Term
    number: int

    def __str__(self) -> str:
        """For people: the number of the claim and of the epoch. Names use `name`, which is unique."""
        return f"{ordinal(self.term)}.{self.number}"

    @property
    def name(self) -> str:
        """The epoch in names of files and markers. No other history of the job has the same."""
        return f"{self.term}.{self.number}"

    @property
    def as_checkpoint_id(self) -> int:
        """The epoch as functions know it: one number, greater for every later epoch of the job. In the first run of a job it is
        the number of the epoch."""
        # 32 bits hold the number of an epoch for 136 years, at one a second.
        return (ordinal(self.term) - 1) << 32 | self.number

    def next(self) -> EpochId:
        return EpochId(self.term, self.number + 1)


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """One slot of one level: the holder of a share of the state of every operator of that level."""

    level: int
    slot: Slot

    def __str__(self) -> str:
        return f"L{self.level}-S{self.slot}"
