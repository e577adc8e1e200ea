"""The Kafka sink keeps the contract of every sink, on a real broker."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import confluent_kafka as ck
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.kafka.topics import read
from tidegate.connectors.kafka import KafkaSink
from tidegate.core.faults import arm
from tidegate.schema.schema import Schema
from tidegate.testing.sink_contract import OrderContract, RefusalContract, SinkContract, check
from tidegate.testing.sink_trial import Killed, SinkTrial, failing

RECORDS = Schema.parse("value string")


@dataclass(frozen=True)
class AsRecords:
    """A sink for the rows of a trial, which are no records by themselves."""

    sink: KafkaSink
    publishes_in = "task"

    def create_writer(self, context):
        return RecordWriter(self.sink.create_writer(replace(context, schema=RECORDS)))

    def create_committer(self, context):
        return self.sink.create_committer(replace(context, schema=RECORDS))

    def create_cleaner(self):
        return self.sink.create_cleaner()


class RecordWriter:
    def __init__(self, writer):
        self.writer = writer
        self.prepare_commit, self.abort = writer.prepare_commit, writer.abort

    def write(self, batch):
        lines = [json.dumps([row["n"], row["name"]]) for row in batch.to_pylist()]
        self.writer.write(pa.RecordBatch.from_arrays([pa.array(lines)], schema=RECORDS.to_arrow()))


class TopicTarget:
    ordered = True
    guarantee = "exactly-once"

    def __init__(self, kafka):
        self.kafka, self.topic = kafka, kafka.topic()

    def sink(self):
        return AsRecords(KafkaSink(self.kafka.bootstrap_servers, self.topic))

    def rows(self):
        return [tuple(json.loads(message.value())) for message in read(self.kafka, self.topic)]

    def take_away(self):
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        end = ck.TopicPartition(self.topic, 0, ck.OFFSET_END)
        next(iter(admin.delete_records([end]).values())).result(30)

    def outage(self):
        return failing("trial.commit-begins", ConnectionError("down"))

    def refusing(self):
        topic = f"{self.topic}-without-a-topic"
        sink = KafkaSink(self.kafka.bootstrap_servers, topic, delivery_guarantee=self.guarantee)
        return AsRecords(sink), f"'{topic}' at {self.kafka.bootstrap_servers}"

    def leavings(self):
        return []

    def commits(self):
        """The end of each transaction is a record of its own, which readers are not shown."""
        place = ck.TopicPartition(self.topic, 0)
        consumer = ck.Consumer({"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "counter"})
        try:
            first, end = consumer.get_watermark_offsets(place, 30)
        finally:
            consumer.close()
        return end - first - len(read(self.kafka, self.topic, "read_uncommitted"))


class PlainTarget(TopicTarget):
    guarantee = "at-least-once"
    commits = None

    def sink(self):
        return AsRecords(KafkaSink(self.kafka.bootstrap_servers, self.topic, delivery_guarantee="at-least-once"))


@pytest.mark.slow
class TestKafkaSink(SinkContract):
    @pytest.fixture
    def target(self, kafka):
        return TopicTarget(kafka)


class TestKafkaSinkWithoutTransactions(RefusalContract, OrderContract):
    @pytest.fixture
    def target(self, kafka):
        return PlainTarget(kafka)


def test_a_cleaner_finds_and_ends_a_transaction_that_holds_a_marker(kafka):
    target = TopicTarget(kafka)
    trial = SinkTrial(target.sink())
    trial.epoch(2, 2)
    assert trial.checkpoint()
    cleaner = target.sink().create_cleaner()
    assert not list(cleaner.find(trial.lineage, trial.uid))

    def dies(point, **context):
        if point == "kafka.3-marked":
            raise Killed(point)

    trial.epoch(2, 2)
    trial.complete()
    arm(dies)
    try:
        with pytest.raises(Killed):
            trial.release()
    finally:
        arm(None)
    found = list(cleaner.find(trial.lineage, trial.uid))
    assert {each.kind for each in found} == {"open transaction"}
    assert not list(cleaner.find(SinkTrial(target.sink()).lineage, trial.uid))
    for _ in range(2):
        cleaner.end(found)
        assert not list(cleaner.find(trial.lineage, trial.uid))
    # The rows of the transaction are in the job's storage, and no marker says that they were sent.
    assert trial.restart()
    check(target, trial)
