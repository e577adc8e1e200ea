"""Estimates how the bytes of a task's state are divided among its states, from the files of a version.

A file never changes, so a process looks at each file once: what an estimate costs follows what has changed since the last
one. Bytes are those on disk, as in the size of the version: with values that are overwritten or deleted, until the backend
merges files.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TypeVar

from tidegate.state.disk.version_directory import version_path
from tidegate.state.port import DividingBackend, StateBackend
from tidegate.state.version import Manifest, VersionFile

SECONDS_BETWEEN = 1.0
"""A task is looked at again after this time. A file takes some milliseconds, which short epochs would notice."""
MOST_FILES = 32
"""New files that one estimate looks at. After a restore there may be thousands; these stand for the others."""
# A process may serve many tasks over its life; an entry is a small dictionary.
_REMEMBERED = 20_000
_Name = TypeVar("_Name", bound=Hashable)


class StateSizes:
    """The estimates of one process. Only a memory: whatever is forgotten is read again."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[VersionFile, str], Mapping[int, int]] = OrderedDict()
        self._looked: dict[Path, float] = {}

    def estimate(self, backend: StateBackend, directory: Path, manifest: Manifest) -> Mapping[int, int]:
        """Return bytes by state id, whose sum is about the size of the version. Empty: the backend cannot tell, the files tell
        nothing, or the last estimate for this directory is too recent."""
        if not isinstance(backend, DividingBackend) or not manifest.files:
            return {}
        with self._lock:
            now = self._seconds()
            if now - self._looked.get(directory, float("-inf")) < SECONDS_BETWEEN:
                return {}
            self._looked[directory] = now
            return self._divided(backend, version_path(directory, manifest.version), manifest)

    def forget(self) -> None:
        """Drop everything, as if the process had died. For tests."""
        with self._lock:
            self._files.clear()
            self._looked.clear()

    def _divided(self, backend: DividingBackend, path: Path, manifest: Manifest) -> Mapping[int, int]:
        # The checksum, because the first versions of two tasks may have files of one name.
        named = {file.name: (file, file.checksum or str(path.parent)) for file in manifest.files}
        unknown = sorted(name for name, key in named.items() if key not in self._files)
        # Evenly spread over the names, so over old and new files.
        for name in unknown[:: max(1, -(-len(unknown) // MOST_FILES))]:
            self._files[named[name]] = backend.bytes_by_state(path / name)
        shares: Counter[int] = Counter()
        for key in named.values():
            found = self._files.get(key)
            if found is not None:
                self._files.move_to_end(key)
                shares.update(found)
        while len(self._files) > _REMEMBERED:
            self._files.popitem(last=False)
        return scaled(shares, manifest.size_bytes)


SIZES = StateSizes()
"""The estimates of this process."""


def scaled(shares: Mapping[_Name, int], size_bytes: int) -> dict[_Name, int]:
    """Divide a size in these shares."""
    whole = sum(shares.values())
    return {each: round(size_bytes * share / whole) for each, share in shares.items()} if whole else {}
