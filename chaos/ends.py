"""The real servers at both ends of a pipeline: a Kafka broker before it, and behind it a broker, a database or an S3 server.

The job speaks to them over wires that can be cut; whoever feeds and counts goes to them directly.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import Postgres
from tests.servers.seaweedfs import S3Address, SeaweedFS
from tests.servers.wire import Wire

Row = tuple[int, int, int]
"""Key, number of the row, and how many of its key came before, itself included."""

SOURCE_PARTITIONS = 3
_TARGET_PARTITIONS = 2


class Ends(ABC):
    """Both ends. `rows` are those that a careful reader sees, in the order of the target where it has one."""

    server = ""
    """What the target is, in the words of a report."""

    def __init__(self, folder: Path) -> None:
        self._open = ExitStack()
        self.source_wire, self.target_wire = Wire(), Wire()
        self._open.callback(self.source_wire.stop)
        self._open.callback(self.target_wire.stop)
        (folder / "kafka").mkdir(parents=True)
        self.broker = KafkaBroker(folder / "kafka", self.source_wire, self.target_wire)
        self._open.callback(self.broker.stop)
        self.source = self.broker.topic(SOURCE_PARTITIONS, "source")

    def __enter__(self) -> Ends:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def checkpoints(self) -> tuple[str | None, dict[str, str]]:
        """Where the job keeps them, with options of the store; None: in the folder of the run."""
        return None, {}

    @abstractmethod
    def target(self) -> dict[str, Any]:
        """What the job is told of its target."""

    @abstractmethod
    def kill_target(self) -> None: ...

    @abstractmethod
    def restart_target(self) -> None: ...

    @abstractmethod
    def count(self) -> int:
        """How many rows readers see now. Raises while the target is down."""

    @abstractmethod
    def rows(self) -> list[Row]: ...

    def sent(self) -> list[tuple[int, int]]:
        """Key and number of each row of the source, in order within each key, as Kafka has them."""
        from tests.integration.kafka.topics import read

        return [(int(message.key()), int(message.value())) for message in read(self.broker, self.source)]


class KafkaEnds(Ends):
    """The target is a topic of the same broker, reached over a wire of its own."""

    server = "broker"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.topic = self.broker.topic(_TARGET_PARTITIONS, "target")
        self._reader: Any = None
        self._counted = 0

    def target(self) -> dict[str, Any]:
        return {"kind": "kafka", "servers": self.broker.second_servers, "topic": self.topic}

    def kill_target(self) -> None:
        self.broker.kill()

    def restart_target(self) -> None:
        self.broker.start()

    def count(self) -> int:
        """Of one reader that goes on from where it was."""
        import confluent_kafka as ck

        if self._reader is None:
            told = {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "counting", "log_level": 0}
            self._reader = ck.Consumer(told | {"isolation.level": "read_committed", "enable.auto.commit": False})
            self._open.callback(self._reader.close)
            self._reader.assign([ck.TopicPartition(self.topic, each, 0) for each in range(_TARGET_PARTITIONS)])
        while messages := self._reader.consume(1000, 0.2):
            self._counted += sum(message.error() is None for message in messages)
        return self._counted

    def rows(self) -> list[Row]:
        from tests.integration.kafka.topics import read

        return [_row(json.loads(message.value())) for message in read(self.broker, self.topic)]


class PostgresEnds(Ends):
    """A table that remembers in which order it took its rows."""

    server = "database"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Not below the folder of the run: the database runs as somebody else, who may have no way in.
        directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._open.callback(shutil.rmtree, directory, ignore_errors=True)
        self.database = Postgres(directory)
        self._open.callback(self.database.stop)
        self._ask("CREATE TABLE counted (place bigserial, k integer, i bigint, n bigint)")

    def target(self) -> dict[str, Any]:
        return {"kind": "postgres", "conninfo": self.database.behind(self.target_wire), "table": "counted"}

    def kill_target(self) -> None:
        self.database.stop()

    def restart_target(self) -> None:
        self.database.start()

    def count(self) -> int:
        return int(self._ask("SELECT count(*) FROM counted")[0][0])

    def rows(self) -> list[Row]:
        return [(k, i, n) for k, i, n in self._ask("SELECT k, i, n FROM counted ORDER BY place")]

    def _ask(self, question: str) -> list[Any]:
        import psycopg

        with psycopg.connect(self.database.conninfo, autocommit=True) as connection:
            cursor = connection.execute(question.encode())
            return [] if cursor.description is None else cursor.fetchall()


class UpsertEnds(PostgresEnds):
    """A table with the newest row of each key. A trigger of the database writes down every change that became visible."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for statement in _WATCHED:
            self._ask(statement)

    def target(self) -> dict[str, Any]:
        return super().target() | {"table": "latest", "key": ["k"]}

    def count(self) -> int:
        """How many rows the newest values account for."""
        return int(self._ask("SELECT coalesce(sum(m), 0) FROM (SELECT max(n) AS m FROM changes GROUP BY k) s")[0][0])

    def rows(self) -> list[Row]:
        """The newest of each key."""
        return [(k, i, n) for k, i, n in self._ask("SELECT k, i, n FROM latest ORDER BY k")]

    def changes(self) -> list[Row]:
        """Every value that a key ever had, in the order in which it had them."""
        return [(k, i, n) for k, i, n in self._ask("SELECT k, i, n FROM changes ORDER BY place")]


