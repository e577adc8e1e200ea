"""An open checkpoint or savepoint: its metadata, and the location of its files.

The files of a checkpoint are named relative to its job's directory, the parent of `chk-<n>`; those of a savepoint
relative to its own. A savepoint can thus be copied anywhere, and a checkpoint together with its job's directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tidegate.checkpoint.completed.retained import SnapshotNotFound
from tidegate.checkpoint.files.file_lists import loaded_task
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    FileList,
    OperatorInfo,
    SnapshotKind,
    StateInfo,
    TaskState,
    check_size,
    decode,
)
from tidegate.checkpoint.metadata import UntrustedSnapshot as UntrustedSnapshot
from tidegate.checkpoint.metadata.validation import CANONICAL as _TABLES
from tidegate.core.errors import StateError
from tidegate.core.ids import KeyGroup, Uid
from tidegate.savepoint.entries import StateLayout
from tidegate.storage import ObjectMissing, Storage, open_storage

METADATA = "_metadata"
CANONICAL = "CANONICAL"
NATIVE = "NATIVE"
"""The two formats of savepoints, by Flink's names."""
CANONICAL_BACKEND = _TABLES
"""The backend name of tasks whose files are tables."""


class StateNotFound(StateError):
    """The snapshot has no such operator or state."""

    code = "STATE_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The content of `_metadata`, and the storage that its file names are relative to (below `root`)."""

    storage: Storage
    root: str
    metadata: CheckpointMetadata
    url: str
    """The location of the snapshot as a user would write it."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of the client of its store."""
    layouts: dict[tuple[Uid, str], StateLayout] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def open(path: str | Path, **options: Any) -> StoredSnapshot:
        """Open `…/chk-42`, a savepoint's directory, or the `_metadata` in either. Reads that one file.

        `options` are passed to the client of an object store. Raises SnapshotNotFound, or a MetadataError.
        """
        url = location(path)
        # Confined: whatever the metadata names, nothing outside this directory is read.
        own = open_storage(url, confined=True, **options)
        metadata = _read(own, METADATA, url)
        if metadata.kind is SnapshotKind.SAVEPOINT:
            return StoredSnapshot(storage=own, root="", metadata=metadata, url=url, options=options)
        return StoredSnapshot(
            storage=open_storage(split_location(url)[0], confined=True, **options),
            root="",
            metadata=metadata,
            url=url,
            options=options,
        )

    @staticmethod
    def within(storage: Storage, name: str) -> StoredSnapshot:
        """Open a snapshot by its name in an open storage: `orders/chk-42`."""
        folder = name.removesuffix("/").removesuffix(f"/{METADATA}")
        metadata = _read(storage, f"{folder}/{METADATA}", f"{storage.url}/{folder}")
        root = folder if metadata.kind is SnapshotKind.SAVEPOINT else folder.rpartition("/")[0]
        return StoredSnapshot(storage, root, metadata, f"{location(storage.url)}/{folder}")

    @property
    def format(self) -> str:
        """`CANONICAL` or `NATIVE`; a checkpoint is always native."""
        return self.metadata.savepoint_format or NATIVE

    def states(self) -> Iterator[tuple[OperatorInfo, StateInfo]]:
        for operator in self.metadata.operators:
            for state in operator.states:
                yield operator, state

    def operator(self, uid: str) -> OperatorInfo:
        for operator in self.metadata.operators:
            if operator.uid == uid:
                return operator
        known = ", ".join(repr(str(operator.uid)) for operator in self.metadata.operators) or "none"
        raise StateNotFound(f"The snapshot {self.url} has no state of an operator {uid!r}. It has state of: {known}.")

    def layout(self, uid: str, state: str) -> StateLayout:
        """Return how the entries of a state are stored. Raises StateNotFound, UnreadableState or UnknownSchema."""
        known = self.layouts.get((Uid(uid), state))
        if known is not None:
            return known
        operator = self.operator(uid)
        for info in operator.states:
            if info.name == state:
                # Kept, since a layout is asked for with every key that is read.
                made = self.layouts[operator.uid, state] = StateLayout(operator, info)
                return made
        names = ", ".join(repr(info.name) for info in operator.states)
        raise StateNotFound(f"Operator {uid!r} has no state {state!r} in {self.url}. It has: {names}.")

    def table_bytes(self, state_id: int) -> int | None:
        """Return the size of a state's tables, or None if states share files."""
        if self.format != CANONICAL:
            return None
        prefix = f"{state_id:05d}-"
        files = (file for task in self.metadata.tasks for file in self.files_of(task))
        return sum(file.size_bytes for file in files if file.name.startswith(prefix))

    def files_of(self, task: TaskState) -> FileList:
        """Return the files of a task. Reads its list, if that is in an object of its own. Raises MetadataDamaged, or
        UntrustedSnapshot."""
        return loaded_task(self.storage, self.root, task)

    def tasks_of(self, uid: str) -> tuple[TaskState, ...]:
        """Return the tasks that hold the state of an operator, ordered by key groups."""
        level = self.operator(uid).level
        return tuple(sorted((t for t in self.metadata.tasks if t.task.level == level), key=lambda t: t.key_groups))

    def task_with(self, uid: str, key_group: KeyGroup) -> TaskState:
        for task in self.tasks_of(uid):
            if task.key_groups[0] <= key_group <= task.key_groups[1]:
                return task
        raise StateError(f"No task of {self.url} holds key group {key_group} of {uid!r}. The snapshot is not usable.")


def location(path: str | Path) -> str:
    """Normalize the directory of a snapshot or job to an absolute path or the URL of an object store."""
    text = str(path)
    scheme, remote, place = text.partition("://")
    place = place if remote else text
    if remote and scheme != "file":
        if not place.strip("/"):
            raise SnapshotNotFound(f"{text!r} names a store without a bucket, not a directory in it.")
        return f"{scheme}://{place.rstrip('/').removesuffix(f'/{METADATA}')}"
    # Percent-escapes are part of URLs, and not of paths.
    if remote:
        place = unquote(urlsplit(text).path)
    if not place:
        raise SnapshotNotFound("An empty path names no directory. Write . for the current one.")
    place = place.rstrip("/") or "/"
    place = "." if place == METADATA else place.removesuffix(f"/{METADATA}") or "/"
    return str(Path(place) if remote else Path(place).expanduser().resolve())


def split_location(url: str) -> tuple[str, str]:
    """Return the parent directory, and the name in it. Raises SnapshotNotFound if there is no parent."""
    above, _, name = url.rpartition("/")
    if not name or above.endswith(":/"):
        raise SnapshotNotFound(f"{url!r} is not a checkpoint: there is no job's directory above it.")
    return above or "/", name


def _read(storage: Storage, name: str, shown: str) -> CheckpointMetadata:
    try:
        check_size(storage.size(name))
        return decode(storage.get(name))
    except ObjectMissing:
        raise SnapshotNotFound(
            f"There is no checkpoint or savepoint at {shown!r}: it has no file {METADATA!r}. Name the directory of one, such "
            "as …/chk-42; `tidegate checkpoints list DIR` shows those of a checkpoint directory."
        ) from None
