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

from tests.servers.fixtures import postgres_server
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import Postgres

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(?:py|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^```sql\n(CREATE TABLE .*?)^```", re.MULTILINE | re.DOTALL)
LIMIT_S = 120

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
    latest = time.monotonic() + LIMIT_S
    while (found := look()) != wanted:
        said = (folder / "err.log").read_text()[-3000:]
        assert process.poll() is None, said
        assert time.monotonic() < latest, f"{found} instead of {wanted}\n{said}"
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


@pytest.mark.timeout(400)
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


@pytest.mark.timeout(300)
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


@pytest.mark.timeout(300)
@pytest.mark.budget(200)
def test_the_job_of_the_kafka_page_runs(kafka, tmp_path):
    from confluent_kafka import Consumer

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
            assert message.error() is None
            read.append((message.key().decode(), message.value().decode()))
        return sorted(read)

    with running(code, tmp_path) as process:
        seen(newest, [("be", "1"), ("to", "1"), ("to", "2")], process, tmp_path)
        stopped(process, tmp_path)
    reader.close()
