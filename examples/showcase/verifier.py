"""Says what must have come out, from what was sent, and compares it with what readers find, row by row.

It shares no code with the job: it has the whole day before it, sorts it by time, and needs neither state nor watermarks.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from examples.showcase.customers import customers
from examples.showcase.servers import TOPICS, Servers

PAY_WITHIN_MS = 20_000
SESSION_GAP_MS = 10_000
BURST_MS = 10_000

Rows = Counter[tuple[Any, ...]]


@dataclass
class Results:
    """Rows of each output, and how often each is there."""

    settled: Rows = field(default_factory=Counter)
    """Order, customer, country, cents, method, and how many milliseconds later it was paid."""
    revenue: Rows = field(default_factory=Counter)
    """Country, orders, cents."""
    sessions: Rows = field(default_factory=Counter)
    """Customer, first order, last order and gap, orders, cents."""
    alerts: Rows = field(default_factory=Counter)
    """Customer, order, rule, time."""


def read_journal(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What the generator has sent, by topic."""
    sent: dict[str, list[dict[str, Any]]] = {"orders": [], "payments": [], "limits": []}
    for line in path.read_text().splitlines():
        message = json.loads(line)
        sent[message.pop("topic")].append(message)
    return sent


def expected(sent: Mapping[str, list[dict[str, Any]]]) -> Results:
    results = Results()
    countries = customers()
    orders = {order["order_id"]: order for order in sent["orders"]}
    revenue: Counter[str] = Counter()
    settled_orders: Counter[str] = Counter()
    for payment in sent["payments"]:
        order = orders[payment["order_id"]]
        after_ms = payment["at"] - order["at"]
        if 0 <= after_ms <= PAY_WITHIN_MS:
            country = countries[order["customer"]]
            results.settled[
                order["order_id"], order["customer"], country, order["cents"], payment["method"], after_ms
            ] += 1
            settled_orders[country] += 1
            revenue[country] += order["cents"]
    results.revenue.update((country, count, revenue[country]) for country, count in settled_orders.items())

    by_customer: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for order in sorted(sent["orders"], key=lambda order: (order["at"], order["order_id"])):
        by_customer[order["customer"]].append(order)
    for customer, placed in by_customer.items():
        for session in _sessions(placed):
            cents = sum(order["cents"] for order in session)
            end = session[-1]["at"] + SESSION_GAP_MS
            results.sessions[customer, session[0]["at"], end, len(session), cents] += 1
        results.alerts.update(_alerts(customer, placed, sent["limits"]))
    return results


def _sessions(placed: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Orders of a customer, in order of time, cut wherever more than the gap lies between two."""
    found: list[list[dict[str, Any]]] = []
    for order in placed:
        if found and order["at"] - found[-1][-1]["at"] <= SESSION_GAP_MS:
            found[-1].append(order)
        else:
            found.append([order])
    return found


def _alerts(
    customer: str, placed: list[dict[str, Any]], limits: list[dict[str, Any]]
) -> Iterable[tuple[str, str, str, int]]:
    for number, order in enumerate(placed):
        at = order["at"]
        in_force = [each for each in limits if each["valid_from"] <= at]
        if not in_force:
            continue
        limit = max(in_force, key=lambda each: each["valid_from"])
        burst = sum(1 for each in placed[: number + 1] if each["at"] > at - BURST_MS)
        if order["cents"] > limit["max_cents"]:
            yield customer, order["order_id"], "large order", at
        if burst > limit["max_orders"]:
            yield customer, order["order_id"], "burst of orders", at


def found(servers: Servers) -> Results:
    """What readers see: of Iceberg, of PostgreSQL, and of committed messages in Kafka."""
    results = Results()
    table = servers.catalog().load_table("shop.settled").scan().to_arrow()
    results.settled.update(tuple(row.values()) for row in table.to_pylist())
    with psycopg.connect(servers.postgres.conninfo) as db:
        results.revenue.update(db.execute("SELECT country, orders, cents FROM revenue").fetchall())
        for customer, start, end, orders, cents in db.execute(
            "SELECT customer, window_start, window_end, orders, cents FROM sessions"
        ):
            results.sessions[customer, _ms(start), _ms(end), orders, cents] += 1
    for alert in read_alerts(servers.kafka.bootstrap_servers):
        results.alerts[alert["customer"], alert["order_id"], alert["rule"], alert["at"]] += 1
    return results


def read_alerts(bootstrap_servers: str) -> list[dict[str, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers, "group.id": "verifier", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    alerts: list[dict[str, Any]] = []
    reading = set(range(TOPICS["alerts"]))
    consumer.assign([TopicPartition("alerts", partition, OFFSET_BEGINNING) for partition in reading])
    try:
        while reading:
            message = consumer.poll(60)
            if message is None:
                raise RuntimeError("The broker does not answer.")
            if message.error() is None:
                alerts.append(json.loads(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reading.discard(message.partition())
    finally:
        consumer.close()
    return alerts


@dataclass(frozen=True)
class Verdict:
    """One output, compared."""

    output: str
    expected: int
    lost: Rows
    """Rows that are not there."""
    doubled: Rows
    """Rows that are there more than once."""
    wrong: Rows
    """Rows that should not be there at all."""

    @property
    def exact(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def __str__(self) -> str:
        lost, doubled, wrong = (each.total() for each in (self.lost, self.doubled, self.wrong))
        return f"{self.output:<9} {self.expected:>6} rows expected: {lost} lost, {doubled} doubled, {wrong} wrong"


def all_exact(verdicts: Sequence[Verdict]) -> bool:
    """Whether rows were expected and all outputs have exactly those."""
    return any(verdict.expected for verdict in verdicts) and all(verdict.exact for verdict in verdicts)


def compare(expected: Results, found: Results) -> list[Verdict]:
    verdicts = []
    for output in ("settled", "revenue", "sessions", "alerts"):
        wanted, seen = getattr(expected, output), getattr(found, output)
        doubled = Counter({row: count - wanted[row] for row, count in seen.items() if count > wanted[row] > 0})
        wrong = Counter({row: count for row, count in seen.items() if row not in wanted})
        verdicts.append(Verdict(output, wanted.total(), wanted - seen, doubled, wrong))
    return verdicts


def verify(journal: Path, servers: Servers) -> list[Verdict]:
    return compare(expected(read_journal(journal)), found(servers))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
