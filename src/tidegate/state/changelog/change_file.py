"""The changes of one attempt, in the order in which it made them.

    "TGCHNG1\\n", then frames (see `frames`):
    first frame   {"version": "3/v41-1207", "base": "3/v40-1199" or null, "empty": whether nothing was changed, "boot": "…"}
    others        [[key, value, key, value, ...], [deleted key, ...]], or [start, end] of a deleted range, each bytes
    last frame    {"end": number of frames between}

A file without its last frame is truncated, and rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.state.frames import (
    CheckedReader,
    Readable,
    check_rest,
    copy_rest,
    corrupt,
    read_frame,
    read_rest,
    write_frame,
)
from tidegate.state.port import StateStore
from tidegate.state.version import VersionId

_MAGIC = b"TGCHNG1\n"


@dataclass(frozen=True, slots=True)
class ChangeHeader:
    """Which version a file leads to, and from which. `base` None: from an empty state."""

    version: VersionId
    base: VersionId | None
    empty: bool = False
    boot: str = ""
    """The boot of the machine that wrote it: what is beside it on disk may be incomplete after the next one."""


class ChangeWriter:
    """Writes one file. Complete after `finish`."""

    def __init__(self, path: Path, header: ChangeHeader) -> None:
        self._out: BinaryIO = path.open("xb")
        self._frames = 0
        self._out.write(_MAGIC)
        base = None if header.base is None else str(header.base)
        front = {"version": str(header.version), "base": base, "empty": header.empty, "boot": header.boot}
        write_frame(self._out, front)

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        # One flat list: pairs would be a small array each.
        self._add((list(chain.from_iterable(puts)), deletes))

    def delete_range(self, start: bytes, end: bytes) -> None:
        self._add((start, end))

    def append(self, path: Path) -> None:
        """Add the changes of another file. Raises `CorruptState` if it is damaged."""
        with path.open("rb") as source:
            _header(path, source)
            self._frames += copy_rest(path, source, self._out)

    def finish(self) -> None:
        write_frame(self._out, {"end": self._frames})
        self._out.close()

    def close(self) -> None:
        """Close an unfinished file, whatever became of its last bytes."""
        with suppress(OSError):
            self._out.close()

    def _add(self, frame: Any) -> None:
        write_frame(self._out, frame)
        self._frames += 1


def read_change_header(path: Path) -> ChangeHeader:
    """Raises FileNotFoundError, or `CorruptState` if the file is damaged."""
    with path.open("rb") as source:
        return _header(path, source)


def check_changes(path: Path) -> str:
    """Read a whole file and return the checksum of its content. Raises FileNotFoundError, or `CorruptState` if it is damaged."""
    with path.open("rb") as opened:
        source = CheckedReader(opened)
        _header(path, source)
        check_rest(path, source)
        return source.check.text()


def apply(path: Path, store: StateStore) -> None:
    """Repeat the changes of a file. Raises `CorruptState`; then `store` holds a part of them and must be abandoned."""
    with path.open("rb") as source:
        _header(path, source)
        for first, second in read_rest(path, source):
            if isinstance(first, bytes):
                store.delete_range(first, second)
            else:
                flat = iter(first)
                store.write(zip(flat, flat), second)


def _header(path: Path, source: Readable) -> ChangeHeader:
    if source.read(len(_MAGIC)) != _MAGIC:
        # Also a file of zeros, which a reboot may leave.
        raise corrupt(path, "it does not begin as a file of changes")
    content = read_frame(path, source)
    try:
        base = None if content["base"] is None else VersionId.parse(content["base"])
        return ChangeHeader(VersionId.parse(content["version"]), base, content["empty"], content["boot"])
    except (TypeError, KeyError, ValueError) as error:
        raise corrupt(path, "its header cannot be read") from error
