"""Translates errors of the disk and of RocksDB into errors that say what to do."""

from __future__ import annotations

import errno
from pathlib import Path

from tidegate.core.errors import CorruptState, StateError

_FULL = ("no space left on device", "disk quota exceeded", "file too large")


class StateDiskFull(StateError):
    """The local state root has no space left. The attempt is lost, its base is not."""

    code = "STATE_DISK_FULL"
    retryable = True


def state_failure(doing: str, path: Path, error: BaseException, private: Path | None = None) -> StateError:
    """Return the error to raise, `from error`, if `doing` something below `path` failed. tidegate errors pass unchanged.

    `private`: where an attempt had a clone of `path`. It is gone when somebody reads the message, which names `path` instead.
    """
    if isinstance(error, StateError):
        return error
    text = str(error) or repr(error)
    if private is not None:
        text = text.replace(str(private), str(path))
    # rocksdict raises plain exceptions; only their text tells what has happened.
    lower = text.lower()
    if any(sign in lower for sign in _FULL) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return StateDiskFull(
            f"The disk is full while {doing} in {path}: {text}. Free space there, or set TIDEGATE_LOCAL_DIR to a "
            "larger disk. The previous version is intact, so the epoch can be repeated."
        )
    if lower.startswith("corruption") or "checksum mismatch" in lower:
        return CorruptState(
            f"State in {path} is damaged; found while {doing}: {text}. "
            "This copy is discarded; storage has the state of the latest checkpoint."
        )
    return StateError(
        f"Failed while {doing} in {path}: {text}. The previous version is intact, so the epoch can be repeated."
    )
