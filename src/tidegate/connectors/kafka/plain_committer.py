"""Sending without transactions: every row arrives at least once, in the order of its slot. A repeat sends again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tidegate.connectors.kafka import records
from tidegate.connectors.kafka.client import connection, library, translate, translated
from tidegate.connectors.kafka.errors import KafkaUnavailable
from tidegate.connectors.kafka.sink import Staged
from tidegate.connectors.sink import CommitRequest

_FLUSH_S = 120.0


def sending_settings(bootstrap_servers: str, config: Mapping[str, str]) -> dict[str, Any]:
    """Settings of any producer of ours. A key goes to the partition where Java's producers would put it."""
    return {
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
        **config,
        **connection(bootstrap_servers, config),
        "enable.idempotence": True,
    }


def send(producer: Any, topic: str, packed: bytes) -> None:
    """Hand the records of a part to the producer, waiting when its queue is full."""
    produce = producer.produce
    for key, value, headers, partition, timestamp in records.unpack(packed):
        while True:
            try:
                produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)


class PlainCommitter:
    def __init__(self, bootstrap_servers: str, config: Mapping[str, str], read: Callable[[str], bytes]) -> None:
        self._settings = sending_settings(bootstrap_servers, config)
        self._read = read
        self._producer: Any = None
        self._failed: list[Any] = []

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Send all rows and wait until the brokers have them. A crash in between leaves some of them sent."""
        self._failed.clear()
        with translated("take rows"):
            if self._producer is None:
                self._producer = library().Producer(
                    {**self._settings, "delivery.report.only.error": True, "on_delivery": self._on_delivery}
                )
            for request in sorted(requests, key=lambda r: (r.epoch, r.slot)):
                staged = msgspec.json.decode(request.payload, type=Staged)
                for part in staged.parts:
                    send(self._producer, staged.topic, self._read(part.token))
            left = self._producer.flush(_FLUSH_S)
        if self._failed or left:
            # What still waits would be sent after what comes next: a new producer has an empty queue.
            self._producer.purge()
            self._producer = None
        if self._failed:
            raise translate(self._failed[0], f"take {len(self._failed)} rows")
        if left:
            raise KafkaUnavailable(f"Kafka has not taken {left} rows within {_FLUSH_S:g} s; they are sent again.")

    def close(self) -> None:
        """Let go of the producer. The committer may still be used, and opens a new one."""
        self._producer = None

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
