"""Which versions on a local disk are as they were written: those written by somebody with the same memory, and nobody else since.

A record in memory (`/dev/shm`) has a random token for a local state root. Versions carry the token of the time they were
sealed. A start uses a version without reading all of it only if the token is still in memory (decision 0022):

- Memory does not outlive a boot, is not part of a copy or a snapshot of a disk, and a container has its own. So whoever has the
  disk and not the memory has no token, or another one.
- The record belongs to a root by device, inode and change time of its `.host-uuid`. No copy has the same, even beside the
  original.
- Each start on the host writes a random number to memory and to disk (`.last-start`). If the two differ, somebody else has
  started there since, such as a clone of this machine that shares the volume, or the disk was set back to an earlier time.
  Then the token is replaced, and no version has it.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidegate.core.faults import reach
from tidegate.state.disk.local_root import HOST_UUID, UNKNOWN_BOOT, boot_id

NOTHING = ""
"""The token of versions that nobody trusts."""
_MEMORY = Path("/dev/shm")
_MOUNTS = Path("/proc/self/mounts")
_LAST_START = ".last-start"
_DEPTH = 8
"""The most folders between a version and the root: job, lineage, task, a private folder, term, version."""


@dataclass(frozen=True, slots=True)
class _Record:
    """What memory has about a root."""

    boot: str
    token: str
    last_start: str


def token_of(directory: Path) -> str:
    """Return the token of versions that are sealed below `directory` now. `NOTHING` if there is no start to vouch for them."""
    root = _root_of(directory)
    if root is None:
        return NOTHING
    with suppress(OSError):
        record = _read(_record_path(root))
        if record is not None and record.boot == boot_id():
            return record.token
    return NOTHING


def note_start(root: Path) -> None:
    """A run starts on this host. Replace the token if somebody else has used the disk since the last start.

    1. Under a lock in memory, compare the number of the last start in memory and on disk.
    2. Write a new number to memory, with the old token if they were equal.
    3. Write the number to disk. A crash before leaves two numbers: the next start trusts nothing.
    """
    # Without both, a token could outlive a reboot.
    if boot_id() == UNKNOWN_BOOT or not _is_memory(_MEMORY):
        return
    with suppress(OSError), _lock():
        path = _record_path(root)
        record = _read(path)
        last_start = root / _LAST_START
        unchanged = record is not None and record.boot == boot_id() and _text(last_start) == record.last_start
        token = record.token if record is not None and unchanged else uuid.uuid4().hex
        number = uuid.uuid4().hex
        # Memory first. A crash in between leaves two numbers, and the next start trusts nothing: the safe side.
        _replace(path, f"{boot_id()} {token} {number}")
        reach("disk.1-in-memory", root=root)
        _replace(last_start, number)


def _root_of(directory: Path) -> Path | None:
    for place in (directory, *directory.parents[:_DEPTH]):
        if (place / HOST_UUID).exists():
            return place
    return None


def _record_path(root: Path) -> Path:
    found = os.stat(root / HOST_UUID)
    # The change time cannot be set from outside, unlike the time of modification, which copies keep.
    return _folder() / f"disk-{found.st_dev}-{found.st_ino}-{found.st_ctime_ns}"


def _folder() -> Path:
    """The folder of this user in memory. Raises OSError if it cannot be made, or belongs to somebody else."""
    folder = _MEMORY / f"tidegate-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # `/dev/shm` is open to everybody: another user may have made a folder of this name.
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def _read(path: Path) -> _Record | None:
    parts = _text(path).split()
    return _Record(*parts) if len(parts) == 3 else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def _replace(path: Path, text: str) -> None:
    private = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    try:
        private.write_text(text)
        os.replace(private, path)
    finally:
        private.unlink(missing_ok=True)


@contextmanager
def _lock() -> Iterator[None]:
    descriptor = os.open(_folder() / "disks.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@cache
def _is_memory(place: Path) -> bool:
    """Whether a directory is kept in memory, and on no disk."""
    with suppress(OSError):
        mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
        # The last mount of a place is the one that counts.
        return [kind for where, kind in mounts if where == str(place)][-1:] == ["tmpfs"]
    return False
