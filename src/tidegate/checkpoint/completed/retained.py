"""Finds the checkpoint that a user names by path: `…/chk-42`, or the `_metadata` in it."""

from __future__ import annotations

from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, check_size, checksum_in, decode
from tidegate.core.errors import CheckpointError
from tidegate.storage import ObjectMissing, Storage


class SnapshotNotFound(CheckpointError):
    code = "SNAPSHOT_NOT_FOUND"


def resolve(storage: Storage, layout: JobLayout, path: str) -> tuple[CheckpointRef, CheckpointMetadata]:
    """Read and verify the checkpoint or savepoint at `path`; return it with its metadata.

    A path may be absolute, or relative to the checkpoint directory; `storage` must resolve absolute names, too. A
    checkpoint of the job itself is checked against its log when the job is claimed; another job's becomes the origin of
    a fork.
    """
    name = _within(storage, path)
    try:
        # The path comes from a user. The size is checked before the bytes are in memory.
        check_size(storage.size(name))
        data = storage.get(name)
    except ObjectMissing:
        raise SnapshotNotFound(
            f"There is no checkpoint or savepoint at {path!r}: {storage.url} has no object {name!r}. Checkpoints are in "
            f"{storage.url}/{layout.root}/chk-<number>."
        ) from None
    metadata = decode(data)
    # The kind alone is not enough: a checkpoint of another job has it as well.
    owned = metadata.kind is SnapshotKind.CHECKPOINT and name.startswith(f"{layout.root}/")
    ref = CheckpointRef(
        id=metadata.checkpoint_id,
        term=metadata.term,
        epoch=metadata.epoch,
        lineage=metadata.lineage,
        metadata=name,
        checksum=checksum_in(data),
        owned=owned,
    )
    return ref, metadata


def _within(storage: Storage, path: str) -> str:
    root = storage.url.removeprefix("file://").rstrip("/")
    plain = path.removeprefix("file://").rstrip("/")
    if plain.startswith(f"{root}/"):
        plain = plain[len(root) + 1 :]
    return plain if plain.endswith("/_metadata") else f"{plain}/_metadata"
