"""Deletes a savepoint: the user's decision, never the job's."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.checkpoint.layout import claimed_record
from tidegate.checkpoint.metadata import SnapshotKind, StoredFileList
from tidegate.core.errors import CheckpointError
from tidegate.core.faults import reach
from tidegate.savepoint.file_copy import below
from tidegate.savepoint.snapshot import METADATA, StoredSnapshot
from tidegate.storage import ObjectMissing

CLAIMED = claimed_record(METADATA)


class NotASavepoint(CheckpointError):
    code = "NOT_A_SAVEPOINT"

    def __init__(self, snapshot: StoredSnapshot) -> None:
        super().__init__(
            f"{snapshot.url} is a checkpoint of the job {snapshot.metadata.job!r}, and checkpoints are deleted by their job: "
            "their files are shared. To delete all of them, stop the job and delete its directory."
        )


class StillClaimed(CheckpointError):
    code = "STILL_CLAIMED"

    def __init__(self, snapshot: StoredSnapshot, owner: str) -> None:
        super().__init__(
            f"{snapshot.url} was given to a job with claim mode CLAIM, and that job may still need it: {owner}. The job "
            f"deletes it itself. If it never started from it, delete {CLAIMED!r} in that directory first."
        )


def objects_of(snapshot: StoredSnapshot) -> Iterator[str]:
    """Yield the names of all objects of the snapshot except its metadata."""
    for task in snapshot.metadata.tasks:
        files = snapshot.files_of(task)
        yield from (below(snapshot.root, name) for name in files.objects())
        if isinstance(task.files, StoredFileList):
            yield from (below(snapshot.root, path) for path in task.files.paths)
    for position in snapshot.metadata.positions:
        yield from (below(snapshot.root, name) for name in position.files.objects())


def dispose(snapshot: StoredSnapshot) -> int:
    """Delete a savepoint and return the number of objects deleted. Can be repeated.

    0. Check that no job has claimed it. Raises StillClaimed.
    1. Delete the files that the metadata names, and nothing else.
    2. Delete the metadata. A crash before this step leaves a savepoint that cannot be restored, but can be disposed of
       again.
    """
    if snapshot.metadata.kind is not SnapshotKind.SAVEPOINT:
        raise NotASavepoint(snapshot)
    try:
        owner = snapshot.storage.get(below(snapshot.root, CLAIMED))
    except ObjectMissing:
        pass
    else:
        raise StillClaimed(snapshot, repr(owner[:300].decode(errors="replace")))
    names = list(objects_of(snapshot))
    snapshot.storage.delete(names)
    reach("savepoint.dispose.1-files")
    snapshot.storage.delete([below(snapshot.root, METADATA)])
    return len(names) + 1
