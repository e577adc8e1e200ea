"""An Iceberg table as a sink.

1. In the task: rows are written to Parquet data files in the table's data location, named by (lineage, sink, epoch, slot,
   attempt). No snapshot references them, so no reader sees them. A crash leaves orphans.
2. At commit: the files of all slots and epochs are added in one snapshot, and a table property set in the same
   commit records up to which epoch this (lineage, sink) is committed. A repeat finds it and adds nothing;
   properties outlive expired snapshots.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from tidegate.connectors.lakehouse.errors import CommitConflict, StagedFilesGone, TableChanged, TableUnsuitable
from tidegate.connectors.lakehouse.iceberg_table import TableView, check_table, load, view
from tidegate.connectors.lakehouse.markers import WholeEpochs, is_covered, markers_of, outdated
from tidegate.connectors.lakehouse.names import file_stem, local_path, require, sync
from tidegate.connectors.lakehouse.partitions import part
from tidegate.connectors.lakehouse.rolling import Key, RollingFiles
from tidegate.connectors.outcome import CommitOutcome, outcomes
from tidegate.connectors.sink import Committable, Committer, CommitterContext, PublishesIn, SinkWriter, WriterContext
from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.faults import reach
from tidegate.core.guarantee import Guarantee
from tidegate.graph.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

ATTEMPTS = 10
LOOKERS = 16
"""Threads that check whether staged files exist in the store."""


class IcebergFile(msgspec.Struct, frozen=True):
    """One data file, as a manifest will describe it. Keys of the maps are column ids."""

    path: str
    size: int
    partition: tuple[int | str | bool | None, ...]
    record_count: int
    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    split_offsets: list[int]


class IcebergCommittable(msgspec.Struct, frozen=True):
    table: str
    """The table's UUID: a new table under an old name has different columns behind the same ids."""
    spec: int
    files: tuple[IcebergFile, ...]


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

    def create_writer(self, context: WriterContext) -> SinkWriter:
        key = (self.catalog, self.table, tuple(sorted(self.properties.items())))
        seen = view(lambda: load(self.catalog, self.properties), self.table, key)
        return IcebergWriter(seen, context, self.target_file_bytes)

    def create_committer(self, context: CommitterContext) -> Committer:
        """Open or create the table and check it. Raises if it cannot take these rows."""
        committer = IcebergCommitter(self, context.schema)
        committer.prepare()
        return committer

    def describe(self) -> str:
        return f"Iceberg table {self.table} of catalog {self.catalog}"


class IcebergWriter:
    def __init__(self, table: TableView, context: WriterContext, target_bytes: int) -> None:
        self._table, self._stem, self._schema = table, file_stem(context), context.schema
        self._files = RollingFiles(self._open, target_bytes)

    def write(self, batch: pa.RecordBatch) -> None:
        for partition, rows in part(batch, self._table.partition_values(batch)):
            if rows.num_rows:
                self._files.write(partition, rows)

    def prepare_commit(self) -> bytes | None:
        files = self._files.close()
        metadata = self._table.metadata
        staged = IcebergCommittable(str(metadata.table_uuid), metadata.default_spec_id, tuple(files))
        return msgspec.msgpack.encode(staged) if files else None

    def abort(self) -> None:
        self._files.remove()

    def _open(self, partition: Key, number: int) -> _IcebergFile:
        return _IcebergFile(self._table, self._schema, partition, f"{self._stem}-{number:04d}.parquet")


class _IcebergFile:
    def __init__(self, table: TableView, schema: Schema, partition: Key, name: str) -> None:
        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._table, self._partition = table, partition
        self._columns = table.columns(schema)
        self._arrow = schema_to_pyarrow(self._columns)
        self._path = table.location(partition, name)
        codec = table.metadata.properties.get("write.parquet.compression-codec", "zstd")
        # Names are never reused; an existing file can only be from this attempt.
        self._stream: Any = table.io.new_output(self._path).create(overwrite=True)
        self._writer = pq.ParquetWriter(
            self._stream,
            self._arrow,
            compression="none" if codec == "uncompressed" else codec,
            store_decimal_as_integer=True,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            fitted = batch.select(self._arrow.names).cast(self._arrow)
        except ValueError as error:
            raise SchemaError(f"A row does not fit the Iceberg table: {error}.") from error
        self._writer.write_batch(fitted)

    def close(self) -> IcebergFile:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )

        self._writer.close()
        told = data_file_statistics_from_parquet_metadata(
            self._writer.writer.metadata,
            compute_statistics_plan(self._columns, self._table.metadata.properties),
            parquet_path_to_id_mapping(self._columns),
        ).to_serialized_dict()
        self._stream.close()
        if (local := local_path(self._path)) is not None:
            sync(local)
            sync(local.parent)
            sync(local.parent.parent)
        size = len(self._table.io.new_input(self._path))
        return IcebergFile(self._path, size, self._partition, **told)

    def remove(self) -> None:
        with suppress(Exception):
            self._writer.close()
            self._stream.close()
        self._table.io.delete(self._path)


