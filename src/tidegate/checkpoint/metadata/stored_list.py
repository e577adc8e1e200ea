"""A file list that is an object of its own in storage, and not loaded.

At 10,000 tasks with 1,000 files each, the lists of one checkpoint are more than a gigabyte. So a task with many files
stores its list itself, and `_metadata` has only this reference and the figures that the driver needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidegate.checkpoint.metadata.errors import MetadataDamaged, UntrustedSnapshot
from tidegate.checkpoint.metadata.files import FileList
from tidegate.storage.handle import checksum_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFileList:
    """A reference to a list. It has no `__iter__`, so iterating it is a `TypeError`; `file_lists.loaded` returns the list."""

    path: str
    """Relative to the same root as the paths in the list."""
    stored_bytes: int
    """Size of the object."""
    checksum: str
    """Of the object, as in `sha256:9f86…`."""
    count: int
    size_bytes: int
    """Of the files in the list."""
    since: tuple[int, int]
    """The last checkpoint that uploaded a file of the list, and the bytes that it uploaded. The list tells all of them."""
    base: str | None = None
    """If the object has only what changed: the path of the whole list that it changes. Both are needed."""

    @staticmethod
    def of(files: FileList, path: str) -> StoredFileList:
        """Return the reference to a list that is stored under `path`, in its packed form."""
        return StoredFileList.to(files, path, files.packed, None)

    @staticmethod
    def to(files: FileList, path: str, data: bytes, base: str | None) -> StoredFileList:
        """Return the reference to a list that is stored under `path` as `data`: whole, or as a change of the list `base`."""
        return StoredFileList(
            path=path,
            stored_bytes=len(data),
            checksum=checksum_of(data),
            count=files.count,
            size_bytes=files.size_bytes,
            since=files.since[-1] if files.since else (0, 0),
            base=base,
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the objects that the list consists of."""
        return (self.path,) if self.base is None else (self.path, self.base)

    def size_since(self, checkpoint_id: int) -> int:
        """Return the bytes of the files that a checkpoint with this list uploaded."""
        return self.since[1] if self.since[0] == checkpoint_id else 0

    def check_bytes(self, data: bytes) -> None:
        """Raise `MetadataDamaged` unless these are the bytes of the object."""
        if len(data) != self.stored_bytes or checksum_of(data) != self.checksum:
            raise MetadataDamaged(f"the file list {self.path} does not have the checksum it was written with")

    def check_summary(self, files: FileList) -> None:
        """Raise `UntrustedSnapshot` unless the reference describes this list."""
        since = files.since[-1] if files.since else (0, 0)
        if (files.count, files.size_bytes, since) != (self.count, self.size_bytes, self.since):
            raise UntrustedSnapshot(f"The file list {self.path} is not what its checkpoint says about it")

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0


AnyFileList: TypeAlias = FileList | StoredFileList
"""The files of a task: here, or in an object of their own."""
