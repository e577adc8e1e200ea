"""What the shop runs on: a Kafka broker, a PostgreSQL server and an Iceberg catalog, on loopback and in one folder.

In production these exist already, and the job only gets their addresses. Here they are started as the project's own tests start
them. PostgreSQL's server must be installed (on Debian: apt-get install postgresql); Kafka's jars are downloaded once.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psycopg
from pyiceberg.catalog import Catalog, load_catalog

from examples.showcase.customers import customers
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import Postgres

TOPICS = {"orders": 3, "payments": 3, "limits": 1, "alerts": 2}
"""Partitions of each."""
TABLES = (
    "CREATE TABLE customers (customer text PRIMARY KEY, country text NOT NULL)",
    "CREATE TABLE revenue (country text PRIMARY KEY, orders bigint NOT NULL, cents bigint NOT NULL)",
    """CREATE TABLE sessions (customer text, window_start timestamptz, window_end timestamptz, orders bigint, cents bigint)""",
)


class Servers:
    """All three, with empty topics and tables. Ready after about ten seconds, which are mostly the broker's."""

    def __init__(self, folder: Path) -> None:
        self._open = ExitStack()
        try:
            self._start(folder)
        except BaseException:
            self.stop()
            raise

    def _start(self, folder: Path) -> None:
        (folder / "kafka").mkdir(parents=True)
        self.kafka = KafkaBroker(folder / "kafka")
        self._open.callback(self.kafka.stop)
        for topic, partitions in TOPICS.items():
            self.kafka.topic(partitions, topic)

        # Not below the folder: the database runs as a user of its own, who may have no access to it.
        directory = Path(tempfile.mkdtemp(prefix="shop-postgres-"))
        self._open.callback(shutil.rmtree, directory, ignore_errors=True)
        self.postgres = Postgres(directory)
        self._open.callback(self.postgres.stop)
        with psycopg.connect(self.postgres.conninfo, autocommit=True) as db:
            for table in TABLES:
                db.execute(table.encode())
            db.cursor().executemany("INSERT INTO customers VALUES (%s, %s)", list(customers().items()))

        self.lake = folder / "lake"
        self.lake.mkdir()
        self.catalog().create_namespace("shop")

    def catalog(self) -> Catalog:
        places = {"uri": f"sqlite:///{self.lake}/catalog.db", "warehouse": f"file://{self.lake}/warehouse"}
        return load_catalog("lake", type="sql", **places)

    def addresses(self) -> dict[str, str]:
        """What the job is told, as environment variables."""
        return {
            "SHOP_KAFKA": self.kafka.bootstrap_servers,
            "SHOP_POSTGRES": self.postgres.conninfo,
            "SHOP_LAKE": str(self.lake),
        }

    def stop(self) -> None:
        self._open.close()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
