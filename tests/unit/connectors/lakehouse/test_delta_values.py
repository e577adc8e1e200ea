"""Bounds that must stay bounds in the log's JSON, and statistics that are whole or not there."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.lakehouse.delta.values import Statistics, greatest_bound, least_bound
from tidegate.schema.schema import Schema


@given(st.text(max_size=70) | st.text(alphabet="ab\U0010ffff", min_size=60, max_size=70))
def test_a_text_is_between_its_bounds(value):
    above = greatest_bound(value)
    assert least_bound(value) <= value
    assert above is None or above >= value


@given(st.datetimes(timezones=st.just(UTC)) | st.datetimes())
def test_a_time_is_between_its_bounds(value):
    above = greatest_bound(value)
    assert datetime.fromisoformat(least_bound(value)) <= value
    assert above is None or datetime.fromisoformat(above) >= value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4))
def test_a_decimal_has_bounds_only_if_a_double_represents_it_exactly(value):
    bound = least_bound(value)
    assert bound is None or Decimal(repr(bound)) == value


@pytest.mark.parametrize(
    ("schema", "rows", "bounded"),
    [
        ("a int, b string", [(1, "x"), (None, "y")], True),
        ("a int, y binary, l array<int>", [(1, b"x", [1])], True),
        ("a int, b string", [(1, None)], False),
        ("a int, d double", [(1, float("nan"))], False),
        ("a int, d double", [(1, float("inf"))], False),
        ("a int, s struct<p:int>", [(1, {"p": 1})], False),
        (", ".join(f"c{n} int" for n in range(33)), [tuple(range(33))], False),
    ],
)
def test_a_file_has_all_its_bounds_or_none(schema, rows, bounded):
    parsed = Schema.parse(schema)
    statistics = Statistics(parsed.fields)
    for row in rows:
        arrays = [pa.array([value], field.type) for value, field in zip(row, parsed.to_arrow())]
        statistics.add(pa.RecordBatch.from_arrays(arrays, schema=parsed.to_arrow()))

    told = json.loads(statistics.as_json())
    assert told["numRecords"] == len(rows)
    assert ("minValues" in told, "maxValues" in told) == (bounded, bounded)
