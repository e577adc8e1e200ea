"""Sends the traffic to Kafka, and writes down what it has sent: the verifier compares the results with that."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from examples.showcase.traffic import Message, Traffic

FLUSH_S = 120.0
"""How long the broker may be away."""


class Generator:
    """A thread that sends, from `start` to `stop`. `sent.jsonl` in the folder has every message, one per line."""

    def __init__(self, servers: str, folder: Path, *, seed: int, rate: float) -> None:
        # Idempotent: a message that is sent again after a broken connection is stored once.
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self._traffic = Traffic(seed, rate, _now_ms())
        self.journal = folder / "sent.jsonl"
        self.orders = self.payments = 0
        self._lost: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send what belongs to the orders so far, and return when Kafka has everything."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_S)
        if left or self._lost:
            raise RuntimeError(f"Kafka has not taken {left} messages, and refused {self._lost[:3]}.")

    def _run(self) -> None:
        with self.journal.open("w", buffering=1) as journal:
            while not self._stopping.wait(0.1):
                for message in self._traffic.until(_now_ms()):
                    self._send(message, journal)
            for message in self._traffic.rest():
                self._send(message, journal)

    def _send(self, message: Message, journal) -> None:
        value = json.dumps(message.value)
        journal.write(json.dumps({"topic": message.topic, **message.value}) + "\n")
        self._producer.produce(message.topic, key=message.key, value=value, on_delivery=self._delivered)
        self._producer.poll(0)
        self.orders += message.topic == "orders"
        self.payments += message.topic == "payments"
        if message.topic == "limits":
            # Whoever announces limits waits until they are stored. Orders that they apply to are sent later.
            self._producer.flush(FLUSH_S)

    def _delivered(self, error, message) -> None:
        if error is not None:
            self._lost.append(str(error))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
