"""The storage of a job that also resolves names elsewhere: savepoints lie wherever the user put them."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.core.storage_cost import NAMES_PER_REQUEST
from tidegate.storage.open import open_storage, share_options
from tidegate.storage.port import Lost, Nonce, Storage, StoredObject, Won
from tidegate.storage.traffic import Traffic


def is_absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path


def name_below(root: str, name: str) -> str:
    """Return the storage name of a file that metadata names relative to `root` or absolutely."""
    return name if not root or is_absolute(name) else f"{root}/{name}"


class RoutedStorage:
    """Relative names are in `home`; a name with `://` or a leading slash is an object of the folder it names.

    `options` are client options, used for stores that share them with `home`. A folder whose `_metadata` was read may be
    untrusted: names below it must not leave it.
    """

    def __init__(self, home: Storage, options: Mapping[str, Any] | None = None, snapshots: Iterable[str] = ()) -> None:
        self.home = home
        self._options = dict(options or {})
        self._snapshots = set(snapshots)
        """Folders whose `_metadata` was read."""
        self._others: dict[str, Storage] = {}
        self.traffic = Traffic()
        """What went through this object, in this process."""

    @property
    def url(self) -> str:
        return self.home.url

    def __reduce__(self) -> tuple[object, ...]:
        return RoutedStorage, (self.home, self._options, tuple(self._snapshots))

    def _route(self, path: str) -> tuple[Storage, str]:
        if not is_absolute(path):
            return self.home, path
        folder, _, name = path.rpartition("/")
        # The longest: a savepoint may lie below another folder that was opened.
        around = max((root for root in tuple(self._snapshots) if path.startswith(f"{root}/")), key=len, default=None)
        if around is not None:
            folder, name = around, path[len(around) + 1 :]
        found = self._others.get(folder)
        if found is None:
            options = self._options if share_options(folder, self.url) else {}
            # Confined: names below come from metadata that somebody else may have written.
            opened = open_storage(folder or "/", confined=True, **options)
            # Two threads may open it at the same time; both use the first.
            found = self._others.setdefault(folder, opened)
        return found, name

    def put(self, path: str, data: bytes) -> None:
        storage, name = self._route(path)
        self.traffic.add("write", len(data))
        storage.put(name, data)

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        storage, name = self._route(path)
        self.traffic.add("write", len(data))
        return storage.create(name, data, nonce)

    def get(self, path: str) -> bytes:
        folder = path.removesuffix("/_metadata")
        if folder and folder != path and is_absolute(path):
            # From now on, names below are looked up in this folder as a whole, not in the folder of each file.
            self._snapshots.add(folder)
        storage, name = self._route(path)
        data = storage.get(name)
        self.traffic.add("read", len(data))
        return data

    def get_range(self, path: str, start: int, length: int) -> bytes:
        storage, name = self._route(path)
        self.traffic.add("read", length)
        return storage.get_range(name, start, length)

    def size(self, path: str) -> int:
        storage, name = self._route(path)
        self.traffic.add("read")
        return storage.size(name)

    def list(self, prefix: str = "", after: str | None = None) -> builtins.list[StoredObject]:
        found = self.home.list(prefix, after)
        self.traffic.add("list", requests=_pages(len(found)))
        return found

    def folders(self, prefix: str = "") -> builtins.list[str]:
        found = self.home.folders(prefix)
        self.traffic.add("list", requests=_pages(len(found)))
        return found

    def delete(self, paths: Iterable[str]) -> None:
        by_store: dict[int, tuple[Storage, builtins.list[str]]] = {}
        for path in paths:
            storage, name = self._route(path)
            by_store.setdefault(id(storage), (storage, []))[1].append(name)
        for storage, names in by_store.values():
            self.traffic.add("delete", requests=_pages(len(names)))
            storage.delete(names)

    def sweep(self, prefix: str = "") -> int:
        return self.home.sweep(prefix)


def _pages(names: int) -> int:
    return max(1, -(-names // NAMES_PER_REQUEST))
