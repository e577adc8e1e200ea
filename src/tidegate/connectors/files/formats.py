"""How rows become bytes of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.core.errors import GraphError
from tidegate.graph.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class Encoder(Protocol):
    """Writes batches into one file."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


class JsonLines:
    """One JSON object a line. Decimals and times are text, as Spark's own JSON writer has them."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._file.write(json.dumps(row, ensure_ascii=False, default=_as_text) + "\n")

    def close(self) -> None:
        self._file.close()


class Parquet:
    def __init__(self, path: Path, schema: Schema) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(path, schema.to_arrow())

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


ENCODERS: dict[str, Callable[[Path, Schema], Encoder]] = {"json": JsonLines, "parquet": Parquet}


def check_format(format: str) -> str:
    if format not in ENCODERS:
        raise GraphError(f"A file sink writes {' or '.join(map(repr, sorted(ENCODERS)))}, not {format!r}.")
    return format


def _as_text(value: Any) -> Any:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            import base64

            return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
