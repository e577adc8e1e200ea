"""State versions: the state of one task after one epoch, as written by one attempt. Immutable once named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.core.ids import AttemptId, EpochId, HostId, Term

_SELF_CHECKING = (".sst", ".full", ".delta")
"""Tables of RocksDB, and the files of the hashmap backend."""
_FORM = re.compile(r"(\d+)/v(\d+)-(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class VersionId:
    """Identifies a version within its task. No two attempts share one."""

    epoch: EpochId
    attempt: AttemptId

    def __str__(self) -> str:
        return f"{self.epoch.term}/v{self.epoch.number}-{self.attempt}"

    @staticmethod
    def parse(text: str) -> VersionId:
        """Inverse of `str`. Raises ValueError for any other text."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a version such as '3/v41-1207'")
        return VersionId(EpochId(Term(int(match[1])), int(match[2])), AttemptId(int(match[3])))


@dataclass(frozen=True, slots=True)
class VersionFile:
    """One immutable file of a version.

    `origin` is the version that wrote it: a file keeps its name and origin in every later version that links it, and
    (origin, name) is never reused for other content. Incremental checkpoints use it to recognize uploaded files.
    """

    name: str
    size_bytes: int
    origin: VersionId
    checksum: str = field(default="", compare=False)
    """Of the content when it was written (see `core.content_check`). Empty in versions of earlier releases."""

    @property
    def checks_itself(self) -> bool:
        """Whether a reader of the file notices damage: it has a checksum for each block or frame, and no other version has
        another file of this name."""
        return self.name.endswith(_SELF_CHECKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything needed to open a version anywhere, given its files. Stored with them as `manifest.json`."""

    FORMAT: ClassVar[int] = 2

    backend: str
    version: VersionId
    base: VersionId | None
    files: tuple[VersionFile, ...]
    key_groups: tuple[int, int]
    """First and last key group, inclusive."""
    elements: tuple[tuple[int, int], ...] = ()
    """Lengths of the operator state lists: (state id, elements), ascending. Stored so that files need not be opened to count."""
    token: str = field(default="", compare=False)
    """That of the disk when it was sealed (see `disk_token`). As long as it is the same, files are as they were written."""

    @property
    def is_checked(self) -> bool:
        """Whether it has a checksum of every file. Those of earlier releases do not."""
        return all(file.checksum for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def counted(base: Manifest | None, elements: Mapping[int, int] | None) -> tuple[tuple[int, int], ...]:
    """Return `Manifest.elements` of a version: the counts of its attempt, and those of the base for untouched states."""
    # A state that the attempt did not touch has as many elements as before.
    known = {} if base is None else dict(base.elements)
    return tuple(sorted({**known, **(elements or {})}.items()))


@dataclass(frozen=True, slots=True)
class VersionRef:
    """A version and its host."""

    version: VersionId
    host: HostId
