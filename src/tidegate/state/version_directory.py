"""Versions as directories: `{task directory}/{term}/v{number}-{attempt}`, each with its files and `manifest.json`.

A version is built in a private directory beside its final place and gets its name by one rename, so a name that exists
is complete. Nothing is synced to disk: the page cache outlives a process, and after a reboot the host has another id
(see `local_root`), so that versions are trusted only if the checksums kept in a checkpoint hold.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidegate.core.errors import CorruptState, StateError
from tidegate.core.ids import Term
from tidegate.state import manifest_file
from tidegate.state.port import VersionMissing
from tidegate.state.private_directory import PrivateDirectory, sweep
from tidegate.state.version import Manifest, VersionFile, VersionId

_BUILD = ".build-"
RESTORING = ".restore-"
"""Begins the names of private directories beside the terms, where a restore puts a version together."""
_TRASH = ".trash-"


def version_path(directory: Path, version: VersionId) -> Path:
    """Where `version` lies below its task's directory."""
    return directory / str(version.epoch.term) / f"v{version.epoch.number}-{version.attempt}"


def read_version(directory: Path, version: VersionId, backend: str) -> Manifest:
    """The manifest of `version`, after a look at every file: there, and of its size.

    Raises `VersionMissing`, or `CorruptState` naming the file; content is checked by who reads it.
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
            f"Go on with {manifest.backend!r}, or change the backend through a canonical savepoint."
        )
    for file in manifest.files:
        try:
            size = os.stat(path / file.name).st_size
        except FileNotFoundError as error:
            raise CorruptState(f"{path / file.name} is missing. {_RESTORE}") from error
        if size != file.size_bytes:
            raise CorruptState(f"{path / file.name} has {size} bytes instead of {file.size_bytes}. {_RESTORE}")
    return manifest


@contextlib.contextmanager
def base_of(directory: Path, version: VersionId) -> Iterator[Path]:
    """The path of a version that is being cloned or read: if it is taken away meanwhile, `VersionMissing`."""
    path = version_path(directory, version)
    try:
        yield path
    except FileNotFoundError as error:
        if path.is_dir():
            raise
        raise VersionMissing(directory, version) from error


_RESTORE = "Remove that version and let the job restore the task from its last checkpoint."


class Building:
    """A version under construction in a private directory, which is locked for as long as its builder lives.

    Whoever holds all files of a version (a backend, a restore) makes it appear so:

    1. `Building.begin(directory, version)` makes the private directory. A crash leaves it, unlocked: `tidy` removes it.
    2. Files are linked, copied or written into `path`.
    3. `publish(manifest)` writes the manifest and renames. A crash before the rename leaves what step 1 leaves.
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
        """Give the new version files of an older one, without copying them. They keep their names and origins."""
        for file in files:
            os.link(source / file.name, self.path / file.name)

    def publish(self, manifest: Manifest) -> None:
        """Make the version appear under its name, complete. Raises OSError, and nothing appears, when it cannot."""
        manifest_file.write(self.path, manifest)
        os.rename(self.path, self._final)
        self._private.release()

    def discard(self) -> None:
        """Remove what was built. May be called again, and after `publish`, when it does nothing."""
        self._private.discard()


def versions_of(directory: Path, term: Term) -> Iterator[VersionId]:
    """Versions of `term` that have a name, in no order."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory / str(term)) as entries:
        for entry in entries:
            with contextlib.suppress(ValueError):
                yield VersionId.parse(f"{term}/{entry.name}")


def discard_version(directory: Path, version: VersionId) -> None:
    """Take a version away, whatever is left of it. It first loses its name, so it is never seen half removed."""
    path = version_path(directory, version)
    trash = path.parent / f"{_TRASH}{path.name}-{uuid.uuid4().hex[:12]}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, trash)
        shutil.rmtree(trash, ignore_errors=True)


def move_version(version: VersionId, source: Path, directory: Path) -> None:
    """Bring a version from below one directory to below another of the same file system, in one step."""
    final = version_path(directory, version)
    while True:
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(version_path(source, version), final)
            return
        except FileNotFoundError:
            # Another process may have tidied the empty folder away in between.
            if final.parent.is_dir() or not version_path(source, version).is_dir():
                raise


def terms_of(directory: Path) -> list[Term]:
    """Terms that have versions, or leavings, below a task's directory."""
    try:
        return sorted(Term(int(name)) for name in os.listdir(directory) if name.isdigit())
    except FileNotFoundError:
        return []


def tidy(directory: Path, term: Term, keep: Iterable[VersionId], *, ended: bool = False) -> None:
    """Remove versions of `term` that `keep` does not name, and leavings of attempts whose process is gone.

    Versions newer than all in `keep` are left alone: whoever made the list had not heard of them, and one of them may
    be the next base. When the term has `ended`, or with an empty `keep`, everything else of it goes. A version first loses
    its name, so none is ever seen half removed.
    Safe beside running attempts and beside another `tidy`; may be interrupted and repeated.
    """
    wanted = set(keep)
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
