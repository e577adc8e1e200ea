"""Opens the store that a URL names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tidegate.core.redaction import has_credentials, redacted
from tidegate.storage.errors import StorageMisconfigured
from tidegate.storage.local import LocalStorage
from tidegate.storage.port import Storage
from tidegate.storage.retry import Patience

_OBJECT_STORES = {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"}
_S3 = {"s3", "s3a"}
_HDFS = {"hdfs", "webhdfs", "swebhdfs"}
_OTHERS = {
    "dbfs": "Use the cloud's own URL (s3://, abfss://, gs://) instead.",
    "memory": "Memory lives in one process; tests use tidegate.testing.storage.MemoryStorage.",
}


def is_object_store(url: str) -> bool:
    """Whether each request to it costs money."""
    return urlsplit(url).scheme.lower() in _OBJECT_STORES


def open_storage(
    url: str | Path, *, patience: Patience | None = None, confined: bool = False, **options: Any
) -> Storage:
    """Open the store at `url`: a path, `file:///…`, `s3://bucket/prefix`, `gs://bucket/prefix`,
    `az://account/container/…`, `hdfs://host:port/directory`.

    `options` are passed to the client of an object store: `endpoint`, `region`, `access_key_id`, `secret_access_key`,
    …; missing ones come from its usual environment variables. Those of HDFS are `web_address`, `user`,
    `delegation_token`, `delegation_token_file`, `timeout_ms` and `connect_timeout_ms`. No request is sent yet; `probe`
    checks that the store is suitable. Use `confined` for a directory that others may have written to: names that leave
    it through symbolic links are rejected.
    """
    text = str(url)
    _refuse_credentials(text)
    scheme = urlsplit(text).scheme.lower() if "://" in text else ""
    if scheme in ("", "file"):
        if options:
            raise StorageMisconfigured(
                text, "", f"A directory takes no options, but was given {sorted(options)}. Remove them."
            )
        return LocalStorage(_directory(text) if scheme else _path(text), patience, confined)
    if scheme in _OBJECT_STORES:
        # Not at the top: a cold import of tidegate must not load the client.
        from tidegate.storage.object_store import ObjectStorage  # noqa: PLC0415 start-up time

        return ObjectStorage(text, options, patience)
    if scheme in _HDFS:
        from tidegate.storage.hdfs.adapter import HdfsStorage  # noqa: PLC0415 start-up time
        from tidegate.storage.hdfs.address import HdfsAddress  # noqa: PLC0415 start-up time

        return HdfsStorage(HdfsAddress.of(text, options), patience)
    advice = _OTHERS.get(scheme, "Use a path, file://, s3://, gs://, az:// or hdfs://.")
    raise StorageMisconfigured(
        text, "", f"Checkpoints cannot be kept in {text!r}: {scheme}:// is not supported. {advice}"
    )


def share_options(url: str, other: str) -> bool:
    """Whether the options for one store are meant for the other as well. Those of HDFS say where one file system is."""
    one, two = urlsplit(url), urlsplit(other)
    return one.scheme == two.scheme and (one.scheme.lower() not in _HDFS or one.netloc == two.netloc)


def takes_option(url: str, key: str) -> bool:
    """Whether an option under this key, such as `s3.region`, concerns the store at `url`."""
    schemes = {"s3.": _S3, "hdfs.": _HDFS}
    return any(key.startswith(prefix) and urlsplit(url).scheme.lower() in fits for prefix, fits in schemes.items())


def complete_options(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with which any process opens the store that this process would open.

    Hadoop's configuration and the name of the user may differ where tasks run. The clients of object stores read their
    own environment there. Raises `StorageMisconfigured`.
    """
    _refuse_credentials(url)
    if urlsplit(url).scheme.lower() not in _HDFS:
        return dict(options)
    from tidegate.storage.hdfs.address import HdfsAddress  # noqa: PLC0415 start-up time

    return HdfsAddress.of(url, options).options()


def complete_url(url: str) -> str:
    """Return the address by which any process opens the store that this process would open. Tasks may run in another working
    directory, and as a user with another home.
    """
    # A relative path means the driver's working directory, everywhere.
    return url if "://" in url else os.path.abspath(_path(url))


def _refuse_credentials(url: str) -> None:
    if has_credentials(url):
        shown = redacted(url)
        raise StorageMisconfigured(
            shown,
            "",
            f"{shown} contains credentials, and the addresses of checkpoints are written to logs and files. Pass them as "
            "s3.access-key and s3.secret-key, or in the environment of the store's client.",
        )


def _path(text: str) -> Path:
    scheme, colon, rest = text.partition(":")
    if colon and scheme.lower() in (*_OBJECT_STORES, "file", "hdfs") and rest.startswith("/"):
        slashes = "//" if scheme.lower() in _OBJECT_STORES else "///"
        meant = f"{scheme}:{slashes}{rest.lstrip('/')}"
        raise StorageMisconfigured(text, "", f"{text!r} is an address with a slash missing. Write {meant}.")
    return Path(text).expanduser() if text.startswith("~") else Path(text)


def _directory(text: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StorageMisconfigured(text, "", f"{text!r} names a machine. Write file:/// and the absolute path.")
    return Path(unquote(parts.path))
