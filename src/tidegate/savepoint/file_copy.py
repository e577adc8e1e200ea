"""Copies stored files from one storage to another, verifying them, with at most one part in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.checkpoint.metadata import FileList, StateFile
from tidegate.core.errors import StateError
from tidegate.storage import CorruptFile, Storage
from tidegate.storage.handle import Checksum, FileHandle

Progress = Callable[[int], None]
"""Called with the number of bytes copied."""


def ignore_progress(_: int) -> None:
    """For callers that do not need progress."""


def below(root: str, path: str) -> str:
    """Return the storage name of a file that metadata names relative to `root`."""
    # No snapshot that tidegate writes names a file outside: it could not be moved. A forged one could name any file.
    if "://" in path or path.startswith("/"):
        raise StateError(f"The snapshot names the file {path!r} outside its own storage; that cannot be read.")
    return f"{root}/{path}" if root else path


def copy_files(
    source: Storage,
    root: str,
    files: Iterable[StateFile],
    target: Storage,
    folder: str,
    savepoint_id: int,
    progress: Progress = ignore_progress,
) -> FileList:
    """Copy files to `folder` of the target, named as in their version. Return the list with their new names.

    A crash leaves files that no metadata names. Raises CorruptFile if a file differs from what was written.
    """
    copied = []
    for number, file in enumerate(files):
        path = f"{folder}/{number:05d}-{file.name.rpartition('/')[2]}"
        _copy(source, FileHandle(below(root, file.path), file.size_bytes, file.checksum, file.part_bytes), target, path)
        progress(file.size_bytes)
        copied.append(
            StateFile(
                name=file.name,
                path=path,
                size_bytes=file.size_bytes,
                checksum=file.checksum,
                origin=file.origin,
                since=savepoint_id,
                part_bytes=file.part_bytes,
            )
        )
    return FileList(copied)


def _copy(source: Storage, handle: FileHandle, target: Storage, path: str) -> None:
    checksum = Checksum()
    there = FileHandle(path, handle.size_bytes, handle.checksum, handle.part_bytes)
    # Part by part, with the same part size: no more than one part is in memory, and the checksum of the whole file
    # follows.
    for (name, size), (new_name, _) in zip(handle.parts(), there.parts(), strict=True):
        data = source.get_range(name, 0, size)
        checksum.update(data)
        target.put(new_name, data)
    # After the last part: a part has no checksum of its own. The copy has no metadata yet, so nobody uses what was
    # written.
    if checksum.text() != handle.checksum:
        raise CorruptFile(
            source.url,
            handle.path,
            f"{handle.path!r} in {source.url} has checksum {checksum.text()} but was written with {handle.checksum}. The "
            "stored file was changed or damaged. The copy is not usable and has no _metadata; copy another snapshot.",
        )
