"""What tests do with topics and sinks: fill a topic, read it as others would, stage rows, commit them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pyarrow as pa

from tests.servers.kafka import KafkaBroker
from tests.sparks import ROOT
from tidegate.connectors.kafka import KafkaSink
from tidegate.connectors.sink import Committable, Committer, CommitterContext, WriterContext
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid
from tidegate.schema.schema import Schema
from tidegate.testing import faults

SCHEMA = Schema.parse("key string, value string")
UID = Uid("out")


def read(broker: KafkaBroker, topic: str, isolation: str = "read_committed") -> list[ck.Message]:
    """All messages of a topic, partition by partition, as a reader of that isolation sees them."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "isolation.level": isolation,
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    found: list[ck.Message] = []
    try:
        for partition in consumer.list_topics(topic, 30).topics[topic].partitions:
            consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING)])
            while True:
                [message] = consumer.consume(1, 30)
                if message.partition() != partition:
                    continue  # an end that was told twice
                if message.error() is not None:
                    assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
                    break
                found.append(message)
    finally:
        consumer.close()
    return found


def values(broker: KafkaBroker, topic: str, isolation: str = "read_committed") -> list[str]:
    return [message.value().decode() for message in read(broker, topic, isolation)]


def fill(broker: KafkaBroker, topic: str, rows: Iterable[dict[str, Any]]) -> None:
    """Send messages, given by the arguments of `produce`, without a transaction."""
    refused: list[Any] = []
    note = lambda error, message: refused.append(error) if error is not None else None  # noqa: E731
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers, "on_delivery": note})
    for row in rows:
        producer.produce(topic, **row)
    assert producer.flush(30) == 0
    assert refused == []


@dataclass(frozen=True)
class Shelf:
    """A folder in which rows wait."""

    folder: Path

    def put(self, data: bytes) -> str:
        name = uuid.uuid4().hex
        (self.folder / name).write_bytes(data)
        return name

    def read(self, token: str) -> bytes:
        return (self.folder / token).read_bytes()


class Output:
    """A sink with its shelf: epochs of rows staged as tasks do, committed as drivers do, each time by a new committer."""

    def __init__(self, sink: KafkaSink, folder: Path, schema: Schema = SCHEMA) -> None:
        self.sink, self.schema, self.folder = sink, schema, folder
        self.shelf = Shelf(folder)
        self.lineage = Lineage(uuid.uuid4().hex)

    def stage(self, rows: Sequence[Sequence[Any]], number: int, slot: int = 0, term: int = 1) -> Committable:
        epoch = EpochId(Term(term), number)
        writer = self.sink.create_writer(
            WriterContext(
                lineage=self.lineage,
                sink=UID,
                epoch=epoch,
                slot=Slot(slot),
                attempt=AttemptId(7),
                schema=self.schema,
                staging=self.shelf,
            )
        )
        arrow = self.schema.to_arrow()
        columns = [pa.array([row[i] for row in rows], each.type) for i, each in enumerate(arrow)]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=arrow))
        payload = writer.prepare_commit()
        assert payload is not None
        return Committable(lineage=self.lineage, sink=UID, epoch=epoch, slot=Slot(slot), payload=payload)

    def numbers(self, numbers: Iterable[int], number: int, slot: int = 0) -> Committable:
        """An epoch of rows whose values are these numbers, all with one key."""
        return self.stage([("k", str(n)) for n in numbers], number, slot)

    def committer(self) -> Committer:
        return self.sink.create_committer(CommitterContext(self.schema, self.shelf.read))

    def commit(self, *requests: Committable) -> None:
        self.committer().commit(requests)

    def commit_in_process(self, orders: faults.FaultOrders, *requests: Committable) -> subprocess.Popen[bytes]:
        """Start a driver of its own that commits. It does at fault points what `orders` say."""
        task = self.folder / "task.pickle"
        task.write_bytes(pickle.dumps((self.sink, self.schema, self.shelf, list(requests))))
        environment = os.environ | {
            "PYTHONPATH": str(ROOT), "TIDEGATE_FAULTS": faults.__file__, faults.VARIABLE: str(orders.directory),
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integration.kafka.committing", str(task)], env=environment
        )
