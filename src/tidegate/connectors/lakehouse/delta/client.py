"""How a Delta table is reached: its log through deltalake, its files through the same client and options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.connectors.lakehouse.cleaner import TableFiles
from tidegate.connectors.lakehouse.errors import check_credentials
from tidegate.connectors.lakehouse.names import local_path
from tidegate.core.redaction import redacted

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

_CREDENTIALS = (
    "access_key_id",
    "profile",
    "skip_signature",
    "web_identity_token_file",
    "container_credentials_relative_uri",
)
"""Options of deltalake on S3, without aws_, that hold credentials or say where they are."""
_REMEDY = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the storage_options"


@dataclass(frozen=True)
class DeltaClient:
    table_uri: str
    storage_options: dict[str, str]
    partition_by: tuple[str, ...]

    @property
    def target(self) -> str:
        """The table for messages: its address, that of the store, and who asks."""
        # deltalake takes its options in either spelling.
        given = {name.lower().removeprefix("aws_"): value for name, value in self.storage_options.items()}
        endpoint = given.get("endpoint_url") or given.get("endpoint")
        user = given.get("access_key_id")
        return (
            f"Delta table {redacted(self.table_uri)}"
            + ("" if endpoint is None else f" at {redacted(endpoint)}")
            + ("" if user is None else f" with the key {user}")
        )

    def check_credentials(self) -> None:
        options = {name.lower().removeprefix("aws_") for name in self.storage_options}
        check_credentials(self.target, self.table_uri, options, _CREDENTIALS, _REMEDY)

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

    def table_files(self) -> TableFiles | None:
        """Return the table as a cleaner sees it; None if there is none."""
        if not self.exists():
            return None
        table = self.open()
        return TableFiles(
            self.files,
            "",
            table.transaction_version,
            lambda: {uri.rpartition("/")[2] for uri in table.file_uris()},
        )
