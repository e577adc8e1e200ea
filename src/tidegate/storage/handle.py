"""Handles: everything needed to fetch a stored file and to verify its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PART_BYTES = 8 * 1024 * 1024
"""Files are transferred in parts of at most this size, which is the most that is repeated if a worker dies."""

# Processors have instructions for it, and anyone can check it with `sha256sum` (decision 0004).
_ALGORITHM = "sha256"
_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileHandle:
    """One immutable stored file.

    A file of one part is the object `path`; a longer one is the objects `path.00000`, `path.00001`, …, each of
    `part_bytes` except the last. `checksum` is of the whole, as `sha256:<hex>`: `cat` and `sha256sum` can check it.
    """

    path: str
    size_bytes: int
    checksum: str
    part_bytes: int = PART_BYTES

    def parts(self) -> Iterator[tuple[str, int]]:
        """Yield the names and sizes of the objects, in content order."""
        return parts_of(self.path, self.size_bytes, self.part_bytes)

    def objects(self) -> tuple[str, ...]:
        """Return the names of the objects that clean-up must keep or delete together with this file."""
        return tuple(name for name, _ in self.parts())


class Checksum:
    """A running checksum in the format used by handles."""

    def __init__(self) -> None:
        self._hash = hashlib.new(_ALGORITHM)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def text(self) -> str:
        return f"{_ALGORITHM}:{self._hash.hexdigest()}"


def checksum_of(data: bytes) -> str:
    running = Checksum()
    running.update(data)
    return running.text()


def checksum_of_file(path: Path) -> str:
    running = Checksum()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            running.update(block)
    return running.text()


def parts_of(path: str, size_bytes: int, part_bytes: int) -> Iterator[tuple[str, int]]:
    if size_bytes <= part_bytes:
        # Also for an empty file: its one object shows that it was stored.
        yield path, size_bytes
        return
    for index, start in enumerate(range(0, size_bytes, part_bytes)):
        # Five digits: `cat name.*` gives the parts in their order.
        yield f"{path}.{index:05d}", min(part_bytes, size_bytes - start)
