"""The Kafka sink up to the broker: what is refused, and how rows are staged."""

from __future__ import annotations

import pickle

import msgspec
import pyarrow as pa
import pytest

from tidegate.connectors.kafka import KafkaSink, records
from tidegate.connectors.kafka.payload import KafkaCommittable
from tidegate.connectors.sink import CommitterContext, WriterContext
from tidegate.core.errors import GraphError
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid
from tidegate.schema.schema import Schema

SCHEMA = Schema.parse("value string")


class Shelf(dict):
    def put(self, data):
        self[str(len(self))] = data
        return str(len(self) - 1)


def writer(sink, shelf, schema=SCHEMA):
    epoch = EpochId(Term(1), 1)
    return sink.create_writer(
        WriterContext(
            lineage=Lineage("l"),
            sink=Uid("out"),
            epoch=epoch,
            slot=Slot(0),
            attempt=AttemptId(1),
            schema=schema,
            staging=shelf,
        )
    )


def rows(count):
    return pa.RecordBatch.from_arrays([pa.array([f"{n:08d}" for n in range(count)])], schema=SCHEMA.to_arrow())


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"delivery_guarantee": "twice"}, "'exactly-once' or 'at-least-once'"),
        ({"config": {"transactional.id": "mine"}}, "transactional.id"),
        ({"transaction_timeout": "soon"}, "a duration such as"),
        ({"transaction_timeout": "10 ms"}, "at least '1 s'"),
        ({"part_size": "0 b"}, "greater than 0"),
        ({"expired_marker": "guess"}, "guess"),
        ({"topic": ""}, "needs brokers and a topic"),
    ],
)
def test_a_wrong_choice_is_reported_when_the_sink_is_created(choice, words):
    with pytest.raises(GraphError, match=words):
        KafkaSink(**{"bootstrap_servers": "host:9092", "topic": "t"} | choice)


def test_a_stream_without_a_value_is_refused_in_the_driver_too():
    sink = KafkaSink("host:9092", "t")
    with pytest.raises(GraphError, match="needs a column 'value'"):
        sink.create_committer(CommitterContext(Schema.parse("n int"), lambda token: b""))
    with pytest.raises(GraphError, match="needs a column 'value'"):
        writer(sink, Shelf(), Schema.parse("n int"))


def test_an_epoch_without_rows_commits_nothing():
    one = writer(KafkaSink("host:9092", "t"), shelf := Shelf())
    one.write(rows(0))
    assert one.prepare_commit() is None
    assert not shelf


def test_rows_are_staged_in_parts_of_the_size_asked_for_and_in_order():
    one = writer(KafkaSink("host:9092", "t", part_size=4000), shelf := Shelf())
    for _ in range(3):
        one.write(rows(1000))
    staged = msgspec.json.decode(one.prepare_commit(), type=KafkaCommittable)
    assert staged.topic == "t"
    assert sum(part.rows for part in staged.parts) == 3000
    assert all(part.size_bytes < 9000 for part in staged.parts)
    assert len(staged.parts) > 5
    values = [record[1] for part in staged.parts for record in records.unpack(shelf[part.token])]
    assert values == 3 * [f"{n:08d}" for n in range(1000)]


def test_a_sink_travels_to_tasks_and_shows_no_password():
    sink = KafkaSink("host:9092", "t", config={"sasl.password": "secret"})
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert "secret" not in repr(sink) + sink.describe()
