"""Checks before a job starts that a store fulfils the port's contract. Some S3 servers ignore conditional writes."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.storage.errors import StorageMisconfigured
from tidegate.storage.port import Lost, Storage, Won, new_nonce, unique_name


def probe(storage: Storage, prefix: str = "probe") -> None:
    """Write, race, read, list and delete one tiny object. Raises `StorageMisconfigured`, or the error of the store.

    1. Create a new name: must win.
    2. Create it again with another body: must lose to the first. A store that ignores conditional writes fails here.
    3. Read and list it. 4. Delete it. A crash leaves one object of a few bytes below `prefix`.
    """
    check_folder(storage.url)
    path = f"{prefix}/{unique_name()}"
    first, second = new_nonce(), new_nonce()
    try:
        fresh = storage.create(path, first.encode(), first)
        _require(fresh == Won(), storage, path, "a new name could not be created")
        again = storage.create(path, second.encode(), second)
        _require(again == Lost(first.encode()), storage, path, "a second put-if-absent replaced the first")
        _require(storage.get(path) == first.encode(), storage, path, "an object differs from what was written")
        _require(path in {each.path for each in storage.list(prefix)}, storage, path, "a written object is not listed")
    finally:
        storage.delete([path])


def check_folder(url: str) -> None:
    """Raise `StorageMisconfigured` if a local path is not a folder or cannot be created. Other stores are not checked."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return
    folder = Path(unquote(parts.path))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        found = next(place for place in (folder, *folder.parents) if place.exists())
        raise StorageMisconfigured(
            url,
            "",
            f"Checkpoints cannot be kept in {folder}: {found} is a file. Choose a path whose parts are all folders.",
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageMisconfigured(
            url, "", f"Checkpoints cannot be kept in {folder}: the folder cannot be created ({reason}). Choose one "
            "that this user may write to.",
        ) from None  # fmt: skip
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageMisconfigured(
            url, "", f"Checkpoints cannot be kept in {folder}: this user may not write there. Change its permissions, "
            "or choose another folder.",
        )  # fmt: skip


def _require(kept: bool, storage: Storage, path: str, broken: str) -> None:
    if not kept:
        raise StorageMisconfigured(
            storage.url,
            path,
            f"{storage.url} cannot hold checkpoints: {broken}. "
            "Use a store with put-if-absent: S3, GCS, Azure, HDFS or a POSIX file system.",
        )
