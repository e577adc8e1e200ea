"""The change files of a task: `{task directory}/changes/{term}-v{number}-{attempt}.changes`, one for each version.

A file names the version it starts from, so the changes between two versions are found by going back from the later one.
They may be missing, for example on a host that has restored the task. Then the whole version is uploaded instead.

Before an upload, files of several versions are merged to one, `{that of the last version}+{number of files}.changes`. It lies
beside them until the changes are truncated.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core.errors import CorruptState
from tidegate.core.ids import EpochId, Term
from tidegate.state.changelog.change_file import ChangeHeader, ChangeWriter, check_changes, read_change_header
from tidegate.state.disk.local_root import boot_id
from tidegate.state.disk.private_directory import PrivateDirectory, sweep
from tidegate.state.version import VersionId

CHANGES_END = ".changes"
_WRITING = ".writing-"
_NAME = re.compile(r"(\d+)-v(\d+)-(\d+)(?:\+(\d+))?\.changes")


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """What one version changed, or several did, as a file. `version` is the last of them."""

    name: str
    path: Path
    size_bytes: int
    version: VersionId
    checksum: str = ""
    """Of its content, if that was read and checked (see `verified`)."""


def changes_name(version: VersionId) -> str:
    return str(version).replace("/", "-") + CHANGES_END


def versions_in(name: str) -> int:
    """Return how many versions' changes a file of this name has."""
    match = _NAME.fullmatch(name)
    return 1 if match is None or match[4] is None else int(match[4])


def changes_path(directory: Path, version: VersionId) -> Path:
    """Return the path of the change file of `version` below its task's directory."""
    return directory / "changes" / changes_name(version)


def begin_changes(directory: Path) -> PrivateDirectory:
    """Return a directory for a file that is being written. It is removed by `truncate` if the process dies."""
    return PrivateDirectory.make(directory / "changes", _WRITING)


def note_same(directory: Path, version: VersionId, base: VersionId) -> None:
    """Note that `version` holds what `base` does: it was made from it by a restore."""
    private = begin_changes(directory)
    try:
        writer = ChangeWriter(private.path / "log", ChangeHeader(version, base, empty=True, boot=boot_id()))
        writer.finish()
        os.rename(private.path / "log", changes_path(directory, version))
    finally:
        private.discard()


def changes_between(directory: Path, base: VersionId, version: VersionId) -> tuple[VersionChanges, ...] | None:
    """Return the files that lead from `base` to `version`, in the order of the changes; None if that is not known.

    Versions that changed nothing have none.
    """
    found: list[VersionChanges] = []
    at: VersionId | None = version
    # Backwards from the newest: each file names the version before.
    while at != base:
        # Past the base without meeting it: the versions are on different branches.
        if at is None or at.epoch < base.epoch:
            return None
        path = changes_path(directory, at)
        try:
            header = read_change_header(path)
            if header.version != at:
                return None
            if not header.empty:
                found.append(VersionChanges(path.name, path, path.stat().st_size, at))
        except (FileNotFoundError, CorruptState):
            return None
        if header.base is not None and header.base.epoch >= at.epoch:
            return None  # A damaged file: changes lead from earlier epochs to later ones.
        at = header.base
    return tuple(reversed(found))


def merge(directory: Path, changes: Sequence[VersionChanges]) -> VersionChanges:
    """Return one file with these changes, which follow one another. Raises FileNotFoundError, or `CorruptState`."""
    first, last = changes[0], changes[-1]
    if len(changes) == 1:
        return last
    name = f"{last.name.removesuffix(CHANGES_END)}+{len(changes)}{CHANGES_END}"
    path = directory / "changes" / name
    # An earlier try of this upload may have merged them already.
    if not _is_of_this_boot(path):
        private = begin_changes(directory)
        try:
            header = ChangeHeader(last.version, read_change_header(first.path).base, boot=boot_id())
            writer = ChangeWriter(private.path / "log", header)
            try:
                for change in changes:
                    writer.append(change.path)
                writer.finish()
            finally:
                writer.close()
            os.rename(private.path / "log", path)
        finally:
            private.discard()
    return VersionChanges(name, path, path.stat().st_size, last.version)


def _is_of_this_boot(path: Path) -> bool:
    """Whether a file exists and is complete: what was written before the last boot may not be."""
    try:
        return read_change_header(path).boot == boot_id()
    except (FileNotFoundError, CorruptState):
        return False


def verified(changes: VersionChanges) -> VersionChanges:
    """Read a file, and return it with the checksum of what was read. Raises `CorruptState` if it is damaged."""
    return replace(changes, checksum=check_changes(changes.path))


def truncate(directory: Path, upto: VersionId) -> None:
    """Remove the change files up to a version whose files every later checkpoint contains, and remains of dead attempts."""
    folder = directory / "changes"
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in list(entries):
            match = _NAME.fullmatch(entry.name)
            # By the last version of a file: a merged one goes when all of it is over.
            if match is not None and EpochId(Term(int(match[1])), int(match[2])) <= upto.epoch:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
    sweep(folder, _WRITING)
