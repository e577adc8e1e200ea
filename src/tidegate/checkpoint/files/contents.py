"""The part of a `_metadata` that the protocol must know: the stored objects it needs, and its uncommitted output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import dirname
from typing import TypeAlias

from tidegate.checkpoint.effects import GetMany, Steps
from tidegate.checkpoint.files.list_registry import HeldList, ListId
from tidegate.checkpoint.files.output_objects import OutputObject
from tidegate.checkpoint.files.task_part import list_digest
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, decode
from tidegate.checkpoint.metadata.errors import MetadataError, MetadataTooNew
from tidegate.checkpoint.metadata.validation import check_committable
from tidegate.connectors.sink import Committable
from tidegate.storage.routed import name_below


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """The rest of the metadata is opaque to the protocol. Paths are object names in the job's storage."""

    files: frozenset[str]
    """All files except those of tasks, also the objects with waiting output."""
    staged: frozenset[str]
    """Files with staged rows of uncommitted output."""
    committables: tuple[Committable, ...]
    """All output that it carries; while some is unread, only what is in the metadata itself."""
    lists: tuple[HeldList, ...] = ()
    """The files of tasks."""
    root: str = ""
    """The root of the names in lists: the job's folder, or a savepoint's own."""
    output: tuple[OutputObject, ...] | UnreadOutput = ()
    """Objects that contain some of the output. `UnreadOutput` never in contents from `read_contents`, `verified` or a draft."""

    def lists_in(self, root: str) -> tuple[HeldList, ...]:
        """Return the lists if they are those of the job with this folder. Other files are not its to delete."""
        return self.lists if self.root == root else ()


@dataclass(frozen=True, slots=True)
class UnreadOutput:
    """Objects with output that have to be read before the contents are complete."""

    names: tuple[str, ...]
    """In the job's storage."""
    complete: Callable[[Mapping[str, bytes]], CheckpointContents]
    """Returns the contents, given the content of the objects. Raises `MetadataError` if one is missing or damaged."""


Reader: TypeAlias = Callable[[str, bytes], CheckpointContents]
"""Reads the contents from the name of a `_metadata` and its bytes, except output in other objects: `read_contents` reads all.
Injected, since only sinks know which rows a committable points to."""


def reader(staged_by: Callable[[Committable], Iterable[str]]) -> Reader:
    """Return a reader of tidegate's metadata; `staged_by` names the objects that hold the rows of a committable."""

    def read(path: str, data: bytes) -> CheckpointContents:
        return contents_of(path, decode(data), staged_by)

    return read


def read_contents(read: Reader, path: str, body: bytes) -> Steps[CheckpointContents]:
    """Return the contents of the `_metadata` with this name and body. Raises `MetadataError`."""
    return (yield from with_output(read(path, body)))


def with_output(contents: CheckpointContents) -> Steps[CheckpointContents]:
    """Return the contents with all their output. Raises `MetadataError` if some of it is missing or damaged."""
    if not isinstance(contents.output, UnreadOutput):
        return contents
    bodies: dict[str, bytes] = yield GetMany(contents.output.names)
    return contents.output.complete(bodies)


def verified(read: Reader, ref: CheckpointRef, body: bytes | None) -> Steps[CheckpointContents | None]:
    """Return the contents of the checkpoint that `ref` names, or None if `body` is absent, damaged or of another checkpoint, or
    if an object with its output is missing or damaged.

    Raises `MetadataTooNew` if a newer version of tidegate wrote it.
    """
    # The checksum is in the head of the metadata. A body without it is another checkpoint's, such as a predecessor's
    # orphan under the same name.
    if body is None or ref.checksum.encode() not in body:
        return None
    try:
        return (yield from read_contents(read, ref.metadata, body))
    # Not the same as damage: a later version of tidegate can still start from it, so nothing of it may be given up.
    except MetadataTooNew:
        raise
    except MetadataError:
        return None


def contents_of(
    path: str,
    metadata: CheckpointMetadata,
    staged_by: Callable[[Committable], Iterable[str]],
    output: Sequence[OutputObject] | None = None,
) -> CheckpointContents:
    """`path` is the name of the `_metadata`: names in it are relative to the job or, in a savepoint, to the savepoint. `output`
    are the objects that it refers to. Without them, they are left unread."""

    # `JOB/chk-7/_metadata` names files below `JOB`; `SAVEPOINT/_metadata` names files below `SAVEPOINT`.
    root = dirname(path) if metadata.kind is SnapshotKind.SAVEPOINT else dirname(dirname(path))
    stored = [(name_below(root, each.path), each) for each in metadata.stored_output]
    names = tuple(name for name, _ in stored)
    objects: tuple[OutputObject, ...] | UnreadOutput = tuple(output or ())
    if output is None and stored:

        def complete(bodies: Mapping[str, bytes]) -> CheckpointContents:
            found = [OutputObject.read(each, bodies.get(name)) for name, each in stored]
            # `decode` has checked what is in the metadata. Objects come from the same untrusted place, and are read
            # later.
            for committable in (each for object in found for each in object.members):
                check_committable(committable, metadata.epoch)
            return contents_of(path, metadata, staged_by, found)

        objects = UnreadOutput(names, complete)
    # Those in objects are older: they come first, as in the order of commit.
    in_objects = (committable for each in output or () for committable in each.waiting)
    committables = (*in_objects, *metadata.committables)
    files = frozenset(name_below(root, name) for position in metadata.positions for name in position.files.objects())
    staged = frozenset(name for committable in committables for name in staged_by(committable))
    # A task without files (nothing yet, or everything inlined) holds no object.
    lists = tuple(
        HeldList(ListId(str(task.task), list_digest(task.files)), task.files)
        for task in metadata.tasks
        if len(task.files)
    )
    return CheckpointContents(
        files=files.union(names),
        staged=staged,
        committables=committables,
        lists=lists,
        root=root,
        output=objects,
    )
