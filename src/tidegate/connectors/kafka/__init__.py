"""Apache Kafka as a sink and as a source, without a jar. The one home of `confluent_kafka`, which is imported when used."""

from tidegate.connectors.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
