"""Checks before a job starts that a store fulfils the port's contract. Some S3 servers ignore conditional writes."""

from __future__ import annotations

import http.client
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.storage.errors import StorageMisconfigured
from tidegate.storage.port import Credentialed, Lost, Storage, Won, new_nonce, unique_name


def probe(storage: Storage, prefix: str = "probe") -> None:
    """Write, race, read, list and delete one tiny object. Raises `StorageMisconfigured`, or the error of the store.

    1. Create a new name: must win.
    2. Create it again with another body: must lose to the first. A store that ignores conditional writes fails here.
    3. Read and list it. 4. Delete it. A crash leaves one object of a few bytes below `prefix`.
    """
    check_folder(storage.url)
    check_credentials(storage)
    path = f"{prefix}/{unique_name()}"
    first, second = new_nonce(), new_nonce()
    try:
        fresh = storage.create(path, first.encode(), first)
        _require(fresh == Won(), storage, path, "a new name could not be created")
        # Some S3 servers accept the condition and ignore it. With those, two drivers would own one job.
        again = storage.create(path, second.encode(), second)
        _require(again == Lost(first.encode()), storage, path, "a second put-if-absent replaced the first")
        _require(storage.get(path) == first.encode(), storage, path, "an object differs from what was written")
        _require(path in {each.path for each in storage.list(prefix)}, storage, path, "a written object is not listed")
    finally:
        storage.delete([path])


def check_folder(url: str, what: str = "Checkpoints") -> None:
    """Raise `StorageMisconfigured` if a local path is not a folder or cannot be created. Other stores are not checked. `what` is
    what it is for.
    """
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
            f"{what} cannot be kept in {folder}: {found} is a file. Choose a path whose parts are all folders.",
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageMisconfigured(
            url,
            "",
            f"{what} cannot be kept in {folder}: the folder cannot be created ({reason}). Choose one "
            "that this user may write to.",
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageMisconfigured(
            url,
            "",
            f"{what} cannot be kept in {folder}: this user may not write there. Change its permissions, "
            "or choose another folder.",
        )


_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
"""Variables from which the client of S3 takes credentials."""
_METADATA_SERVICE = ("169.254.169.254", 80)
"""Where a machine of a cloud asks for the credentials of its role."""
_METADATA_S = 2.0


def check_credentials(storage: Storage) -> None:
    """Raise `StorageMisconfigured` if S3 is to be used without credentials: its client would look for the role of the machine for
    minutes before it says so.
    """
    if isinstance(storage, Credentialed) and storage.needs_credentials and not environment_has_credentials():
        raise StorageMisconfigured(storage.url, "", no_s3_credentials(storage.url))


def no_s3_credentials(url: str) -> str:
    """Return the message for S3 without credentials."""
    return (
        f"There are no credentials for {url}. Set s3.access-key and s3.secret-key (-D, Checkpointing(options=…) or config.yaml), "
        "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the driver and the executors; this machine has no "
        "role that it could use instead."
    )


def environment_has_credentials() -> bool:
    """Whether a client of S3 that was given no credentials finds some in the environment, or a role of this machine."""
    return any(os.environ.get(name) for name in _CREDENTIALS) or _has_role()


def _has_role() -> bool:
    """Ask the metadata service as the client of S3 does, for a token and then for the role. Without a token or a role it
    has no credentials: a firewall may answer at its address with 403.
    """
    # The user has named the service, so it is not asked for here.
    if os.environ.get("AWS_METADATA_ENDPOINT"):
        return True
    connection = http.client.HTTPConnection(*_METADATA_SERVICE, timeout=_METADATA_S)
    try:
        connection.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        answer = connection.getresponse()
        token = answer.read(1024).decode("latin-1")
        if answer.status != 200:
            return False
        role = "/latest/meta-data/iam/security-credentials/"
        connection.request("GET", role, headers={"X-aws-ec2-metadata-token": token})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException, ValueError):  # ValueError: the token cannot be a header
        return False
    finally:
        connection.close()


def _require(kept: bool, storage: Storage, path: str, broken: str) -> None:
    if not kept:
        raise StorageMisconfigured(
            storage.url,
            path,
            f"{storage.url} cannot hold checkpoints: {broken}. "
            "Use a store with put-if-absent: S3, GCS, Azure, HDFS or a POSIX file system.",
        )
