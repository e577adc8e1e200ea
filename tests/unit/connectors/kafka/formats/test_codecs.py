"""What records and rows become, in front of a registry in this process."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.unit.connectors.kafka.formats.registry_server import RegistryServer, registry_server
from tidegate.connectors.kafka.errors import RecordUnreadable, RegistryRefused, RegistryUnavailable, RowUnwritable
from tidegate.connectors.kafka.formats import AvroFormat, JsonSchemaFormat, decoding
from tidegate.connectors.kafka.formats.decoding import Decoding, OnDecodeError
from tidegate.connectors.kafka.formats.encoding import Encoding
from tidegate.connectors.kafka.formats.record_format import RecordFormat
from tidegate.schema.schema import Schema


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def record(*fields: Any) -> str:
    """An Avro schema with the fields f0, f1, …"""
    made = [{"name": f"f{i}", "type": type} for i, type in enumerate(fields)]
    return json.dumps({"type": "record", "name": "R", "fields": made})


def avro(registry: RegistryServer, schema: str, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, json.loads(schema), row)
    return framed(registry.add(schema), out.getvalue())


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + data


def decoded(format: RecordFormat, *values: bytes | None, on_error: OnDecodeError = "fail") -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "topic": ["t"] * len(values),
            "partition": [3] * len(values),
            "offset": list(range(len(values))),
        }
    )
    rows: list[dict[str, Any]] = Decoding({"value": format}, on_error).apply(batch).to_pylist()
    return rows


# -- Avro: one meaning of a number in two schemas ------------------------------------------------------------------------

AT = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
MS = 1_767_323_045_006
UNITS = {"plain": 1, "millis": 1, "micros": 1000}


def long(unit: str, prefix: str = "") -> Any:
    return "long" if unit == "plain" else {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}


@pytest.mark.parametrize("prefix", ["", "local-"])
@pytest.mark.parametrize("reader", UNITS)
@pytest.mark.parametrize("writer", UNITS)
def test_a_timestamp_is_the_same_whichever_schema_names_it(
    registry: RegistryServer, writer: str, reader: str, prefix: str
) -> None:
    """A plain number has the unit of the schema that has one."""
    number = MS * (UNITS[reader] if writer == "plain" else UNITS[writer])
    data = avro(registry, record(long(writer, prefix)), {"f0": number})
    [row] = decoded(AvroFormat(registry.url, schema=record(["null", long(reader, prefix)])), data)
    assert row["value"]["f0"] == (number if reader == "plain" else AT.replace(tzinfo=None) if prefix else AT)


@pytest.mark.parametrize(
    ("writer", "reader", "number", "expected"),
    [
        ("int", {"type": "int", "logicalType": "date"}, 20_000, date(2024, 10, 4)),
        ({"type": "int", "logicalType": "date"}, "int", 20_000, 20_000),
        ({"type": "int", "logicalType": "date"}, "long", 20_000, 20_000),
        ({"type": "int", "logicalType": "date"}, long("millis"), 20_000, datetime(1970, 1, 1, 0, 0, 20, tzinfo=UTC)),
        ("int", {"type": "int", "logicalType": "time-millis"}, 5_000, 5_000),
        ({"type": "int", "logicalType": "time-millis"}, "int", 5_000, 5_000),
        ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}, 5, 5_000),
        ({"type": "long", "logicalType": "time-micros"}, "long", 5_000, 5_000),
        ("bytes", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, b"\xff", Decimal("-0.01")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "bytes", b"\x7b", b"\x7b"),
    ],
)
def test_a_logical_type_of_one_schema_only_is_that_of_the_reader(
    registry: RegistryServer, writer: Any, reader: Any, number: Any, expected: Any
) -> None:
    data = avro(registry, record({"type": "array", "items": writer}), {"f0": [number]})
    [row] = decoded(AvroFormat(registry.url, schema=record({"type": "array", "items": reader})), data)
    assert row["value"]["f0"] == [expected]


def test_the_default_of_a_timestamp_has_its_unit(registry: RegistryServer) -> None:
    reader = json.loads(record("int"))
    reader["fields"].append({"name": "at", "type": long("millis"), "default": MS})
    data = avro(registry, record("int"), {"f0": 1})
    [row] = decoded(AvroFormat(registry.url, schema=json.dumps(reader)), data)
    assert row["value"] == {"f0": 1, "at": AT}


# -- a registry that fails for a moment ----------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_LAG_S", 0.3)


def quick(registry: RegistryServer, schema: str) -> AvroFormat:
    return AvroFormat(registry.url, schema=schema, config={"max.retries": 0})


@pytest.mark.parametrize(
    ("status", "kind"), [(503, RegistryUnavailable), (429, RegistryUnavailable), (401, RegistryRefused)]
)
def test_a_registry_that_fails_once_is_no_fault_of_the_record(
    registry: RegistryServer, status: int, kind: type[Exception]
) -> None:
    data = avro(registry, record("int"), {"f0": 1})
    registry.answers = [status]
    with pytest.raises(kind, match="could not return schema 1"):
        decoded(quick(registry, record("int")), data, on_error="column")
    [row] = decoded(quick(registry, record("int")), data, on_error="column")
    assert (row["value"], row["decode_error"]) == ({"f0": 1}, None)


def test_a_registry_that_fails_while_a_record_is_checked_is_no_fault_of_the_record(registry: RegistryServer) -> None:
    data = avro(registry, record("int"), {"f0": 1})
    registry.answers = [404, 503]
    with pytest.raises(RegistryUnavailable):
        decoded(quick(registry, record("int")), data, on_error="column")


def test_a_schema_that_reaches_the_registry_a_moment_later_is_used(registry: RegistryServer) -> None:
    data = avro(registry, record("int"), {"f0": 1})
    registry.answers = [404, 404, 404]
    [row] = decoded(quick(registry, record("int")), data)
    assert row["value"] == {"f0": 1}


def test_schemas_that_stay_unknown_hold_a_batch_up_once(registry: RegistryServer, impatient: None) -> None:
    data = avro(registry, record("int"), {"f0": 1})
    began = time.monotonic()
    rows = decoded(
        quick(registry, record("int")), *(framed(900 + n, b"\x02") for n in range(20)), data, on_error="column"
    )
    assert [row["decode_error"] is None for row in rows] == [False] * 20 + [True]
    assert rows[0]["decode_error"]["schema_id"] == 900
    assert time.monotonic() - began < 3
    asked = registry.asked
    decoded(quick(registry, record("int")), framed(900, b"\x02"), on_error="column")
    assert registry.asked == asked + 2, "it has waited for this schema before"


# -- records that have the form of their schema, and no place in a column ------------------------------------------------

JSON = '{"title": "R", "type": "object", "properties": {"s": {"type": "string", "maxLength": 3}, "n": {"type": "integer"}}}'


@pytest.mark.parametrize(
    "text", ['{"s": "\\ud800"}', '{"s": "\\ud800 too long"}', '{"n": 1e300}', '{"n": 99999999999999999999}']
)
def test_json_that_no_column_can_hold_is_an_error_of_its_record(registry: RegistryServer, text: str) -> None:
    format, schema_id = JsonSchemaFormat(registry.url, schema=JSON), registry.add(JSON, "JSON")
    data = [framed(schema_id, each.encode()) for each in ('{"s": "a", "n": 1}', text)]
    with pytest.raises(RecordUnreadable, match=r"offset 1 of partition 3 of topic 't'"):
        decoded(format, *data)
    good, bad = decoded(format, *data, on_error="column")
    assert (good["value"], good["decode_error"]) == ({"s": "a", "n": 1}, None)
    assert (bad["value"], bad["decode_error"]["data"]) == (None, data[1])


# -- rows that the schema does not allow ---------------------------------------------------------------------------------


def encoded(format: RecordFormat, type: str, *values: Any) -> list[bytes | None]:
    schema = Schema.parse(f"value {type}")
    encoding = Encoding("t", {"value": format})
    encoding.check(schema)
    batch = pa.RecordBatch.from_arrays([pa.array(values, schema.fields[0].type.to_arrow())], names=["value"])
    data: list[bytes | None] = encoding.apply(batch, schema).column(0).to_pylist()
    return data


@pytest.mark.parametrize(
    ("type", "avro_type", "value", "path"),
    [
        ("boolean", "boolean", None, "value.f0"),
        ("bigint", "long", None, "value.f0"),
        ("string", "string", None, "value.f0"),
        ("array<boolean>", {"type": "array", "items": "boolean"}, [True, None], r"value.f0\[\]"),
        ("map<string,boolean>", ["null", {"type": "map", "values": "boolean"}], {"a": None}, "value.f0{}"),
        ("struct<f0:boolean>", ["null", json.loads(record("boolean")) | {"name": "I"}], {"f0": None}, "value.f0.f0"),
    ],
)
def test_a_null_that_the_schema_has_no_place_for_is_refused(
    registry: RegistryServer, type: str, avro_type: Any, value: Any, path: str
) -> None:
    format = AvroFormat(registry.url, schema=record(avro_type))
    with pytest.raises(RowUnwritable, match=rf"{path} is null, and the schema has no null there"):
        encoded(format, f"struct<f0:{type}>", {"f0": value})


def test_a_null_that_the_schema_allows_is_written(registry: RegistryServer) -> None:
    schema = record(["null", "boolean"], ["null", {"type": "array", "items": ["null", "boolean"]}])
    rows = [{"f0": None, "f1": None}, {"f0": False, "f1": [None, True]}]
    data = encoded(AvroFormat(registry.url, schema=schema), "struct<f0:boolean,f1:array<boolean>>", *rows, None)
    assert [row["value"] for row in decoded(AvroFormat(registry.url, schema=schema), *data)] == [*rows, None]
    derived = encoded(AvroFormat(registry.url), "struct<f0:boolean,f1:array<boolean>>", *rows)
    same = AvroFormat(registry.url, schema=schema.replace('"R"', '"record"'))
    assert [row["value"] for row in decoded(same, *derived)] == rows


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("type", ["float", "double"])
def test_a_number_that_json_does_not_have_is_refused(registry: RegistryServer, type: str, number: float) -> None:
    format, column = JsonSchemaFormat(registry.url), f"struct<a:map<string,array<{type}>>>"
    with pytest.raises(RowUnwritable, match="JSON has no number for"):
        encoded(format, column, {"a": {"k": [1.0, number]}})
    [data] = encoded(format, column, {"a": {"k": [1.0, None]}})
    assert data is not None
    assert json.loads(data[5:]) == {"a": {"k": [1.0, None]}}
