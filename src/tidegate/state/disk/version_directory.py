"""Versions as directories: `{task directory}/{term}/v{number}-{attempt}`, each with its files and `manifest.json`.

A version is built in a private directory next to its final place and renamed once, so a version that has its name is
complete. Nothing is synced to disk: the page cache outlives a process, and after a reboot the host has another id (see
`local_root`), so that versions are trusted only if they match the checksums in a checkpoint. The manifest has the token that the
disk had when the version was sealed: as long as it has the same, files are as they were written (see `disk_token`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tidegate.core.content_check import check_of_file
from tidegate.core.errors import CorruptState, StateError
from tidegate.core.ids import Term
from tidegate.state.disk import manifest_file
from tidegate.state.disk.disk_token import token_of
from tidegate.state.disk.private_directory import PrivateDirectory, sweep
from tidegate.state.port import VersionMissing
from tidegate.state.version import Manifest, VersionFile, VersionId

_BUILD = ".build-"
RESTORING = ".restore-"
"""Prefix of private directories, next to the terms, in which a restore assembles a version."""
_TRASH = ".trash-"


def version_path(directory: Path, version: VersionId) -> Path:
    """Return the path of `version` below its task's directory."""
    return directory / str(version.epoch.term) / f"v{version.epoch.number}-{version.attempt}"


def read_version(directory: Path, version: VersionId, backend: str) -> Manifest:
    """Return the manifest of `version` after checking that every file exists and has the right size.

    Raises `VersionMissing`, or `CorruptState` naming the file; readers verify the content.
    """
    path = version_path(directory, version)
    try:
        manifest = manifest_file.read(path)
    except FileNotFoundError as error:
        if path.is_dir():
            raise CorruptState(f"{path / manifest_file.MANIFEST_NAME} is missing. {_RESTORE}") from error
        raise VersionMissing(directory, version) from error
    if manifest.version != version:
        raise CorruptState(f"{path} holds version {manifest.version}, not {version}. {_RESTORE}")
    if manifest.backend != backend:
        raise StateError(
            f"{path} was written by the {manifest.backend!r} backend and is opened by {backend!r}. "
            f"Keep using {manifest.backend!r}, or change the backend through a canonical savepoint."
        )
    for file in manifest.files:
        try:
            # Presence and size only: content is checked by whoever reads it. A file that an upload has condemned has
            # another size.
            size = os.stat(path / file.name).st_size
        except FileNotFoundError as error:
            raise CorruptState(f"{path / file.name} is missing. {_RESTORE}") from error
        if size != file.size_bytes:
            raise CorruptState(f"{path / file.name} has {size} bytes instead of {file.size_bytes}. {_RESTORE}")
    return manifest


@contextlib.contextmanager
def base_of(directory: Path, version: VersionId) -> Iterator[Path]:
    """Yield the path of a version to be cloned or read. If the version is removed meanwhile, raises `VersionMissing`."""
    path = version_path(directory, version)
    try:
        yield path
    except FileNotFoundError as error:
        if path.is_dir():
            raise
        raise VersionMissing(directory, version) from error


_RESTORE = "This copy is discarded; storage has the state of the latest checkpoint."


class Building:
    """A version being built in a private directory, which is locked as long as its builder lives.

    A backend or a restore that has all files of a version seals it as follows:

    1. `Building.begin(directory, version)` creates the private directory. A crash leaves it unlocked, and `tidy`
       removes it.
    2. Files are linked, copied or written to `path`.
    3. `seal(manifest)` writes the manifest and renames. A crash before the rename leaves what step 1 leaves.
    """

    def __init__(self, private: PrivateDirectory, final: Path) -> None:
        self.path = private.path
        self._private = private
        self._final = final

    @staticmethod
    def begin(directory: Path, version: VersionId) -> Building:
        final = version_path(directory, version)
        return Building(PrivateDirectory.make(final.parent, f"{_BUILD}{final.name}-"), final)

    def link(self, source: Path, files: Iterable[VersionFile]) -> None:
        """Link files of an older version into the new one. They keep their names and origins."""
        for file in files:
            os.link(source / file.name, self.path / file.name)

    def seal(self, manifest: Manifest) -> Manifest:
        """Seal the complete version under its name, and return its manifest with the checksums of all files. On failure,
        raises OSError and seals nothing.

        Files that were just written are read once more for their checksums, from memory. Linked files have theirs."""
        complete = replace(manifest, files=tuple(map(self._checked, manifest.files)), token=token_of(self._final))
        # Last, before the rename.
        manifest_file.write(self.path, complete)
        os.rename(self.path, self._final)
        # After the rename: until then, `tidy` must see that the builder lives.
        self._private.unlock()
        return complete

    def _checked(self, file: VersionFile) -> VersionFile:
        return file if file.checksum else replace(file, checksum=check_of_file(self.path / file.name))

    def discard(self) -> None:
        """Remove what was built. Does nothing if called again or after `seal`."""
        self._private.discard()


def versions_of(directory: Path, term: Term) -> Iterator[VersionId]:
    """Yield the named versions of `term`, in no particular order."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory / str(term)) as entries:
        for entry in entries:
            with contextlib.suppress(ValueError):
                yield VersionId.parse(f"{term}/{entry.name}")


def discard_version(directory: Path, version: VersionId) -> None:
    """Remove a version, complete or not. It is renamed first, so it is never visible partially removed."""
    path = version_path(directory, version)
    trash = path.parent / f"{_TRASH}{path.name}-{uuid.uuid4().hex[:12]}"
    with contextlib.suppress(FileNotFoundError):
        # One step: a reader finds the whole version, or none.
        os.rename(path, trash)
        shutil.rmtree(trash, ignore_errors=True)


def move_version(version: VersionId, source: Path, directory: Path) -> None:
    """Move a version atomically from one directory to another on the same file system."""
    final = version_path(directory, version)
    while True:
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(version_path(source, version), final)
            return
        except FileNotFoundError:
            # Another process may have removed the empty folder in between.
            if final.parent.is_dir() or not version_path(source, version).is_dir():
                raise


def terms_of(directory: Path) -> list[Term]:
    """Return the terms that have versions, or remains, below a task's directory."""
    try:
        return sorted(Term(int(name)) for name in os.listdir(directory) if name.isdigit())
    except FileNotFoundError:
        return []


def tidy(directory: Path, term: Term, keep: Iterable[VersionId], *, ended: bool = False) -> None:
    """Remove versions of `term` that are not in `keep`, and the remains of attempts whose process is gone.

    Versions newer than all in `keep` are left alone: the author of the list did not know them yet, and one of them may
    be the next base. If the term has `ended`, or `keep` is empty, everything else in it is removed. A version is
    renamed first, so none is ever visible partially removed. Safe while attempts or another `tidy` are running; can be
    interrupted and repeated.
    """
    wanted = set(keep)
    # The list was made before the epoch that runs now. What is newer may be the base of the next one.
    newest = None if ended else max((version.epoch for version in wanted), default=None)
    for version in list(versions_of(directory, term)):
        if version not in wanted and (newest is None or version.epoch <= newest):
            path = version_path(directory, version)
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, path.parent / f"{_TRASH}{path.name}-{uuid.uuid4().hex[:12]}")
    parent = directory / str(term)
    with contextlib.suppress(FileNotFoundError), os.scandir(parent) as entries:
        for entry in list(entries):
            if entry.name.startswith(_TRASH):
                shutil.rmtree(entry.path, ignore_errors=True)
    sweep(parent, _BUILD)
    sweep(directory, RESTORING)
    with contextlib.suppress(OSError):
        parent.rmdir()
