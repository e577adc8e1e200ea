"""Rows as the text that COPY reads. The tasks produce it in bulk, so that the committer only forwards bytes.

It is the text format rather than CSV: every backslash in it is escaped, so that no value can look like the end of the data.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.json_values import as_text
from tidegate.core.errors import SchemaError
from tidegate.schema.schema import DataType, Schema

# The backslash first, or the others would be escaped twice.
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def copy_text(batch: pa.RecordBatch, schema: Schema) -> bytes:
    """Format one line per row. Raises SchemaError for values that no text column can hold."""
    columns = [_texts(column, field.type, field.name) for column, field in zip(batch.columns, schema.fields)]
    # In C, for whole columns.
    rows = pc.binary_join_element_wise(*columns, "\t", null_handling="replace", null_replacement="\\N")
    lines = pc.binary_join_element_wise(rows, "", "\n").cast(pa.large_string())
    if not len(lines):
        return b""
    _, offsets, data = lines.buffers()
    bounds = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets], offset=lines.offset)
    # The lines lie one after the other in Arrow's buffer, so the text is a part of it.
    text: bytes = data.slice(bounds[0].as_py(), bounds[-1].as_py() - bounds[0].as_py()).to_pybytes()
    return text


def _texts(column: pa.Array, type: DataType, name: str) -> pa.Array:
    match type.kind:
        case "string":
            return _escaped(column.cast(pa.string()), name)
        case "binary":
            return pa.array([None if v is None else f"\\\\x{v.hex()}" for v in column.to_pylist()], pa.string())
        case "array" | "map" | "struct":
            return _escaped(pa.array([_json(value) for value in column.to_pylist()], pa.string()), name)
    return column.cast(pa.string())


def _escaped(texts: pa.Array, name: str) -> pa.Array:
    if pc.any(pc.match_substring(texts, "\x00")).as_py():
        raise SchemaError(
            f"A string in column {name!r} contains a NUL character, which PostgreSQL cannot store. Remove it in a map "
            "before the sink, or send the column as binary."
        )
    for character, written in _ESCAPES:
        texts = pc.replace_substring(texts, character, written)
    return texts


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=as_text)
