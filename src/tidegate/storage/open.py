"""Opens the store that a URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tidegate.core.redaction import has_credentials, redacted
from tidegate.storage.errors import StorageMisconfigured
from tidegate.storage.local import LocalStorage
from tidegate.storage.port import Storage
from tidegate.storage.retry import Patience

_OBJECT_STORES = {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"}
_OTHERS = {
    "hdfs": "HDFS has no put-if-absent that tidegate can use. Mount it (NFS gateway), or use an object store.",
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
    `az://account/container/…`.

    `options` are passed to the client of an object store: `endpoint`, `region`, `access_key_id`, `secret_access_key`,
    …; missing ones come from its usual environment variables. No request is sent yet; `probe` checks that the store is
    suitable. Use `confined` for a directory that others may have written to: names that leave it through symbolic links
    are rejected.
    """
    text = str(url)
    if has_credentials(text):
        shown = redacted(text)
        raise StorageMisconfigured(
            shown,
            "",
            f"{shown} contains credentials, and the addresses of checkpoints are written to logs and files. Pass them as "
            "s3.access-key and s3.secret-key, or in the environment of the store's client.",
        )
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
    advice = _OTHERS.get(scheme, "Use a path, file://, s3://, gs:// or az://.")
    raise StorageMisconfigured(
        text, "", f"Checkpoints cannot be kept in {text!r}: {scheme}:// is not supported. {advice}"
    )


def _path(text: str) -> Path:
    scheme, colon, rest = text.partition(":")
    if colon and scheme.lower() in (*_OBJECT_STORES, "file") and rest.startswith("/"):
        meant = f"{scheme}://{rest.lstrip('/')}" if scheme.lower() != "file" else f"file:///{rest.lstrip('/')}"
        raise StorageMisconfigured(text, "", f"{text!r} is an address with a slash missing. Write {meant}.")
    return Path(text).expanduser() if text.startswith("~") else Path(text)


def _directory(text: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StorageMisconfigured(text, "", f"{text!r} names a machine. Write file:/// and the absolute path.")
    return Path(unquote(parts.path))
