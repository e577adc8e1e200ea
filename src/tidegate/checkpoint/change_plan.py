"""Which stored change files a checkpoint takes over, and which changes it stores, merged to few files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

from tidegate.state.changelog.chain import VersionChanges, versions_in
from tidegate.state.version import VersionId


class _ChangeFile(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> VersionId: ...


F = TypeVar("F", bound=_ChangeFile)


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
            holder[first : last + 1] = [file] * (last + 1 - first)
    plan: list[F | Fresh] = []
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
