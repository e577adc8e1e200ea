"""Avro, JSON Schema and Protobuf against a real broker and a real schema registry: other clients read what the sink writes,
and the source reads what they write, also after their schema has changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import tidegate as tg
from tests.integration.kafka.topics import Output, fill, read
from tests.servers.schema_registry import SchemaRegistry
from tests.unit.connectors.kafka.formats.messages import message_class
from tidegate.connectors.kafka.errors import RecordUnreadable, RegistryRefused, RegistryUnavailable, RowUnwritable
from tidegate.connectors.kafka.formats.decoding import Decoding, pinned_formats
from tidegate.connectors.kafka.positions import Range
from tidegate.connectors.kafka.reader import Cluster, read_range
from tidegate.connectors.sink import prepare
from tidegate.core.errors import GraphError
from tidegate.schema.schema import Schema

BY_TOPIC = {"subject.name.strategy": lambda context, name: f"{context.topic}-{context.field}"}


def avro(*fields: tuple[str, Any], **defaults: Any) -> str:
    made = [
        {"name": name, "type": type} | ({"default": defaults[name]} if name in defaults else {})
        for name, type in fields
    ]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": made})


V1 = avro(("id", "long"), ("who", "string"), ("note", "string"))
V2 = avro(("id", "long"), ("who", "string"), ("amount", "double"), amount=1.5)
"""`note` is gone, and `amount` is new."""


class Others:
    """Producers and consumers that are not ours, as confluent-kafka has them."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.client = SchemaRegistryClient({"url": registry.url})

    def avro(self, topic: str, schema: str, rows: Iterable[Any], part: str = MessageField.VALUE) -> list[bytes]:
        write = AvroSerializer(self.client, schema, conf=BY_TOPIC)
        return [write(row, SerializationContext(topic, part)) for row in rows]

    def json(self, topic: str, schema: str, rows: Iterable[Any]) -> list[bytes]:
        write = JSONSerializer(schema, self.client, conf=BY_TOPIC)
        return [write(row, SerializationContext(topic, MessageField.VALUE)) for row in rows]

    def protobuf(self, topic: str, message: Any, rows: Iterable[Any]) -> list[bytes]:
        write = ProtobufSerializer(message, self.client, BY_TOPIC)
        return [write(row, SerializationContext(topic, MessageField.VALUE)) for row in rows]


@pytest.fixture
def others(schema_registry: SchemaRegistry) -> Others:
    return Others(schema_registry)


def source(kafka, topic: str, value=None, key=None, on_error="fail") -> tuple[Decoding, list[dict[str, Any]]]:
    """What a source of one partition yields."""
    decoding = Decoding(pinned_formats({"key": key, "value": value}, [topic]), on_error)
    return decoding, rows_of(kafka, topic, decoding)


def rows_of(kafka, topic: str, decoding: Decoding) -> list[dict[str, Any]]:
    everything = Range(topic, 0, 0, len(read(kafka, topic)))
    batches = map(decoding.apply, read_range(Cluster(kafka.bootstrap_servers), everything, headers=False))
    expected = Schema.parse(decoding.ddl()).to_arrow()
    rows = []
    for batch in batches:
        assert [f.type for f in batch.schema] == [f.type for f in expected]
        rows += batch.to_pylist()
    return rows


def send(kafka, topic: str, values: Iterable[bytes | None], keys: Iterable[bytes] | None = None) -> None:
    values = list(values)
    fill(kafka, topic, [{"value": v, "key": k} for v, k in zip(values, keys or [None] * len(values))])


# -- the source ----------------------------------------------------------------------------------------------------------


