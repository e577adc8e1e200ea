"""Rows as Kafka records: which columns fit, and that they come out as they went in."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.kafka import records
from tidegate.core.errors import GraphError
from tidegate.schema.schema import Schema

FULL = Schema.parse("key string, value binary, headers map<string,string>, partition int, timestamp timestamp")


def batch(schema, rows):
    arrow = schema.to_arrow()
    return pa.RecordBatch.from_arrays(
        [pa.array([row[i] for row in rows], each.type) for i, each in enumerate(arrow)], schema=arrow
    )


@pytest.mark.parametrize(
    "ddl",
    [
        "value string",
        "key binary, value binary",
        "value string, partition bigint, timestamp bigint",
        "value string, headers array<struct<key:string,value:binary>>",
        "value string, headers map<string,string>",
    ],
)
def test_columns_of_a_record_are_taken(ddl):
    records.check_columns(Schema.parse(ddl))


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("key string, n int", "needs a column 'value'"),
        ("value string, n int", "no field 'n'"),
        ("value int", "'value' of a Kafka sink cannot be int"),
        ("value string, headers map<string,int>", "'headers'"),
        ("value string, headers array<string>", "'headers'"),
        ("value string, partition string", "'partition'"),
    ],
)
def test_other_columns_are_refused_with_the_form(ddl, words):
    with pytest.raises(GraphError, match=words) as told:
        records.check_columns(Schema.parse(ddl))
    assert "key string|binary" in str(told.value)


ROWS = st.tuples(
    st.none() | st.text(max_size=5),
    st.none() | st.binary(max_size=5),
    st.none() | st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), unique_by=lambda h: h[0], max_size=2),
    st.none() | st.integers(0, 100),
    st.none()
    | st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC)),
)


@given(st.lists(st.lists(ROWS, max_size=4), min_size=1, max_size=3))
def test_records_are_read_back_unchanged(batches):
    packed = records.pack([batch(FULL, rows) for rows in batches])
    wanted = [
        (k, v, h or None, -1 if p is None else p, 0 if t is None else int(t.timestamp() * 1000))
        for rows in batches
        for k, v, h, p, t in rows
    ]
    found = list(records.unpack(packed))
    assert [row[:4] for row in found] == [row[:4] for row in wanted]
    assert all(abs(row[4] - other[4]) <= 1 for row, other in zip(found, wanted))


def test_headers_may_be_a_list_of_pairs():
    schema = Schema.parse("value string, headers array<struct<key:string,value:binary>>")
    rows = [("v", [{"key": "h", "value": b"1"}, {"key": "h", "value": None}])]
    assert list(records.unpack(records.pack([batch(schema, rows)]))) == [(None, "v", [("h", b"1"), ("h", None)], -1, 0)]


def test_keys_and_values_alone_are_plain():
    assert records.is_plain(records.pack([batch(Schema.parse("key string, value string"), [("k", "v")])]))
    assert records.is_plain(records.pack([batch(Schema.parse("value binary"), [(b"v",)])]))
    assert not records.is_plain(records.pack([batch(Schema.parse("value string, partition int"), [("v", 1)])]))
