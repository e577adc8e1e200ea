"""The job of the shop: orders and payments from Kafka, out to Iceberg, PostgreSQL and Kafka, each row exactly once.

    tidegate run examples/showcase/job.py

Five things happen to an order:

1. `enrich` asks PostgreSQL for the customer's country.
2. `settle` joins it with its payment, if that comes within 20 seconds. Settled orders go to the Iceberg table `shop.settled`.
3. `revenue` adds up what was settled, for each country, in the PostgreSQL table `revenue`.
4. `sessions` groups the orders of a customer until ten seconds pass without one. Sessions go to the PostgreSQL table `sessions`.
5. `fraud` checks it against the limits in force at its time. Alerts go to the Kafka topic `alerts`.

The environment says where the servers are: SHOP_KAFKA, SHOP_POSTGRES and SHOP_LAKE.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

import tidegate as tg
from tidegate.connectors.lakehouse import IcebergSink

ORDER = "order_id string, customer string, cents bigint, at bigint"
PAYMENT = "order_id string, method string, at bigint"
LIMITS = "valid_from bigint, max_cents bigint, max_orders int"
"""Times are milliseconds since 1970. A message with limits replaces those before it, from `valid_from` on."""

PAY_WITHIN = "20 s"
SESSION_GAP = "10 s"
BURST_MS = 10_000
"""`max_orders` is how many orders a customer may place within so many milliseconds."""


class Enrich(tg.AsyncFunction):
    """Add the customer's country, which PostgreSQL knows."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo

    async def open(self, ctx) -> None:
        self.db: psycopg.AsyncConnection | None = None
        self.connecting = asyncio.Lock()

    async def async_invoke(self, order):
        db = await self.connected()
        found = await db.execute("SELECT country FROM customers WHERE customer = %s", [order.customer])
        [country] = await found.fetchone() or ["unknown"]
        return order.order_id, order.customer, country, order.cents, order.at, order.ts

    async def connected(self) -> psycopg.AsyncConnection:
        """One connection for all calls of a task. If it breaks, the call that is retried first opens another one."""
        async with self.connecting:
            if self.db is None or self.db.closed:
                self.db = await psycopg.AsyncConnection.connect(self.conninfo, autocommit=True)
            return self.db

    async def close(self) -> None:
        if self.db is not None:
            await self.db.close()


@dataclass
class Limits:
    """What a customer may do without an alert."""

    max_cents: int
    max_orders: int


class Fraud(tg.KeyedBroadcastProcessFunction):
    """Check each order against the limits in force at its time.

    An order waits until the watermark has passed it. By then all orders before it are here, and all limits that were announced
    before it. So an alert depends on the times of orders and limits, and not on when they happened to be read.
    """

    limits = tg.BroadcastState(int, Limits)
    """Valid from, and what."""
    waiting = tg.ListState(tuple[int, str, int])
    recent = tg.ListState(int)
    """Times of the last orders."""

    def process_broadcast_element(self, row, ctx) -> None:
        self.limits.put(row.valid_from, Limits(row.max_cents, row.max_orders))

    def process_element(self, order, ctx) -> None:
        self.waiting.add((order.at, order.order_id, order.cents))
        ctx.timer_service().register_event_time_timer(order.at)

    def on_timer(self, timestamp: int, ctx) -> Iterator[tuple[str, str]]:
        waiting = sorted(self.waiting.get())
        self.waiting.update([order for order in waiting if order[0] > timestamp])
        for at, order_id, cents in (order for order in waiting if order[0] <= timestamp):
            recent = [each for each in self.recent.get() if each > at - BURST_MS] + [at]
            self.recent.update(recent)
            for rule in broken_rules(self.limits_at(at), cents, len(recent)):
                alert = {"customer": ctx.get_current_key(), "order_id": order_id, "rule": rule, "at": at}
                yield ctx.get_current_key(), json.dumps(alert)

    def limits_at(self, at: int) -> Limits | None:
        announced = [(valid_from, limits) for valid_from, limits in self.limits.items() if valid_from <= at]
        return max(announced, key=lambda each: each[0])[1] if announced else None


def broken_rules(limits: Limits | None, cents: int, orders: int) -> list[str]:
    if limits is None:
        return []
    broken = {"large order": cents > limits.max_cents, "burst of orders": orders > limits.max_orders}
    return [rule for rule, is_broken in broken.items() if is_broken]


def settled(order, payment) -> tuple[str, str, str, int, str, int]:
    return order.order_id, order.customer, order.country, order.cents, payment.method, payment.at - order.at


def messages(spark, servers: str, topic: str, schema: str, time: str, **options):
    """The JSON messages of a topic as rows, with the partition they came from and their time as a timestamp."""
    records = tg.kafka_source(spark, servers, topic, value_format=tg.JsonFormat(schema), **options)
    return records.select("partition", "value.*").selectExpr("*", f"timestamp_millis({time}) AS ts")


def build(spark) -> tg.Job:
    servers, conninfo, lake = (os.environ[name] for name in ("SHOP_KAFKA", "SHOP_POSTGRES", "SHOP_LAKE"))
    catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}

    job = tg.Job("shop", parallelism=2)
    # Per partition: after a restart one may be read faster than another, and no row of the slower one is late.
    timed = {"event_time": "ts", "out_of_orderness": "5 s", "split": "partition"}
    orders = job.source(
        "orders", messages(spark, servers, "orders", ORDER, "at", max_offsets_per_trigger=2_000), **timed
    )
    payments = job.source(
        "payments", messages(spark, servers, "payments", PAYMENT, "at", max_offsets_per_trigger=2_000), **timed
    )
    limits = job.source("limits", messages(spark, servers, "limits", LIMITS, "valid_from"))

    enriched = orders.async_map(
        "enrich",
        Enrich(conninfo),
        schema="order_id string, customer string, country string, cents bigint, at bigint, ts timestamp",
        timeout="30 s",
        retry=tg.ExponentialBackoffDelayRetry(20, "100 ms", "2 s", if_exception=psycopg.OperationalError),
    )

    paid = enriched.key_by("order_id").interval_join(
        "settle",
        payments.key_by("order_id"),
        lower="0 s",
        upper=PAY_WITHIN,
        function=settled,
        schema="order_id string, customer string, country string, cents bigint, method string, paid_after_ms bigint",
    )
    paid.sink("lake", IcebergSink("lake", "shop.settled", catalog, create=True))

    revenue = paid.key_by("country").aggregate("revenue", orders=tg.count(), cents=tg.sum("cents"))
    revenue.sink("revenue-table", tg.PostgresSink(conninfo, "revenue", mode="upsert", key=["country"]))

    by_customer = enriched.key_by("customer")
    sessions = by_customer.window(tg.EventTimeSessionWindows.with_gap(SESSION_GAP)).aggregate(
        "sessions", orders=tg.count(), cents=tg.sum("cents")
    )
    sessions.sink("sessions-table", tg.PostgresSink(conninfo, "sessions"))

    alerts = by_customer.connect(limits.broadcast()).process("fraud", Fraud(), schema="key string, value string")
    alerts.sink("alerts", tg.KafkaSink(servers, "alerts"))
    return job
