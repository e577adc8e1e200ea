"""The writer of a Delta sink: it runs in a task and stages Parquet files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tidegate.connectors.lakehouse.delta.client import DeltaClient
from tidegate.connectors.lakehouse.delta.payload import DeltaCommittable, DeltaFile
from tidegate.connectors.lakehouse.delta.values import Statistics, partition_text
from tidegate.connectors.lakehouse.names import file_stem, sync
from tidegate.connectors.lakehouse.names import segment as safe
from tidegate.connectors.lakehouse.partitions import Coded, part
from tidegate.connectors.lakehouse.rolling import Key, RollingFiles
from tidegate.connectors.sink import WriterContext
from tidegate.core.errors import SchemaError
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem


def folders_of(partition: Mapping[str, str | None]) -> str:
    """Return the folders of a partition, for people who browse the directory. Readers take the values from the log."""
    return "".join(f"{safe(name)}={safe(value or 'null')}/" for name, value in partition.items())


class DeltaWriter:
    """Writes rows to Parquet files below the table that no commit references yet."""

    def __init__(self, client: DeltaClient, context: WriterContext, target_file_bytes: int) -> None:
        schema = context.schema
        self._partition_by = [(name, schema.fields[schema.index(name)].type) for name in client.partition_by]
        self._schema = schema.select([name for name in schema.names if name not in client.partition_by])
        self._required = [column.name for column in schema if not column.nullable]
        self._stem = file_stem(context)
        self._client = client
        self._files = RollingFiles(self._open, target_file_bytes)

    def write(self, batch: pa.RecordBatch) -> None:
        for name in self._required:
            # Parquet would take the null, and the table would then contradict its own schema.
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
        # The log has these values; the files leave the columns out.
        values = {name: partition_text(value, type) for (name, type), value in zip(self._partition_by, partition)}
        path = f"{folders_of(values)}{self._stem}-{number:04d}.parquet"
        return _DeltaFile(
            files=self._client.files,
            root=self._client.root,
            path=path,
            partition=values,
            schema=self._schema,
        )


class _DeltaFile:
    def __init__(
        self, files: FileSystem, root: Path | None, path: str, partition: dict[str, str | None], schema: Schema
    ) -> None:
        import pyarrow.parquet as pq

        self._files = files
        self._root = root
        self._path = path
        self._partition = partition
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
            # Every folder up to the table: a partition's may be new, and is lost with the power unless the one above is
            # synced.
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
