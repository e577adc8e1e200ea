"""What `kafka_source` refuses before it asks anybody, and how its errors come back through Spark."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest

import tidegate.runtime.sources.kafka_source as kafka_source_module
from tidegate.connectors.kafka.errors import RowsGone
from tidegate.connectors.kafka.formats.decoding import Decoding
from tidegate.connectors.kafka.reader import Cluster
from tidegate.core.errors import GraphError, PreconditionFailed
from tidegate.runtime.sources.kafka_source import KafkaDataSource, KafkaStreamReader, kafka_source, recognise

ReadAllAvailable = pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="kafka_source needs Spark 4.2"
).ReadAllAvailable


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
def test_a_wrong_choice_is_reported_at_once(choice, words):
    with pytest.raises(GraphError, match=words):
        kafka_source(None, "host:9092", **{"topics": "t"} | choice)


def test_an_error_of_tidegate_keeps_its_type():
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


def test_client_settings_arrive_and_headers_become_columns_on_request():
    options = {
        "servers": "host:9092", "topics": '["t"]', "starting": '"latest"', "isolation": "read_committed", "most_rows": "5",
        "secret.decoding": Decoding(headers=True).to_json(),
        "fail_on_data_loss": "true", "discovery_ms": "1000", "secret.kafka.sasl.username": "ann",
    }  # fmt: skip
    source = KafkaDataSource(options)
    assert "headers array" in source.schema()
    reader = source.streamReader(None)
    assert reader._cluster.config == {"sasl.username": "ann"}
    assert reader.getDefaultReadLimit().max_rows == 5  # type: ignore[attr-defined]


class Session:
    """As much of a SparkSession as declaring a source asks for. The reader is the one that Spark would make."""

    version = "4.2.0"

    @property
    def dataSource(self):
        return self

    @property
    def readStream(self):
        return self

    def register(self, source):
        self.source = source

    def format(self, name):
        return self

    def options(self, **given):
        self.given = given
        return self

    def load(self):
        return self.source(self.given).streamReader(None)


class Broker:
    """Answers as a broker does that was just started: first it knows nothing."""

    def __init__(self, offsets, unknown=0, first=0):
        self.offsets, self.unknown, self.first = offsets, unknown, first

    def partitions(self, topics):
        self.unknown -= 1
        return [] if self.unknown >= 0 else sorted(self.offsets)

    def earliest(self, places):
        return dict.fromkeys(places, self.first)

    def latest(self, places):
        return {place: self.offsets[place] for place in places}


class SlowBroker(Broker):
    def latest(self, places):
        time.sleep(0.01)
        return super().latest(places)


def reading(broker: Broker, **choices: Any) -> Any:
    """The reader of a source that is declared with these choices, in front of this broker."""
    reader: Any = kafka_source(Session(), "host:9092", "t", **choices)  # type: ignore[arg-type]
    reader._watch = broker
    return reader


def test_a_topic_that_is_missing_for_a_moment_is_not_gone():
    reader = KafkaStreamReader(Cluster("host:9092"), ["t"], "earliest", None, Decoding(), True, 0.0)
    reader._watch = Broker({("t", 0): 9}, unknown=2)
    assert reader.initialOffset() == {"t": {"0": 0}}
    reader._watch.unknown = 2
    assert reader.latestOffset({"t": {"0": 4}}, ReadAllAvailable()) == {"t": {"0": 9}}


def test_a_position_that_stays_beyond_the_end_is_gone(monkeypatch):
    monkeypatch.setattr(kafka_source_module, "_BELIEF_S", 0.0)
    reader = KafkaStreamReader(Cluster("host:9092"), ["t"], "earliest", None, Decoding(), True, 0.0)
    reader._watch = Broker({("t", 0): 3}, unknown=0)
    with pytest.raises(RowsGone, match="ends at 3"):
        reader.latestOffset({"t": {"0": 4}}, ReadAllAvailable())


@pytest.mark.feature("K17")
def test_a_job_skips_rows_that_kafka_has_deleted_only_if_configured_to(monkeypatch):
    """The checkpoint that it returns to is older than what the topic keeps."""
    monkeypatch.setattr(kafka_source_module, "_BELIEF_S", 0.0)
    reader = reading(Broker({("t", 0): 9}, first=6))
    with pytest.raises(RowsGone, match=r"partition 0 of 't' at 5, where Kafka has deleted everything before 6"):
        reader.latestOffset({"t": {"0": 5}}, ReadAllAvailable())
    with pytest.raises(RowsGone):
        reader.partitions({"t": {"0": 5}}, {"t": {"0": 9}})
    lenient = reading(Broker({("t", 0): 9}, first=6), fail_on_data_loss=False)
    assert lenient.latestOffset({"t": {"0": 5}}, ReadAllAvailable()) == {"t": {"0": 9}}


@pytest.mark.feature("K8", "N29", "O12")
def test_a_position_whose_rows_retention_has_deleted_ends_the_job_unless_the_loss_is_accepted(monkeypatch):
    monkeypatch.setattr(kafka_source_module, "_BELIEF_S", 0.0)
    strict, lenient = (
        KafkaStreamReader(Cluster("host:9092"), ["t"], "earliest", None, Decoding(), fails, 0.0)
        for fails in (True, False)
    )
    strict._watch = lenient._watch = Broker({("t", 0): 20}, unknown=0, first=15)
    with pytest.raises(RowsGone, match="at 10, where Kafka has deleted everything before 15"):
        strict.latestOffset({"t": {"0": 10}}, ReadAllAvailable())
    assert lenient.latestOffset({"t": {"0": 10}}, ReadAllAvailable()) == {"t": {"0": 20}}


@pytest.mark.feature("K8")
def test_with_a_target_duration_slow_epochs_become_smaller():
    reader = reading(SlowBroker({("t", 0): 100_000}), target_epoch_duration="1 ms")
    at, sizes = {"t": {"0": 0}}, []
    for _ in range(3):
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        sizes.append(end["t"]["0"] - at["t"]["0"])
        at = end
    assert sizes == [10_000, 5_000, 2_500]


def test_a_reader_travels_to_tasks_without_its_connection():
    reader = KafkaStreamReader(Cluster("host:9092"), ["t"], "latest", None, False, True, 1.0)
    reader._watch = object()
    assert pickle.loads(pickle.dumps(reader))._watch is None
