"""What the exceptions of HDFS servers mean to tidegate."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.core.errors import StorageError
from tidegate.storage.errors import (
    InvalidPath,
    ObjectMissing,
    StorageDenied,
    StorageRefused,
    StorageUnavailable,
)
from tidegate.storage.hdfs.address import HdfsAddress
from tidegate.storage.hdfs.client import Reply

_DENIED = {"SecurityException", "AuthenticationException", "InvalidToken"}
_QUOTA = {"NSQuotaExceededException", "DSQuotaExceededException", "QuotaExceededException"}
_PERMANENT = {"IllegalArgumentException", "UnsupportedOperationException", "InvalidPathException"}
_WORTH_ANOTHER_TRY = {403, 404, 408, 429}
"""Servers answer 403 to every IOException."""


def is_missing(reply: Reply) -> bool:
    """Whether the path does not exist, or has a file where it needs a folder. HDFS may call the latter a denial."""
    return reply.refusal == "FileNotFoundException" or (reply.refusal is not None and _below_a_file(reply))


def is_denied(reply: Reply) -> bool:
    return reply.refusal is not None and (
        reply.status == 401 or reply.refusal in _DENIED or reply.refusal.endswith("AccessControlException")
    )


def accept(address: HdfsAddress, path: str, reply: Reply, writing: bool = False) -> Reply:
    """Return a response that is no refusal; otherwise raise what the refusal means for `path`, relative to the root."""
    if reply.refusal is None and reply.status in (200, 201):
        return reply
    raise _translate(address, path, reply, writing)


def accept_json(address: HdfsAddress, path: str, reply: Reply, key: str) -> Any:
    """Return one field of a response."""
    body = accept(address, path, reply).body
    try:
        return msgspec.json.decode(body, type=dict[str, Any])[key]
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError) as error:
        raise StorageRefused(
            address.url, path, f"A server of {address.url} did not answer as WebHDFS does. Check hdfs.web-address."
        ) from error


def _below_a_file(reply: Reply) -> bool:
    return "is not a directory" in reply.message


def _translate(address: HdfsAddress, path: str, reply: Reply, writing: bool) -> StorageError:
    said, where, url = f"{reply.refusal}: {reply.message}", f"{path!r} in {address.url}", address.url
    if is_missing(reply) and not writing:
        return ObjectMissing.of(url, path)
    if _below_a_file(reply) or "must both be directories" in reply.message:
        return InvalidPath(url, path, f"{path!r} would be a file and a folder at once in {url}. Choose another name.")
    if is_denied(reply):
        return StorageDenied(
            url,
            path,
            f"HDFS refused access to {where}: {said}. Check hdfs.user ({address.user}) and its permissions. "
            "A cluster with Kerberos needs hdfs.delegation-token.",
        )
    if reply.refusal in _PERMANENT or (
        300 <= reply.status < 500 and (reply.unexplained or reply.status not in _WORTH_ANOTHER_TRY)
    ):
        return StorageRefused(
            url, path, f"HDFS refused {where}: {said}. Check the URL, and that hdfs.web-address leads to WebHDFS."
        )
    hint = "Free space, or raise the quota." if reply.refusal in _QUOTA else "Check the health of its nodes."
    return StorageUnavailable(url, path, f"HDFS did not serve {where}: {said}. {hint}")
