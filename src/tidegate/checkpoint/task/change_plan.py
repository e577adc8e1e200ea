"""Which stored change files a checkpoint takes over, and which changes it stores, merged to few files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

from tidegate.checkpoint.metadata import FileList, InlineFile, StateFile, TaskState
from tidegate.state.backends import WITH_CHANGELOG
from tidegate.state.changelog.chain import CHANGES_END, VersionChanges, versions_in
from tidegate.state.version import VersionId


class _ChangeFile(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> VersionId: ...


F = TypeVar("F", bound=_ChangeFile)


def change_files(state: TaskState) -> list[StateFile | InlineFile]:
    """Return the change files of a task, in the order of the changes. The list of its files must be loaded."""
    if not state.backend.endswith(WITH_CHANGELOG):
        return []
    if not isinstance(state.files, FileList):
        raise TypeError(f"The list of files of {state.task} is not loaded.")
    found = [file for file in (*state.files, *state.inline) if file.name.endswith(CHANGES_END)]
    # The origin of a change file is the last version that it contains, so this is the order of the changes.
    return sorted(found, key=lambda file: (file.origin, file.name))


@dataclass(frozen=True, slots=True)
class Fresh:
    """Changes that are stored as one file."""

    changes: tuple[VersionChanges, ...]


def plan_changes(changes: Sequence[VersionChanges], stored: Iterable[F], most_bytes: int) -> list[F | Fresh]:
    """Return what the changes consist of, in their order. `stored` are the change files of the latest checkpoint.

    A stored file may begin with changes before the first of `changes`. Applying them again does no harm: whatever they set is
    set again later in the same file, or is as they left it. Files are not merged to more than `most_bytes`.
    """
    place = {change.version: number for number, change in enumerate(changes)}
    holder: list[F | None] = [None] * len(changes)
    for file in stored:
        last = place.get(file.origin)
        if last is not None:
            first = max(0, last + 1 - versions_in(file.name))
            # A file that ends at version `last` covers as many versions before it as its name says.
            holder[first : last + 1] = [file] * (last + 1 - first)
    plan: list[F | Fresh] = []
    # Neighbours with the same holder are one stored file; neighbours without one are merged.
    for file, run in groupby(zip(holder, changes), key=lambda each: each[0]):
        if file is not None:
            plan.append(file)
        else:
            plan += _merged([change for _, change in run], most_bytes)
    return plan


def _merged(changes: Iterable[VersionChanges], most_bytes: int) -> Iterable[Fresh]:
    some: list[VersionChanges] = []
    for change in changes:
        if some and sum(each.size_bytes for each in some) + change.size_bytes > most_bytes:
            yield Fresh(tuple(some))
            some = []
        some.append(change)
    if some:
        yield Fresh(tuple(some))
