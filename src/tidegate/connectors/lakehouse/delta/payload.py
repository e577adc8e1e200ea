"""What a task hands to the committer of a Delta table."""

from __future__ import annotations

import msgspec


class DeltaFile(msgspec.Struct, frozen=True):
    """One file, as the log will describe it."""

    path: str
    size: int
    partition: dict[str, str | None]
    modified_ms: int
    statistics: str


class DeltaCommittable(msgspec.Struct, frozen=True):
    files: tuple[DeltaFile, ...]
