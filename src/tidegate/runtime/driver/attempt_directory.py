"""The directory of an attempt's query, on the disk of the driver. A driver that is killed cannot remove it: the next start does.

1. The directory is created under a private name. A crash leaves an empty directory.
2. The name of the process is written into it. From here on, anybody can tell whether its owner has died.
3. A start removes the content of what dead processes of this user left, and that name last: what a crash leaves is removed by
   the next start.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from tidegate.core.processes import has_died, this_process
from tidegate.state.disk.local_root import local_directory

log = logging.getLogger("tidegate")

_PREFIX = "tidegate-"
"""The directory with the state of all jobs may begin with it, too (`state.local_root`)."""
_OWNER = ".driver"


def create_directory(job: str) -> Path:
    """Create a directory of this process."""
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{job}-"))
    (directory / _OWNER).write_text(this_process())
    return directory


def remove_left_behind() -> int:
    """Remove the directories of processes of this user that have died. Return how many. What cannot be removed stays."""
    removed = 0
    for directory in _directories():
        with suppress(OSError):
            if has_died((directory / _OWNER).read_text()):
                _remove(directory)
                removed += 1
    if removed:
        log.info("removed %d temporary director%s of drivers that were killed", removed, "y" if removed == 1 else "ies")
    return removed


def _directories() -> list[Path]:
    """Those of this user. Others may create any name in the directory for temporary files."""
    found: list[Path] = []
    with suppress(OSError):
        for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                status = directory.lstat()
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and directory != local_directory():
                    found.append(directory)
    return found


def _remove(directory: Path) -> None:
    for each in directory.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.name != _OWNER:
            each.unlink()
    (directory / _OWNER).unlink()
    directory.rmdir()
