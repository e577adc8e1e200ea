"""How an assignment travels: what the tasks of a level share, and for each task its own part, which only that task opens.

Spark sends one function to all tasks of a level. If it held the work of all slots as objects, every task would build the
objects of all the others.

1. The driver packs the work of each slot for itself (`pack`). Work that is long in total, as in a restore or while a backlog of
   output is committed, goes into one object in the job's storage (`PackedAssignment.stored_at`), and each task reads its range.
   A crash leaves an object that is swept like staged rows of the epoch.
2. A task opens the part of the slot that the placement gives to its partition (`open`). The part names its slot and its epoch,
   and a range has a checksum: a task that got anything else fails, and Spark repeats it. Every attempt opens the same part.
3. The driver deletes the object before it sends the next epoch. An attempt that is late finds nothing, and fails: nobody waits
   for it.
"""

from __future__ import annotations

import logging
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, overload

from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.checkpoint.task.version_upload import Stored, UploadOrder
from tidegate.core.errors import ProtocolViolation, StorageError
from tidegate.core.ids import EpochId, HostId, Slot, TaskId
from tidegate.runtime.exchange.assignment import CommitOrder, HostUploads, TaskAssignment
from tidegate.state.version import VersionId

log = logging.getLogger("tidegate")

T = TypeVar("T")

_LEVEL = 1
"""Of compression. Parts are much alike: what matters is the dictionary, which is one of them."""

Read = Callable[[str, int, int], bytes]
"""Reads a range of an object in the job's storage."""


