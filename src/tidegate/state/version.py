"""State versions: one task's state after one epoch, as one attempt left it. Immutable once it has a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidegate.core.ids import AttemptId, EpochId, HostId, Term

_FORM = re.compile(r"(\d+)/v(\d+)-(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class VersionId:
    """Names a version within its task. No two attempts share one."""

    epoch: EpochId
    attempt: AttemptId

    def __str__(self) -> str:
        return f"{self.epoch.term}/v{self.epoch.number}-{self.attempt}"

    @staticmethod
    def parse(text: str) -> VersionId:
        """Inverse of `str`. Raises ValueError for anything `str` would not have written."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a version such as '3/v41-1207'")
        return VersionId(EpochId(Term(int(match[1])), int(match[2])), AttemptId(int(match[3])))


@dataclass(frozen=True, slots=True)
class VersionFile:
    """One immutable file of a version.

    `origin` is the version that wrote it: a file keeps its name and origin through every later version that links it,
    and (origin, name) is never given to other content. Incremental checkpoints recognise what is uploaded by it.
    """

    name: str
    size_bytes: int
    origin: VersionId


@dataclass(frozen=True, slots=True)
class Manifest:
    """All there is to know to open a version anywhere, given its files. Kept as `manifest.json` beside them."""

    FORMAT: ClassVar[int] = 1

    backend: str
    version: VersionId
    base: VersionId | None
    files: tuple[VersionFile, ...]
    key_groups: tuple[int, int]
    """First and last key group held, both included."""
    elements: tuple[tuple[int, int], ...] = ()
    """Lengths of the lists of operator state: (state id, elements), ascending. Kept so that nobody opens files to count."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def counted(base: Manifest | None, elements: Mapping[int, int] | None) -> tuple[tuple[int, int], ...]:
    """`Manifest.elements` of a version: what its attempt counted, and the base's counts of states it did not touch."""
    known = {} if base is None else dict(base.elements)
    return tuple(sorted({**known, **(elements or {})}.items()))


@dataclass(frozen=True, slots=True)
class VersionRef:
    """A version and where it is at home."""

    version: VersionId
    host: HostId
