"""The `rocksdb` backend: names versions and holds options; it opens no database itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tidegate.core.ids import Term
from tidegate.state.disk import version_directory
from tidegate.state.rocksdb import table_file
from tidegate.state.rocksdb.options import RocksDBOptions
from tidegate.state.rocksdb.store import RocksDBStore
from tidegate.state.version import Manifest, VersionId

log = logging.getLogger("tidegate")


@dataclass(frozen=True, slots=True)
class RocksDBBackend:
    """State bounded by disk, not by memory; a version shares all unchanged files with its base."""

    name: ClassVar[str] = "rocksdb"
    cuts_cheaply: ClassVar[bool] = True
    options: RocksDBOptions = field(default_factory=RocksDBOptions)

    @property
    def write_cache_bytes(self) -> int | None:
        """See `BudgetedBackend`."""
        budget = self.options.budget
        return None if budget is None else budget.write_cache_bytes

    def bytes_by_state(self, file: Path) -> Mapping[int, int]:
        """See `DividingBackend`. Only tables tell."""
        if not file.name.endswith(".sst"):
            return {}
        try:
            return table_file.bytes_by_state(file)
        except (table_file.UnknownTable, OSError) as error:
            log.debug("no sizes of states: %s", error)
            return {}

    def begin(
        self, directory: Path, base: VersionId | None, target: VersionId, key_groups: tuple[int, int]
    ) -> RocksDBStore:
        found = None if base is None else self.manifest(directory, base)
        return RocksDBStore(options=self.options, directory=directory, base=found, target=target, key_groups=key_groups)

    def manifest(self, directory: Path, version: VersionId) -> Manifest:
        return version_directory.read_version(directory, version, self.name)

    def tidy(self, directory: Path, term: Term, keep: Iterable[VersionId], *, ended: bool = False) -> None:
        version_directory.tidy(directory, term, keep, ended=ended)
