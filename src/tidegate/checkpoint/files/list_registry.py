"""Which lists of state files completed checkpoints reference, and the objects that become free when a list is dropped. Pure.

A task's list changes little from one checkpoint to the next, and the task tells what changed. So the registry counts
references per list instead of per object, and knows of each list only how it differs from the newest one. Dropping a list
costs what changed, however long the list is.

It relies on three facts:

- Lists of different tasks share no object: a task reuses only objects from its own list in the base.
- An object in no list can never come into one again.
- A list that a task stored without a base consists of new objects only.

Where it is not known how two lists differ, nothing is freed when one of them is dropped: the task is noted in `unswept`, and
a sweep, which loads the lists, finds the objects that are left. That is so for checkpoints of earlier terms, if several are
retained, until a sweep has compared them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidegate.checkpoint.files.task_part import ListChange
from tidegate.checkpoint.metadata import AnyFileList

Names: TypeAlias = frozenset[str]
_NONE: Names = frozenset()


class ListId(NamedTuple):
    """Identifies a list: the task, and the digest of the list."""

    task: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class HeldList:
    """The list of one task in a completed checkpoint."""

    id: ListId
    files: AnyFileList


class ListRegistry:
    """References from completed checkpoints to lists. The store registers and drops; the cleaner removes what is dropped."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, tuple[HeldList, ...]] = {}
        self._counts: Counter[ListId] = Counter()
        self._dropped: dict[ListId, None] = {}
        self._pinned: set[ListId] = set()
        """Lists that are known only because a pin holds them."""
        self._tasks: dict[str, _TaskLists] = {}
        self.unswept: set[str] = set()
        """Tasks of which objects may be left that no list has."""

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._tasks)

    def register(
        self, checkpoint: str, lists: Iterable[HeldList], changes: Mapping[str, ListChange] | None = None
    ) -> None:
        """`changes` tells by task how a list differs from that of another checkpoint. Registering a checkpoint again replaces
        its lists."""
        before, held = self._checkpoints.get(checkpoint, ()), tuple(lists)
        # Registered again with other names of files only (`record` does that): nothing changes for lists.
        if before == held and before:
            return
        self._checkpoints[checkpoint] = held
        for each in held:
            id = each.id
            # An unchanged list has the same id in many checkpoints, so lists are counted as well.
            self._counts[id] += 1
            if self._counts[id] == 1:
                # It was dropped and comes back with a checkpoint that reuses it unchanged. Nothing of it has been
                # removed yet.
                self._dropped.pop(id, None)
                self._pinned.discard(id)
                change = None if changes is None else changes.get(id.task)
                self._tasks.setdefault(id.task, _TaskLists()).add(each, change)
        # After the new lists are counted: one that is in both must not count as dropped in between.
        self._unreference(before)

    def drop(self, checkpoint: str) -> None:
        """Forget a checkpoint. Lists that no other one references are `dropped` until they are removed."""
        self._unreference(self._checkpoints.pop(checkpoint, ()))

    def dropped(self) -> tuple[ListId, ...]:
        return tuple(self._dropped)

    def is_dropped(self, id: ListId) -> bool:
        return id in self._dropped

    def hold(self, pinned: Iterable[HeldList]) -> None:
        """Pins hold exactly these lists. Other lists must be compared with them, even if no checkpoint references them."""
        wanted = {each.id: each for each in pinned}
        for id in tuple(self._pinned - wanted.keys()):
            self._pinned.discard(id)
            lists = self._tasks[id.task]
            lists.remove(id.digest, None)
            if not lists.known:
                del self._tasks[id.task]
            # A pinned list may hold objects that every other list has lost. It goes without being compared, so a sweep
            # must look.
            self.unswept.add(id.task)
        for id, each in wanted.items():
            lists = self._tasks.setdefault(id.task, _TaskLists())
            if id.digest not in lists.known:
                lists.add(each, None)
                self._pinned.add(id)

    def referenced(self, task: str) -> tuple[HeldList, ...]:
        """Return the lists of a task that completed checkpoints reference."""
        lists = self._tasks.get(task)
        known = () if lists is None else lists.known.values()
        return tuple(each for each in known if self._counts.get(each.id, 0))

    def tasks(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def to_load(self, id: ListId) -> HeldList | None:
        """Return the list that must be loaded to remove `id`: itself, if it shares no object with any other list. None:
        nothing need be loaded."""
        lists = self._tasks[id.task]
        return lists.known[id.digest] if lists.shares_nothing(id.digest) else None

    def remove(self, id: ListId, names: Names | None = None) -> Names:
        """Remove a dropped list. Return the objects that no list has any more. `names` are the objects of the list, if
        `to_load` asked for it; None if they are not known, because the list is missing: then a sweep has deleted it."""
        if id not in self._dropped:
            return _NONE
        del self._dropped[id]
        lists = self._tasks[id.task]
        # It is not known which objects it shares with lists of other families, so none of its own may be freed now.
        if not lists.compared:
            self.unswept.add(id.task)
        freed = lists.remove(id.digest, names)
        if not lists.known:
            del self._tasks[id.task]
        return freed

    def compare(self, task: str, names: Mapping[bytes, Names]) -> None:
        """Compare the lists of a task, given the objects of each. From now on it is known how they differ."""
        lists = self._tasks.get(task)
        if lists is not None and not lists.compared and lists.known.keys() <= names.keys():
            lists.compare(names)

    def _unreference(self, lists: Iterable[HeldList]) -> None:
        for each in lists:
            self._counts[each.id] -= 1
            if not self._counts[each.id]:
                del self._counts[each.id]
                self._dropped[each.id] = None


@dataclass(slots=True)
class _Difference:
    """How a list differs from the newest one of its family."""

    more: Names = _NONE
    less: Names = _NONE


@dataclass(slots=True, eq=False)
class _Family:
    """Lists of one task of which it is known how each differs from the newest one."""

    newest: bytes
    members: dict[bytes, _Difference]

    def join(self, digest: bytes, base: bytes, change: ListChange) -> None:
        """Add a list that was derived from a member, and make it the newest."""
        old, unreferenced = self.members[base], frozenset(change.unreferenced)
        # Given: how the member `base` differs from the newest one (`old`), and how the new list differs from `base`. In
        # sum: how the new one differs from the newest.
        self._rebase(lost=old.less | (unreferenced - old.more), won=(old.more - unreferenced) | frozenset(change.new))
        self.members[digest] = _Difference()
        self.newest = digest

    def leave(self, digest: bytes) -> Names:
        """Remove a member that is not the only one. Return the objects that only it had."""
        # All members are described by their difference from the newest, so another one takes that place first.
        if digest == self.newest:
            self.newest = next(other for other in reversed(self.members) if other != digest)
            other = self.members[self.newest]
            self._rebase(lost=other.less, won=other.more)
        # What it has and the newest lacks. Of that, what another member has, too, is still needed.
        only = self.members.pop(digest).more
        for each in self.members.values():
            if not only:
                break
            only -= each.more
        return only

    def _rebase(self, lost: Names, won: Names) -> None:
        """Describe all members by their difference from another list, which lacks `lost` of the newest and has `won` more."""
        for each in self.members.values():
            more = (each.more - won) | (lost - each.less)
            less = (won - each.more) | (each.less - lost)
            each.more = more
            each.less = less


@dataclass(slots=True)
class _TaskLists:
    """The lists of one task. Usually they are one family."""

    known: dict[bytes, HeldList] = field(default_factory=dict)
    families: list[_Family] = field(default_factory=list)
    compared: bool = True
    """Whether lists of different families are known to share no object."""

    def add(self, held: HeldList, change: ListChange | None) -> None:
        """`change` None: how it differs from the others is not known."""
        digest = held.id.digest
        if digest in self.known:
            return
        # A base that is not known (of an earlier term, or dropped and removed) starts a family of its own.
        base = None if change is None or change.base is None else self._family_of(change.base)
        self.known[digest] = held
        if change is not None and change.base is not None and base is not None:
            base.join(digest, change.base, change)
            return
        self.families.append(_Family(digest, {digest: _Difference()}))
        # A list of new objects only cannot share one with others, so what was known stays known.
        is_new = change is not None and change.base is None
        self.compared = len(self.families) == 1 or (self.compared and is_new)

    def shares_nothing(self, digest: bytes) -> bool:
        family = self._family_of(digest)
        return self.compared and family is not None and len(family.members) == 1

    def remove(self, digest: bytes, names: Names | None) -> Names:
        family = self._family_of(digest)
        assert family is not None
        del self.known[digest]
        compared = self.compared
        if len(family.members) > 1:
            freed = family.leave(digest)
        else:
            self.families.remove(family)
            # The only member: everything in it goes, if it is known to share nothing.
            freed = names or _NONE
        self.compared = self.compared or len(self.families) <= 1
        # As it was before: whether the list that goes is known to share nothing with those of other families that stay.
        return freed if compared else _NONE

    def compare(self, names: Mapping[bytes, Names]) -> None:
        families: list[_Family] = []
        for digest in self.known:
            mine = names[digest]
            # Lists that share an object, directly or through others, become one family.
            alike = [each for each in families if any(not mine.isdisjoint(names[other]) for other in each.members)]
            members = {other: _Difference() for each in alike for other in each.members}
            families = [each for each in families if each not in alike]
            families.append(_Family(digest, {**members, digest: _Difference()}))
        for family in families:
            newest = names[family.newest]
            for digest, difference in family.members.items():
                difference.more = names[digest] - newest
                difference.less = newest - names[digest]
        self.families = families
        self.compared = True

    def _family_of(self, digest: bytes) -> _Family | None:
        return next((family for family in self.families if digest in family.members), None)
