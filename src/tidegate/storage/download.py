"""Verified downloads: the result matches its handle, or nothing is left."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from tidegate.storage.errors import CorruptFile
from tidegate.storage.handle import PART_BYTES, Checksum, FileHandle
from tidegate.storage.port import Storage


def download(storage: Storage, handle: FileHandle, target: Path) -> None:
    """Download a stored file to `target` with at most one part in memory at a time. Can be repeated.

    1. Write the parts to a private file next to the target. A crash leaves that file, to be removed with its folder.
    2. Compare the checksum. On a mismatch, raise `CorruptFile` and leave nothing.
    3. Rename the file atomically: `target` is never visible incomplete or unverified.
    """
    private = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    checksum = Checksum()
    try:
        with private.open("xb") as file:
            for data in _pieces(storage, handle):
                checksum.update(data)
                file.write(data)
        _compare(storage, handle, checksum)
        # Not synced: what is restored after a power failure is compared with checksums anyway.
        os.replace(private, target)
    finally:
        private.unlink(missing_ok=True)


def fetch(storage: Storage, handle: FileHandle) -> bytes:
    """Read a small stored file into memory and verify it."""
    checksum = Checksum()
    pieces = list(_pieces(storage, handle))
    for data in pieces:
        checksum.update(data)
    _compare(storage, handle, checksum)
    return b"".join(pieces)


def _pieces(storage: Storage, handle: FileHandle) -> Iterator[bytes]:
    for name, size in handle.parts():
        # A part may be larger than that: tables of canonical savepoints are one part each. An empty file has an empty
        # part, which is asked for, so that its absence is noticed.
        for start in range(0, max(size, 1), PART_BYTES):
            yield storage.get_range(name, start, min(PART_BYTES, size - start))


def _compare(storage: Storage, handle: FileHandle, found: Checksum) -> None:
    if found.text() != handle.checksum:
        raise CorruptFile(
            storage.url,
            handle.path,
            f"{handle.path!r} in {storage.url} has checksum {found.text()} but was written with {handle.checksum}. "
            "The stored file was changed or damaged: restore it from a copy, or start from an older checkpoint.",
        )
