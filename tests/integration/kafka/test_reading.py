"""The Kafka source as Spark calls it, against a real broker, without Spark itself."""

from __future__ import annotations

import time

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.integration.kafka.topics import Output, fill
from tidegate.connectors.kafka import KafkaSink
from tidegate.connectors.kafka.errors import RowsGone
from tidegate.connectors.kafka.formats.decoding import Decoding
from tidegate.connectors.kafka.reader import Cluster
from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.sources.kafka_source import KafkaStreamReader

ALL = ReadAllAvailable()


def reader(kafka, topic, starting="earliest", most=None, headers=False, fails=True, isolation="read_committed"):
    cluster = Cluster(kafka.bootstrap_servers, {}, isolation)
    return KafkaStreamReader(cluster, [topic], starting, most, Decoding(headers=headers), fails, discovery_s=0)


def rows(one, start, end):
    return [row for split in one.partitions(start, end) for batch in one.read(split) for row in batch.to_pylist()]


def values(one, start, end):
    return [row["value"].decode() for row in rows(one, start, end)]


def numbers(count, **more):
    return [{"value": str(n), **more} for n in range(count)]


def delete_before(kafka, topic, offset):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    [done] = admin.delete_records([ck.TopicPartition(topic, 0, offset)]).values()
    done.result(30)


def test_a_row_has_everything_that_a_record_has(kafka):
    topic = kafka.topic(partitions=2)
    sent = int(time.time() * 1000) - 3_600_000
    full = {"key": b"k", "value": b"v", "headers": [("h", b"1")], "partition": 1, "timestamp": sent}
    fill(kafka, topic, [full])
    one = reader(kafka, topic, headers=True)
    start = one.initialOffset()
    [row] = rows(one, start, one.latestOffset(start, ALL))
    at = row.pop("timestamp")
    assert row == {
        "key": b"k", "value": b"v", "topic": topic, "partition": 1, "offset": 0, "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }  # fmt: skip
    assert round(at.timestamp() * 1000) == sent


@pytest.mark.feature("J11")
def test_a_range_brings_the_same_rows_whenever_it_is_read(kafka):
    topic = kafka.topic()
    fill(kafka, topic, numbers(30_000))
    one = reader(kafka, topic)
    end = {topic: {"0": 29_999}}
    assert values(one, {topic: {"0": 7}}, end) == [str(n) for n in range(7, 29_999)]
    fill(kafka, topic, numbers(5))
    assert len(values(reader(kafka, topic), {topic: {"0": 7}}, end)) == 29_992


def test_only_committed_rows_count_and_the_ends_of_transactions_are_no_rows(kafka, tmp_path):
    topic = kafka.topic()
    output = Output(KafkaSink(kafka.bootstrap_servers, topic), tmp_path)
    for epoch in range(1, 4):
        output.commit(output.numbers([epoch], epoch))
    pending = ck.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"open-{topic}"})
    pending.init_transactions(30)
    pending.begin_transaction()
    pending.produce(topic, "open")
    pending.flush(30)
    one = reader(kafka, topic)
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    assert values(one, start, end) == ["1", "2", "3"]
    pending.abort_transaction(30)
    fill(kafka, topic, [{"value": "after"}])
    assert values(one, end, one.latestOffset(end, ALL)) == ["after"]


def test_latest_means_the_moment_of_the_first_start(kafka):
    topic = kafka.topic()
    fill(kafka, topic, numbers(3))
    start = reader(kafka, topic, "latest").initialOffset()
    fill(kafka, topic, [{"value": "new"}])
    one = reader(kafka, topic, "latest")
    assert values(one, start, one.latestOffset(start, ALL)) == ["new"]


def test_a_start_may_be_named_for_each_partition(kafka):
    topic = kafka.topic()
    fill(kafka, topic, numbers(5))
    one = reader(kafka, topic, {topic: {"0": 3}})
    start = one.initialOffset()
    assert values(one, start, one.latestOffset(start, ALL)) == ["3", "4"]


def test_partitions_made_later_are_found_and_read_from_their_beginning(kafka):
    topic = kafka.topic()
    one = reader(kafka, topic, "latest")
    start = one.initialOffset()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    fill(kafka, topic, [{"value": "a", "partition": 2}, {"value": "b", "partition": 0}])
    found = []
    for _ in range(3):
        end = one.latestOffset(start, ALL)
        found += values(one, start, end)
        start = end
    assert sorted(found) == ["a", "b"]
    assert start == {topic: {"0": 1, "1": 0, "2": 1}}


def test_an_epoch_takes_no_more_than_it_is_allowed(kafka):
    topic = kafka.topic(partitions=2)
    fill(kafka, topic, [*numbers(10, partition=0), *numbers(4, partition=1)])
    one = reader(kafka, topic, most=5)
    at, sizes, found = one.initialOffset(), [], []
    while (end := one.latestOffset(at, one.getDefaultReadLimit())) != at:
        found += values(one, at, end)
        sizes.append(len(found) - sum(sizes))
        at = end
    assert len(found) == 14
    assert max(sizes) == 5
    assert one.getDefaultReadLimit() == ReadMaxRows(5)


def test_available_now_ends_where_the_topic_ended_when_it_began(kafka):
    topic = kafka.topic()
    fill(kafka, topic, numbers(3))
    one = reader(kafka, topic)
    one.prepareForTriggerAvailableNow()
    fill(kafka, topic, numbers(3))
    end = one.latestOffset(one.initialOffset(), ALL)
    assert end == {topic: {"0": 3}}
    assert one.latestOffset(end, ALL) == end


@pytest.mark.feature("K17")
def test_a_position_that_kafka_has_deleted_is_an_error_with_a_choice(kafka):
    topic = kafka.topic()
    fill(kafka, topic, numbers(10))
    delete_before(kafka, topic, 6)
    start = {topic: {"0": 4}}
    with pytest.raises(RowsGone, match=r"deleted everything before 6.*fail_on_data_loss=False"):
        reader(kafka, topic).latestOffset(start, ALL)
    with pytest.raises(RowsGone, match="deleted everything before 6"):
        reader(kafka, topic).partitions(start, {topic: {"0": 10}})
    lenient = reader(kafka, topic, fails=False)
    assert values(lenient, start, lenient.latestOffset(start, ALL)) == ["6", "7", "8", "9"]


@pytest.mark.feature("K17")
def test_rows_deleted_before_a_task_reads_them_are_reported(kafka):
    topic = kafka.topic()
    fill(kafka, topic, numbers(10))
    one = reader(kafka, topic)
    [split] = one.partitions({topic: {"0": 0}}, {topic: {"0": 10}})
    delete_before(kafka, topic, 6)
    with pytest.raises(RowsGone):
        list(one.read(split))


def test_a_recreated_topic_is_not_taken_for_the_old_one(kafka):
    topic = kafka.topic()
    fill(kafka, topic, numbers(2))
    with pytest.raises(RowsGone, match="ends at 2"):
        reader(kafka, topic).latestOffset({topic: {"0": 50}}, ALL)


def test_a_missing_topic_is_reported_before_the_job_starts(kafka):
    with pytest.raises(PreconditionFailed, match="no topic 'nowhere'"):
        reader(kafka, "nowhere").initialOffset()
