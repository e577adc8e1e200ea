"""A directory private to one attempt, locked while its process lives, so that others can tell when it is abandoned."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import uuid
from pathlib import Path


class PrivateDirectory:
    """Created and locked by `make`. A crash leaves the directory unlocked, and `sweep` removes it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock

    @staticmethod
    def make(parent: Path, prefix: str) -> PrivateDirectory:
        while True:
            path = parent / f"{prefix}{uuid.uuid4().hex[:12]}"
            path.mkdir(mode=0o700, parents=True)
            try:
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            # A `sweep` that holds the lock is about to remove the directory: wait, and look whether it is still there.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return PrivateDirectory(path, lock)
            os.close(lock)  # `sweep` ran between mkdir and flock and took the directory for an abandoned one

    def unlock(self) -> None:
        """Release the lock and keep the directory."""
        if self._lock is not None:
            # Closing releases the lock; so does the kernel, if the process dies.
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Remove the directory. Does nothing if it was discarded or unlocked before."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self.unlock()


def sweep(parent: Path, prefix: str) -> None:
    """Remove directories with this prefix whose creators are gone."""
    with contextlib.suppress(FileNotFoundError), os.scandir(parent) as entries:
        for entry in list(entries):
            if entry.name.startswith(prefix):
                _remove_if_deserted(entry.path)


def _remove_if_deserted(path: str) -> None:
    """Remove under the lock: a creator that has not locked its new directory yet waits, then finds it gone."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
    finally:
        os.close(lock)
