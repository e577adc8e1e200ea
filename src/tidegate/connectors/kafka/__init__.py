"""Apache Kafka as a sink and as a source, without a jar. The only package that imports `confluent_kafka`, and only when used."""

from tidegate.connectors.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
