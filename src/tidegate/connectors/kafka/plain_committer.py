"""Sending without transactions: every row arrives at least once, in epoch order. A repeat sends the rows again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.connectors.kafka import records
from tidegate.connectors.kafka.client import CHECK_S, check_topic, connection, library, translate, translated
from tidegate.connectors.kafka.errors import KafkaUnavailable
from tidegate.connectors.kafka.payload import KafkaCommittable
from tidegate.connectors.read_ahead import read_ahead
from tidegate.connectors.sink import Committable

# How long brokers may accept nothing at all.
_SILENCE_S = 30.0


def sending_settings(bootstrap_servers: str, config: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of every producer. A key is sent to the partition that Java's producers would choose."""
    return {
        "partitioner": "murmur2_random",
        "linger.ms": 1,
        "queue.buffering.max.messages": 1_000_000,
        # Right after a commit, the broker asks the next transaction to retry a moment later; the
        # default of 100 ms is long for that.
        "retry.backoff.ms": 10,
        # After our defaults, which the user may change; before what must not be changed.
        **config,
        **connection(bootstrap_servers, config),
        "enable.idempotence": True,
    }


class StallTimeout:
    """Ends the wait for brokers that no longer accept anything; slow brokers get all the time they need."""

    def __init__(self, producer: Any, silence_s: float) -> None:
        self._producer = producer
        self._silence_s = silence_s
        self._waiting = len(producer)
        self._since = time.monotonic()

    def check(self) -> None:
        now, waiting = time.monotonic(), len(self._producer)
        if waiting < self._waiting:
            self._since = now
        elif now - self._since > self._silence_s:
            raise KafkaUnavailable(
                f"Kafka has accepted none of {waiting} rows for {self._silence_s:g} s. They will be sent again; check "
                "that the brokers are reachable."
            )
        self._waiting = waiting


def send(producer: Any, topic: str, packed: bytes, silence_s: float) -> None:
    """Pass the records of a part to the producer, waiting while its queue is full."""
    produce = producer.produce
    plain = records.is_plain(packed)
    for key, value, headers, partition, timestamp in records.unpack(packed):
        patience: StallTimeout | None = None
        while True:
            try:
                if plain:
                    # The usual case, and twice as fast as the call below.
                    produce(topic, value, key)
                else:
                    produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
                break
            except BufferError:
                patience = patience or StallTimeout(producer, silence_s)
                # Serves delivery reports, which is what makes room in the queue.
                producer.poll(0.1)
                patience.check()
    producer.poll(0)


def await_deliveries(producer: Any, silence_s: float) -> None:
    """Wait until the brokers have accepted or rejected every row."""
    patience = StallTimeout(producer, silence_s)
    while producer.flush(0.5):
        patience.check()


class PlainCommitter:
    keeps_markers = False

    def __init__(
        self,
        bootstrap_servers: str,
        config: Mapping[str, str],
        read: Callable[[str], bytes],
        payload_of: Callable[[Committable], KafkaCommittable],
        *,
        topic: str,
    ) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._settings = sending_settings(bootstrap_servers, config)
        self._read = read
        self._payload_of = payload_of
        self._producer: Any = None
        self._failed: list[Any] = []

    def check_target(self) -> None:
        check_topic(self._servers, self._settings, self._topic, CHECK_S)

    def commit(self, requests: Sequence[Committable]) -> None:
        """Send all rows and wait until the brokers have them. A crash in between leaves some of them sent."""
        # Of an earlier call; its rows are among these requests again.
        self._failed.clear()
        ordered = sorted(requests, key=lambda r: (r.epoch, r.slot))
        staged = [self._payload_of(request) for request in ordered]
        with translated("accept rows"):
            if self._producer is None:
                self._producer = library().Producer(
                    {**self._settings, "delivery.report.only.error": True, "on_delivery": self._on_delivery}
                )
            parts = [(each.topic, part.token) for each in staged for part in each.parts]
            for (topic, _), packed in zip(parts, read_ahead(self._read, [token for _, token in parts])):
                send(self._producer, topic, packed, _SILENCE_S)
            try:
                await_deliveries(self._producer, _SILENCE_S)
            except KafkaUnavailable:
                self._drop()
                raise
        if self._failed:
            self._drop()
            raise translate(self._failed[0], f"accept {len(self._failed)} rows")

    def _drop(self) -> None:
        """Drop the producer: rows still in its queue would be sent after later ones. A new producer has an empty queue."""
        self._producer.purge()
        self._producer = None

    def close(self) -> None:
        """Close the producer. The committer remains usable and opens a new one."""
        self._producer = None

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
