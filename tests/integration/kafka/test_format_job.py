"""Avro from Kafka, through a keyed function, to Avro in Kafka, with Spark and checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

import tidegate as tg
from tests.integration.kafka.test_formats import V1, V2, Others, send
from tests.integration.kafka.test_job import wait_for
from tests.integration.kafka.topics import read
from tests.waiting import eventually, while_running
from tidegate.connectors.kafka.errors import RecordUnreadable


class Total(tg.KeyedProcessFunction):
    total = tg.ValueState(float, default=0.0)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.amount)
        yield row.who, {"who": row.who, "total": self.total.value()}


def totals(spark, kafka, registry, source, target, tmp_path):
    job = tg.Job("totals", parallelism=2)
    frame = tg.kafka_source(spark, kafka.bootstrap_servers, source, value_format=tg.AvroFormat(registry.url, schema=V2))
    orders = job.source("orders", frame.select("value.*", "topic", "partition", "offset"))
    sums = orders.key_by("who").process("total", Total(), schema="key string, value struct<who:string,total:double>")
    sums.sink("out", tg.KafkaSink(kafka.bootstrap_servers, target, value_format=tg.AvroFormat(registry.url)))
    return job.start(spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 s"))


@pytest.mark.budget(120)
def test_a_new_schema_appears_while_the_job_runs_and_each_order_counts_once(spark, kafka, schema_registry, tmp_path):
    others = Others(schema_registry)
    source, target = kafka.topic(), kafka.topic(2)
    send(kafka, source, others.avro(source, V1, [{"id": 1, "who": "ann", "note": "x"}]))
    run = totals(spark, kafka, schema_registry, source, target, tmp_path)
    assert [v.version for v in [others.client.get_latest_version(f"{target}-value")]] == [1], "registered at the start"
    wait_for(run, kafka, target, 1)
    send(kafka, source, others.avro(source, V2, [{"id": 2, "who": "ann", "amount": 9.0}]))
    wait_for(run, kafka, target, 2)
    run.cancel()
    send(kafka, source, others.avro(source, V1, [{"id": 3, "who": "bob", "note": "y"}]))
    run = totals(spark, kafka, schema_registry, source, target, tmp_path)
    wait_for(run, kafka, target, 3)
    run.stop()
    decode, about = AvroDeserializer(others.client), SerializationContext(target, MessageField.VALUE)
    found = [(m.key().decode(), decode(m.value(), about)["total"]) for m in read(kafka, target)]
    assert sorted(found) == [("ann", 1.5), ("ann", 10.5), ("bob", 1.5)]
    assert others.client.get_versions(f"{target}-value") == [1]


@dataclass
class Order:
    user: str
    amount: float
    note: str | None = None


class Sum(tg.KeyedProcessFunction):
    total = tg.ValueState(float, default=0.0)

    def process_element(self, order: Order, ctx):
        self.total.update(self.total.value() + order.amount)
        yield order.user, self.total.value(), order.note


def test_a_class_of_rows_is_the_schema_of_json_in_kafka(spark, kafka, tmp_path):
    source, target = kafka.topic(), kafka.topic()
    send(kafka, source, [b'{"user":"ann","amount":5.0,"note":"x"}', b'{"user":"ann","amount":1.5,"more":1}'])
    job = tg.Job("sums", parallelism=1)
    frame = tg.kafka_source(spark, kafka.bootstrap_servers, source, value_format=tg.JsonFormat(Order))
    orders = job.source("orders", frame.select("value.*"))
    sums = orders.key_by("user").process("sums", Sum(), schema="user string, total double, note string")
    sums.sink("out", tg.KafkaSink(kafka.bootstrap_servers, target, value_format=tg.JsonFormat(), key_fields=["user"]))
    job.run(
        spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 s"), trigger="available-now"
    )
    assert [(m.key(), json.loads(m.value())) for m in read(kafka, target)] == [
        (b"ann", {"user": "ann", "total": 5.0, "note": "x"}),
        (b"ann", {"user": "ann", "total": 6.5, "note": None}),
    ]


@pytest.mark.budget(120)
def test_a_record_that_cannot_be_decoded_ends_the_job_or_becomes_a_dead_letter(spark, kafka, schema_registry, tmp_path):
    others = Others(schema_registry)
    source, target = kafka.topic(), kafka.topic()
    [good] = others.avro(source, V2, [{"id": 1, "who": "ann", "amount": 2.0}])
    send(kafka, source, [good, b"no order"])
    run = totals(spark, kafka, schema_registry, source, target, tmp_path)
    with pytest.raises(RecordUnreadable, match=f"offset 1 of partition 0 of topic '{source}'"):
        run.await_termination(60)

    letters: list[Any] = []
    job = tg.Job("letters", parallelism=1)
    frame = tg.kafka_source(
        spark, kafka.bootstrap_servers, source,
        value_format=tg.AvroFormat(schema_registry.url, schema=V2), on_decode_error="column",
    )  # fmt: skip
    orders = job.source("orders", frame.select("value", "decode_error", "topic", "partition", "offset"))
    readable = orders.key_by("partition").process(
        "readable", Readable(), schema="who string", on_error=tg.dead_letter("bad")
    )
    readable.sink("out", tg.DiscardSink())
    job.side_output("bad").sink("letters", tg.CallbackSink(lambda rows, epoch: letters.extend(rows)))
    run = job.start(spark)
    eventually(while_running(run, lambda: letters))
    run.cancel()
    [letter] = letters
    assert json.loads(letter.position) == {"topic": source, "partition": 0, "offset": 1}
    assert "Invalid magic byte" in letter.error


class Readable(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        if row.decode_error is not None:
            raise ValueError(row.decode_error.message)
        yield (row.value.who,)
