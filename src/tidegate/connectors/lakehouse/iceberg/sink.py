"""An Iceberg table as a sink.

1. In the task: rows are written to Parquet data files in the table's data location, named by (lineage, sink, epoch, slot,
   attempt). No snapshot references them, so no reader sees them. A crash leaves orphans.
2. At commit: the files of all slots and epochs are added in one snapshot, and a table property set in the same
   commit records up to which epoch this (lineage, sink) is committed. A repeat finds it and adds nothing;
   properties outlive expired snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.connectors.dataset_names import DatasetName
from tidegate.connectors.lakehouse.cleaner import TableCleaner
from tidegate.connectors.lakehouse.errors import translated
from tidegate.connectors.lakehouse.iceberg.committer import IcebergCommitter
from tidegate.connectors.lakehouse.iceberg.table import check_catalog_credentials, load, shown, table_files, view
from tidegate.connectors.lakehouse.iceberg.writer import IcebergWriter
from tidegate.connectors.lakehouse.names import require
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


@dataclass(frozen=True)
class IcebergSink:
    """Rows appended to `table`, such as `"db.events"`, of a catalog that pyiceberg finds by `catalog` and `properties`.

    Tasks query the catalog too, so executors must be able to reach it. With `create`, a missing table is created
    when the job starts, unpartitioned; create a partitioned one yourself. A file is closed at about
    `target_file_bytes` of rows, measured in memory.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    publishes_in: ClassVar[PublishesIn] = "driver"
    catalog: str
    table: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    create: bool = False
    target_file_bytes: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        require("pyiceberg", "IcebergSink", "iceberg")
        if self.target_file_bytes <= 0:
            raise GraphError(f"target_file_bytes must be positive; got {self.target_file_bytes}.")

    @property
    def dataset(self) -> DatasetName:
        """What lineage services call it."""
        return f"iceberg://{self.catalog}", self.table

    def create_writer(self, context: WriterContext) -> SinkWriter:
        # Tasks of all slots of a process share what was read for the first of them.
        key = (self.catalog, self.table, tuple(sorted(self.properties.items())))
        seen = view(lambda: load(self.catalog, self.properties), self.table, key)
        return IcebergWriter(seen, context, self.target_file_bytes)

    def create_committer(self, context: CommitterContext) -> Committer:
        """Open or create the table and check it. Raises if it cannot take these rows."""
        target = f"Iceberg table {self.table} of {shown(self.catalog, self.properties)}"
        check_catalog_credentials(target, self.properties)
        with translated(target):
            catalog = load(self.catalog, self.properties)
        committer = IcebergCommitter(catalog, self.table, context.schema, context=context, target=target)
        committer.prepare(self.create)
        return committer

    def create_cleaner(self) -> OutputCleaner:
        return TableCleaner(lambda: table_files(load(self.catalog, self.properties), self.table))

    def describe(self) -> str:
        return f"Iceberg table {self.table} of catalog {self.catalog}"
