"""The part of a `_metadata` that the protocol must know: the stored objects it needs, and its uncommitted output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from posixpath import dirname
from typing import TypeAlias

from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.list_registry import HeldList, ListId
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, decode
from tidegate.checkpoint.metadata.errors import MetadataError, MetadataTooNew
from tidegate.checkpoint.task_part import list_digest
from tidegate.connectors.sink import Committable
from tidegate.storage.routed import name_below


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """The rest of the metadata is opaque to the protocol. Paths are object names in the job's storage."""

    files: frozenset[str]
    """All files except those of tasks."""
    staged: frozenset[str]
    """Files with staged rows of uncommitted output."""
    committables: tuple[Committable, ...]
    lists: tuple[HeldList, ...] = ()
    """The files of tasks."""
    root: str = ""
    """The root of the names in lists: the job's folder, or a savepoint's own."""

    def lists_in(self, root: str) -> tuple[HeldList, ...]:
        """Return the lists if they are those of the job with this folder. Other files are not its to delete."""
        return self.lists if self.root == root else ()


Reader: TypeAlias = Callable[[str, bytes], CheckpointContents]
"""Reads the contents from the name of a `_metadata` and its bytes. Injected, since only sinks know which rows a
committable points to."""


def reader(staged_by: Callable[[Committable], Iterable[str]]) -> Reader:
    """Return a reader of tidegate's metadata; `staged_by` names the objects that hold the rows of a committable."""

    def read(path: str, data: bytes) -> CheckpointContents:
        return contents_of(path, decode(data), staged_by)

    return read


def verified(read: Reader, ref: CheckpointRef, body: bytes | None) -> CheckpointContents | None:
    """Return the contents of the checkpoint that `ref` names, or None if `body` is absent, damaged or of another checkpoint.

    Raises `MetadataTooNew` if a newer version of tidegate wrote it.
    """
    if body is None or ref.checksum.encode() not in body:
        return None
    try:
        return read(ref.metadata, body)
    except MetadataTooNew:
        raise
    except MetadataError:
        return None


def contents_of(
    path: str, metadata: CheckpointMetadata, staged_by: Callable[[Committable], Iterable[str]]
) -> CheckpointContents:
    """`path` is the name of the `_metadata`: names in it are relative to the job or, in a savepoint, to the savepoint."""
    root = dirname(path) if metadata.kind is SnapshotKind.SAVEPOINT else dirname(dirname(path))
    files = frozenset(name_below(root, name) for position in metadata.positions for name in position.files.objects())
    staged = frozenset(name for committable in metadata.committables for name in staged_by(committable))
    lists = tuple(
        HeldList(ListId(str(task.task), list_digest(task.files)), task.files)
        for task in metadata.tasks
        if len(task.files)
    )
    return CheckpointContents(files, staged, metadata.committables, lists=lists, root=root)
