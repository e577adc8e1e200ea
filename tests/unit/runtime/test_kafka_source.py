"""What `kafka_source` refuses before it asks anybody, and how its errors come back through Spark."""

from __future__ import annotations

import pickle

import pytest

from tidegate.connectors.kafka.errors import RowsGone
from tidegate.connectors.kafka.reader import Cluster
from tidegate.core.errors import GraphError, PreconditionFailed
from tidegate.runtime.kafka_source import KafkaDataSource, KafkaStreamReader, kafka_source, recognise


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"topics": []}, "needs a topic"),
        ({"starting_offsets": "yesterday"}, "'earliest', 'latest'"),
        ({"isolation_level": "dirty"}, "read_committed"),
        ({"max_offsets_per_trigger": 0}, "at least 1"),
        ({"config": {"group.id": "mine"}}, "group.id"),
    ],
)
def test_a_wrong_choice_is_told_at_once(choice, words):
    with pytest.raises(GraphError, match=words):
        kafka_source(None, "host:9092", **{"topics": "t"} | choice)


def test_an_error_of_ours_comes_back_as_itself():
    raised = RowsGone(["partition 0 of 't' at 4"])
    through_spark = RuntimeError(
        f"[STREAM_FAILED] …\n  File …\ntidegate.connectors.kafka.errors.RowsGone: {raised}\n\nJVM …"
    )
    back = recognise(through_spark)
    assert isinstance(back, RowsGone)
    assert isinstance(back, PreconditionFailed)
    assert str(back) == str(raised)


@pytest.mark.parametrize("text", ["out of memory", "pyspark.errors.X: no", "tidegate.core.errors.NoSuchThing: hm"])
def test_any_other_error_stays_as_it_is(text):
    error = RuntimeError(text)
    assert recognise(error) is error


def test_settings_of_the_client_arrive_and_headers_are_columns_where_wanted():
    options = {
        "servers": "host:9092", "topics": '["t"]', "starting": '"latest"', "isolation": "read_committed", "most_rows": "5",
        "headers": "true", "fail_on_data_loss": "true", "discovery_ms": "1000", "kafka.sasl.username": "ann",
    }  # fmt: skip
    source = KafkaDataSource(options)
    assert "headers array" in source.schema()
    reader = source.streamReader(None)
    assert reader._cluster.config == {"sasl.username": "ann"}
    assert reader.getDefaultReadLimit().max_rows == 5


def test_a_reader_travels_to_tasks_without_its_connection():
    reader = KafkaStreamReader(Cluster("host:9092"), ["t"], "latest", None, False, True, 1.0)
    reader._watch = object()
    assert pickle.loads(pickle.dumps(reader))._watch is None
