"""Rows as Kafka records: which columns a row may have, how rows are stored in Arrow files, and how they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import GraphError
from tidegate.schema.datatype import DataType
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT = {"binary", "string"}
_KINDS = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": {"map", "array"},
    "partition": {"tinyint", "smallint", "int", "bigint"},
    "timestamp": {"timestamp", "bigint"},
}
_FORM = (
    "key string|binary, value string|binary, headers map<string,string|binary> or "
    "array<struct<key:string,value:binary>>, partition int, timestamp timestamp|bigint (milliseconds)"
)
Record = tuple[Any, Any, Any, int, int]
"""Key, value, headers, partition (-1: the partitioner chooses), timestamp (0: now)."""


def check_columns(schema: Schema) -> None:
    """Reject a stream whose columns are not those of a Kafka record."""
    if "value" not in schema:
        raise GraphError(
            f"A Kafka sink needs a column 'value'; this stream has {', '.join(schema.names)}. Its columns are: "
            f"{_FORM}. To send whole rows, give the sink a format: value_format=tg.JsonFormat()."
        )
    for column in schema:
        if column.name not in _KINDS:
            raise GraphError(
                f"A Kafka record has no field {column.name!r}, so the sink would drop that column. Its columns are: "
                f"{_FORM}."
            )
        if not _fits(column.name, column.type):
            raise GraphError(f"The column {column.name!r} of a Kafka sink cannot be {column.type.ddl()}: {_FORM}.")


def _fits(name: str, type: DataType) -> bool:
    if type.kind not in _KINDS[name]:
        return False
    if type.kind == "map":
        return (
            type.key is not None and type.value is not None and type.key.kind == "string" and type.value.kind in _TEXT
        )
    if type.kind == "array":
        fields = () if type.element is None or type.element.fields is None else type.element.fields
        return (
            [f.name for f in fields] == ["key", "value"]
            and fields[0].type.kind == "string"
            and fields[1].type.kind in _TEXT
        )
    return True


def pack(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Pack batches of one schema into one compressed Arrow stream."""
    import pyarrow as pa

    out = pa.BufferOutputStream()
    # These bytes are written to storage and read again.
    options = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
    with pa.ipc.new_stream(out, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    packed: bytes = out.getvalue().to_pybytes()
    return packed


def is_plain(packed: bytes) -> bool:
    """Whether the records of such a stream have only a key and a value."""
    import pyarrow as pa

    return set(pa.ipc.open_stream(packed).schema.names) <= {"key", "value"}


def unpack(packed: bytes) -> Iterator[Record]:
    """Yield the records of such a stream, in order."""
    import pyarrow as pa

    for batch in pa.ipc.open_stream(packed):
        count = batch.num_rows
        columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
        nothing = [None] * count
        yield from zip(
            columns["key"].to_pylist() if "key" in columns else nothing,
            columns["value"].to_pylist(),
            [_headers(found) for found in columns["headers"].to_pylist()] if "headers" in columns else nothing,
            _integers(columns["partition"], -1) if "partition" in columns else [-1] * count,
            _integers(_milliseconds(columns["timestamp"]), 0) if "timestamp" in columns else [0] * count,
            strict=True,
        )


def _headers(found: Sequence[Any] | None) -> list[tuple[str, Any]] | None:
    if not found:
        return None
    return [(each["key"], each["value"]) if isinstance(each, dict) else each for each in found]


def _milliseconds(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.timestamp("ms", column.type.tz), safe=False) if pa.types.is_timestamp(column.type) else column


def _integers(column: pa.Array, otherwise: int) -> list[int]:
    import pyarrow as pa

    found: list[int] = column.cast(pa.int64()).fill_null(otherwise).to_pylist()
    return found
