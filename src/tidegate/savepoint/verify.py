"""Checks that a snapshot is complete: every file exists with its size and checksum, every state is readable, every key
group is covered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate.checkpoint.metadata import MetadataError
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.core.errors import RestoreError, TidegateError
from tidegate.savepoint.entries import StateLayout
from tidegate.savepoint.file_copy import Progress, below, ignore_progress
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage import ObjectMissing
from tidegate.storage.handle import Checksum, FileHandle


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem found. `where` is a task, a source or a state."""

    where: str
    what: str


def verify(snapshot: StoredSnapshot, checksums: bool = True, progress: Progress = ignore_progress) -> Iterator[Problem]:
    """Yield all problems of a snapshot. Without `checksums`, only sizes are checked, which reads no content."""
    yield from _structure(snapshot)
    for where, file in _files(snapshot):
        if isinstance(file, str):
            # Why a list cannot be read.
            yield Problem(where, file)
            continue
        handle = replace(file, path=below(snapshot.root, file.path))
        what = _file(snapshot, handle, checksums)
        if what:
            yield Problem(where, f"{handle.path} {what}")
        progress(file.size_bytes)


def _files(snapshot: StoredSnapshot) -> Iterator[tuple[str, FileHandle | str]]:
    """Yield where a file belongs, and the file; or why the files of a task are not known."""
    for task in snapshot.metadata.tasks:
        try:
            files = snapshot.files_of(task)
        except MetadataError as error:
            yield str(task.task), str(error)
            continue
        for file in files:
            yield str(task.task), file.stored
    for position in snapshot.metadata.positions:
        for file in position.files:
            yield f"source {position.uid}", file.stored
    for output in snapshot.metadata.stored_output:
        # Always one object, whatever its size.
        yield "waiting output", FileHandle(output.path, output.size_bytes, output.checksum, output.size_bytes)


def _file(snapshot: StoredSnapshot, handle: FileHandle, checksums: bool) -> str | None:
    storage, running = snapshot.storage, Checksum()
    for name, size in handle.parts():
        try:
            found = storage.size(name)
            # Sizes first: a part that was cut off is found without reading it.
            if found != size:
                return f"has {found} bytes instead of {size}"
            if checksums:
                running.update(storage.get_range(name, 0, size))
        except ObjectMissing:
            return "is missing"
    if checksums and running.text() != handle.checksum:
        return "does not have the checksum it was written with"
    return None


def _structure(snapshot: StoredSnapshot) -> Iterator[Problem]:
    metadata = snapshot.metadata
    for operator, state in snapshot.states():
        try:
            StateLayout(operator, state)
        except TidegateError as error:
            yield Problem(f"{operator.uid}/{state.name}", str(error))
    levels = {operator.uid: operator.level for operator in metadata.operators}
    try:
        plan_restore(metadata, RestoreTarget(metadata.max_parallelism, metadata.parallelism, levels))
    except (RestoreError, ValueError) as error:
        yield Problem("tasks", str(error))
