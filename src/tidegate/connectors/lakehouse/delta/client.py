"""How a Delta table is reached: its log through deltalake, its files through the same client and options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.connectors.lakehouse.names import local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem


@dataclass(frozen=True)
class DeltaClient:
    table_uri: str
    storage_options: dict[str, str]
    partition_by: tuple[str, ...]

    @property
    def root(self) -> Path | None:
        """The table's directory, if it is a local one."""
        return local_path(self.table_uri)

    @cached_property
    def files(self) -> FileSystem:
        """The table's directory as a file system."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.table_uri, self.storage_options))

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.table_uri, self.storage_options))

    def open(self) -> DeltaTable:
        """Open the current table. It reads the names of all its files."""
        from deltalake import DeltaTable

        return DeltaTable(self.table_uri, storage_options=self.storage_options)
