"""Deleting a savepoint: the user's decision, never the job's."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.checkpoint.metadata import SnapshotKind
from tidegate.core.errors import TidegateError
from tidegate.core.faults import reach
from tidegate.savepoint.file_copy import below
from tidegate.savepoint.snapshot import METADATA, Snapshot


class NotASavepoint(TidegateError):
    code = "NOT_A_SAVEPOINT"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(
            f"{snapshot.url} is a checkpoint of the job {snapshot.metadata.job!r}, and checkpoints are deleted by their job: "
            "their files are shared. To be rid of all of them, stop the job and delete its directory."
        )


def objects_of(snapshot: Snapshot) -> Iterator[str]:
    """Names of all objects that the snapshot consists of, its metadata apart."""
    files = [task.files for task in snapshot.metadata.tasks] + [p.files for p in snapshot.metadata.positions]
    for listed in files:
        for name in listed.objects():
            yield below(snapshot.root, name)


def dispose(snapshot: Snapshot) -> int:
    """Delete a savepoint; how many objects. May be repeated.

    1. Delete the files that the metadata names, and nothing else.
    2. Delete the metadata. A crash before leaves a savepoint that cannot be restored and can be disposed of again.
    """
    if snapshot.metadata.kind is not SnapshotKind.SAVEPOINT:
        raise NotASavepoint(snapshot)
    names = list(objects_of(snapshot))
    snapshot.storage.delete(names)
    reach("savepoint.dispose.1-files")
    snapshot.storage.delete([below(snapshot.root, METADATA)])
    return len(names) + 1
