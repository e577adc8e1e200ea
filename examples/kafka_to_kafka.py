"""From Kafka to Kafka, with and without transactions, through a failure between two checkpoints.

    python examples/kafka_to_kafka.py [--servers 127.0.0.1:9092]

The job numbers the rows of each key. It fails once, in its fourth epoch. Its only checkpoint so far is the one it began with, so
it goes back to the beginning and reads all rows again. Without transactions, the rows of three epochs were sent already, and are
sent a second time. With transactions, they were only staged: the rows of an epoch are sent when its checkpoint is complete, in a
transaction with a marker that says which epochs it covers.

Without `--servers`, the program starts a broker as the tests of this project do.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import tidegate as tg

ROWS = 40
EPOCH = 10
"""Rows per epoch."""
FAILS_AT = 35


class Number(tg.KeyedProcessFunction):
    """Number the rows of each key. At one row, fail as often as an epoch is tried before a job goes back to its checkpoint."""

    n = tg.ValueState(int, default=0)

    def __init__(self, failures: Path) -> None:
        self.failures = str(failures)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        if row.i == FAILS_AT and len(list(Path(self.failures).iterdir())) < 2:
            (Path(self.failures) / uuid.uuid4().hex).touch()
            raise ConnectionError("something is away")
        yield row.k, f"{row.i} is number {self.n.value()} of {row.k}"


def build(spark, servers: str, source: str, sink: tg.KafkaSink, failures: Path) -> tg.Job:
    job = tg.Job("kafka-to-kafka", parallelism=2)
    frame = tg.kafka_source(spark, servers, source, max_offsets_per_trigger=EPOCH)
    rows = job.source("rows", frame.selectExpr("cast(key AS string) AS k", "cast(cast(value AS string) AS int) AS i"))
    numbered = rows.key_by("k").process("number", Number(failures), schema="key string, value string")
    numbered.sink("out", sink)
    return job


def run(spark, servers: str, source: str, target: str, folder: Path, guarantee: str) -> None:
    """Run the job to the end of its source."""
    failures = folder / "failures"
    failures.mkdir()
    sink = tg.KafkaSink(servers, target, delivery_guarantee=guarantee)
    mode = {"at-least-once": "AT_LEAST_ONCE", "exactly-once": "EXACTLY_ONCE"}[guarantee]
    checkpoint = tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 h", mode=mode)
    retries = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "100 ms"}
    build(spark, servers, source, sink, failures).run(
        spark, trigger="available-now", checkpoint=checkpoint, options=retries
    )


def send(servers: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for i in range(ROWS):
        producer.produce(topic, key=f"k{i % 3}", value=str(i))
    producer.flush(30)


def read(servers: str, topic: str) -> Counter[str]:
    """How often each committed row is there."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows: Counter[str] = Counter()
    while (message := consumer.poll(30)) is not None and message.error() is None:
        rows[message.value().decode()] += 1
    consumer.close()
    return rows


def create_topics(servers: str, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        done.result(30)


def started_broker(stack: ExitStack, folder: Path) -> str:
    from tests.servers.kafka import KafkaBroker

    broker = KafkaBroker(folder)
    stack.callback(broker.stop)
    return broker.bootstrap_servers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", help="of a broker that runs already")
    options = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        servers = options.servers or started_broker(stack, scratch)
        spark = tg.session("kafka-to-kafka")
        for guarantee in ("at-least-once", "exactly-once"):
            tag = uuid.uuid4().hex[:6]
            source, target = f"numbers-{tag}", f"numbered-{tag}"
            create_topics(servers, source, target)
            send(servers, source)
            folder = scratch / guarantee
            folder.mkdir()
            run(spark, servers, source, target, folder, guarantee)
            rows = read(servers, target)
            lost, doubled = ROWS - len(rows), rows.total() - len(rows)
            print(f"{guarantee}: {ROWS} rows in, {rows.total()} rows out: {lost} lost, {doubled} doubled")
        spark.stop()


if __name__ == "__main__":
    main()
