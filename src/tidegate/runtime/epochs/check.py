"""Decides whether an epoch is complete, only from the control rows that reached the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate.core.ids import EpochId, HostId
from tidegate.runtime.exchange.messages import Barrier, FaultKind, TaskAck, decode_ack, decode_barrier, digest
from tidegate.runtime.exchange.user_code import UserErrorReport, decoded


@dataclass(frozen=True, slots=True)
class Expected:
    """What a complete epoch looks like."""

    epoch: EpochId
    levels: int
    parallelism: int
    source_tasks: bool
    """Whether the source stage runs Python, and therefore sends barriers and acknowledgements. Spark decides on their number."""


@dataclass(frozen=True, slots=True)
class Accepted:
    acks: tuple[TaskAck, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """Tasks that found no version to start from. Nothing is broken; they ran on the wrong host, or the version is gone."""

    acks: tuple[TaskAck, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """What arrived is not what was sent. The epoch is discarded; a repeat may be complete."""

    reason: str


@dataclass(frozen=True, slots=True)
class Damaged:
    """A version on local disk is damaged; a repeat would encounter it again."""

    acks: tuple[TaskAck, ...]


@dataclass(frozen=True, slots=True)
class Unrestorable:
    """Part of a checkpoint is missing from its storage, or is damaged there. No retry helps."""

    acks: tuple[TaskAck, ...]


@dataclass(frozen=True, slots=True)
class UserFailed:
    """User functions raised, on complete input."""

    reports: tuple[UserErrorReport, ...]


EpochCheck = Accepted | Missed | Broken | Damaged | Unrestorable | UserFailed


def verify_epoch(expected: Expected, control_rows: Iterable[bytes]) -> EpochCheck:
    """Accept an epoch only if every task of every level acknowledged once, and all tasks of a level consumed the same attempts.

    1. The last level's barriers: one from each slot, of this epoch.
    2. Faults: a task that could not do its work explains everything that is missing below it.
    3. Acknowledgements: exactly one for each (level, slot), of this epoch, from a partition below the parallelism.
    4. Digests: each task of level n consumed exactly the attempts of level n-1 whose acknowledgements arrived.
    """
    barriers = [decode_barrier(row) for row in control_rows]
    if reason := _barrier_problem(expected, barriers):
        return Broken(reason)

    by_level: defaultdict[int, list[TaskAck]] = defaultdict(list)
    for barrier in barriers:
        for raw in barrier.acks:
            ack = decode_ack(raw)
            by_level[ack.level].append(ack)
    acks = tuple(ack for level in sorted(by_level) for ack in by_level[level])

    # Faults before counts: a task that failed poisons its barriers, and what is missing below it follows from that.
    if (fault := _fault(acks)) is not None:
        return fault
    if reason := _acknowledgement_problem(expected, by_level) or _digest_problem(expected, by_level):
        return Broken(reason)
    return Accepted(acks)


def _barrier_problem(expected: Expected, barriers: Sequence[Barrier]) -> str | None:
    """Return what is wrong with the control rows of the last level, if something is."""
    wrong = sorted(b.sender for b in barriers if (b.term, b.number) != (expected.epoch.term, expected.epoch.number))
    if wrong:
        return f"slots {wrong} of the last level reported for another epoch than {expected.epoch}"
    slots = list(range(expected.parallelism))
    answered = sorted(b.sender for b in barriers)
    if answered != slots:
        return f"the last level reported from slots {answered}, not once from each of {expected.parallelism}"
    return None


def _fault(acks: Sequence[TaskAck]) -> EpochCheck | None:
    """Return the gravest of the faults that tasks report. Several tasks may report different ones, and the answer to the
    gravest one contains the answer to the others: no retry helps, discard a version, find the version, report the user's error.
    """
    by_kind: dict[FaultKind, list[TaskAck]] = defaultdict(list)
    for ack in acks:
        if ack.fault is not None:
            by_kind[ack.fault.kind].append(ack)
    if lost := by_kind.get(FaultKind.RESTORE):
        return Unrestorable(tuple(lost))
    if corrupt := by_kind.get(FaultKind.CORRUPT):
        return Damaged(tuple(corrupt))
    if missed := by_kind.get(FaultKind.MISS):
        return Missed(tuple(missed))
    if failed := by_kind.get(FaultKind.USER):
        return UserFailed(tuple(decoded(ack.fault.text) for ack in failed if ack.fault is not None))
    for ack in acks:
        if ack.fault is not None:
            return Broken(f"level {ack.level}, slot {ack.sender}: {ack.fault.text}")
    return None


def _acknowledgement_problem(expected: Expected, by_level: defaultdict[int, list[TaskAck]]) -> str | None:
    """Return the first level whose tasks did not acknowledge this epoch, each once and each from a partition of its own."""
    slots = list(range(expected.parallelism))
    for level in range(1, expected.levels + 1):
        found = sorted(ack.sender for ack in by_level[level])
        if found != slots:
            return (
                f"level {level} has acknowledgements from slots {found}, not once from each of {expected.parallelism}"
            )
        if any(ack.epoch != expected.epoch for ack in by_level[level]):
            return f"level {level} acknowledged another epoch than {expected.epoch}"
        ran = sorted(ack.partition for ack in by_level[level])
        if ran != slots:
            return f"level {level} ran on partitions {ran}: the anchor was not zipped with its input"
    return None


def _digest_problem(expected: Expected, by_level: defaultdict[int, list[TaskAck]]) -> str | None:
    """Return the first level of which some tasks read other attempts than those that acknowledged.

    Spark may rerun a task of the level above after some of its readers have finished. The rerun may order or compute rows
    differently, so readers of the first attempt and of the second do not belong to one epoch.
    """
    for level in range(1, expected.levels + 1):
        if level == 1 and not expected.source_tasks:
            continue  # plain SQL above it sends no barriers; Spark's checksums guard that shuffle
        sent = digest((ack.sender, ack.attempt) for ack in by_level[level - 1])
        mixed = [ack.sender for ack in by_level[level] if ack.digest != sent]
        if mixed:
            return f"slots {mixed} of level {level} read other attempts of level {level - 1} than the ones acknowledged"
    return None


def misplaced_tasks(accepted: Accepted, layout: Sequence[HostId]) -> Missed | None:
    """Return tasks that created a version on a host other than that of their partition. Only a task without a version to
    start from can; if it were allowed, the versions of a level would be distributed over hosts in numbers that no anchor
    has, and their slots could not be placed.
    """
    found = tuple(
        ack for ack in accepted.acks if ack.level > 0 and ack.version is not None and ack.host != layout[ack.partition]
    )
    return Missed(found) if found else None
