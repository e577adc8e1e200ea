"""Versions on a host that no run uses any more, and their end: the next job that is placed there removes them.

- A run that can be continued leaves its versions where they are, with a mark (`.left`). The next run takes the mark away.
- Every attempt notes that it uses the directory of its task (`.used`), with the process that started it, which lives as long as
  the executor. A run that was killed, or replaced by one that starts from nothing, notes nothing more, and its process is gone.
- A slot that has moved to another host notes nothing here, while other tasks of its job do.

In each case the versions stay for a time that an option states. Without checkpoints, versions are all there is: they are removed
only if their process has certainly ended, and after a day at the earliest, whatever the options of other jobs say. A job without
checkpoints that has no rows runs an epoch several times a day, so that its tasks note their use also after an executor was
replaced.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.ids import Lineage
from tidegate.core.processes import has_died, is_running, parent_process
from tidegate.state.disk.local_root import LocalRoot

_MARK = ".left"
_USED = ".used"
_SWEPT = ".swept"
_TRASH = ".trash-"
_ALONE_S = 24 * 3600
"""Versions of which no checkpoint exists stay for so long at least."""
REFRESH_S = _ALONE_S / 4
"""A job without checkpoints that has run no epoch for so long runs an empty one."""
_LOOK_AGAIN_S = 600
"""Tasks of a placement look one after the other; one of them is enough."""


@dataclass(frozen=True, slots=True)
class _Use:
    """The last use of the directory of a task."""

    directory: Path
    at_s: float
    process: str
    checkpointed: bool


def note_use(directory: Path, *, checkpointed: bool) -> None:
    """Note that an attempt uses the directory of its task, which exists. `checkpointed`: a checkpoint can restore its state."""
    note = directory / _USED
    text = f"{'checkpointed' if checkpointed else 'alone'} {parent_process()}"
    with suppress(OSError):  # A full disk: nobody removes versions for lack of a note.
        if _text(note) == text:
            # The time of the file says when. Writing it again would cost more in every epoch.
            os.utime(note)
        else:
            note.write_text(text)


def leave(root: LocalRoot, job: str, lineage: Lineage) -> None:
    """Mark the versions of a lineage: nobody uses them now."""
    with suppress(FileNotFoundError):  # None of its tasks is on this host.
        (root.lineage_directory(job, lineage) / _MARK).touch()


def take_back(root: LocalRoot, job: str, lineage: Lineage) -> None:
    """Take the mark away: a run continues."""
    (root.lineage_directory(job, lineage) / _MARK).unlink(missing_ok=True)


def sweep_if_due(root: LocalRoot, older_than_s: float, own: Path) -> None:
    """`sweep`, unless somebody has just done so."""
    stamp = root.path / _SWEPT
    with suppress(OSError):
        if not 0 <= time.time() - _modified_s(stamp) < min(_LOOK_AGAIN_S, older_than_s):
            # Before the work: other tasks that start now leave it to this one.
            stamp.touch()
            sweep(root, older_than_s, own)


def sweep(root: LocalRoot, older_than_s: float, own: Path | None = None) -> None:
    """Remove versions that nobody has used for longer. `own` is the directory of the lineage that is being placed: it may use
    versions of any age.

    Each directory is renamed first, so a run that continues meanwhile finds all of it, or nothing and fetches it.
    """
    for mark in root.path.glob(f"*/*/{_MARK}"):
        with suppress(OSError):
            if time.time() - mark.stat().st_mtime > older_than_s:
                _remove(mark.parent)
    for lineage in root.path.glob("*/*"):
        # What is being removed has no users.
        if not lineage.name.startswith(_TRASH):
            _sweep_tasks(lineage, older_than_s, in_use=lineage == own)
    # Also what a killed process left.
    for trash in (*root.path.glob(f"*/{_TRASH}*"), *root.path.glob(f"*/*/{_TRASH}*")):
        shutil.rmtree(trash, ignore_errors=True)


def _sweep_tasks(lineage: Path, older_than_s: float, in_use: bool) -> None:
    uses, now_s = list(_uses(lineage)), time.time()
    # A note from the future was written before the clock was set back. Compared with it, all others would be old.
    latest_s = max((use.at_s for use in uses if use.at_s <= now_s), default=0.0)
    for use in uses:
        # Tasks of a running job note their use in every epoch, however long it has waited for rows before.
        limit_s = older_than_s if use.checkpointed else max(older_than_s, _ALONE_S)
        moved_away = latest_s - use.at_s > limit_s
        deserted = not in_use and now_s - use.at_s > limit_s and not is_running(use.process)
        if (moved_away or deserted) and (use.checkpointed or has_died(use.process)):
            with suppress(OSError):
                _remove(use.directory)


def _uses(lineage: Path) -> Iterator[_Use]:
    for note in lineage.glob(f"*/{_USED}"):
        with suppress(OSError):
            kind, _, process = _text(note).partition(" ")
            yield _Use(note.parent, _modified_s(note), process, kind == "checkpointed")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def _modified_s(path: Path) -> float:
    """When a file was written last; 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(directory: Path) -> None:
    trash = directory.parent / f"{_TRASH}{uuid.uuid4().hex}"
    os.rename(directory, trash)
    shutil.rmtree(trash, ignore_errors=True)
    with suppress(OSError):
        # The last one takes the folder above with it. This fails if another one is there, or has just come.
        directory.parent.rmdir()
