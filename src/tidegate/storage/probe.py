"""Tells before a job starts whether a store keeps the promises of the port. Some S3 servers ignore conditions."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.storage.errors import StorageMisconfigured
from tidegate.storage.port import Lost, Storage, Won, new_nonce, unique_name


def probe(storage: Storage, prefix: str = "probe") -> None:
    """Write, race, read, list and delete one tiny object. Raises `StorageMisconfigured`, or the store's own error.

    1. Create a new name: must win.
    2. Create it again with another body: must lose to the first. A store that ignores conditions fails here.
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
        _require(storage.get(path) == first.encode(), storage, path, "an object reads otherwise than it was written")
        _require(path in {each.path for each in storage.list(prefix)}, storage, path, "a written object is not listed")
    finally:
        storage.delete([path])


def check_folder(url: str) -> None:
    """Raise `StorageMisconfigured` for a local folder that is none, or cannot be made. Other stores are not asked."""
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
            url, "", f"Checkpoints cannot be kept in {folder}: the folder cannot be made ({reason}). Choose one that this user "
            "may write to.",
        ) from None  # fmt: skip
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageMisconfigured(
            url, "", f"Checkpoints cannot be kept in {folder}: this user may not write there. Change its rights, or name "
            "another folder.",
        )  # fmt: skip


def _require(kept: bool, storage: Storage, path: str, broken: str) -> None:
    if not kept:
        raise StorageMisconfigured(
            storage.url,
            path,
            f"{storage.url} cannot hold checkpoints: {broken}. "
            "Use a store with put-if-absent: S3, GCS, Azure or a POSIX file system.",
        )
