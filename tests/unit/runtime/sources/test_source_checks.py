"""What the text of a plan says about a source. The texts are Spark's own; `tests/integration/test_sources.py` asks Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.core.errors import PreconditionFailed
from tidegate.core.ids import Uid
from tidegate.graph.model import NodeId, Source
from tidegate.runtime.sources.source_checks import check_sources, reordering
from tidegate.schema.schema import Schema

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
def test_a_kafka_partition_split_over_several_tasks_is_detected(options: str, found: str | None) -> None:
    assert reordering(KAFKA.format(options)) == found


def test_options_of_other_sources_are_their_own() -> None:
    assert reordering(KAFKA.format("minPartitions=64").replace("kafka010.KafkaSource", "mine.Source")) is None


class Planned:
    """A DataFrame of which only the plan is known."""

    def __init__(self, plan: str) -> None:
        self._plan = plan

    def explain(self, extended: bool) -> None:
        print(self._plan)


@pytest.mark.feature("D33")
def test_a_job_with_checkpoints_needs_sources_that_can_be_read_again() -> None:
    socket = "StreamingRelation org.apache.spark.sql.execution.streaming.sources.TextSocketSourceProvider, socket\n"
    source = Source(id=NodeId(0), uid=Uid("in"), schema=Schema(()), frame=Planned(socket))
    with pytest.raises(PreconditionFailed, match=r"source 'in' reads a socket, which keeps no row"):
        check_sources([source])
    check_sources([source], durable=False)
    check_sources([replace(source, frame=Planned(KAFKA.format("subscribe=orders")))])
