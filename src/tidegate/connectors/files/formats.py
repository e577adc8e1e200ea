"""Encoders that turn rows into the bytes of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidegate.connectors.json_values import as_text
from tidegate.core.errors import GraphError
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class Encoder(Protocol):
    """Writes batches into one file."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def size_bytes(self) -> int:
        """Return the approximate size of the file so far."""
        ...

    def close(self) -> None: ...


class JsonLines:
    """One JSON object per line. Decimals and times are strings, as in Spark's own JSON writer."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._file.write(json.dumps(row, ensure_ascii=False, default=as_text) + "\n")

    def size_bytes(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


class Parquet:
    def __init__(self, path: Path, schema: Schema) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self._writer = pq.ParquetWriter(path, schema.to_arrow())

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def close(self) -> None:
        self._writer.close()


class Csv:
    """A header line with the column names, then one line per row. Null is an empty field, an empty
    string is `""`; bytes are base64.
    """

    def __init__(self, path: Path, schema: Schema) -> None:
        import pyarrow as pa
        import pyarrow.csv

        self._path = path
        # pyarrow's CSV writer has no form for these.
        self._texts = [n for n, field in enumerate(schema.fields) if field.type.kind in ("binary", "decimal")]
        fields = [field.to_arrow() for field in schema.fields]
        for n in self._texts:
            fields[n] = pa.field(fields[n].name, pa.string())
        self._schema = pa.schema(fields)
        self._writer = pyarrow.csv.CSVWriter(str(path), self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        columns = list(batch.columns)
        for n in self._texts:
            texts = [None if value is None else as_text(value) for value in columns[n].to_pylist()]
            columns[n] = pa.array(texts, pa.string())
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def close(self) -> None:
        self._writer.close()


ENCODERS: dict[str, Callable[[Path, Schema], Encoder]] = {"csv": Csv, "json": JsonLines, "parquet": Parquet}


def check_format(format: str) -> str:
    if format not in ENCODERS:
        raise GraphError(f"A file sink writes {' or '.join(map(repr, sorted(ENCODERS)))}, not {format!r}.")
    return format


def check_columns(format: str, schema: Schema) -> None:
    """Raise GraphError if the format cannot represent a column."""
    for field in schema.fields:
        if format == "csv" and field.type.kind in ("array", "map", "struct"):
            raise GraphError(
                f"CSV cannot represent column {field.name!r} of type {field.type}. Select its parts, or write json."
            )