def test_avro_values_and_keys_become_columns(kafka, schema_registry, others):
    topic = kafka.topic()
    values = others.avro(topic, V1, [{"id": 1, "who": "ann", "note": "x"}])
    send(kafka, topic, [*values, None], others.avro(topic, '"string"', ["k1", "k2"], MessageField.KEY))
    registry = tg.AvroFormat(schema_registry.url)
    decoding, found = source(kafka, topic, registry, key=registry)
    assert decoding.ddl().startswith("key string, value struct<id:bigint,who:string,note:string>, topic string")
    assert [(row["key"], row["value"]) for row in found] == [("k1", {"id": 1, "who": "ann", "note": "x"}), ("k2", None)]


@pytest.mark.parametrize("reader", [V1, V2])
def test_records_of_older_and_newer_schemas_are_read_with_one(kafka, schema_registry, others, reader):
    """The second schema appears while the reader is at work; the third was never seen by the first reader."""
    topic = kafka.topic()
    send(kafka, topic, others.avro(topic, V1, [{"id": 1, "who": "ann", "note": "x"}]))
    known = reader if reader == V2 else avro(("id", "long"), ("who", "string"), ("note", "string"), note="none")
    decoding, first = source(kafka, topic, tg.AvroFormat(schema_registry.url, schema=known))
    send(kafka, topic, others.avro(topic, V2, [{"id": 2, "who": "bob", "amount": 9.0}]))
    second = rows_of(kafka, topic, decoding)
    assert second[0] == first[0]
    wanted = [{"amount": 1.5}, {"amount": 9.0}] if reader == V2 else [{"note": "x"}, {"note": "none"}]
    assert [row["value"] for row in second] == [
        {"id": 1, "who": "ann"} | wanted[0], {"id": 2, "who": "bob"} | wanted[1]
    ]  # fmt: skip


def test_without_a_schema_a_source_reads_with_the_latest_of_its_subject(kafka, schema_registry, others):
    topic = kafka.topic()
    send(kafka, topic, others.avro(topic, V1, [{"id": 1, "who": "ann", "note": "x"}]))
    send(kafka, topic, others.avro(topic, V2, [{"id": 2, "who": "bob", "amount": 9.0}]))
    decoding, found = source(kafka, topic, tg.AvroFormat(schema_registry.url))
    assert "value struct<id:bigint,who:string,amount:double>" in decoding.ddl()
    assert [row["value"]["amount"] for row in found] == [1.5, 9.0]


EVERY_AVRO_TYPE = avro(
    ("flag", "boolean"), ("small", "int"), ("big", "long"), ("f", "float"), ("d", "double"), ("raw", "bytes"),
    ("day", {"type": "int", "logicalType": "date"}), ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("time", {"type": "int", "logicalType": "time-millis"}), ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("color", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}), ("maybe", ["null", "string"]),
    ("tags", {"type": "array", "items": "string"}), ("scores", {"type": "map", "values": "int"}),
    ("inner", {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}, {"name": "c", "type": "Color"}]}),
)  # fmt: skip


def test_every_type_of_avro_arrives(kafka, schema_registry, others):
    topic = kafka.topic()
    row = {
        "flag": True, "small": 1, "big": 2**40, "f": 0.5, "d": 0.25, "raw": b"\x01", "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "local": datetime(2026, 1, 2, 3), "price": Decimal("12.34"),
        "time": 5_000, "uuid": "12345678-1234-5678-1234-567812345678", "color": "BLUE", "hash": b"ab", "maybe": None,
        "tags": ["x"], "scores": {"a": 1}, "inner": {"a": 7, "c": "RED"},
    }  # fmt: skip
    send(kafka, topic, others.avro(topic, EVERY_AVRO_TYPE, [row]))
    _, [found] = source(kafka, topic, tg.AvroFormat(schema_registry.url))
    assert found["value"] == row | {"scores": [("a", 1)]}