class OwnSlot(Sequence[T], Generic[T]):
    """A sequence with an item for each slot, of which a task knows its own one only."""

    __slots__ = ("_item", "_slot")

    def __init__(self, slot: Slot, item: T) -> None:
        self._slot = slot
        self._item = item

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if index != self._slot:
            raise ProtocolViolation(f"A task of slot {self._slot} looks for the work of slot {index}.")
        return self._item

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlotPart:
    """What a task needs in every epoch. Short."""

    epoch: EpochId
    slot: Slot
    version: VersionId | None
    wake: bool
    uploads: tuple[UploadOrder, ...]
    keep: tuple[VersionId, ...]
    truncated: VersionId | None
    early_base: Stored | None
    early_materialized: Stored | None
    restores: bool
    """Whether its orders contain a restore, without which it cannot begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlotOrders:
    """What may be long: the files to restore, the output to commit."""

    epoch: EpochId
    slot: Slot
    restore: RestoreOrder | None
    commits: tuple[CommitOrder, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    start: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedAssignment:
    """The assignment of a level as it is sent. Sequences have an item for each slot."""

    shared: TaskAssignment
    """Without anything that belongs to one slot."""
    parts: tuple[bytes, ...] = field(default=(), repr=False)
    """A `_SlotPart` each. Empty for the source stage, which has no slots."""
    orders: tuple[bytes, ...] = field(default=(), repr=False)
    """A `_SlotOrders` each, empty if there are none; or, if they are stored, nothing."""
    path: str | None = None
    """The object that contains the orders."""
    ranges: tuple[_Range, ...] = field(default=(), repr=False)
    dictionary: bytes = field(default=b"", repr=False)
    """A part with which all of them are compressed."""

    @property
    def orders_bytes(self) -> int:
        return sum(map(len, self.orders))

    def stored_at(self, path: str) -> tuple[PackedAssignment, bytes]:
        """Return the same with its orders in an object, and the content of that object."""
        ranges: list[_Range] = []
        start = 0
        for order in self.orders:
            ranges.append(_Range(start, len(order), zlib.crc32(order)))
            start += len(order)
        return replace(self, orders=(), path=path, ranges=tuple(ranges)), b"".join(self.orders)

    def open(self, partition: int, read: Read) -> TaskAssignment:
        """In a task: return the assignment with the work of its own slot. Raises if it is not the one of its slot."""
        if not self.parts:
            return self.shared

        slot = self.shared.slots[partition]
        part = _unpacked(self.parts[slot], self.dictionary)
        assert isinstance(part, _SlotPart)
        # A stale object, or the part of a neighbour, would be valid bytes: only the names inside differ.
        self._check(part.epoch, part.slot, slot)

        orders = self._orders_of(slot, part, read)
        shared = self.shared
        work = shared.work

        # In place of the sequences, items that answer for this slot only: reading the work of another slot is an error.
        early = work.early
        if early is not None:
            early = replace(
                early,
                bases=OwnSlot(slot, part.early_base),
                materialized=OwnSlot(slot, part.early_materialized),
            )

        return replace(
            shared,
            versions=OwnSlot(slot, part.version),
            wake=OwnSlot(slot, part.wake),
            work=replace(
                work,
                uploads=OwnSlot(slot, part.uploads),
                keep=OwnSlot(slot, part.keep),
                truncated=OwnSlot(slot, part.truncated),
                restores=OwnSlot(slot, None if orders is None else orders.restore),
                commits=OwnSlot(slot, () if orders is None else orders.commits),
                early=early,
            ),
        )

    def _orders_of(self, slot: Slot, part: _SlotPart, read: Read) -> _SlotOrders | None:
        try:
            packed = self._packed_orders(slot, read)
        except StorageError as error:
            if part.restores:
                raise
            # Output that is not committed now is requested again in the next epoch. Rows need not wait for that.
            log.warning("slot %d commits no output in epoch %s: %s", slot, part.epoch, error)
            return None
        if not packed:
            return None
        orders = _unpacked(packed, b"")
        assert isinstance(orders, _SlotOrders)
        self._check(orders.epoch, orders.slot, slot)
        return orders

    def _packed_orders(self, slot: Slot, read: Read) -> bytes:
        if self.path is None:
            return self.orders[slot]
        place = self.ranges[slot]
        if not place.length:
            return b""
        packed = read(self.path, place.start, place.length)
        if len(packed) != place.length or zlib.crc32(packed) != place.checksum:
            raise ProtocolViolation(f"The orders of slot {slot} at {self.path} are not those that were stored.")
        return packed

    def _check(self, epoch: EpochId, slot: Slot, expected: Slot) -> None:
        if (epoch, slot) != (self.shared.epoch, expected):
            raise ProtocolViolation(
                f"A task of slot {expected} in epoch {self.shared.epoch} got the work of slot {slot} in epoch {epoch}."
            )


def pack(assignment: TaskAssignment, host_of: Callable[[TaskId], HostId | None]) -> PackedAssignment:
    """Divide the assignment of a level among its tasks. `host_of` returns the host on which a task is placed."""
    if not assignment.slots:
        return PackedAssignment(shared=replace(assignment, versions=(), wake=()))

    work = assignment.work
    parts = [_part_of(assignment, Slot(slot)) for slot in range(assignment.parallelism)]
    # The parts of a level differ in little: with one of them as the dictionary, zlib stores only the differences.
    dictionary = pickle.dumps(parts[0], pickle.HIGHEST_PROTOCOL)
    early = work.early

    shared = replace(
        assignment,
        versions=(),
        wake=(),
        work=replace(
            work,
            uploads=(),
            keep=(),
            truncated=(),
            restores=(),
            commits=(),
            early=None if early is None else replace(early, bases=(), materialized=()),
            every_upload=(),
            host_uploads=_by_host(assignment, host_of),
        ),
    )
    return PackedAssignment(
        shared=shared,
        parts=tuple(_packed(part, dictionary) for part in parts),
        orders=tuple(_orders_of(assignment, Slot(slot)) for slot in range(assignment.parallelism)),
        dictionary=dictionary,
    )


def _part_of(assignment: TaskAssignment, slot: Slot) -> _SlotPart:
    work = assignment.work
    early = work.early
    uploads, keep, restore = work.of(slot)
    return _SlotPart(
        epoch=assignment.epoch,
        slot=slot,
        version=assignment.versions[slot],
        wake=bool(assignment.wake) and assignment.wake[slot],
        uploads=uploads,
        keep=keep,
        truncated=work.truncated[slot] if work.truncated else None,
        early_base=None if early is None else early.bases[slot],
        early_materialized=early.materialized[slot] if early is not None and early.materialized else None,
        restores=restore is not None,
    )


def _orders_of(assignment: TaskAssignment, slot: Slot) -> bytes:
    work = assignment.work
    restore = work.restores[slot] if work.restores else None
    commits = work.commits[slot] if work.commits else ()
    if restore is None and not commits:
        return b""
    return _packed(_SlotOrders(epoch=assignment.epoch, slot=slot, restore=restore, commits=commits), b"")


def _by_host(assignment: TaskAssignment, host_of: Callable[[TaskId], HostId | None]) -> HostUploads | None:
    found: dict[HostId, list[tuple[TaskId, UploadOrder]]] = {}
    for task, order in assignment.work.every_upload:
        host = host_of(task)
        if host is not None:
            found.setdefault(host, []).append((task, order))
    packed: Mapping[HostId, bytes] = {host: _packed(tuple(some), b"") for host, some in found.items()}
    return HostUploads(assignment.epoch, packed)


def _packed(value: object, dictionary: bytes) -> bytes:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    packer = zlib.compressobj(_LEVEL, zdict=dictionary) if dictionary else zlib.compressobj(_LEVEL)
    return packer.compress(data) + packer.flush()


def _unpacked(data: bytes, dictionary: bytes) -> Any:
    opener = zlib.decompressobj(zdict=dictionary) if dictionary else zlib.decompressobj()
    return pickle.loads(opener.decompress(data) + opener.flush())
