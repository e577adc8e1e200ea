"""Rows as they travel between levels, made and read by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidegate.graph.levels import Edge
from tidegate.runtime.exchange.channel import PACKED, payload_schema
from tidegate.runtime.exchange.sql_rows import flat_name


def flat_rows(edge: Edge, rows: Sequence[Mapping[str, Any]], group: int) -> pa.RecordBatch:
    """What plain SQL sends on the only edge of an exchange."""
    n, data = len(rows), _columns(edge, rows)
    names = ["part", "kg", *(flat_name(place) for place in range(len(data)))]
    return pa.RecordBatch.from_arrays([pa.nulls(n, pa.int32()), pa.array([group] * n, pa.int32()), *data], names=names)


def packed_rows(edge: Edge, rows: Sequence[Mapping[str, Any]], group: int) -> pa.RecordBatch:
    """What one task sends to another, in one payload."""
    groups = pa.array([group] * len(rows), pa.int32())
    payload = pa.RecordBatch.from_arrays([groups, *_columns(edge, rows)], schema=payload_schema(edge))
    return _packed([edge.id], [payload.serialize().to_pybytes()], [None])


def control_rows(raw: Sequence[bytes]) -> pa.RecordBatch:
    nothing = [None] * len(raw)
    return _packed(nothing, nothing, raw)


def unpacked(batch: pa.RecordBatch, edges: Iterable[Edge]) -> list[tuple[int, int | None, Any]]:
    """The salt, the key group and the columns of each row that was sent; for a barrier, no key group and its bytes."""
    schemas = {edge.id: payload_schema(edge) for edge in edges}
    found: list[tuple[int, int | None, Any]] = []
    for row in batch.to_pylist():
        if row["ctl"] is not None:
            found.append((row["part"], None, row["ctl"]))
            continue
        payload = pa.ipc.read_record_batch(pa.py_buffer(row["payload"]), schemas[row["edge"]])
        found += [(row["part"], each.pop("kg"), each) for each in payload.to_pylist()]
    return found


def _columns(edge: Edge, rows: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
    return [pa.array([row[field.name] for row in rows], field.type) for field in edge.schema.to_arrow()]


def _packed(ids: Sequence[Any], payloads: Sequence[Any], control: Sequence[Any]) -> pa.RecordBatch:
    columns = [pa.nulls(len(ids), pa.int32()), pa.array(ids, pa.int32()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays([*columns, pa.array(control, pa.binary())], schema=PACKED)
