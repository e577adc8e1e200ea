"""A Delta Lake table as a sink.

1. In the task: rows are written to Parquet files under the table's directory, named by (lineage, sink, epoch, slot,
   attempt). No commit references them, so no reader sees them. A crash leaves files that vacuum removes when they are old.
2. At commit: the files of all slots and epochs are added in one Delta commit together with an application
   transaction, which records up to which epoch this (lineage, sink) is committed. A repeat finds it and adds nothing,
   whatever happened to the files since.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tidegate.connectors.lakehouse.delta_table import check_partitions, check_table
from tidegate.connectors.lakehouse.delta_values import Statistics, partition_text
from tidegate.connectors.lakehouse.errors import CommitConflict, StagedFilesGone, TableUnsuitable
from tidegate.connectors.lakehouse.markers import WholeEpochs, is_covered, markers_of
from tidegate.connectors.lakehouse.names import file_stem, local_path, require, sync
from tidegate.connectors.lakehouse.names import segment as safe
from tidegate.connectors.lakehouse.partitions import Coded, part
from tidegate.connectors.lakehouse.rolling import Key, RollingFiles
from tidegate.connectors.outcome import CommitOutcome, outcomes
from tidegate.connectors.sink import Committable, Committer, CommitterContext, PublishesIn, SinkWriter, WriterContext
from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.faults import reach
from tidegate.core.guarantee import Guarantee
from tidegate.core.redaction import refuse_credentials
from tidegate.graph.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

ATTEMPTS = 10


class DeltaFile(msgspec.Struct, frozen=True):
    """One file, as the log will describe it."""

    path: str
    size: int
    partition: dict[str, str | None]
    modified_ms: int
    statistics: str


class DeltaCommittable(msgspec.Struct, frozen=True):
    files: tuple[DeltaFile, ...]


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

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return DeltaWriter(self, context)

    def create_committer(self, context: CommitterContext) -> Committer:
        """Open or create the table and check it. Raises if it cannot take these rows."""
        check_partitions(self.partition_by, context.schema)
        committer = DeltaCommitter(self, context.schema)
        committer.prepare()
        return committer

    def describe(self) -> str:
        by = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"Delta table {self.table_uri}{by}"

    def files(self) -> FileSystem:
        """Return the table's directory, through the same client and options as its log."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.table_uri, dict(self.storage_options)))


class DeltaWriter:
    def __init__(self, sink: DeltaSink, context: WriterContext) -> None:
        schema = context.schema
        self._partition_by = [(name, schema.fields[schema.index(name)].type) for name in sink.partition_by]
        self._schema = schema.select([name for name in schema.names if name not in sink.partition_by])
        self._required = [column.name for column in schema if not column.nullable]
        self._stem = file_stem(context)
        self._sink, self._filesystem = sink, sink.files()
        self._files = RollingFiles(self._open, sink.target_file_bytes)

    def write(self, batch: pa.RecordBatch) -> None:
        for name in self._required:
            if batch.column(name).null_count:
                raise SchemaError(
                    f"The column {name!r} is declared NOT NULL, but a row for the Delta table has a null there."
                )
        keys = [Coded.of(batch.column(name)) for name, _ in self._partition_by]
        for partition, rows in part(batch, keys):
            if rows.num_rows:
                self._files.write(partition, rows.select(self._schema.names))

    def prepare_commit(self) -> bytes | None:
        files = self._files.close()
        return msgspec.json.encode(DeltaCommittable(tuple(files))) if files else None

    def abort(self) -> None:
        self._files.remove()

    def _open(self, partition: Key, number: int) -> _DeltaFile:
        values = {name: partition_text(value, type) for (name, type), value in zip(self._partition_by, partition)}
        # For people who browse the directory; readers take the values from the log.
        folders = "".join(f"{safe(name)}={safe(value or 'null')}/" for name, value in values.items())
        path = f"{folders}{self._stem}-{number:04d}.parquet"
        return _DeltaFile(
            files=self._filesystem,
            root=local_path(self._sink.table_uri),
            path=path,
            partition=values,
            schema=self._schema,
        )


class _DeltaFile:
    def __init__(
        self, files: FileSystem, root: Path | None, path: str, partition: dict[str, str | None], schema: Schema
    ) -> None:
        import pyarrow.parquet as pq

        self._files, self._root, self._path, self._partition = files, root, path, partition
        self._statistics = Statistics(schema.fields)
        self._stream = files.open_output_stream(path)
        self._writer = pq.ParquetWriter(self._stream, schema.to_arrow(), compression="snappy")

    def write(self, batch: pa.RecordBatch) -> None:
        self._statistics.add(batch)
        self._writer.write_batch(batch)

    def close(self) -> DeltaFile:
        self._finish()
        if self._root is not None:
            sync(self._root / self._path)
            for folder in (self._root / self._path).relative_to(self._root).parents:
                sync(self._root / folder)
        size = self._files.get_file_info(self._path).size
        return DeltaFile(
            path=self._path,
            size=size,
            partition=self._partition,
            modified_ms=time.time_ns() // 1_000_000,
            statistics=self._statistics.as_json(),
        )

    def remove(self) -> None:
        try:
            self._finish()
        finally:
            self._files.delete_file(self._path)

    def _finish(self) -> None:
        self._writer.close()
        self._stream.close()


