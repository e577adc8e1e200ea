"""Which stored files are still needed. Pure: reference counts, and the plan of a sweep.

A sweep deletes by name alone, without a clock and without a check of ownership right before the delete, because no such
check could help a driver that is paused between check and delete. It is safe for another reason:

- What it deletes is unreferenced by everything retained in its owner's last entry, and of a term not above its own.
- A driver that claims after that entry starts from something retained in it (or from outside), and everything completed
  later consists of files of that base and of files with newer terms. Neither is on the list, however late the delete
  arrives.
- A file that nothing references can never be referenced again: handles are taken only from completed checkpoints.
- Staged rows are dropped by an entry that was won after the COMMITTED record: a driver that starts later reads the record
  and does not carry them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.checkpoint.files.list_registry import HeldList, ListRegistry
from tidegate.checkpoint.files.task_part import ListChange
from tidegate.checkpoint.layout import FileScope, JobLayout
from tidegate.core.ids import EpochId, Term


class SharedRegistry:
    """References from completed checkpoints to files, and the files that dropped checkpoints leave for the cleaner.

    The store registers and drops checkpoints. The cleaner deletes what is `unreferenced` and then forgets it. Files of tasks,
    of which there are millions, are counted by list; all others by name.
    """

    def __init__(self) -> None:
        self._files: dict[str, frozenset[str]] = {}
        self._counts: Counter[str] = Counter()
        self._dropped: set[str] = set()
        self.lists = ListRegistry()

    def register(
        self,
        checkpoint: str,
        files: Iterable[str],
        lists: Iterable[HeldList] = (),
        changes: Mapping[str, ListChange] | None = None,
    ) -> None:
        """`checkpoint` is any unique name. Registering it again replaces the files that it references. `changes` tells by task
        how its list differs from an earlier one."""
        self.lists.register(checkpoint, lists, changes)
        held = frozenset(files)
        before = self._files.get(checkpoint, frozenset())
        self._files[checkpoint] = held
        # Counted before `before - held` is taken off, so that a file in both is never free in between.
        self._counts.update(held - before)
        self._dropped |= self._unreference(before - held)

    def drop(self, checkpoint: str, exclusive: Iterable[str] = ()) -> frozenset[str]:
        """Forget a checkpoint. Return the files that nothing references any more, except those of tasks.

        `exclusive` are files of this checkpoint that are not counted, such as its metadata.
        """
        self.lists.drop(checkpoint)
        unreferenced = self._unreference(self._files.pop(checkpoint, frozenset())).union(exclusive)
        self._dropped |= unreferenced
        return unreferenced

    def leave(self, paths: Iterable[str]) -> None:
        """These files of dropped lists are to be deleted."""
        self._dropped.update(paths)

    def unreferenced(self) -> frozenset[str]:
        """Files of dropped checkpoints that no other checkpoint references, until they are forgotten."""
        # A path that is referenced again stays noted until that reference goes, too.
        return frozenset(path for path in tuple(self._dropped) if path not in self)

    def forget(self, paths: Iterable[str]) -> None:
        """These files of dropped checkpoints are deleted, or are not the job's to delete."""
        self._dropped.difference_update(paths)

    def count(self, path: str) -> int:
        return self._counts.get(path, 0)

    def __contains__(self, path: str) -> bool:
        return path in self._counts

    def counts(self) -> Mapping[str, int]:
        """Every referenced file and how many checkpoints need it."""
        return dict(self._counts)

    def _unreference(self, files: Iterable[str]) -> frozenset[str]:
        free = set()
        for path in files:
            self._counts[path] -= 1
            if self._counts[path] == 0:
                del self._counts[path]
                free.add(path)
        return frozenset(free)


@dataclass(frozen=True, slots=True)
class InFlight:
    """What clean-up must know about checkpoints that may still complete."""

    lowest_id: int
    """Smallest id that may still complete: of a pending checkpoint, or the next one."""
    bases: frozenset[str] = frozenset()
    """Metadata names of completed checkpoints whose files pending ones may reuse."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The limits of a sweep: everything beyond them may still become part of a checkpoint."""

    term: Term
    """The term of the sweeping driver."""
    last_id: int
    """Greatest id completed. Another driver may still use names of checkpoints above it."""
    pending_id: int
    """Smallest id that may still complete: of a pending checkpoint, or the next one."""
    epoch: EpochId | None
    """Epoch of the newest checkpoint of this term: staged rows up to it are carried by that checkpoint, or orphans."""

    def has_passed(self, layout: JobLayout, path: str) -> bool:
        """Whether a file that nothing references now can never be referenced."""
        file = layout.parse(path)
        if file is None:
            return False
        # Names of checkpoints have no term, and a successor may use ids above the last completed one again. So only ids
        # that the log has passed are over, and none that is pending here.
        if file.scope is FileScope.EXCLUSIVE:
            return file.number <= self.last_id and file.number < self.pending_id
        # A term below is a former owner's: what it stored and no entry names can never be named. A term above is a
        # successor's, and this driver has lost the job.
        if file.term != self.term:
            return file.term is not None and file.term < self.term
        # Of this term: everything under ids that may still complete is left alone.
        if file.scope is FileScope.SHARED:
            return file.number < self.pending_id
        return self.epoch is not None and self.epoch.term == self.term and file.number <= self.epoch.number


def orphans(layout: JobLayout, listed: Iterable[str], boundary: Boundary, needed: Iterable[str]) -> tuple[str, ...]:
    """Return the names in `listed` that a sweep deletes.

    `needed` is everything that retained checkpoints, pins and pending ones reference.
    """
    keep = frozenset(needed)
    return tuple(path for path in listed if path not in keep and boundary.has_passed(layout, path))
