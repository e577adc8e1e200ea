"""The writer of an Iceberg sink: it runs in a task and stages data files."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.connectors.lakehouse.iceberg.payload import IcebergCommittable, IcebergFile
from tidegate.connectors.lakehouse.iceberg.table import TableView
from tidegate.connectors.lakehouse.names import file_stem, local_path, sync
from tidegate.connectors.lakehouse.partitions import part
from tidegate.connectors.lakehouse.rolling import Key, RollingFiles
from tidegate.connectors.sink import WriterContext
from tidegate.core.errors import SchemaError
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class IcebergWriter:
    """Writes rows to Parquet files in the table's data location that no snapshot references yet."""

    def __init__(self, table: TableView, context: WriterContext, target_bytes: int) -> None:
        self._table = table
        self._stem = file_stem(context)
        self._schema = context.schema
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

        self._table = table
        self._partition = partition
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
            # Into the table's types and the order of its columns, with the ids by which readers find them.
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
        statistics = data_file_statistics_from_parquet_metadata(
            self._writer.writer.metadata,
            compute_statistics_plan(self._columns, self._table.metadata.properties),
            parquet_path_to_id_mapping(self._columns),
        ).to_serialized_dict()
        self._stream.close()
        if (local := local_path(self._path)) is not None:
            sync(local)
            # A partition may be a new folder in a new folder: each is lost with the power unless the one above it is synced.
            for folder in self._table.folders_of(local):
                sync(folder)
        # What the store says, not what was written: the committer compares the same figure.
        size = len(self._table.io.new_input(self._path))
        return IcebergFile(self._path, size, self._partition, **statistics)

    def remove(self) -> None:
        with suppress(Exception):
            self._writer.close()
            self._stream.close()
        self._table.io.delete(self._path)
