"""Storage for tests: in memory, and with scripted faults around any other. Both pass the contract of the real implementations."""

from __future__ import annotations

import builtins
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tidegate.core.errors import StorageError
from tidegate.storage.errors import (
    CorruptFile,
    InvalidPath,
    ObjectMissing,
    OutcomeUnknown,
    StorageUnavailable,
)
from tidegate.storage.port import (
    Lost,
    Nonce,
    Storage,
    StoredObject,
    Won,
    check_nonce,
    check_path,
    check_prefix,
)

T = TypeVar("T")


class MemoryStorage:
    """Objects in a dict. Rejects what a file system could not hold, so that no test passes where a directory would fail."""

    def __init__(self, url: str = "memory://test") -> None:
        self._url = url
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._url

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._keep(path, data)

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        check_nonce(self._url, path, data, nonce)
        with self._lock:
            existing = self._objects.get(check_path(self._url, path))
            if existing is None:
                self._keep(path, data)
                return Won()
            # The same bytes are this caller's own earlier try, whose answer was lost: they contain a nonce.
            return Won() if existing == data else Lost(existing)

    def get(self, path: str) -> bytes:
        with self._lock:
            try:
                return self._objects[check_path(self._url, path)]
            except KeyError:
                raise ObjectMissing.of(self._url, path) from None

    def get_range(self, path: str, start: int, length: int) -> bytes:
        data = self.get(path)[start : start + length]
        if len(data) != length:
            raise CorruptFile(self._url, path, f"{path!r} in {self._url} ends before byte {start + length}.")
        return data

    def size(self, path: str) -> int:
        return len(self.get(path))

    def list(self, prefix: str = "", after: str | None = None) -> builtins.list[StoredObject]:
        folder = check_prefix(self._url, prefix) + "/" if prefix else ""
        with self._lock:
            found = [StoredObject(path, len(data)) for path, data in self._objects.items() if path.startswith(folder)]
        return sorted(each for each in found if after is None or each.path > after)

    def folders(self, prefix: str = "") -> builtins.list[str]:
        skip = len(prefix) + 1 if prefix else 0
        below = [found.path[skip:] for found in self.list(prefix)]
        return sorted({path.partition("/")[0] for path in below if "/" in path})

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._lock:
                self._objects.pop(check_path(self._url, path), None)

    def sweep(self, prefix: str = "") -> int:
        check_prefix(self._url, prefix)
        return 0

    def _keep(self, path: str, data: bytes) -> None:
        check_path(self._url, path)
        # A file system has no file and folder of one name. An object store does, so only this check would notice.
        above = {path[: match.start()] for match in re.finditer("/", path)}
        if any(other in above or other.startswith(path + "/") for other in self._objects):
            raise InvalidPath(
                self._url, path, f"{path!r} would be a file and a folder at once in {self._url}. Choose another name."
            )
        self._objects[path] = bytes(data)


class Crash(BaseException):
    """Stands for the death of the process: it passes every `except Exception`, as a kill would."""


class Strike(Enum):
    """What happens to an operation."""

    FAIL_BEFORE = "nothing is done and StorageUnavailable raised (OutcomeUnknown for a create)"
    FAIL_AFTER = "it is done, but StorageUnavailable raised (OutcomeUnknown for a create)"
    CRASH_BEFORE = "Crash is raised before anything is done"
    CRASH_AFTER = "it is done, then Crash is raised"


@dataclass(frozen=True, slots=True)
class StorageFault:
    """Strikes the `nth` operation (1 = the first) of this kind on a path that contains `path`, `times` times."""

    strike: Strike
    operation: str
    path: str = ""
    nth: int = 1
    times: int = 1


class FaultyStorage:
    """Another store, some of whose operations fail as scripted. Without faults it behaves like that store."""

    def __init__(self, inner: Storage, faults: Iterable[StorageFault] = ()) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.script(*faults)

    def script(self, *faults: StorageFault) -> None:
        """Replace the faults, and reset the counts."""
        with self._lock:
            self._faults = dict.fromkeys(faults, 0)
            self.seen: builtins.list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return self._inner.url

    def put(self, path: str, data: bytes) -> None:
        self._run("put", path, lambda: self._inner.put(path, data))

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        return self._run("create", path, lambda: self._inner.create(path, data, nonce))

    def get(self, path: str) -> bytes:
        return self._run("get", path, lambda: self._inner.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._run("get_range", path, lambda: self._inner.get_range(path, start, length))

    def size(self, path: str) -> int:
        return self._run("size", path, lambda: self._inner.size(path))

    def list(self, prefix: str = "", after: str | None = None) -> builtins.list[StoredObject]:
        return self._run("list", prefix, lambda: self._inner.list(prefix, after))

    def folders(self, prefix: str = "") -> builtins.list[str]:
        return self._run("folders", prefix, lambda: self._inner.folders(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete with one operation for each path, so that a fault may strike in the middle."""
        for path in paths:
            self._run("delete", path, lambda path=path: self._inner.delete([path]))  # type: ignore[misc]

    def sweep(self, prefix: str = "") -> int:
        return self._run("sweep", prefix, lambda: self._inner.sweep(prefix))

    def _run(self, operation: str, path: str, act: Callable[[], T]) -> T:
        strike = self._strike(operation, path)
        if strike is Strike.CRASH_BEFORE:
            raise Crash(f"{operation} {path}")
        if strike is Strike.FAIL_BEFORE:
            raise self._failure(operation, path)
        result = act()
        if strike is Strike.CRASH_AFTER:
            raise Crash(f"{operation} {path}")
        if strike is Strike.FAIL_AFTER:
            raise self._failure(operation, path)
        return result

    def _failure(self, operation: str, path: str) -> StorageError:
        """Return what a real store would raise: its callers cannot tell whether the operation was
        done, so neither may this one's.
        """
        if operation == "create":
            return OutcomeUnknown.of(self.url, path, "scripted fault")
        return StorageUnavailable(self.url, path, f"Scripted fault: {operation} of {path!r} in {self.url}. Try again.")

    def _strike(self, operation: str, path: str) -> Strike | None:
        with self._lock:
            self.seen.append((operation, path))
            struck = None
            for fault, matched in self._faults.items():
                if fault.operation == operation and fault.path in path:
                    self._faults[fault] = matched + 1
                    if struck is None and fault.nth <= matched + 1 < fault.nth + fault.times:
                        struck = fault.strike
            return struck
