"""Versions that a run has left on a host for the next run of its job, and their end.

A run that can be continued leaves its versions where they are, with a mark. The next run takes the mark away. If none comes,
another job that starts on the host removes the versions some time later. A run that was killed leaves no mark, and its versions
stay until it is continued: it may still be running.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path

from tidegate.core.ids import Lineage
from tidegate.state.local_root import LocalRoot

_MARK = ".left"
_TRASH = ".trash-"


def leave(root: LocalRoot, job: str, lineage: Lineage) -> None:
    """Mark the versions of a lineage: nobody uses them now."""
    with suppress(FileNotFoundError):  # None of its tasks is on this host.
        (root.lineage_directory(job, lineage) / _MARK).touch()


def take_back(root: LocalRoot, job: str, lineage: Lineage) -> None:
    """Take the mark away: a run continues."""
    (root.lineage_directory(job, lineage) / _MARK).unlink(missing_ok=True)


def sweep(root: LocalRoot, older_than_s: float) -> None:
    """Remove versions that were left longer ago. Each lineage is renamed first, so a run that continues meanwhile finds all of
    it, or nothing and fetches it."""
    for mark in root.path.glob(f"*/*/{_MARK}"):
        with suppress(OSError):
            if time.time() - mark.stat().st_mtime > older_than_s:
                _remove(mark.parent)
    for trash in root.path.glob(f"*/{_TRASH}*"):
        shutil.rmtree(trash, ignore_errors=True)


def _remove(lineage: Path) -> None:
    trash = lineage.parent / f"{_TRASH}{uuid.uuid4().hex}"
    os.rename(lineage, trash)
    shutil.rmtree(trash, ignore_errors=True)
    with suppress(OSError):
        lineage.parent.rmdir()
