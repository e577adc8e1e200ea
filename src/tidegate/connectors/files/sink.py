"""Files below a directory or an S3 prefix, each visible complete and once.

1. In the task: rows are written to files that no reader sees, named by (lineage, sink, epoch, slot,
   attempt). A crash leaves them behind.
2. At commit: see `FileCommitter`.
3. Once a later checkpoint has made the output final, `sweep` removes files of discarded attempts and the marks of commits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.connectors.dataset_names import DatasetName, of_path
from tidegate.connectors.files.cleaner import FileCleaner
from tidegate.connectors.files.client import open_place
from tidegate.connectors.files.committer import FileCommitter
from tidegate.connectors.files.formats import check_columns, check_format
from tidegate.connectors.files.partitions import check_partitions
from tidegate.connectors.files.writer import FileLayout, FileWriter
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
from tidegate.schema.schema import Schema


@dataclass(frozen=True)
class FileSink:
    """Rows as files below a directory. Readers see each file complete, and once.

    Args:
        path: A directory shared by the driver and all executors, or `s3://bucket/prefix`.
        format: The format of the files: `"json"`, `"csv"` or `"parquet"`.
        partition_by: Columns whose values name folders, as in Hive and Spark (`day=2024-05-01/`).
        max_file_bytes: When a file reaches about this size, the writer starts another. By default, without limit.
        options: For S3: `endpoint`, `region`, `access_key_id`, `secret_access_key`, `session_token`. Without them, boto3 uses
            its default lookup.

    Examples:
        >>> tg.FileSink("s3://bucket/orders", format="parquet", partition_by=["user"]).describe()
        'parquet files in s3://bucket/orders by user'
    """

    guarantee = Guarantee.EXACTLY_ONCE
    publishes_in: ClassVar[PublishesIn] = "task"

    path: str
    format: str = "json"
    partition_by: Sequence[str] = ()
    max_file_bytes: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        check_format(self.format)
        refuse_credentials(self.path, "a file sink", "options={'access_key_id': …, 'secret_access_key': …}")
        if isinstance(self.partition_by, str):
            raise GraphError(f"partition_by is a list of columns: write partition_by=[{self.partition_by!r}].")
        if self.max_file_bytes is not None and self.max_file_bytes < 1:
            raise GraphError(
                "max_file_bytes is the size at which a file is full and must be positive; omit it for one file per epoch."
            )
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if "://" not in self.path:
            # Tasks write files too, and their working directories are others.
            object.__setattr__(self, "path", os.path.abspath(self.path))
        # A wrong scheme or option is reported where the sink is declared, and nothing is connected.
        open_place(self.path, self.options)

    @property
    def dataset(self) -> DatasetName:
        """What lineage services call it."""
        return of_path(self.path)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer that `context` describes."""
        return FileWriter(open_place(self.path, self.options), context, self._layout(context.schema))

    def create_committer(self, context: CommitterContext) -> Committer:
        """Create the committer that `context` describes."""
        check_partitions(self.partition_by, context.schema)
        check_columns(self.format, self._layout(context.schema).schema)
        return FileCommitter(self.path, open_place(self.path, self.options), context)

    def create_cleaner(self) -> OutputCleaner:
        return FileCleaner(open_place(self.path, self.options))

    def _layout(self, schema: Schema) -> FileLayout:
        inside = schema.select([name for name in schema.names if name not in self.partition_by])
        return FileLayout(self.format, tuple(self.partition_by), self.max_file_bytes, inside)

    def describe(self) -> str:
        by = f" by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"{self.format} files in {self.path}{by}"
