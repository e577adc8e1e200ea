"""Where RocksDB keeps its small files while an attempt runs: in memory if the system offers it, else with the tables.

RocksDB syncs its manifest, options and identity to disk a dozen times in the life of a database, and on a busy disk
each of them is waited for. A version needs none of it: it is complete when renamed, or does not exist. So the
database's directory lies in shared memory, and only its tables (`db_paths`) in the private directory on disk, beside
those linked from the base.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tidegate.state.private_directory import PrivateDirectory, sweep

_MEMORY = Path("/dev/shm")
_PREFIX = "db-"
_ENOUGH_BYTES = 32 << 20


class Home:
    """The directory of one open database: `path`. `tables` is where its table files are."""

    def __init__(self, tables: Path) -> None:
        self.tables = tables
        self._private = _in_memory()
        self.path = tables if self._private is None else self._private.path

    def move_to_tables(self, names: list[str]) -> None:
        """Bring files of a closed database to its tables."""
        if self._private is not None:
            for name in names:
                shutil.copyfile(self.path / name, self.tables / name)

    def discard(self) -> None:
        if self._private is not None:
            self._private.discard()


def _in_memory() -> PrivateDirectory | None:
    """A new directory in memory, after removing what dead processes left there; None when there is no room for one."""
    try:
        space = os.statvfs(_MEMORY)
        if space.f_bavail * space.f_frsize < _ENOUGH_BYTES:
            return None
        parent = _MEMORY / f"tidegate-{os.geteuid()}"
        parent.mkdir(mode=0o700, exist_ok=True)
        if parent.stat().st_uid != os.geteuid():
            return None
        sweep(parent, _PREFIX)
        return PrivateDirectory.make(parent, _PREFIX)
    except OSError:
        return None
