"""Pages whose programs need a broker or a database: run as a reader would run them, with the addresses of the test servers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.kafka.test_formats import Others, send
from tests.integration.kafka.topics import read
from tests.servers.fixtures import postgres_server
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import Postgres
from tests.speed import Limit

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(?:py|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^```sql\n(CREATE TABLE .*?)^```", re.MULTILINE | re.DOTALL)
LIMIT_S = 300

__all__ = ["postgres_server"]


def program(page: str, blocks: int, **addresses: str) -> str:
    """The first so many blocks of a page, with these words replaced."""
    found = BLOCK.findall((ROOT / "docs" / page).read_text())[:blocks]
    assert len(found) == blocks
    text = "\n".join(found)
    for written, real in addresses.items():
        assert written in text, f"{page} does not say {written}"
        text = text.replace(written, real)
    return text


@contextmanager
def running(code: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    (folder / "program.py").write_text(code)
    with (folder / "err.log").open("a") as err:
        process = subprocess.Popen(
            [sys.executable, "program.py"], cwd=folder, stderr=err, text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def seen(look: Callable[[], Any], wanted: Any, process: subprocess.Popen[str], folder: Path) -> None:
    limit = Limit(LIMIT_S)
    while (found := look()) != wanted:
        said = (folder / "err.log").read_text()[-3000:]
        assert process.poll() is None, said
        assert not limit.passed(), f"{found} instead of {wanted}\n{said}"
        time.sleep(0.2)


def stopped(process: subprocess.Popen[str], folder: Path) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0, (folder / "err.log").read_text()[-3000:]


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS totals")
        yield connection
        connection.execute("DROP TABLE IF EXISTS totals")


def create_table(page: str, database: psycopg.Connection[Any]) -> None:
    [statement] = TABLE.findall((ROOT / "docs" / page).read_text())
    database.execute(statement)


def produce(kafka: KafkaBroker, topic: str, *values: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, value=value)
    producer.flush(30)


@pytest.mark.budget(300)
def test_the_tutorial_counts_each_order_once_through_a_kill(kafka, postgres_server, database, tmp_path):
    page = "guide/kafka-to-postgres.md"
    create_table(page, database)
    topic = kafka.topic(4)
    code = program(
        page, 1,
        **{"localhost:9092": kafka.bootstrap_servers, "host=localhost dbname=shop user=shop": postgres_server.conninfo,
           'KAFKA, "orders"': f'KAFKA, "{topic}"', 'interval="5 s"': 'interval="1 s"'},
    )  # fmt: skip

    def totals() -> list[tuple[Any, ...]]:
        return database.execute("SELECT * FROM totals ORDER BY customer").fetchall()

    def order(customer: str, amount: float) -> str:
        return json.dumps({"customer": customer, "amount": amount})

    produce(kafka, topic, order("ann", 5.0), order("bob", 2.5), "no JSON", order("ann", 7.0))
    with running(code, tmp_path) as process:
        seen(totals, [("ann", 2, 12.0), ("bob", 1, 2.5)], process, tmp_path)
        process.kill()
    produce(kafka, topic, order("bob", 1.5))
    with running(code, tmp_path) as process:
        seen(totals, [("ann", 2, 12.0), ("bob", 2, 4.0)], process, tmp_path)
        stopped(process, tmp_path)
    assert re.search(r"job shop started: .* restored from checkpoint", (tmp_path / "err.log").read_text())


@pytest.mark.budget(200)
def test_the_job_of_the_postgres_page_runs(postgres_server, database, tmp_path):
    page = "connectors/postgres.md"
    create_table(page, database)
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text('{"customer":"ann","amount":5.0}\n{"customer":"ann","amount":7.0}\n')
    code = program(
        page, 1, **{"host=db dbname=shop user=tide": postgres_server.conninfo, 'interval="10 s"': 'interval="1 s"'}
    )
    with running(code, tmp_path) as process:
        seen(lambda: database.execute("SELECT * FROM totals").fetchall(), [("ann", 12.0)], process, tmp_path)
        stopped(process, tmp_path)


@pytest.mark.budget(200)
def test_the_job_of_the_kafka_page_runs(kafka, tmp_path):
    from confluent_kafka import Consumer, KafkaError

    words, counts = kafka.topic(4), kafka.topic(4)
    code = program(
        "connectors/kafka.md", 2,
        **{"localhost:9092": kafka.bootstrap_servers, 'servers, "words"': f'servers, "{words}"',
           'servers, "counts"': f'servers, "{counts}"', 'interval="10 s"': 'interval="1 s"'},
    )  # fmt: skip
    produce(kafka, words, "to", "be", "to")
    reader = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": counts, "auto.offset.reset": "earliest"}
    )
    reader.subscribe([counts])
    read: list[tuple[str, str]] = []

    def newest() -> list[tuple[str, str]]:
        while (message := reader.poll(0.2)) is not None:
            if message.error() is not None:
                # A broker that is busy does not know a topic at once that was just created.
                assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                continue
            read.append((message.key().decode(), message.value().decode()))
        return sorted(read)

    with running(code, tmp_path) as process:
        seen(newest, [("be", "1"), ("to", "1"), ("to", "2")], process, tmp_path)
        stopped(process, tmp_path)
    reader.close()


MOVED = "migrate/from-kafka-streams-and-quix.md"


def reader_of(kafka: KafkaBroker, topic: str) -> tuple[Any, Callable[[], list[tuple[str, float]]]]:
    """Reads what transactions have committed, sorted."""
    from confluent_kafka import Consumer, KafkaError

    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    reader = Consumer({**settings, "isolation.level": "read_committed"})
    reader.subscribe([topic])
    read: list[tuple[str, float]] = []

    def newest() -> list[tuple[str, float]]:
        while (message := reader.poll(0.2)) is not None:
            if message.error() is not None:
                # The broker has accepted the topic, and tells its readers a moment later.
                assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                continue
            read.append((message.key().decode(), json.loads(message.value())))
        return sorted(read)

    return reader, newest


@pytest.mark.budget(300)
def test_the_job_from_kafka_streams_writes_each_total_once_through_a_kill(kafka, tmp_path):
    orders, totals = kafka.topic(4), kafka.topic(4)
    code = program(
        MOVED, 1,
        **{"localhost:9092": kafka.bootstrap_servers, 'KAFKA, "orders"': f'KAFKA, "{orders}"',
           'KAFKA, "totals"': f'KAFKA, "{totals}"', 'interval="5 s"': 'interval="1 s"'},
    )  # fmt: skip
    reader, newest = reader_of(kafka, totals)
    produce(kafka, orders, '{"customer": "ann", "amount": 5.0}', '{"customer": "bob", "amount": 2.0}', "no JSON")
    with running(code, tmp_path) as process:
        seen(newest, [("ann", 5.0), ("bob", 2.0)], process, tmp_path)
        process.kill()
    produce(kafka, orders, '{"customer": "ann", "amount": 7.0}')
    with running(code, tmp_path) as process:
        seen(newest, [("ann", 5.0), ("ann", 12.0), ("bob", 2.0)], process, tmp_path)
        stopped(process, tmp_path)
    reader.close()


MOVES = """
if __name__ == "__main__":
    spark = tg.session("totals", master="local[2]")
    state(spark, "TOTALS")
    import os

    run = {"execution.state-recovery.path": os.path.abspath("from-topic")}
    build(spark).run(checkpoint=tg.Checkpointing(dir="checkpoints", interval="1 s"), options=run)
