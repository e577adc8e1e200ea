"""Tells before a job starts whether a store keeps the promises of the port. Some S3 servers ignore conditions."""

from __future__ import annotations

from tidegate.checkpoint.storage.errors import StorageMisconfigured
from tidegate.checkpoint.storage.port import Lost, Storage, Won, new_nonce, unique_name


def probe(storage: Storage, prefix: str = "probe") -> None:
    """Write, race, read, list and delete one tiny object. Raises `StorageMisconfigured`, or the store's own error.

    1. Create a new name: must win.
    2. Create it again with another body: must lose to the first. A store that ignores conditions fails here.
    3. Read and list it. 4. Delete it. A crash leaves one object of a few bytes below `prefix`.
    """
    path = f"{prefix}/{unique_name()}"
    first, second = new_nonce(), new_nonce()
    try:
        fresh = storage.create(path, first.encode(), first)
        _require(fresh == Won(), storage, path, "a new name could not be created")
        again = storage.create(path, second.encode(), second)
        _require(again == Lost(first.encode()), storage, path, "a second put-if-absent replaced the first")
        _require(storage.get(path) == first.encode(), storage, path, "an object reads otherwise than it was written")
        _require(path in {each.path for each in storage.list(prefix)}, storage, path, "a written object is not listed")
    finally:
        storage.delete([path])


def _require(kept: bool, storage: Storage, path: str, broken: str) -> None:
    if not kept:
        raise StorageMisconfigured(
            storage.url,
            path,
            f"{storage.url} cannot hold checkpoints: {broken}. "
            "Use a store with put-if-absent: S3, GCS, Azure or a POSIX file system.",
        )
