"""What a Kafka source says of a topic that does not exist. No broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.connectors.kafka.reader import Cluster
from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.sources import kafka_source
from tidegate.runtime.sources.kafka_source import KafkaStreamReader


def test_a_missing_topic_is_named_with_the_address_of_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "_BELIEF_S", -1.0)
    monkeypatch.setattr(KafkaStreamReader, "_discover", lambda reader: [])
    decoding = SimpleNamespace()
    reader = KafkaStreamReader(Cluster("kafka:9092"), ["orders"], "earliest", None, decoding, True, 1.0)  # type: ignore[arg-type]
    with pytest.raises(PreconditionFailed, match="Kafka has no topic 'orders' at kafka:9092"):
        reader.initialOffset()
