"""What both parts of `benchmarks release` share: how much is measured, the servers, and readers that count rows."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import harness

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaBroker
    from tests.servers.postgres import Postgres
    from tests.servers.seaweedfs import S3Address
    from tests.servers.wire import Wire


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. `slots`: with how many repetitions each is."""

    slots: Mapping[int, int]
    epochs: int = 60
    rows_per_epoch: int = 1_600
    job_slots: int = 8
    normal_s: float = 60.0
    """How long checkpoints are counted before the target goes away."""
    interval: str = "1 s"

    @property
    def rows(self) -> int:
        return self.epochs * self.rows_per_epoch


FULL = Size({8: 3, 64: 1})
QUICK = Size({8: 1}, epochs=3, rows_per_epoch=160, job_slots=2, normal_s=5.0)


class Servers:
    """Started when they are first asked for, and stopped at the end."""

    def __init__(self, scratch: Path, open: ExitStack) -> None:
        self._scratch, self._open_servers = scratch, open
        self._broker: KafkaBroker | None = None
        self._database: Postgres | None = None
        self._address: S3Address | None = None
        self._wire: Wire | None = None

    @property
    def target_wire(self) -> Wire:
        """Over which jobs reach their target, whichever it is."""
        from tests.servers.wire import Wire

        if self._wire is None:
            self._wire = Wire()
            self._open_servers.callback(self._wire.stop)
        return self._wire

    @property
    def broker(self) -> KafkaBroker:
        from tests.servers.kafka import KafkaBroker

        if self._broker is None:
            harness.say("starting a broker")
            (self._scratch / "kafka").mkdir()
            self._broker = KafkaBroker(self._scratch / "kafka", second=self.target_wire)
            self._open_servers.callback(self._broker.stop)
        return self._broker

    @property
    def database(self) -> Postgres:
        from tests.servers.postgres import Postgres

        if self._database is None:
            harness.say("starting a database")
            # Not below the scratch folder: the database runs as somebody else, who may have no way in.
            folder = Path(tempfile.mkdtemp(prefix="postgres-"))
            self._open_servers.callback(shutil.rmtree, folder, ignore_errors=True)
            self._database = Postgres(folder)
            self._open_servers.callback(self._database.stop)
        return self._database

    @property
    def s3(self) -> S3Address:
        from tests.servers.seaweedfs import SeaweedFS

        if self._address is None:
            harness.say("starting an S3 server")
            (self._scratch / "s3").mkdir()
            server = SeaweedFS(self._scratch / "s3")
            self._open_servers.callback(server.stop)
            self._address = server.address
        return self._address


def ask(conninfo: str, question: str) -> list[Any]:
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        return [] if cursor.description is None else cursor.fetchall()


class MessageCounter:
    """How many committed messages a topic has. One reader goes on from where it was."""

    def __init__(self, servers: str, topic: str) -> None:
        import confluent_kafka as ck

        settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "log_level": 0}
        self._reader = ck.Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": False})
        partitions = self._reader.list_topics(topic, 30).topics[topic].partitions
        self._reader.assign([ck.TopicPartition(topic, each, 0) for each in partitions])
        self.seen = 0

    def count(self, patience_s: float) -> int:
        """Reads until nothing comes for so long."""
        while messages := self._reader.consume(10_000, patience_s):
            self.seen += sum(message.error() is None for message in messages)
        return self.seen

    def close(self) -> None:
        self._reader.close()


def count_messages(servers: str, topic: str) -> int:
    counter = MessageCounter(servers, topic)
    try:
        return counter.count(2.0)
    finally:
        counter.close()
