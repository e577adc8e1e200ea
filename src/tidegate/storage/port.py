"""The port every store implements: whole immutable objects under names, and one operation that can decide a race.

Names are unique and never given to other content; the only names written twice are heartbeats. There is no rename, and
no "exists": that a name exists is evidence of nothing, except for names decided by `create`.
No name is a folder of another one (`a` and `a/b`): file systems cannot hold both.
"""

from __future__ import annotations

import builtins
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType, Protocol
from urllib.parse import quote, unquote

from tidegate.storage.errors import InvalidPath

Nonce = NewType("Nonce", str)
"""Tells one writer's body from every other's. Minted by `new_nonce`, once for each body handed to `create`."""

_SEGMENT = re.compile(r"[A-Za-z0-9_=@+-][A-Za-z0-9._=@+-]*")
_LONGEST_SEGMENT = 200


@dataclass(frozen=True, slots=True)
class Won:
    """The name holds my body, durably."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The name holds another's body, durably, and will for ever."""

    existing: bytes


@dataclass(frozen=True, slots=True, order=True)
class StoredObject:
    """One line of a listing."""

    path: str
    size_bytes: int


class Storage(Protocol):
    """A store below one root. May be used by many threads; may be pickled, and connects anew where it arrives.

    Every method raises `StorageError`s only. Retries that are safe have been made already when one is raised.
    """

    @property
    def url(self) -> str:
        """The root, as a person would write it; no secrets."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Make `path` hold `data`, durably. Readers see all of it or what was there before. May be repeated."""
        ...

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        """Make `path` hold `data` if it does not exist, and know who won, whatever answers were lost on the way.

        `data` must contain `nonce`, so that no two writers send equal bodies. May be repeated with the same body.
        Raises `OutcomeUnknown` when the store cannot tell; then, and only then, the write may still happen later.
        """
        ...

    def get(self, path: str) -> bytes:
        """The whole object. What it returned is durable. Raises `ObjectMissing`."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes. Raises `ObjectMissing`, and `CorruptFile` when the object ends before."""
        ...

    def size(self, path: str) -> int:
        """Raises `ObjectMissing`."""
        ...

    def list(self, prefix: str = "", after: str | None = None) -> list[StoredObject]:
        """All objects below the folder `prefix`, however deep, sorted by path; if given, only those behind `after`.

        Objects written before the call began are in it, if not deleted. Unfinished writes never are.
        """
        ...

    def folders(self, prefix: str = "") -> builtins.list[str]:
        """Names of the folders right below the folder `prefix`, sorted. What they hold is not looked at, however much it is.

        Every folder with an object that was written before the call is in it. One that was emptied may be, too: file systems,
        and object stores built on one, remove it later.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove many at once. Missing ones are fine. After an error some are gone; may be repeated."""
        ...

    def sweep(self, prefix: str = "") -> int:
        """Remove leavings of interrupted writes below `prefix`; how many. A write under way survives it."""
        ...


def new_nonce() -> Nonce:
    return Nonce(uuid.uuid4().hex)


def unique_name() -> str:
    """A path segment that nobody else will ever use."""
    return uuid.uuid4().hex


def check_path(store: str, path: str) -> str:
    """The path itself, if every store can hold it: segments of letters, digits and `._=@+-`, none with a dot first."""
    for segment in path.split("/"):
        if not _SEGMENT.fullmatch(segment) or len(segment) > _LONGEST_SEGMENT:
            raise InvalidPath(
                store,
                path,
                f"{path!r} cannot be a name in {store}: its part {segment!r} is empty, too long, begins with a dot or "
                "has characters other than letters, digits and ._=@+- ; pass names of users through `encode_segment`.",
            )
    return path


def check_prefix(store: str, prefix: str) -> str:
    return check_path(store, prefix) if prefix else ""


def check_nonce(store: str, path: str, data: bytes, nonce: Nonce) -> None:
    """A body without its nonce could equal another writer's, and both would believe to have won."""
    if len(nonce) < 16 or nonce.encode() not in data:
        raise InvalidPath(store, path, f"The body for {path!r} must contain its nonce; mint one with `new_nonce()`.")


def encode_segment(text: str) -> str:
    """Any text as one path segment; different texts give different segments, plain ones stay as they are."""
    if not text:
        raise ValueError("an empty name cannot be a path segment")
    escaped = quote(text, safe="").replace("~", "%7E").replace("=", "%3D").replace("%", "=")
    return "=2E" + escaped[1:] if escaped.startswith(".") else escaped


def decode_segment(segment: str) -> str:
    return unquote(segment.replace("=", "%"))