class DeltaCommitter:
    def __init__(self, sink: DeltaSink, schema: Schema) -> None:
        self._sink, self._schema = sink, schema
        self._handle: DeltaTable | None = None
        self._whole = WholeEpochs()

    def prepare(self) -> None:
        """Make sure the table exists and is suitable, before the first row."""
        from deltalake import DeltaTable
        from deltalake import Schema as DeltaSchema

        uri, options = self._sink.table_uri, dict(self._sink.storage_options)
        if not DeltaTable.is_deltatable(uri, options):
            if not self._sink.create:
                raise TableUnsuitable(
                    f"There is no Delta table at {uri}. Create it, or let the sink create it: create=True."
                )
            DeltaTable.create(
                uri,
                DeltaSchema.from_arrow(self._schema.to_arrow()),
                mode="ignore",
                partition_by=list(self._sink.partition_by),
                storage_options=options,
            )
        check_table(self._newest(), self._schema, self._sink.partition_by)

    @cached_property
    def _filesystem(self) -> FileSystem:
        return self._sink.files()

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Add what is not yet added.

        1. Read the current table; skip requests that its markers cover. Their files may be long gone.
        2. Check that the table still accepts these rows, and that the files of the remaining
           requests exist and are complete.
        3. Add them all and their marker in one Delta commit. A crash before it leaves nothing; after a crash behind it, a
           repeat finds the marker in step 1. If another commit of the same sink makes it fail, go back to 1.
        4. On a local disk, make the log durable.
        """
        from deltalake.exceptions import CommitFailedError

        self._whole.check(requests)
        for attempt in range(1, ATTEMPTS + 1):
            table = self._newest()
            waiting = [request for request in requests if not is_covered(request, table.transaction_version)]
            reach("delta.1-read", waiting=len(waiting))
            if waiting:
                files = [file for r in waiting for file in msgspec.json.decode(r.payload, type=DeltaCommittable).files]
                check_table(table, self._schema, self._sink.partition_by)
                self._check_files(files)
                reach("delta.2-checked", waiting=len(waiting))
                try:
                    self._add(table, files, waiting)
                except CommitFailedError as error:
                    self._handle = None
                    if attempt == ATTEMPTS:
                        raise CommitConflict(self._sink.table_uri, attempt, error) from error
                    continue
                reach("delta.3-added", waiting=len(waiting))
            self._make_log_durable(table.version())
            self._whole.committed(requests)
            return outcomes(requests, waiting)
        raise AssertionError("the last attempt returns or raises")

    def _newest(self) -> DeltaTable:
        """Return the current table. The handle is kept, since opening a table reads the names of all its files."""
        from deltalake import DeltaTable

        if self._handle is not None:
            last = self._filesystem.get_file_info(f"_delta_log/{self._handle.version():020d}.json")
            # Someone may have replaced the table with another one, whose log is shorter.
            if last.is_file:
                self._handle.update_incremental()
                return self._handle
        self._handle = DeltaTable(self._sink.table_uri, storage_options=dict(self._sink.storage_options))
        return self._handle

    def _check_files(self, files: Sequence[DeltaFile]) -> None:
        found = self._filesystem.get_file_info([file.path for file in files])
        gone = [file.path for file, info in zip(files, found) if not info.is_file or info.size != file.size]
        if gone:
            raise StagedFilesGone(
                self._sink.table_uri, gone, "A full vacuum with a short retention does this: keep it at a day or more."
            )

    def _add(self, table: DeltaTable, files: Sequence[DeltaFile], requests: Sequence[Committable]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        table.create_write_transaction(
            [AddAction(f.path, f.size, f.partition, f.modified_ms, True, f.statistics) for f in files],
            mode="append",
            schema=table.schema(),
            partition_by=list(self._sink.partition_by),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, version) for name, version in markers_of(requests).items()]
            ),
        )

    def _make_log_durable(self, since: int) -> None:
        root = local_path(self._sink.table_uri)
        if root is not None:
            log = root / "_delta_log"
            while (entry := log / f"{since:020d}.json").exists():
                sync(entry)
                since += 1
            sync(log)
