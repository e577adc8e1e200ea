"""Brings the version of one task from storage to local disk, and tells whether it is there already.

Files that are on this host with the stored content are linked instead of fetched. Downloads are verified against the checksums of
the snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegate.checkpoint.metadata import FileList, InlineFile, StateFile, TaskState
from tidegate.checkpoint.task.change_plan import change_files
from tidegate.core.content_check import ContentCheck, check_of_file
from tidegate.core.errors import StateError
from tidegate.state.backends import plain_name
from tidegate.state.changelog import apply, changes_path
from tidegate.state.changelog.change_file import read_change_header
from tidegate.state.disk.disk_token import NOTHING, token_of
from tidegate.state.disk.local_root import boot_id
from tidegate.state.disk.version_directory import Building, discard_version, version_path
from tidegate.state.port import StateBackend, StateStore
from tidegate.state.version import Manifest, VersionFile, VersionId
from tidegate.storage import Storage, checksum_of_file, download
from tidegate.storage.handle import Checksum, FileHandle
from tidegate.storage.routed import name_below

_DOWNLOADS = 4
"""Concurrent downloads per task. Several tasks of a host restore concurrently."""
_BLOCK_BYTES = 1 << 20


def fetch_version(
    storage: Storage,
    directory: Path,
    root: str,
    state: TaskState,
    groups: tuple[int, int],
    home: Path | None = None,
    *,
    replaces: bool = False,
) -> None:
    """Build the version of `state` below `directory` from storage. Change files go to `changes` there; see `begin_fetched`. The
    list of its files must be loaded.

    `home` is the task's directory on this host, if it has one. Files that are there with the stored content are linked and not
    fetched: those of a version of an earlier release, or of one of which another file is damaged. With `replaces`, a version that
    `directory` has under this name is removed.
    """
    building = Building.begin(directory, state.version)
    changes = {file.name for file in change_files(state)}
    # Change files lie beside the versions, not in them: see `state.changelog`.
    if changes:
        (directory / "changes").mkdir(parents=True, exist_ok=True)

    def place(name: str) -> Path:
        return (directory / "changes" if name in changes else building.path) / name

    def bring(file: StateFile) -> VersionFile:
        target = place(file.name)
        # Files inlined in the metadata are never looked for here: they are at hand.
        copies = _copies(home, state.version, file, file.name in changes)
        check = next(filter(None, (_link_same(path, file, target) for path in copies)), "")
        if not check:
            handle = FileHandle(name_below(root, file.path), file.size_bytes, file.checksum, file.part_bytes)
            download(storage, handle, target)
        return VersionFile(file.name, file.size_bytes, file.origin, check)

    try:
        for inlined in state.inline:
            place(inlined.name).write_bytes(inlined.data)
        with ThreadPoolExecutor(_DOWNLOADS, "tidegate-restore") as pool:
            brought = list(pool.map(bring, listed(state)))
        if replaces:
            # Not before: its files were linked. A crash before the next one is sealed leaves none, and all is fetched.
            discard_version(directory, state.version)
        files = [file for file in brought if file.name not in changes]
        files += [VersionFile(f.name, len(f.data), f.origin) for f in state.inline if f.name not in changes]
        # If the order of files matters, it is that of the versions that wrote them.
        ordered = tuple(sorted(files, key=lambda file: (file.origin, file.name)))
        try:
            elements = tuple((each.state, each.count) for each in state.elements)
            # No base: a version that is fetched stands for itself.
            building.seal(
                Manifest(
                    backend=plain_name(state.backend),
                    version=state.version,
                    base=None,
                    files=ordered,
                    key_groups=groups,
                    elements=elements,
                )
            )
        except OSError:
            if not version_path(directory, state.version).is_dir():
                raise
            # Another attempt was faster. Its files passed the same checks.
    finally:
        building.discard()


def _copies(home: Path | None, version: VersionId, file: StateFile, is_change: bool) -> Iterator[Path]:
    """Where the file may be on this host: in its version, or in the one that wrote it."""
    if home is None:
        return
    if is_change:
        yield home / "changes" / file.name
        return
    # A file that this version took over from an earlier one has the same name there, and is the same inode.
    for each in {version, file.origin}:
        yield version_path(home, each) / file.name


def _link_same(source: Path, file: StateFile, target: Path) -> str:
    """Link a file on local disk if it has the content that was stored. Return its checksum for the manifest, of the same bytes
    that were compared. Empty: there is no such file."""
    try:
        if source.stat().st_size != file.size_bytes:
            return ""
        # Linked before it is read: what is compared is what stays, even if its version is deleted meanwhile.
        os.link(source, target)
    except OSError:
        return ""  # missing, or on another file system
    stored, written = Checksum(), ContentCheck()
    try:
        with target.open("rb") as content:
            while block := content.read(_BLOCK_BYTES):
                stored.update(block)
                written.update(block)
    except OSError:
        stored = Checksum()  # The disk cannot read it.
    if stored.text() == file.checksum:
        return written.text()
    target.unlink()
    return ""


def begin_fetched(
    backend: StateBackend, directory: Path, state: TaskState, target: VersionId, groups: tuple[int, int]
) -> StateStore:
    """Open a task that `fetch_version` has brought to `directory`, with all its changes applied."""
    # The caller may be another task than the one that wrote the version, with other key groups.
    store = backend.begin(directory, state.version, target, groups)
    try:
        for file in change_files(state):
            apply(directory / "changes" / file.name, store)
    except BaseException:
        store.abandon()
        raise
    return store


def is_here(directory: Path, state: TaskState, backend: StateBackend, trusts_boot: bool) -> bool:
    """Whether the version is on local disk, with all its changes applied and the content that was stored. Checksums decide: those
    in the checkpoint, and for files that were never stored those of the manifest. With `trusts_boot`, names and sizes are enough
    for files that check themselves, if nobody else can have used the disk since the version was sealed (see `disk_token`)."""
    stored: dict[tuple[str, VersionId], StateFile | InlineFile] = {
        (file.name, file.origin): file for file in (*listed(state), *state.inline)
    }
    changes = change_files(state)
    here = version_path(directory, state.version)
    try:
        manifest = backend.manifest(directory, state.version)
        if changes:
            # Some of its files were never stored: it is only known to be whole until the machine is booted again.
            if read_change_header(changes_path(directory, state.version)).boot != boot_id():
                return False
            if not _is_same(directory / "changes" / changes[-1].name, changes[-1]):
                return False
        elif {(file.name, file.origin) for file in manifest.files} != stored.keys():
            return False
        if not manifest.is_checked:
            # Of an earlier release. The next checkpoint could not tell whether a file is what was written. `fetch_version`
            # links the files that have the stored checksums, and adds those that the manifest lacks.
            return False
        trusted = trusts_boot and manifest.token == token_of(directory) != NOTHING
        for file in manifest.files:
            expected = stored.get((file.name, file.origin))
            if trusted and file.checks_itself and not isinstance(expected, InlineFile):
                same = expected is None or file.size_bytes == expected.size_bytes
            else:
                same = _is_same(here / file.name, expected or file)
            if not same:
                return False
        return True
    except (StateError, FileNotFoundError):
        return False  # Missing, damaged, or written by a backend of another name, as far as its manifest tells.


def _is_same(path: Path, expected: StateFile | InlineFile | VersionFile) -> bool:
    """Whether a file has the content that was stored, or with which it was written."""
    match expected:
        case StateFile():
            return checksum_of_file(path) == expected.checksum
        case InlineFile():
            return path.read_bytes() == expected.data
        case VersionFile():
            return check_of_file(path) == expected.checksum


def listed(state: TaskState) -> FileList:
    """Return the list of a task's files, which must be loaded."""
    if not isinstance(state.files, FileList):
        raise TypeError(f"The list of files of {state.task} is not loaded.")
    return state.files
