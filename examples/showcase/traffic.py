"""The traffic of the shop: what customers do, and which limits apply to them. The same seed makes the same traffic."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from examples.showcase.customers import customers

LIMITS_EVERY_MS = 15_000
ANNOUNCED_MS = 3_000
"""New limits are announced so long before they are in force."""
DISORDER_MS = 2_000
"""An event is sent at most so long after its time. So events arrive out of order, and by less than the job allows for."""


@dataclass(frozen=True)
class Message:
    topic: str
    key: str
    value: dict[str, Any]


class Traffic:
    """Messages in the order in which they are sent. Customers come in bursts; most pay, some too late, some never."""

    def __init__(self, seed: int, rate: float, start_ms: int) -> None:
        """`rate`: orders per second."""
        self._random = random.Random(seed)
        self._rate = rate
        self._next_order_ms, self._next_limits_ms = float(start_ms), start_ms
        self._customers = list(customers())
        self._busy = self._customers[:8]
        self._due: list[tuple[int, int, Message]] = []
        """Time of sending, a number that breaks ties, and what is sent."""
        self._orders = self._messages = 0

    def until(self, now_ms: int) -> Iterator[Message]:
        """All messages that are due by now and were not returned before."""
        while self._next_limits_ms <= now_ms:
            self._announce(self._next_limits_ms)
            self._next_limits_ms += LIMITS_EVERY_MS
        while self._next_order_ms <= now_ms:
            self._order(int(self._next_order_ms))
            self._next_order_ms += self._random.expovariate(self._rate / 1000)
        while self._due and self._due[0][0] <= now_ms:
            yield heapq.heappop(self._due)[2]

    def rest(self) -> Iterator[Message]:
        """What is still to come of the orders that were placed: messages on their way, and payments."""
        while self._due:
            yield heapq.heappop(self._due)[2]

    def _announce(self, at: int) -> None:
        # The first ones are in force at once.
        valid_from = at if not self._orders else at + ANNOUNCED_MS
        limits = {"max_cents": self._random.randrange(8_000, 30_000), "max_orders": self._random.randrange(3, 8)}
        self._send(at, "limits", "limits", valid_from=valid_from, **limits)

    def _order(self, at: int) -> None:
        if self._random.random() < 0.05:  # from now on, others are busy
            self._busy = self._random.sample(self._customers, 8)
        order_id, customer = f"o-{self._orders:06d}", self._random.choice(self._busy)
        self._orders += 1
        cents = min(200_000, int(self._random.lognormvariate(8, 1.2)))
        self._send(self._delayed(at), "orders", customer, order_id=order_id, customer=customer, cents=cents, at=at)
        fate = self._random.random()
        if fate < 0.95:  # 5 % never pay
            in_time = fate < 0.9
            paid = at + (self._random.randrange(500, 12_000) if in_time else self._random.randrange(20_001, 24_000))
            method = self._random.choice(("card", "transfer", "wallet"))
            self._send(self._delayed(paid), "payments", order_id, order_id=order_id, method=method, at=paid)

    def _delayed(self, at: int) -> int:
        return at + self._random.randrange(DISORDER_MS)

    def _send(self, due_ms: int, topic: str, key: str, **value: Any) -> None:
        self._messages += 1
        heapq.heappush(self._due, (due_ms, self._messages, Message(topic, key, value)))