class IcebergCommitter:
    def __init__(self, sink: IcebergSink, schema: Schema, pause: Callable[[float], None] = time.sleep) -> None:
        self._sink, self._schema, self._pause = sink, schema, pause
        self._catalog = load(sink.catalog, sink.properties)
        self._whole = WholeEpochs()

    def prepare(self) -> None:
        """Make sure the table exists and is suitable, before the first row."""
        name = self._sink.table
        if not self._catalog.table_exists(name):
            if not self._sink.create:
                raise TableUnsuitable(
                    f"There is no Iceberg table {name}. Create it, or let the sink create it: create=True."
                )
            self._catalog.create_table_if_not_exists(name, self._schema.to_arrow())
        check_table(self._catalog.load_table(name), name, self._schema)

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Add what is not yet added.

        1. Read the current table; skip requests that its markers cover. Their files may be long gone.
        2. Check that the table is the one they were staged for, and that the files of the remaining
           requests exist and are complete.
        3. Add them all and their marker in one commit of the catalog, on condition that no other commit happened
           since step 1. A crash before it leaves nothing; after a crash behind it, a repeat finds the marker in
           step 1. On conflict, go back to 1.
        """
        from pyiceberg.exceptions import CommitFailedException

        self._whole.check(requests)
        for attempt in range(1, ATTEMPTS + 1):
            table = self._catalog.load_table(self._sink.table)
            waiting = [request for request in requests if not is_covered(request, partial(_marker, table))]
            reach("iceberg.1-read", waiting=len(waiting))
            if not waiting:
                self._whole.committed(requests)
                return outcomes(requests, waiting)
            staged = [msgspec.msgpack.decode(request.payload, type=IcebergCommittable) for request in waiting]
            self._check(table, staged)
            reach("iceberg.2-checked", waiting=len(waiting))
            try:
                self._add(table, [file for each in staged for file in each.files], waiting)
            except CommitFailedException as error:
                if attempt == ATTEMPTS:
                    raise CommitConflict(self._sink.table, attempt, error) from error
                self._pause(random.uniform(0, 0.02 * 2**attempt))
                continue
            reach("iceberg.3-added", waiting=len(waiting))
            self._whole.committed(requests)
            return outcomes(requests, waiting)
        raise AssertionError("the last attempt returns or raises")

    def _check(self, table: Table, staged: Sequence[IcebergCommittable]) -> None:
        name, metadata = self._sink.table, table.metadata
        if any(each.table != str(metadata.table_uuid) for each in staged):
            raise TableChanged(
                f"The Iceberg table {name} was dropped and recreated while output for the old one was waiting. Restore "
                "the old one, or restart the job from a savepoint taken before that output."
            )
        if any(each.spec != metadata.default_spec_id for each in staged):
            raise TableChanged(
                f"The partitioning of the Iceberg table {name} was changed while output was waiting for its commit. "
                "Change it back, stop the job with a savepoint, and then change it."
            )
        files = [file for each in staged for file in each.files]
        with ThreadPoolExecutor(min(LOOKERS, len(files))) as lookers:
            sizes = list(lookers.map(lambda file: _size(table, file.path), files))
        gone = [file.path for file, size in zip(files, sizes) if size != file.size]
        if gone:
            raise StagedFilesGone(
                name, gone, "Removing orphan files with a short age threshold does this: keep it at several days."
            )

    def _add(self, table: Table, files: Sequence[IcebergFile], requests: Sequence[Committable]) -> None:
        markers = markers_of(requests)
        # Every commit rewrites all properties.
        useless = outdated(table.metadata.properties, requests)
        merge = table.metadata.properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
        with table.transaction() as transaction:
            transaction.set_properties({name: str(number) for name, number in markers.items()})
            if useless:
                transaction.remove_properties(*useless)
            update = transaction.update_snapshot()
            with update.merge_append() if merge else update.fast_append() as append:
                for file in files:
                    append.append_data_file(_data_file(file, table.metadata.default_spec_id))
            # By default, pyiceberg repeats a rejected commit on top of the current state without checking the markers,
            # and finally deletes what it wrote for it, although a rejection may follow a lost "yes". Clearing its list
            # of what to repeat prevents both: the markers decide, and a conflict leaves two small orphans.
            transaction._snapshot_producers.clear()


def _marker(table: Table, name: str) -> int | None:
    found = table.metadata.properties.get(name)
    return None if found is None else int(found)


def _size(table: Table, path: str) -> int | None:
    try:
        return len(table.io.new_input(path))
    except FileNotFoundError:
        return None


def _data_file(file: IcebergFile, spec: int) -> DataFile:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    told = msgspec.structs.asdict(file)
    path, size, partition = told.pop("path"), told.pop("size"), told.pop("partition")
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **told,
    )
    made.spec_id = spec
    return made