JSON1 = json.dumps({
    "title": "Order", "type": "object", "required": ["id"],
    "properties": {"id": {"type": "integer"}, "who": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
})  # fmt: skip
JSON2 = json.dumps({
    "title": "Order", "type": "object", "required": ["id"],
    "properties": {"id": {"type": "integer"}, "amount": {"type": "number"},
                   "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}}},
    "$defs": {"tag": {"type": "object", "properties": {"n": {"type": "string"}}}},
})  # fmt: skip


def test_json_is_validated_and_read_with_one_schema(kafka, schema_registry, others):
    topic = kafka.topic()
    send(kafka, topic, others.json(topic, JSON1, [{"id": 1, "who": "ann"}, {"id": 2, "who": None}]))
    send(kafka, topic, others.json(topic, JSON2, [{"id": 3, "amount": 2, "tags": [{"n": "x"}]}]))
    decoding, found = source(kafka, topic, tg.JsonSchemaFormat(schema_registry.url))
    assert "value struct<id:bigint,amount:double,tags:array<struct<n:string>>>" in decoding.ddl()
    assert [row["value"] for row in found] == [
        {"id": 1, "amount": None, "tags": None}, {"id": 2, "amount": None, "tags": None},
        {"id": 3, "amount": 2.0, "tags": [{"n": "x"}]},
    ]  # fmt: skip
    strict = tg.JsonSchemaFormat(schema_registry.url, schema=json.dumps(json.loads(JSON2) | {"required": ["amount"]}))
    with pytest.raises(RecordUnreadable, match=r"offset 0 of partition 0 .*'amount' is a required property"):
        source(kafka, topic, strict)


def test_protobuf_messages_become_columns_of_the_class_given(kafka, schema_registry, others):
    topic = kafka.topic()
    old, new = message_class("Order", 1), message_class("Order", 2)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first = old(id=1, who="ann", note="x")
    second = new(id=2**63, who="bob", amount=9.5, color=1, lines=[{"n": 3}], scores={"a": 1})
    second.at.FromDatetime(at)
    send(kafka, topic, [*others.protobuf(topic, old, [first]), *others.protobuf(topic, new, [second])])
    decoding, found = source(kafka, topic, tg.ProtobufFormat(schema_registry.url, message=new))
    assert (
        "struct<id:decimal(20,0),who:string,amount:double,color:string,at:timestamp,lines:array<struct<n:int>>"
        in decoding.ddl()
    )
    assert [row["value"] for row in found] == [
        {"id": 1, "who": "ann", "amount": None, "color": "RED", "at": None, "lines": [], "scores": []},
        {
            "id": 2**63,
            "who": "bob",
            "amount": 9.5,
            "color": "BLUE",
            "at": at,
            "lines": [{"n": 3}],
            "scores": [("a", 1)],
        },
    ]


def test_a_record_that_cannot_be_decoded_is_named(kafka, schema_registry, others):
    topic = kafka.topic()
    [good] = others.avro(topic, V1, [{"id": 1, "who": "ann", "note": "x"}])
    unknown = b"\x00" + (987654).to_bytes(4, "big") + good[5:]
    send(kafka, topic, [good, unknown, b"no registry wrote this", good[:7]])
    registry = tg.AvroFormat(schema_registry.url)
    with pytest.raises(
        RecordUnreadable, match=rf"offset 1 of partition 0 of topic '{topic}'.*schema id 987654.*decode_error"
    ):
        source(kafka, topic, registry)
    decoding, found = source(kafka, topic, registry, on_error="column")
    assert decoding.ddl().endswith("decode_error struct<part:string,schema_id:int,message:string,data:binary>")
    assert [row["value"] is None for row in found] == [False, True, True, True]
    errors = [row["decode_error"] for row in found]
    assert errors[0] is None
    assert [(e["part"], e["schema_id"]) for e in errors[1:]] == [
        ("value", 987654),
        ("value", None),
        ("value", int.from_bytes(good[1:5], "big")),
    ]
    assert errors[2]["data"] == b"no registry wrote this"


def test_a_registry_that_is_away_is_no_fault_of_a_record(kafka, schema_registry, others):
    topic = kafka.topic()
    send(kafka, topic, others.avro(topic, V1, [{"id": 1, "who": "ann", "note": "x"}]))
    nowhere = tg.AvroFormat("http://127.0.0.1:1", schema=V1, config={"max.retries": 0})
    with pytest.raises(RegistryUnavailable, match="could not return schema"):
        source(kafka, topic, nowhere, on_error="column")
    with pytest.raises(RegistryRefused, match="no-such-subject"):
        source(kafka, topic, tg.AvroFormat(schema_registry.url, subject="no-such-subject"))


# -- the sink ------------------------------------------------------------------------------------------------------------

ROWS = "key string, value struct<id:bigint,who:string,day:date,price:decimal(10,2),tags:map<string,int>> NOT NULL"
ROW = ("k", {"id": 1, "who": "ann", "day": date(2026, 1, 2), "price": Decimal("1.50"), "tags": {"a": 1}})


def written(kafka, tmp_path, sink: tg.KafkaSink, schema: str, *rows: Any) -> list[bytes]:
    """What is in the topic after an epoch with these rows, committed twice."""
    output = Output(sink, tmp_path, Schema.parse(schema))
    prepare(sink, output.schema)
    staged = output.stage(rows, 1)
    output.commit(staged)
    output.commit(staged)
    return [message.value() for message in read(kafka, sink.topic)]


def test_a_sink_derives_a_schema_and_registers_it_before_any_row(kafka, schema_registry, others, tmp_path):
    topic = kafka.topic()
    sink = tg.KafkaSink(kafka.bootstrap_servers, topic, value_format=tg.AvroFormat(schema_registry.url))
    prepare(sink, Schema.parse(ROWS))
    latest = others.client.get_latest_version(f"{topic}-value")
    [value] = written(kafka, tmp_path, sink, ROWS, ROW)
    assert others.client.get_latest_version(f"{topic}-value").version == latest.version
    assert value[1:5] == latest.schema_id.to_bytes(4, "big")
    assert AvroDeserializer(others.client)(value, SerializationContext(topic, MessageField.VALUE)) == ROW[1]


def test_what_is_staged_is_committed_while_the_registry_is_away(kafka, schema_registry, others, tmp_path):
    topic = kafka.topic()
    sink = tg.KafkaSink(kafka.bootstrap_servers, topic, value_format=tg.AvroFormat(schema_registry.url))
    output = Output(sink, tmp_path, Schema.parse(ROWS))
    prepare(sink, output.schema)
    staged = output.stage([ROW], 1)
    output.sink = replace(sink, value_format=tg.AvroFormat("http://127.0.0.1:1"))
    output.commit(staged)
    [message] = read(kafka, topic)
    assert AvroDeserializer(others.client)(message.value(), SerializationContext(topic, "value")) == ROW[1]


def test_json_of_a_sink_is_read_by_others(kafka, schema_registry, others, tmp_path):
    topic = kafka.topic()
    sink = tg.KafkaSink(kafka.bootstrap_servers, topic, value_format=tg.JsonSchemaFormat(schema_registry.url))
    [value] = written(kafka, tmp_path, sink, ROWS, ROW)
    found = JSONDeserializer(None, schema_registry_client=others.client)(value, SerializationContext(topic, "value"))
    assert found == {"id": 1, "who": "ann", "day": "2026-01-02", "price": 1.5, "tags": {"a": 1}}


def test_protobuf_of_a_sink_is_read_by_others(kafka, schema_registry, others, tmp_path):
    topic, order = kafka.topic(), message_class("Order", 2)
    lines = "lines:array<struct<n:int>>,scores:map<string,int>"
    schema = f"value struct<id:decimal(20,0),who:string,amount:double,color:string,at:timestamp,{lines}>"
    sink = tg.KafkaSink(
        kafka.bootstrap_servers, topic, value_format=tg.ProtobufFormat(schema_registry.url, message=order)
    )
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    row = {"id": 5, "who": "ann", "amount": None, "color": "BLUE", "at": at, "lines": [{"n": 1}], "scores": {"a": 2}}
    [value] = written(kafka, tmp_path, sink, schema, (row | {"id": Decimal(5)},))
    found = ProtobufDeserializer(order, {})(value, SerializationContext(topic, "value"))
    assert (found.id, found.who, found.HasField("amount"), found.color) == (5, "ann", False, 1)
    assert (found.at.ToDatetime(UTC), [line.n for line in found.lines], dict(found.scores)) == (at, [1], {"a": 2})


def test_a_sink_that_may_not_register_uses_what_is_registered(kafka, schema_registry, others, tmp_path):
    topic = kafka.topic()
    registry = tg.AvroFormat(schema_registry.url, schema=V2, auto_register_schemas=False)
    sink = tg.KafkaSink(kafka.bootstrap_servers, topic, value_format=registry)
    schema = "value struct<id:bigint,who:string>"
    with pytest.raises(RegistryRefused, match=rf"{topic}-value.*Register the schema first"):
        prepare(sink, Schema.parse(schema))
    known = others.client.register_schema(f"{topic}-value", RegisteredSchema(V2, "AVRO"))
    [value] = written(kafka, tmp_path, sink, schema, ({"id": 1, "who": "ann"},))
    assert value[1:5] == known.to_bytes(4, "big")
    found = AvroDeserializer(others.client)(value, SerializationContext(topic, MessageField.VALUE))
    assert found == {"id": 1, "who": "ann", "amount": 1.5}, "the default of the field that rows do not have"


def test_an_incompatible_schema_ends_the_start(kafka, schema_registry, others):
    topic = kafka.topic()
    others.client.register_schema(f"{topic}-value", RegisteredSchema(V1, "AVRO"))
    others.client.set_compatibility(f"{topic}-value", "BACKWARD")
    sink = tg.KafkaSink(kafka.bootstrap_servers, topic, value_format=tg.AvroFormat(schema_registry.url))
    with pytest.raises(RegistryRefused, match="not compatible"):
        prepare(sink, Schema.parse("value struct<id:int NOT NULL>"))


def test_tombstones_and_keys_are_written(kafka, schema_registry, others, tmp_path):
    topic, registry = kafka.topic(), tg.AvroFormat(schema_registry.url)
    sink = tg.KafkaSink(kafka.bootstrap_servers, topic, key_format=registry, value_format=registry)
    assert written(kafka, tmp_path, sink, "key bigint, value struct<id:bigint>", (7, None)) == [None]
    [message] = read(kafka, topic)
    assert AvroDeserializer(others.client)(message.key(), SerializationContext(topic, "key")) == 7


def test_a_column_that_the_schema_has_no_place_for_is_refused(kafka, schema_registry, tmp_path):
    sink = tg.KafkaSink("127.0.0.1:1", "t", value_format=tg.AvroFormat(schema_registry.url, schema=V1))
    with pytest.raises(GraphError, match=r"no field value\.extra"):
        Output(sink, tmp_path, Schema.parse("value struct<id:bigint,extra:int>")).committer()
    with pytest.raises(GraphError, match=r"value\.id is string.*bigint there"):
        Output(sink, tmp_path, Schema.parse("value struct<id:string>")).committer()


def test_a_row_that_the_schema_does_not_allow_is_named(kafka, schema_registry, tmp_path):
    topic = kafka.topic()
    sink = tg.KafkaSink(kafka.bootstrap_servers, topic, value_format=tg.AvroFormat(schema_registry.url, schema=V1))
    with pytest.raises(
        RowUnwritable, match=rf"topic '{topic}' cannot be encoded as avro.*{topic}-value.*column 'value'"
    ):
        written(
            kafka,
            tmp_path,
            sink,
            "value struct<id:bigint,who:string,note:string>",
            ({"id": 1, "who": None, "note": "x"},),
        )
