"""How a checkpoint carries its uncommitted output: in its metadata, or in objects that it shares with earlier checkpoints. Pure.

Output is in the metadata of the first checkpoint that carries it. Nearly always the next one no longer does. If it does, and
there is much of it, the output moves to an object, and later checkpoints refer to that object until less than half of it waits.
So a checkpoint writes what is new, and each committable about twice, however long it waits.

An object lies in the folder of the checkpoint that wrote it, and its name contains the term. It is one of the files of each
checkpoint that refers to it: references are counted by name, and it goes when no retained or pinned checkpoint has it. A
checkpoint refers only to objects of the latest completed one, which is retained until the new one is in the log. So what nothing
refers to is never referred to again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata.stored_output import StoredOutput, bits_of, encode_output
from tidegate.connectors.sink import Committable
from tidegate.core.ids import Term

INLINE_BYTES = 64 << 10
"""Up to this much output that waits since an earlier checkpoint stays in the metadata: an object is worth a request."""
_OBJECT_BYTES = 4 << 20
"""About the size of an object, at most. Only output that waited before an upgrade to this version is more."""
_FORM_BYTES = 150
"""About what the stored form of a committable adds to its payload and its names."""


@dataclass(frozen=True, slots=True)
class OutputObject:
    """An object with output, and what a checkpoint carries of it."""

    ref: StoredOutput
    members: tuple[Committable, ...]
    """All that is in the object."""
    waiting: tuple[Committable, ...]
    """Those of the members that the checkpoint carries."""

    @staticmethod
    def read(ref: StoredOutput, data: bytes | None) -> OutputObject:
        """Raises `MetadataDamaged` if the object is missing or is not what was written."""
        members = ref.read(data)
        return OutputObject(ref, members, ref.waiting_of(members))

    def only(self, carried: Collection[int]) -> OutputObject:
        """Return the same object for a checkpoint that carries the committables with these identities (`id`)."""
        waiting = tuple(each for each in self.waiting if id(each) in carried)
        if len(waiting) == len(self.waiting):
            return self
        waits = set(map(id, waiting))
        bits = bits_of([id(each) in waits for each in self.members])
        return OutputObject(replace(self.ref, waiting=bits), self.members, waiting)

    @property
    def is_sparse(self) -> bool:
        """Whether less than half of it waits: then what waits is stored again, and the object goes."""
        # An object of which everything waits is never sparse, whatever it weighs: storing it again would change
        # nothing.
        return len(self.waiting) < len(self.members) and 2 * _size(self.waiting) < _size(self.members)


@dataclass(frozen=True, slots=True)
class OutputParts:
    """The output of one checkpoint, and what has to be stored before its metadata."""

    inline: tuple[Committable, ...]
    """In the metadata."""
    objects: tuple[OutputObject, ...] = ()
    new: Mapping[str, bytes] = field(default_factory=dict)
    """Objects that are not stored yet, by name in the job's storage."""

    @property
    def refs(self) -> tuple[StoredOutput, ...]:
        return tuple(each.ref for each in self.objects)


def divided(
    carried: tuple[Committable, ...],
    before: Collection[Committable],
    objects: Iterable[OutputObject],
    place: ObjectPlace,
    inline_bytes: int = INLINE_BYTES,
) -> OutputParts:
    """Divide the output that a checkpoint carries. `before` and `objects` are the output of the latest completed checkpoint and
    its objects.

    Committables are compared by identity: one that another checkpoint brought, equal or not, is written like a new one.
    """
    ids = set(map(id, carried))
    kept = [each for each in (old.only(ids) for old in objects) if each.waiting and not each.is_sparse]
    in_objects = {id(committable) for each in kept for committable in each.waiting}
    rest = [each for each in carried if id(each) not in in_objects]
    # What the latest checkpoint carried waits for the second time at least; what is new stays in the metadata.
    waited = set(map(id, before))
    old = [each for each in rest if id(each) in waited]
    if _size(old) <= inline_bytes:
        return OutputParts(tuple(rest), tuple(kept))
    new: dict[str, bytes] = {}
    for some in _chunks(old):
        data = encode_output(some)
        name = place.name(len(new))
        new[name] = data
        ref = StoredOutput.of(name.removeprefix(f"{place.layout.root}/"), data, len(some))
        kept.append(OutputObject(ref, some, some))
    return OutputParts(tuple(each for each in rest if id(each) not in waited), tuple(kept), new)


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """Where the objects of one checkpoint go. No other driver and no other checkpoint uses their names."""

    layout: JobLayout
    checkpoint_id: int
    term: Term

    def name(self, number: int) -> str:
        return self.layout.exclusive(self.checkpoint_id, f"output-{self.term}-{number}")


def _chunks(committables: Iterable[Committable]) -> Iterator[tuple[Committable, ...]]:
    some: list[Committable] = []
    size_bytes = 0
    for each in committables:
        some.append(each)
        size_bytes += _size((each,))
        if size_bytes >= _OBJECT_BYTES:
            yield tuple(some)
            some, size_bytes = [], 0
    if some:
        yield tuple(some)


def _size(committables: Iterable[Committable]) -> int:
    """Return about how many bytes their stored form has."""
    return sum(_FORM_BYTES + len(each.payload) * 4 // 3 + sum(map(len, each.staged)) for each in committables)
