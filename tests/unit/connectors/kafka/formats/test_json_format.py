"""Plain JSON: what records and rows become without a registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connectors.kafka.formats.test_codecs import decoded, encoded
from tests.unit.connectors.kafka.test_sink import Shelf, writer
from tidegate.connectors.kafka import records
from tidegate.connectors.kafka.errors import RecordUnreadable, RowUnwritable
from tidegate.connectors.kafka.formats import JsonFormat
from tidegate.connectors.kafka.formats.decoding import format_of
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.core.errors import GraphError, SchemaError
from tidegate.schema.schema import Schema

ORDER = "customer string NOT NULL, amount double"


@dataclass
class Order:
    customer: str
    amount: float | None


def values(format: JsonFormat, *texts: str) -> list[Any]:
    return [row["value"] for row in decoded(format, *(text.encode() for text in texts))]


# -- reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [JsonFormat(ORDER), JsonFormat(Order)])
def test_records_become_columns(format: JsonFormat) -> None:
    """Fields that the schema does not name are ignored; fields that may be null may be missing."""
    texts = ['{"customer": "ann", "amount": 5, "more": [1]}', '{"customer": "bob"}', "null"]
    assert values(format, *texts) == [{"customer": "ann", "amount": 5.0}, {"customer": "bob", "amount": None}, None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ann,5", "JSON is malformed"),
        ("", "truncated"),
        ('{"amount": 5}', "missing required field `customer`"),
        ('{"customer": null}', r"Expected `str`, got `null` - at `\$.customer`"),
        ('{"customer": "ann", "amount": "5"}', r"Expected `float \| null`, got `str` - at `\$.amount`"),
        ("[1]", "got `array`"),
        ("\x00\x00\x00\x00\x01{}", "JSON is malformed"),
    ],
)
def test_a_record_that_does_not_fit_is_named_or_kept_apart(text: str, reason: str) -> None:
    data = [b'{"customer": "ann"}', text.encode()]
    with pytest.raises(RecordUnreadable, match=rf"offset 1 of partition 3 of topic 't' cannot be decoded: .*{reason}"):
        decoded(JsonFormat(ORDER), *data)
    good, bad = decoded(JsonFormat(ORDER), *data, on_error="column")
    assert (good["value"], good["decode_error"]) == ({"customer": "ann", "amount": None}, None)
    assert (bad["value"], bad["decode_error"]["data"], bad["decode_error"]["schema_id"]) == (None, data[1], None)


@pytest.mark.parametrize(
    ("type", "text", "expected"),
    [
        ("tinyint", "127", 127),
        ("timestamp", '"2026-01-02T03:04:05+01:00"', datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ("timestamp_ntz", '"2026-01-02T03:04:05"', datetime(2026, 1, 2, 3, 4, 5)),
        ("date", '"2026-01-02"', date(2026, 1, 2)),
        ("decimal(6,2)", "1234.56", Decimal("1234.56")),
        ("binary", '"AAE="', b"\x00\x01"),
        ("map<string,array<int>>", '{"a": [1, null]}', [("a", [1, None])]),
        ("struct<b:boolean>", '{"b": true}', {"b": True}),
    ],
)
def test_each_type_has_its_form(type: str, text: str, expected: Any) -> None:
    assert values(JsonFormat(f"f {type}"), f'{{"f": {text}}}') == [{"f": expected}]


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("tinyint", "128"),
        ("bigint", "9223372036854775808"),
        ("timestamp", '"2026-01-02T03:04:05"'),
        ("decimal(6,2)", "12345.67"),
        ("string", '"\\ud800"'),
    ],
)
def test_a_value_that_the_column_cannot_hold_is_an_error_of_its_record(type: str, text: str) -> None:
    [row] = decoded(JsonFormat(f"f {type}"), f'{{"f": {text}}}'.encode(), on_error="column")
    assert row["value"] is None
    assert row["decode_error"]["part"] == "value"


def test_a_source_needs_a_schema() -> None:
    with pytest.raises(GraphError, match=r"JsonFormat\('customer string, amount double'\)"):
        JsonFormat().pinned("orders-value")
    with pytest.raises(SchemaError):
        JsonFormat("customer strng")


def test_a_format_reaches_tasks_as_text() -> None:
    assert format_of(JsonFormat(Order).to_json()) == JsonFormat(ORDER)


# -- writing -------------------------------------------------------------------------------------------------------------

TYPES = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "decimal(20,5)": st.decimals(-(10**14), 10**14, places=5),
}


@given(st.data())
def test_what_a_sink_writes_a_source_reads(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
    columns = {f"f{i}": type for i, type in enumerate(types)}
    schema = ", ".join(f"{name} {type}" for name, type in columns.items())
    row = {name: data.draw(st.none() | TYPES[type]) for name, type in columns.items()}
    [written] = encoded(JsonFormat(), f"struct<{schema.replace(' ', ':')}>".replace(",:", ","), row)
    assert written is not None
    assert values(JsonFormat(schema), written.decode()) == [row]
    json.loads(written)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    with pytest.raises(RowUnwritable, match="JSON has no number for"):
        encoded(JsonFormat(), "struct<a:array<double>>", {"a": [number]})


def test_decimals_keep_their_digits() -> None:
    row = {"a": Decimal("0.1000000000000000000000000000001")}
    assert encoded(JsonFormat(), "struct<a:decimal(38,31)>", row) == [b'{"a":0.1000000000000000000000000000001}']


def test_columns_that_json_or_the_schema_has_no_place_for_are_refused() -> None:
    with pytest.raises(SchemaError, match="Keys of a map in JSON are strings"):
        encoded(JsonFormat(), "struct<a:map<int,string>>", {"a": {1: "x"}})
    with pytest.raises(GraphError, match=r"The JSON schema has no field value\.b"):
        encoded(JsonFormat("a int"), "struct<a:int,b:int>", {"a": 1, "b": 2})


# -- whole rows ----------------------------------------------------------------------------------------------------------


def sent(sink: KafkaSink, ddl: str, *rows: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Key and value of the records that the sink's writer stages."""
    schema, shelf = Schema.parse(ddl), Shelf()
    writing = writer(sink, shelf, schema)
    writing.write(pa.RecordBatch.from_pylist([dict(zip(schema.names, row)) for row in rows], schema.to_arrow()))
    assert writing.prepare_commit() is not None
    return [record[:2] for packed in shelf.values() for record in records.unpack(packed)]


