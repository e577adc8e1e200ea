"""Rows parted by partition: none lost, none moved, order kept."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.lakehouse.partitions import Coded, part

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "", None]), st.one_of(st.none(), st.integers(-2, 2))), min_size=1)


def batch_of(rows):
    columns = [pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows], pa.int64())]
    return pa.RecordBatch.from_arrays([*columns, pa.array(range(len(rows)))], names=["s", "i", "at"])


@given(ROWS)
def test_every_row_is_in_its_partition_in_order(rows):
    batch = batch_of(rows)
    parted = dict(part(batch, [Coded.of(batch.column("s")), Coded.of(batch.column("i"))]))

    expected: dict[tuple, list[int]] = {}
    for at, row in enumerate(rows):
        expected.setdefault(row, []).append(at)
    assert {key: some.column("at").to_pylist() for key, some in parted.items()} == expected


@given(ROWS)
def test_values_may_be_changed_into_fewer_and_still_part_once(rows):
    batch = batch_of(rows)
    parted = list(part(batch, [Coded.of(batch.column("i"), lambda i: None if i is None else i % 2)]))

    assert len(parted) == len({None if row[1] is None else row[1] % 2 for row in rows})
    assert sum(some.num_rows for _, some in parted) == len(rows)


def test_a_table_without_partitions_has_one():
    batch = batch_of([("a", 1)])
    assert list(part(batch, [])) == [((), batch)]
