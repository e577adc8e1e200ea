"""Storage in an object store (S3 and compatible stores, GCS, Azure) through `obstore`, which only this file imports.

The client's retries are off, since it would send a put-if-absent twice and report the second response. tidegate retries
itself.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import obstore
from obstore import exceptions as client_errors
from obstore.store import from_url

from tidegate.core.errors import StorageError
from tidegate.storage.arbitration import arbitrate
from tidegate.storage.errors import (
    CorruptFile,
    InvalidPath,
    ObjectMissing,
    StorageDenied,
    StorageMisconfigured,
    StorageRefused,
    StorageUnavailable,
)
from tidegate.storage.port import Lost, Nonce, StoredObject, Won, check_nonce, check_path, check_prefix
from tidegate.storage.probe import no_s3_credentials
from tidegate.storage.retry import Patience

T = TypeVar("T")

_STATUS = re.compile(r"status code: (\d{3})")
_WORTH_ANOTHER_TRY = {408, 409, 425, 429}
_RANGE_NOT_SATISFIABLE = 416
_DELETE_BATCH = 1000
_LIST_BATCH = 1000

_CREDENTIALS = {"access_key_id", "credential_provider", "skip_signature"}
"""Options of the client of S3 that hold credentials, or say that none are needed."""

_MISSING_KEYS = {
    "Missing SecretAccessKey": "s3.access-key is set, and s3.secret-key (or AWS_SECRET_ACCESS_KEY in the environment) is missing",
    "Missing AccessKeyId": "s3.secret-key is set, and s3.access-key (or AWS_ACCESS_KEY_ID in the environment) is missing",
}
"""What the client of S3 says if it has one of two keys, and what to tell the user."""

_runtime_process: int | None = None
"""The process in which the client's threads were started. In a forked child they do not exist, and a call would hang."""


