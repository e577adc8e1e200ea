"""The `hashmap` backend: names versions and bounds the process's cache of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tidegate.core.durations import size_bytes
from tidegate.core.errors import CorruptState
from tidegate.core.ids import Term
from tidegate.state.disk import version_directory
from tidegate.state.heap import change_file
from tidegate.state.heap.store import HeapStore
from tidegate.state.version import Manifest, VersionId

CACHE_KEY = "state.backend.hashmap.cache-size"


@dataclass(frozen=True, slots=True)
class HashMapBackend:
    """State in memory: as fast as a dict, bounded by the worker's memory.

    `cache_size` bounds the tables that a worker process keeps for tasks it is not running; the last used one always
    stays.
    """

    name: ClassVar[str] = "hashmap"
    cuts_cheaply: ClassVar[bool] = False
    cache_size: int = 512 << 20

    @staticmethod
    def from_configuration(configuration: Mapping[str, Any]) -> HashMapBackend:
        return HashMapBackend(size_bytes(configuration[CACHE_KEY])) if CACHE_KEY in configuration else HashMapBackend()

    def bytes_by_state(self, file: Path) -> Mapping[int, int]:
        """See `DividingBackend`."""
        try:
            return change_file.bytes_by_state(file)
        except (CorruptState, OSError):
            return {}

    def begin(
        self, directory: Path, base: VersionId | None, target: VersionId, key_groups: tuple[int, int]
    ) -> HeapStore:
        found = None if base is None else self.manifest(directory, base)
        return HeapStore(
            cache_size=self.cache_size, directory=directory, base=found, target=target, key_groups=key_groups
        )

    def manifest(self, directory: Path, version: VersionId) -> Manifest:
        return version_directory.read_version(directory, version, self.name)

    def tidy(self, directory: Path, term: Term, keep: Iterable[VersionId], *, ended: bool = False) -> None:
        version_directory.tidy(directory, term, keep, ended=ended)
