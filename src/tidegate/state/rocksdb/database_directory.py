"""Where RocksDB keeps its small files while an attempt runs: in memory if possible, else with the tables.

RocksDB syncs its manifest, options and identity to disk a dozen times in the life of a database, and waits each time on
a busy disk. A version needs none of these syncs: it is complete when renamed, or does not exist. The database directory
is therefore in shared memory, and only its tables (`db_paths`) are in the private directory on disk, with those linked
from the base.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tidegate.state.disk.private_directory import PrivateDirectory, sweep

_MEMORY = Path("/dev/shm")
_PREFIX = "db-"
# The manifest of a large database has some megabytes, and several tasks of a host have one each.
_ENOUGH_BYTES = 32 << 20


class DatabaseDirectory:
    """The directory of one open database, `path`, and of its table files, `tables`."""

    def __init__(self, tables: Path) -> None:
        self.tables = tables
        self._private = _in_memory()
        self.path = tables if self._private is None else self._private.path

    def move_to_tables(self, names: list[str]) -> None:
        """Move files of a closed database to its tables."""
        if self._private is not None:
            for name in names:
                # Copied: memory and disk are two file systems.
                shutil.copyfile(self.path / name, self.tables / name)

    def discard(self) -> None:
        if self._private is not None:
            self._private.discard()


def _in_memory() -> PrivateDirectory | None:
    """Create a directory in memory, after removing the remains of dead processes. Return None if there is no room."""
    try:
        space = os.statvfs(_MEMORY)
        if space.f_bavail * space.f_frsize < _ENOUGH_BYTES:
            return None
        parent = _MEMORY / f"tidegate-{os.geteuid()}"
        parent.mkdir(mode=0o700, exist_ok=True)
        # `/dev/shm` is open to everybody.
        if parent.stat().st_uid != os.geteuid():
            return None
        sweep(parent, _PREFIX)
        return PrivateDirectory.make(parent, _PREFIX)
    except OSError:
        return None
