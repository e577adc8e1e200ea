"""What the shop knows at this moment, read from its tables as anybody would read them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.exceptions import NoSuchTableError

from examples.showcase.generator import Generator
from examples.showcase.servers import TOPICS, Servers
from examples.showcase.supervisor import Supervisor


@dataclass(frozen=True)
class Totals:
    orders: int
    payments: int
    settled: int
    sessions: int
    alerts: int
    revenue: dict[str, int]
    """Cents by country."""
    starts: int
    """Of the job."""
    running: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"sent {self.orders} orders, {self.payments} payments; seen {self.settled} settled, {self.sessions} sessions, "
            f"{self.alerts} alerts, {sum(self.revenue.values()) / 100:,.2f} revenue; "
            + ("job runs" if self.running else "job is down")
            + (f", start {self.starts}" if self.starts > 1 else "")
        )


class TotalsReader:
    def __init__(self, servers: Servers, generator: Generator, supervisor: Supervisor) -> None:
        self._servers, self._generator, self._supervisor = servers, generator, supervisor
        settings = {"group.id": "totals", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._alerts = Consumer({"bootstrap.servers": servers.kafka.bootstrap_servers, "log_level": 0, **settings})
        self._alerts.assign([TopicPartition("alerts", partition, 0) for partition in range(TOPICS["alerts"])])
        self._alerts_seen = self._sessions_seen = 0
        self._revenue_seen: dict[str, int] = {}

    def read(self) -> Totals:
        """Servers that are down at the moment keep their last figures."""
        with suppress(psycopg.OperationalError), psycopg.connect(self._servers.postgres.conninfo) as db:
            self._revenue_seen = dict(db.execute("SELECT country, cents FROM revenue ORDER BY country").fetchall())
            [self._sessions_seen] = db.execute("SELECT count(*) FROM sessions").fetchone() or [0]
        while found := self._alerts.consume(500, 0.1):
            self._alerts_seen += sum(message.error() is None for message in found)
        return Totals(
            self._generator.orders, self._generator.payments, self.settled(), self._sessions_seen, self._alerts_seen,
            self._revenue_seen, self._supervisor.starts, self._supervisor.is_running(),
        )  # fmt: skip

    def settled(self) -> int:
        """Rows of the Iceberg table, which its newest snapshot counts."""
        with suppress(NoSuchTableError):
            snapshot = self._servers.catalog().load_table("shop.settled").current_snapshot()
            if snapshot is not None and snapshot.summary is not None:
                return int(snapshot.summary["total-records"] or 0)
        return 0

    def close(self) -> None:
        self._alerts.close()