def sink(**choices: Any) -> KafkaSink:
    return KafkaSink("localhost:9092", "totals", value_format=JsonFormat(), **choices)


TOTALS = "customer string, total double"


@pytest.mark.parametrize(
    ("choices", "key"),
    [
        ({}, None),
        ({"key_fields": ["customer"]}, "ann"),
        ({"key_fields": ["customer"], "key_format": JsonFormat()}, b'{"customer":"ann"}'),
        ({"key_fields": ["total", "customer"], "key_format": JsonFormat()}, b'{"total":7.5,"customer":"ann"}'),
    ],
)
def test_a_row_is_the_value_and_some_of_its_columns_the_key(choices: dict[str, Any], key: Any) -> None:
    assert sent(sink(**choices), TOTALS, ("ann", 7.5)) == [(key, b'{"customer":"ann","total":7.5}')]


def test_a_column_called_value_is_the_value_unless_whole_rows_are_requested() -> None:
    ddl, row = "key string, value struct<total:double>", ("ann", {"total": 7.5})
    assert sent(sink(), ddl, row) == [("ann", b'{"total":7.5}')]
    whole = sent(sink(key_fields=[]), "sensor string, value double", ("a", 1.5))
    assert whole == [(None, b'{"sensor":"a","value":1.5}')]


@pytest.mark.parametrize(
    ("choices", "ddl", "message"),
    [
        ({"key_fields": ["total"]}, TOTALS, r"key_fields are total double. Add key_format=tg.JsonFormat\(\)"),
        ({"key_fields": ["customer", "total"]}, TOTALS, "or name a single column of type string"),
        ({"key_fields": ["costumer"]}, TOTALS, "costumer"),
    ],
)
def test_a_key_that_is_not_bytes_is_refused(choices: dict[str, Any], ddl: str, message: str) -> None:
    with pytest.raises((GraphError, SchemaError), match=message):
        sent(sink(**choices), ddl)


def test_key_fields_need_a_list_and_a_format() -> None:
    with pytest.raises(GraphError, match=r"write key_fields=\['customer'\]"):
        sink(key_fields="customer")
    with pytest.raises(GraphError, match=r"add value_format=tg.JsonFormat\(\)"):
        KafkaSink("localhost:9092", "totals", key_fields=["customer"])
