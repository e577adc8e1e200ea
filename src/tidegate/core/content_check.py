"""Checksums that show whether a file still has its original content. They detect damage by disks, and torn or mixed-up files;
they do not protect against forgery.

CRC-32, because every epoch computes it for the files that it adds: a seventh of the time of SHA-256, which storage uses.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from tidegate.core.errors import CorruptState

_KIND = "crc32:"
_BLOCK_BYTES = 1 << 20


class ContentCheck:
    """A running checksum, as text in the form that manifests of versions have."""

    def __init__(self) -> None:
        self._crc = 0

    def update(self, data: bytes) -> None:
        self._crc = zlib.crc32(data, self._crc)

    def text(self) -> str:
        return f"{_KIND}{self._crc:08x}"


def check_of(data: bytes) -> str:
    return f"{_KIND}{zlib.crc32(data):08x}"


def check_of_file(path: Path) -> str:
    running = ContentCheck()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            running.update(block)
    return running.text()


def require_same(path: Path, actual: str, expected: str) -> None:
    """Raise `CorruptState` unless the content of a file is that with which it was written."""
    if actual != expected:
        raise CorruptState(
            f"{path} is damaged: its checksum is {actual}, and was {expected} when it was written. This copy is "
            "discarded; storage has the state of the latest checkpoint."
        )


def condemn(path: Path) -> None:
    """Cut the last byte of a damaged file. All versions that link it, and those that are being made from them, then have a file
    of the wrong size, and are not opened again."""
    os.truncate(path, max(0, path.stat().st_size - 1))
