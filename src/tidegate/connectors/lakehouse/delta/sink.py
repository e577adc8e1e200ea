"""A Delta Lake table as a sink.

1. In the task: rows are written to Parquet files under the table's directory, named by (lineage, sink, epoch, slot,
   attempt). No commit references them, so no reader sees them. A crash leaves files that vacuum removes when they are old.
2. At commit: the files of all slots and epochs are added in one Delta commit together with an application
   transaction, which records up to which epoch this (lineage, sink) is committed. A repeat finds it and adds nothing,
   whatever happened to the files since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.connectors.dataset_names import DatasetName, of_path
from tidegate.connectors.lakehouse.cleaner import TableCleaner
from tidegate.connectors.lakehouse.delta.client import DeltaClient
from tidegate.connectors.lakehouse.delta.committer import DeltaCommitter
from tidegate.connectors.lakehouse.delta.table import check_partitions
from tidegate.connectors.lakehouse.delta.writer import DeltaWriter
from tidegate.connectors.lakehouse.names import local_path, require
from tidegate.connectors.sink import (
    Committer,
    CommitterContext,
    OutputCleaner,
    PublishesIn,
    SinkWriter,
    WriterContext,
)
from tidegate.core.errors import GraphError
from tidegate.core.guarantee import Guarantee
from tidegate.core.redaction import refuse_credentials


@dataclass(frozen=True)
class DeltaSink:
    """Rows appended to the Delta table at `table_uri`: a path shared by the driver and all executors, or `s3://…`,
    `abfss://…`, `gs://…` with the `storage_options` of the `deltalake` package.

    `partition_by` must match the table. With `create`, a missing table is created when the job starts. A file is closed at
    about `target_file_bytes` of rows, measured in memory.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    publishes_in: ClassVar[PublishesIn] = "driver"
    table_uri: str
    partition_by: Sequence[str] = ()
    create: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    target_file_bytes: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        # When the job is declared, not when the first checkpoint completes.
        require("deltalake", "DeltaSink", "delta")
        refuse_credentials(self.table_uri, "a Delta table", "storage_options")
        if isinstance(self.partition_by, str):
            raise GraphError(f"partition_by is a tuple of names: ({self.partition_by!r},).")
        if self.target_file_bytes <= 0:
            raise GraphError(f"target_file_bytes must be positive; got {self.target_file_bytes}.")
        path = local_path(self.table_uri)
        # A relative path would name a different directory in each process.
        object.__setattr__(self, "table_uri", self.table_uri if path is None else str(path.absolute()))
        object.__setattr__(self, "partition_by", tuple(self.partition_by))

    @property
    def dataset(self) -> DatasetName:
        """What lineage services call it."""
        return of_path(self.table_uri)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return DeltaWriter(self._client(), context, self.target_file_bytes)

    def create_committer(self, context: CommitterContext) -> Committer:
        """Open or create the table and check it. Raises if it cannot take these rows."""
        check_partitions(self.partition_by, context.schema)
        committer = DeltaCommitter(self._client(), context.schema, context)
        committer.prepare(self.create)
        return committer

    def create_cleaner(self) -> OutputCleaner:
        return TableCleaner(self._client().table_files)

    def describe(self) -> str:
        by = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"Delta table {self.table_uri}{by}"

    def _client(self) -> DeltaClient:
        return DeltaClient(self.table_uri, dict(self.storage_options), tuple(self.partition_by))