"""


@pytest.mark.budget(300)
def test_the_state_and_the_offsets_of_the_old_application_move(kafka, tmp_path):
    from confluent_kafka import Producer

    orders, totals = kafka.topic(1), kafka.topic(1)
    old = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for customer, total in (("ann", 5.0), ("bob", 2.0), ("ann", 12.0)):
        old.produce(totals, key=customer, value=str(total))
    old.flush(30)
    order = json.dumps({"customer": "ann", "amount": 1.0})
    produce(kafka, orders, order, order, order, order)  # the old application has read three of them
    text = program(
        MOVED, 2,
        **{"localhost:9092": kafka.bootstrap_servers, 'KAFKA, "totals"': f'KAFKA, "{totals}"',
           'KAFKA, "orders"': f'KAFKA, "{orders}", starting_offsets={{"{orders}": {{0: 3}}}}'},
    )  # fmt: skip
    start = text.index("if __name__")
    code = text[:start] + text[text.index("def state(") :] + MOVES.replace("TOTALS", totals)
    reader, newest = reader_of(kafka, totals)
    with running(code, tmp_path) as process:
        seen(newest, [("ann", 5.0), ("ann", 12.0), ("ann", 13.0), ("bob", 2.0)], process, tmp_path)
        stopped(process, tmp_path)
    reader.close()


@pytest.mark.budget(200)
def test_the_job_of_the_schema_registry_page_runs(kafka, schema_registry, tmp_path):
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import SerializationContext

    others, orders, totals = Others(schema_registry), kafka.topic(), kafka.topic()
    order = '{"type": "record", "name": "Order", "fields": [{"name": "user", "type": "string"}]}'
    send(kafka, orders, others.avro(orders, order, [{"user": "ann"}]))
    code = program(
        "connectors/kafka-formats.md", 3,
        **{"localhost:9092": kafka.bootstrap_servers, "http://localhost:8081": schema_registry.url,
           '"orders", value_format': f'"{orders}", value_format', '"totals", value_format': f'"{totals}", value_format',
           'interval="10 s"': 'interval="1 s"'},
    )  # fmt: skip
    decode, about = AvroDeserializer(others.client), SerializationContext(totals, "value")

    def found() -> list[Any]:
        return [decode(message.value(), about) for message in read(kafka, totals)]

    with running(code, tmp_path) as process:
        seen(found, [{"user": "ann", "total": 0.0}], process, tmp_path)
        stopped(process, tmp_path)