class ObjectStorage:
    """Objects below a bucket and prefix. `options` are client options for this kind of store, including credentials."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, patience: Patience | None = None) -> None:
        self._url = url.rstrip("/")
        self._options = dict(options or {})
        self._patience = patience or Patience()
        self._store = _client(self._url, self._options)

    @property
    def url(self) -> str:
        return self._url

    @property
    def needs_credentials(self) -> bool:
        """Whether it is on S3, and its options hold no credentials."""
        given = {name.lower().removeprefix("aws_") for name in self._options}
        return self._is_s3 and not given & _CREDENTIALS

    @property
    def _is_s3(self) -> bool:
        return self._url.partition("://")[0] in ("s3", "s3a")

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return ObjectStorage, (self._url, self._options, self._patience)

    def put(self, path: str, data: bytes) -> None:
        check_path(self._url, path)
        # One request: a multipart upload that is abandoned leaves invisible parts that cost money.
        self._persist(path, lambda: obstore.put(self._store, path, data, use_multipart=False))

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        check_nonce(self._url, path, data, nonce)
        check_path(self._url, path)

        def send() -> bool:
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            # The client reports 409 (two requests at once, nobody has won yet) and 412 (the name is taken) alike. The
            # body that is read back decides.
            except (client_errors.AlreadyExistsError, client_errors.PreconditionError):
                return False
            return True

        return arbitrate(
            self._url,
            path,
            data,
            lambda: self._once(path, send),
            lambda: self._once(path, lambda: self._read(path)),
            self._patience,
        )

    def get(self, path: str) -> bytes:
        check_path(self._url, path)
        return self._persist(path, lambda: self._read(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        check_path(self._url, path)
        if length == 0:
            self.size(path)
            return b""
        data = self._persist(path, lambda: obstore.get_range(self._store, path, start=start, length=length).to_bytes())
        if len(data) != length:
            raise self._too_short(path)
        return data

    def size(self, path: str) -> int:
        check_path(self._url, path)
        return int(self._persist(path, lambda: obstore.head(self._store, path))["size"])

    def list(self, prefix: str = "", after: str | None = None) -> builtins.list[StoredObject]:
        check_prefix(self._url, prefix)

        def read_all() -> builtins.list[StoredObject]:
            pages = obstore.list(self._store, prefix or None, offset=after, chunk_size=_LIST_BATCH)
            return sorted(StoredObject(each["path"], each["size"]) for page in pages for each in page)

        # A listing that fails in the middle is read again from its beginning, so that no page is missing.
        found = self._persist(prefix, read_all)
        # Filtered here as well, whatever the store makes of the offset.
        return [each for each in found if after is None or each.path > after]

    def folders(self, prefix: str = "") -> builtins.list[str]:
        check_prefix(self._url, prefix)
        found = self._persist(prefix, lambda: obstore.list_with_delimiter(self._store, prefix or None))
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, paths: Iterable[str]) -> None:
        waiting = [check_path(self._url, path) for path in paths]
        for start in range(0, len(waiting), _DELETE_BATCH):
            self._delete_batch(waiting[start : start + _DELETE_BATCH])

    def sweep(self, prefix: str = "") -> int:
        """Do nothing: objects appear complete or not at all, and multipart uploads, which could leave parts, are not used."""
        check_prefix(self._url, prefix)
        return 0

    def _delete_batch(self, paths: builtins.list[str]) -> None:
        try:
            self._persist(paths[0], lambda: obstore.delete(self._store, paths))
        except ObjectMissing:
            # GCS and Azure fail on a missing object and may not have deleted the ones after it.
            if len(paths) > 1:
                for path in paths:
                    self._delete_batch([path])

    def _read(self, path: str) -> bytes:
        return obstore.get(self._store, path).bytes().to_bytes()

    def _persist(self, path: str, act: Callable[[], T]) -> T:
        return self._patience.persist(lambda: self._once(path, act))

    def _once(self, path: str, act: Callable[[], T]) -> T:
        """Call the client and translate its errors."""
        # A call would wait for ever for threads that only the parent has.
        _refuse_after_fork(self._url, path)
        try:
            return act()
        except (client_errors.BaseError, OSError, ValueError) as error:
            raise self._translate(path, error) from error

    def _translate(self, path: str, error: Exception) -> StorageError:
        text = str(error).partition("\n\nDebug source")[0]
        found = _STATUS.search(text)
        status = int(found[1]) if found else None
        where = f"{path!r} in {self._url}"
        if isinstance(error, FileNotFoundError):
            return ObjectMissing.of(self._url, path)
        if isinstance(error, client_errors.PermissionDeniedError | client_errors.UnauthenticatedError):
            return StorageDenied(
                self._url,
                path,
                f"The store refused access to {where}: {text}. Check the credentials and the permissions of this user.",
            )
        if self._is_s3 and status is not None and status < 500 and any(each in text for each in _METADATA_SERVICE):
            # The client found no credentials, and asked for those of the machine's role last. A service that does not answer
            # is another matter: it may answer later.
            return StorageDenied(self._url, path, no_s3_credentials(self._url))
        if isinstance(error, client_errors.InvalidPathError):
            return InvalidPath(self._url, path, f"{where}: {text}. Choose another name.")
        if isinstance(error, client_errors.NotSupportedError):
            return StorageMisconfigured(
                self._url, path, f"{where}: {text}. This store cannot hold checkpoints; choose another."
            )
        if status == _RANGE_NOT_SATISFIABLE:
            return self._too_short(path)
        if status is not None and 300 <= status < 500 and status not in _WORTH_ANOTHER_TRY:
            return StorageRefused(
                self._url, path, f"The store refused {where}: {text}. Check the URL, the bucket and its region."
            )
        return StorageUnavailable(
            self._url,
            path,
            f"The store did not serve {where}: {text}. Check that the store is healthy and reachable from here.",
        )

    def _too_short(self, path: str) -> CorruptFile:
        return CorruptFile(
            self._url, path, f"{path!r} in {self._url} is shorter than its handle says; restore an older checkpoint."
        )


_METADATA_SERVICE = ("/latest/api/token", "/latest/meta-data/")
"""Addresses at which the client asks for the credentials of the machine's role."""


def _client(url: str, options: Mapping[str, Any]) -> Any:
    config = dict(options)
    # Parts have 8 MiB, so a request that takes a minute is a failed one.
    client_options = {"timeout": "60s", "connect_timeout": "10s", **config.pop("client_options", {})}
    if str(config.get("endpoint", "")).startswith("http://"):
        client_options.setdefault("allow_http", True)
    try:
        return from_url(url, config=config, client_options=client_options, retry_config={"max_retries": 0})  # type: ignore[call-overload]
    except (client_errors.BaseError, ValueError, TypeError) as error:
        text = str(error).partition("\n\nDebug source")[0]
        for said, missing in _MISSING_KEYS.items():
            if said in text:
                raise StorageMisconfigured(
                    url,
                    "",
                    f"The credentials for {url} are incomplete: {missing}. Set both, or none of them to use the role of this "
                    "machine.",
                ) from error
        raise StorageMisconfigured(
            url, "", f"{url} cannot be opened: {text}. Check the URL and the options."
        ) from error


def _refuse_after_fork(url: str, path: str) -> None:
    global _runtime_process
    if _runtime_process is None:
        _runtime_process = os.getpid()
    elif _runtime_process != os.getpid():
        raise StorageMisconfigured(
            url,
            path,
            f"{url} was used before this process was forked, and its threads are gone. Use storage only after forking.",
        )
