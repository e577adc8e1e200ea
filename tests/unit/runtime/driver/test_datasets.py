"""What lineage services are told of sources and sinks."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.connectors.dataset_names import of_path
from tidegate.runtime.driver.datasets import in_plan, written_datasets

SPARK_KAFKA = (
    "StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@1, kafka, "
    "[kafka.bootstrap.servers=a:9092,b:9092, subscribe=orders,clicks, startingOffsets=earliest], [key#1, value#2]"
)
OWN_KAFKA = 'StreamingRelationV2 tidegate-kafka, [servers=a:9092, topics=["orders", "clicks"], starting="earliest"]'


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        (SPARK_KAFKA, [("kafka://a:9092", "orders"), ("kafka://a:9092", "clicks")]),
        (OWN_KAFKA, [("kafka://a:9092", "orders"), ("kafka://a:9092", "clicks")]),
        ("StreamingRelation FileSource[/data/in]\nFileSource[/data/in]", [("file", "/data/in")]),
        ("FileStreamSource[s3a://lake/in/x]", [("s3a://lake", "in/x")]),
        ("StreamingRelation rate, [timestamp#0]", []),
    ],
)
def test_files_and_topics_are_found_in_the_plan(plan: str, found: list[tuple[str, str]]) -> None:
    assert in_plan(plan) == found


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("out/", ("file", "out/")),
        ("file:///data/out", ("file", "/data/out")),
        ("file:/data/out", ("file", "/data/out")),
        ("s3://bucket/a/b", ("s3://bucket", "a/b")),
        ("s3://bucket", ("s3://bucket", "/")),
    ],
)
def test_a_path_is_named_by_its_store_and_the_rest(path: str, name: tuple[str, str]) -> None:
    assert of_path(path) == name


def test_sinks_name_their_datasets_and_default_to_their_uid() -> None:
    job = tg.Job("shop")
    rows = job.source("in", tg.testing.frame("a int"))
    secret = "host=db port=5433 dbname=shop user=tide password=hunter2"
    for uid, sink in {
        "log": tg.KafkaSink("a:9092,b:9092", "orders"),
        "table": tg.PostgresSink(secret, "totals"),
        "memory": tg.DiscardSink(),
    }.items():
        rows.sink(uid, sink)
    found = written_datasets(job.graph())
    assert [(each.namespace, each.name) for each in found] == [
        ("kafka://a:9092", "orders"),
        ("postgres://db:5433", "shop.public.totals"),
        ("tidegate", "shop.memory"),
    ]
    assert {each.columns for each in found} == {(("a", "int"),)}
