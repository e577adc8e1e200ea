"""The showcase without its servers: what the verifier expects, what it notices, and how the job checks orders for fraud."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import psycopg
import pytest

import tidegate as tg
from examples.showcase import job as shop
from examples.showcase.traffic import DISORDER_MS, Message, Traffic
from examples.showcase.verifier import Results, all_exact, compare, expected
from tidegate.core.times import moment

T0 = 1_700_000_000_000
ORDERS = "order_id string, customer string, country string, cents bigint, at bigint, ts timestamp"


def order(number: int, at: int, cents: int = 100, customer: str = "c-000") -> dict[str, Any]:
    return {"order_id": f"o-{number}", "customer": customer, "cents": cents, "at": T0 + at}


def payment(number: int, at: int) -> dict[str, Any]:
    return {"order_id": f"o-{number}", "method": "card", "at": T0 + at}


def sent(orders=(), payments=(), limits=()) -> dict[str, list[dict[str, Any]]]:
    return {"orders": list(orders), "payments": list(payments), "limits": list(limits)}


def traffic(seconds: int = 120, rate: float = 20) -> list[Message]:
    made = Traffic(3, rate, T0)
    return [*made.until(T0 + seconds * 1000), *made.rest()]


def by_topic(messages: list[Message]) -> dict[str, list[dict[str, Any]]]:
    return {
        topic: [message.value for message in messages if message.topic == topic]
        for topic in ("orders", "payments", "limits")
    }


@pytest.mark.parametrize(("after_ms", "settled"), [(0, 1), (20_000, 1), (20_001, 0)])
def test_an_order_is_settled_if_it_is_paid_within_twenty_seconds(after_ms, settled):
    results = expected(sent([order(1, 0)], [payment(1, after_ms)]))
    assert results.settled.total() == settled
    assert results.revenue == (Counter({("de", 1, 100): 1}) if settled else Counter())


def test_a_session_ends_after_ten_seconds_without_an_order():
    results = expected(sent([order(3, 20_002, 3), order(1, 0, 1), order(2, 10_000, 2)]))
    assert results.sessions == Counter(
        {("c-000", T0, T0 + 20_000, 2, 3): 1, ("c-000", T0 + 20_002, T0 + 30_002, 1, 3): 1}
    )


def test_the_limits_of_an_alert_are_those_in_force_at_the_time_of_the_order():
    limits = [
        {"valid_from": T0 + 50, "max_cents": 10, "max_orders": 9},
        {"valid_from": T0, "max_cents": 99, "max_orders": 1},
    ]
    results = expected(sent([order(1, 40, 50), order(2, 49, 50), order(3, 50, 50)], limits=limits))
    assert {(id, rule) for _, id, rule, _ in results.alerts} == {("o-2", "burst of orders"), ("o-3", "large order")}


def test_a_run_without_rows_proves_nothing():
    assert not all_exact(compare(Results(), Results()))
    rows = Results(alerts=Counter({("x",): 1}))
    assert all_exact(compare(rows, rows))
    assert not all_exact(compare(rows, Results()))


def test_missing_doubled_and_invented_rows_are_distinguished():
    wanted = Results(settled=Counter({("a",): 1, ("b",): 1}), alerts=Counter({("x",): 1}))
    seen = Results(settled=Counter({("b",): 3, ("c",): 1}), alerts=Counter({("x",): 1}))
    settled, revenue, sessions, alerts = compare(wanted, seen)
    assert (settled.lost, settled.doubled, settled.wrong) == (
        Counter([("a",)]),
        Counter({("b",): 2}),
        Counter([("c",)]),
    )
    assert not settled.exact
    assert revenue.exact
    assert sessions.exact
    assert alerts.exact
    assert str(settled) == "settled        2 rows expected: 1 lost, 2 doubled, 1 wrong"


def test_traffic_is_out_of_order_by_less_than_the_job_allows_and_has_every_kind_of_order():
    messages = traffic()
    latest: dict[str, int] = {}
    behind = []
    for message in messages:
        if message.topic != "limits":
            at = message.value["at"]
            latest[message.topic] = max(at, latest.get(message.topic, at))
            behind.append(latest[message.topic] - at)
    assert 0 < max(behind) < DISORDER_MS
    results = expected(by_topic(messages))
    placed = sum(message.topic == "orders" for message in messages)
    assert 0.8 * placed < results.settled.total() < 0.95 * placed
    assert {rule for _, _, rule, _ in results.alerts} == {"large order", "burst of orders"}
    assert any(orders > 3 for _, _, _, orders, _ in results.sessions)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_the_job_finds_the_alerts_of_the_verifier_in_whatever_order_rows_are_read(backend):
    """Batches of rows in random order, limits among them, and the watermark after each; a restore in the middle."""
    messages = [message for message in traffic(40, rate=10) if message.topic != "payments"]
    job = tg.Job("fraud")
    orders = job.source("orders", tg.testing.frame(ORDERS), event_time="ts").key_by("customer")
    limits = job.source("limits", tg.testing.frame(shop.LIMITS)).broadcast()
    checked = orders.connect(limits).process("fraud", shop.Fraud(), schema="key string, value string")
    alerts: Counter[tuple[Any, ...]] = Counter()
    chance = random.Random(5)
    snapshot = None
    for half in (messages[: len(messages) // 2], messages[len(messages) // 2 :]):
        with tg.testing.harness(checked, state_backend=backend, restore=snapshot, parallelism=2) as h:
            for start in range(0, len(half), 50):
                batch = half[start : start + 50]
                chance.shuffle(batch)
                for message in batch:
                    value = message.value
                    if message.topic == "limits":
                        h.process_broadcast((value["valid_from"], value["max_cents"], value["max_orders"]))
                    else:
                        at, columns = value["at"], (value["order_id"], value["customer"], "de", value["cents"])
                        h.process((*columns, at, moment(at)))
                times = [message.value["at"] for message in batch if message.topic == "orders"]
                h.advance_watermark(max(times) - 5_000)
            if half[-1] is messages[-1]:
                h.advance_watermark(T0 + 10**9)
            for _, value in h.output():
                alert = json.loads(value)
                alerts[alert["customer"], alert["order_id"], alert["rule"], alert["at"]] += 1
            snapshot = h.snapshot()
    assert alerts == expected(by_topic(messages)).alerts
    assert alerts


def test_lookups_of_a_task_share_a_connection_and_a_broken_one_is_replaced(monkeypatch):
    opened: list[Database] = []

    class Found:
        async def fetchone(self):
            return ["de"]

    class Database:
        closed = False

        async def execute(self, statement, values):
            await asyncio.sleep(0)
            if values == ["c-002"] and len(opened) == 1:
                self.closed = True
                raise psycopg.OperationalError("the server has ended")
            return Found()

        async def close(self):
            self.closed = True

    async def connect(conninfo, autocommit):
        await asyncio.sleep(0)
        opened.append(Database())
        return opened[-1]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect)
    orders = tg.Job("enrich").source(
        "orders", tg.testing.frame("order_id string, customer string, cents bigint, at bigint, ts timestamp")
    )
    enriched = orders.async_map(
        "enrich", shop.Enrich(""), schema=ORDERS, timeout="5 s", retry=tg.FixedDelayRetry(3, "1 ms")
    )
    with tg.testing.harness(enriched) as h:
        h.process(*[(f"o-{n}", f"c-{n % 4:03d}", 5, n, moment(n)) for n in range(20)])
        assert [(row.order_id, row.country) for row in h.output()] == [(f"o-{n}", "de") for n in range(20)]
    assert len(opened) == 2
    assert all(database.closed for database in opened)
