"""Rows that plain SQL sends to level 1, as its tasks read them."""

from __future__ import annotations

import pyarrow as pa

import tidegate as tg
from tests.unit.runtime.exchange.rows_kit import flat_rows
from tidegate.graph.levels import plan
from tidegate.runtime.exchange.program import exchange
from tidegate.runtime.exchange.sql_rows import read_sql, struct_name


class Echo(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row


def edges(operators: int):
    """The edges of a source that so many operators read. Its columns have names that the layout uses, too."""
    job = tg.Job("sql", parallelism=2)
    rows = job.source("rows", tg.testing.frame("part string, kg int"))
    for number in range(operators):
        echo = rows.key_by("part").process(f"echo-{number}", Echo(), schema="part string, kg int")
        echo.sink(f"out-{number}", tg.DiscardSink())
    return exchange(plan(job.graph()), 1)


def read(batches, edges):
    return [
        (rows.edge.id, row, group)
        for rows in read_sql(batches, edges)
        for row, group in zip(zip(*(column.to_pylist() for column in rows.columns)), rows.groups.tolist(), strict=True)
    ]


def test_the_columns_of_a_single_edge_are_flat_and_the_anchors_row_is_dropped():
    (edge,) = edges(1)
    batch = flat_rows(edge, [{"part": "a", "kg": 1}, {"part": None, "kg": None}], 7)
    anchor = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in batch.schema], schema=batch.schema)
    both = pa.Table.from_batches([batch, anchor]).combine_chunks().to_batches()
    assert read(both, [edge]) == [(edge.id, ("a", 1), 7), (edge.id, (None, None), 7)]
    assert read([anchor], [edge]) == []


def test_of_several_edges_each_row_belongs_to_one():
    first, second = edges(2)
    types = [pa.struct(list(edge.schema.to_arrow())) for edge in (first, second)]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.nulls(4, pa.int32()),
            pa.array([7, 8, 9, None], pa.int32()),
            pa.array([first.id, second.id, first.id, None], pa.int32()),
            pa.array([{"part": "a", "kg": 1}, None, {"part": None, "kg": None}, None], types[0]),
            pa.array([None, {"part": "b", "kg": 2}, None, None], types[1]),
        ],
        names=["part", "kg", "edge", struct_name(first), struct_name(second)],
    )
    assert read([batch], [first, second]) == [
        (first.id, ("a", 1), 7),
        (first.id, (None, None), 9),
        (second.id, ("b", 2), 8),
    ]
