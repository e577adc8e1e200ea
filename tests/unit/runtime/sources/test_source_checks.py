"""What the text of a plan says about a source. The texts are Spark's own; `tests/integration/test_sources.py` asks Spark."""

from __future__ import annotations

import pytest

from tidegate.runtime.sources.source_checks import reordering

KAFKA = (
    "== Parsed Logical Plan ==\n"
    "StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@4bb4, kafka, "
    "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@1f8c, [{}], [key#7, value#8, topic#9]\n"
    "== Physical Plan ==\nStreamingRelation kafka, [key#7, value#8, topic#9]\n"
)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("subscribe=orders, minPartitions=64, kafka.bootstrap.servers=b:9092", "minPartitions=64"),
        ("minpartitions=64", "minpartitions=64"),
        ("subscribe=orders, maxRecordsPerPartition=1000", "maxRecordsPerPartition=1000"),
        ("subscribe=orders, kafka.bootstrap.servers=b:9092", None),
        ("subscribe=minPartitions", None),
    ],
)
def test_a_kafka_partition_that_is_split_over_several_tasks_is_noticed(options: str, found: str | None) -> None:
    assert reordering(KAFKA.format(options)) == found


def test_options_of_other_sources_are_their_own() -> None:
    assert reordering(KAFKA.format("minPartitions=64").replace("kafka010.KafkaSource", "mine.Source")) is None