_WATCHED = (
    "CREATE TABLE latest (k integer PRIMARY KEY, i bigint, n bigint)",
    "CREATE TABLE changes (place bigserial, k integer, i bigint, n bigint)",
    "CREATE INDEX ON changes (k, n)",
    """CREATE FUNCTION write_down() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO changes (k, i, n) VALUES (NEW.k, NEW.i, NEW.n); RETURN NULL; END $$""",
    "CREATE TRIGGER watching AFTER INSERT OR UPDATE ON latest FOR EACH ROW EXECUTE FUNCTION write_down()",
)
"""The trigger runs while the changed row is locked, so `place` has the order of the changes of each key."""


class S3Ends(Ends):
    """Rows and checkpoints in one bucket, reached over one wire."""

    server = "s3 server"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "s3").mkdir()
        self.store = SeaweedFS(folder / "s3")
        self._open.callback(self.store.stop)
        address = self.store.address
        self.wired: S3Address = address.behind(self.target_wire.lead_to(address.host, address.port).port)

    def checkpoints(self) -> tuple[str | None, dict[str, str]]:
        return f"s3://{self.wired.bucket}/checkpoints", self.wired.options()

    def kill_target(self) -> None:
        self.store.kill()

    def restart_target(self) -> None:
        self.store.start()

    def count(self) -> int:
        return len(self.rows())


class FileEnds(S3Ends):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._read: dict[str, list[Row]] = {}
        """A file appears whole and never changes."""

    def target(self) -> dict[str, Any]:
        return {"kind": "files", "path": f"s3://{self.wired.bucket}/out", "options": self.wired.options()}

    def rows(self) -> list[Row]:
        from obstore.store import S3Store

        address = self.store.address
        store = S3Store(address.bucket, config=address.options(), client_options={"allow_http": True})  # type: ignore[arg-type]
        names = [found["path"] for page in store.list("out") for found in page]
        for name in names:
            if name not in self._read and "/." not in name:
                lines = bytes(store.get(name).bytes()).decode().splitlines()
                self._read[name] = [_row(json.loads(line)) for line in lines]
        return [row for name in sorted(self._read) for row in self._read[name]]


class DeltaEnds(S3Ends):
    @property
    def _uri(self) -> str:
        return f"s3://{self.wired.bucket}/table"

    def target(self) -> dict[str, Any]:
        return {"kind": "delta", "path": self._uri, "options": _delta_options(self.wired)}

    def rows(self) -> list[Row]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import TableNotFoundError

        try:
            table = DeltaTable(self._uri, storage_options=_delta_options(self.store.address))
        except TableNotFoundError:
            return []
        # Not by `to_pyarrow_table`: its threads call back into Python, and abort a process that ends right then.
        found = QueryBuilder().register("counted", table).execute("SELECT k, i, n FROM counted")
        return [_row(row) for row in pa.table(found.read_all()).to_pylist()]


ENDS: dict[str, type[Ends]] = {
    "kafka-kafka": KafkaEnds,
    "kafka-postgres": PostgresEnds,
    "kafka-files-s3": FileEnds,
    "kafka-delta": DeltaEnds,
}


def _delta_options(address: S3Address) -> dict[str, str]:
    options = {f"AWS_{name.upper()}": value for name, value in address.options().items()}
    return options | {"AWS_ENDPOINT_URL": options.pop("AWS_ENDPOINT"), "AWS_ALLOW_HTTP": "true"}


def _row(found: dict[str, Any]) -> Row:
    return found["k"], found["i"], found["n"]
