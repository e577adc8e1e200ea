"""The Kafka sink against a real broker: each row once for readers of committed rows, whoever dies in between."""

from __future__ import annotations

import datetime
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from threading import Timer

import confluent_kafka as ck
import msgspec
import pytest

from tests.integration.kafka.topics import Output, fill, read, values
from tidegate.connectors.kafka import KafkaSink
from tidegate.connectors.kafka.committer import TransactionalCommitter
from tidegate.connectors.kafka.errors import KafkaRefused, KafkaUnavailable, MarkerExpired, MarkerUnsettled
from tidegate.connectors.kafka.marker import Expired
from tidegate.connectors.kafka.payload import KafkaCommittable
from tidegate.connectors.kafka.transactions import TransactionSettings
from tidegate.core import faults
from tidegate.schema.schema import Schema
from tidegate.testing.faults import FaultOrders

STEPS = ["kafka.1-marker-read", "kafka.2-sent", "kafka.3-marked", "kafka.4-committed"]


@pytest.fixture
def topic(kafka):
    return kafka.topic()


@pytest.fixture
def output(kafka, topic, tmp_path):
    return Output(KafkaSink(kafka.bootstrap_servers, topic), tmp_path)


@contextmanager
def open_offset(kafka, topic, group):
    """Somebody's transaction that carries an offset of the group and does not end. It is left as a broker's slip would."""
    consumer = ck.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"slip-{group}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    place = ck.TopicPartition(topic, 0, 0)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
    try:
        yield
    finally:
        producer.abort_transaction(30)
        consumer.close()


@pytest.mark.feature("J16")
def test_rows_are_seen_after_their_commit_and_not_before(kafka, topic, output):
    request = output.numbers(range(100), 1)
    assert values(kafka, topic, "read_uncommitted") == []
    output.commit(request)
    assert values(kafka, topic) == [str(n) for n in range(100)]


@pytest.mark.feature("J26", "N27")
def test_a_repeat_by_another_committer_changes_nothing(kafka, topic, output):
    requests = [output.numbers([1, 2], 1), output.numbers([3], 2)]
    output.commit(*requests)
    output.commit(*requests)
    output.commit(requests[0], output.numbers([4], 3))
    assert values(kafka, topic) == ["1", "2", "3", "4"]


def test_one_committer_serves_all_epochs_and_remembers_its_commits(kafka, topic, output):
    committer = output.committer()
    requests = [output.numbers([n], n) for n in range(1, 6)]
    for n in range(1, 6):
        committer.commit(requests[:n])
    committer.close()
    committer.commit(requests)
    assert values(kafka, topic) == ["1", "2", "3", "4", "5"]


@pytest.mark.feature("J26", "J28", "N27", "N28")
@pytest.mark.parametrize("step", STEPS)
def test_a_committer_killed_at_any_step_leaves_each_row_once(kafka, topic, output, tmp_path, step):
    requests = [output.numbers([1, 2], 1), output.numbers([3, 4], 2)]
    orders = FaultOrders(tmp_path / "orders")
    orders.give(step, "kill")
    assert output.commit_in_process(orders, *requests).wait(60) == -signal.SIGKILL
    seen = values(kafka, topic)
    assert seen == (["1", "2", "3", "4"] if step == STEPS[-1] else [])
    output.commit(*requests)
    assert values(kafka, topic) == ["1", "2", "3", "4"]


def test_a_committer_that_wakes_up_late_is_fenced_and_finds_all_output_committed(kafka, topic, output, tmp_path):
    request = output.numbers([1, 2, 3], 1)
    orders = FaultOrders(tmp_path / "orders")
    stopped = orders.give("kafka.3-marked", "stop")
    zombie = output.commit_in_process(orders, request)
    pid = orders.wait(stopped)
    output.commit(request)
    os.kill(pid, signal.SIGCONT)
    assert zombie.wait(60) == 0
    assert values(kafka, topic) == ["1", "2", "3"]


def test_an_aborted_transaction_is_sent_again_and_seen_once(kafka, topic, output, tmp_path):
    request = output.numbers([1, 2, 3], 1)
    orders = FaultOrders(tmp_path / "orders")
    orders.give("kafka.2-sent", "kill")
    output.commit_in_process(orders, request).wait(60)
    output.commit(request)
    assert values(kafka, topic) == ["1", "2", "3"]
    # What the killed one had sent is still there for those who do not mind.
    assert set(values(kafka, topic, "read_uncommitted")) == {"1", "2", "3"}


def test_a_transaction_that_the_broker_aborted_is_repeated(kafka, topic, tmp_path):
    sink = KafkaSink(kafka.bootstrap_servers, topic, transaction_timeout="1 s")
    output = Output(sink, tmp_path)
    orders = FaultOrders(tmp_path / "orders")
    orders.give("kafka.3-marked", "sleep", seconds=4)
    assert output.commit_in_process(orders, output.numbers([1, 2], 1)).wait(60) == 0
    assert values(kafka, topic) == ["1", "2"]


def test_an_epoch_of_all_slots_comes_before_the_next_epoch(kafka, topic, output):
    requests = [output.numbers(range(e * 10, e * 10 + 10), e, slot) for e in (3, 1, 2) for slot in (0, 1, 2)]
    output.commit(*requests)
    output.commit(*requests)
    seen = [int(value) for value in values(kafka, topic)]
    assert seen == [n for e in (1, 2, 3) for slot in (0, 1, 2) for n in range(e * 10, e * 10 + 10)]


def test_a_fork_has_its_own_markers(kafka, topic, output, tmp_path):
    (tmp_path / "fork").mkdir()
    fork = Output(output.sink, tmp_path / "fork")
    output.commit(output.numbers([1], 5))
    fork.commit(fork.numbers([2], 4))
    assert sorted(values(kafka, topic)) == ["1", "2"]


def test_a_later_term_comes_after_every_epoch_of_an_earlier_one(kafka, topic, output):
    output.commit(output.stage([("k", "a")], 900, term=1))
    output.commit(output.stage([("k", "b")], 1, term=2))
    assert values(kafka, topic) == ["a", "b"]


def test_large_output_is_cut_into_parts_and_transactions(kafka, topic, tmp_path):
    sink = KafkaSink(kafka.bootstrap_servers, topic, part_size=2000, transaction_size=5000)
    output = Output(sink, tmp_path)
    request = output.numbers(range(1000), 1)
    orders = FaultOrders(tmp_path / "orders")
    orders.give("kafka.4-committed", "kill")
    output.commit_in_process(orders, request).wait(60)
    assert 0 < len(values(kafka, topic)) < 1000
    output.commit(request)
    assert values(kafka, topic) == [str(n) for n in range(1000)]


def test_key_headers_partition_and_timestamp_arrive(kafka, tmp_path):
    topic = kafka.topic(partitions=3)
    schema = Schema.parse("key binary, value binary, headers map<string,binary>, partition int, timestamp timestamp")
    output = Output(KafkaSink(kafka.bootstrap_servers, topic), tmp_path, schema)
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    output.commit(output.stage([(b"\x00k", b"\xff", [("h", b"1")], 2, at), (None, None, None, 1, None)], 1))
    tombstone, full = read(kafka, topic)
    assert (full.key(), full.value(), full.headers(), full.partition()) == (b"\x00k", b"\xff", [("h", b"1")], 2)
    assert full.timestamp() == (ck.TIMESTAMP_CREATE_TIME, int(at.timestamp() * 1000))
    assert (tombstone.key(), tombstone.value(), tombstone.headers(), tombstone.partition()) == (None, None, None, 1)


@pytest.mark.feature("J2", "N28")
def test_at_least_once_sends_without_a_transaction_and_again_when_asked_again(kafka, topic, tmp_path):
    output = Output(KafkaSink(kafka.bootstrap_servers, topic, delivery_guarantee="at-least-once"), tmp_path)
    request = output.numbers([1, 2, 3], 1)
    output.commit(request)
    assert values(kafka, topic, "read_uncommitted") == ["1", "2", "3"]
    output.commit(request)
    assert values(kafka, topic) == ["1", "2", "3", "1", "2", "3"]


@pytest.mark.parametrize(("choice", "sent"), [(Expired.PUBLISH, ["1", "2"]), (Expired.SKIP, [])])
def test_a_marker_that_may_have_expired_is_a_question_and_not_an_answer(kafka, topic, output, choice, sent):
    request = output.numbers([1, 2], 1)
    old = msgspec.json.decode(request.payload, type=KafkaCommittable)
    in_eight_days = old.at_ms + 8 * 24 * 3_600_000

    def commit(expired):
        settings = TransactionSettings(
            bootstrap_servers=kafka.bootstrap_servers,
            config={},
            topic=topic,
            timeout_ms=60_000,
            most_bytes=1 << 20,
            expired=expired,
        )
        committer = TransactionalCommitter(
            settings, output.shelf.read, lambda request: old, now_ms=lambda: in_eight_days
        )
        committer.commit([request])

    with pytest.raises(MarkerExpired, match="expired_marker='publish'"):
        commit(Expired.FAIL)
    assert values(kafka, topic) == []
    commit(choice)
    # Now there is a marker, and the question does not come up.
    commit(Expired.FAIL)
    assert values(kafka, topic) == sent


@pytest.mark.parametrize(("choice", "sent"), [("publish", ["1", "2"]), ("skip", [])])
def test_a_marker_with_unknown_outcome_in_kafka_is_a_question_too(kafka, topic, output, monkeypatch, choice, sent):
    request, answer_s = output.numbers([1, 2], 1), "tidegate.connectors.kafka.transactions._ANSWER_S"
    with open_offset(kafka, topic, f"tidegate-{output.lineage}-out-0"):
        monkeypatch.setattr(answer_s, 2.0)
        with pytest.raises(MarkerUnsettled, match="expired_marker='publish'"):
            output.commit(request)
        assert values(kafka, topic) == []
        monkeypatch.undo()
        monkeypatch.setattr(answer_s, 5.0)
        decided = Output(replace(output.sink, expired_marker=choice), output.folder)
        decided.commit(request)
    monkeypatch.undo()
    output.commit(request)
    assert values(kafka, topic) == sent


@pytest.mark.parametrize("choice", ["publish", "skip"])
def test_a_broker_that_is_silent_for_a_while_is_not_taken_for_an_unknown_outcome(
    kafka, topic, output, monkeypatch, choice
):
    request = output.numbers([1, 2], 1)
    output.commit(request)
    monkeypatch.setattr("tidegate.connectors.kafka.transactions._ANSWER_S", 3.0)
    decided = Output(replace(output.sink, expired_marker=choice), output.folder)
    later = output.numbers([3, 4], 2)
    silent: list[Timer] = []

    def fall_silent(point, **context):
        if point == "kafka.1-taken" and not silent:
            kafka.pause()
            silent.append(Timer(5, kafka.resume))
            silent[0].start()

    faults.arm(fall_silent)
    try:
        with pytest.raises(KafkaUnavailable):
            decided.commit(request, later)
    finally:
        faults.arm(None)
        silent[0].join()
    monkeypatch.undo()
    output.commit(request, later)
    assert values(kafka, topic) == ["1", "2", "3", "4"]


def test_many_slots_share_one_producer_and_one_transaction(kafka, topic, output):
    made = []

    def note(point, **context):
        made.append(point)

    committer = output.committer()
    first = [output.numbers([slot], 1, slot) for slot in range(80)]
    second = [output.numbers([100 + slot], 2, slot) for slot in range(80)]
    committer.commit(first)
    faults.arm(note)
    try:
        committer.commit(second)
    finally:
        faults.arm(None)
    # Nothing is begun again for slots that are held: with a producer each, most had been closed by now.
    assert made.count("kafka.1-taken") == 0
    assert made.count("kafka.4-committed") == 1
    output.commit(*first, *second)
    assert values(kafka, topic) == [str(n) for n in range(80)] + [str(100 + n) for n in range(80)]


def test_taking_one_slot_of_a_sleeping_committer_ends_its_transaction(kafka, topic, output, tmp_path):
    requests = [output.numbers([slot], 1, slot) for slot in range(3)]
    orders = FaultOrders(tmp_path / "orders")
    stopped = orders.give("kafka.2-sent", "stop")
    zombie = output.commit_in_process(orders, *requests)
    pid = orders.wait(stopped)
    output.commit(requests[2])
    assert values(kafka, topic) == ["2"]
    os.kill(pid, signal.SIGCONT)
    assert zombie.wait(60) == 0
    assert sorted(values(kafka, topic)) == ["0", "1", "2"]
    output.commit(*requests)
    assert sorted(values(kafka, topic)) == ["0", "1", "2"]


def test_a_missing_topic_is_reported_at_once(kafka, tmp_path):
    output = Output(KafkaSink(kafka.bootstrap_servers, "no-such-topic"), tmp_path)
    with pytest.raises(KafkaRefused, match="Create the topic first"):
        output.commit(output.numbers([1], 1))


def test_a_timeout_that_the_broker_does_not_allow_is_reported(kafka, topic, tmp_path):
    output = Output(KafkaSink(kafka.bootstrap_servers, topic, transaction_timeout="1 h"), tmp_path)
    with pytest.raises(KafkaRefused, match=r"lower the sink's transaction_timeout"):
        output.commit(output.numbers([1], 1))


def test_a_row_that_is_too_large_is_reported_and_its_epoch_stays_invisible(kafka, topic, output):
    with pytest.raises(KafkaRefused, match=r"message\.max\.bytes"):
        output.commit(output.stage([("k", "small"), ("k", "x" * 2_000_000)], 1))
    assert values(kafka, topic) == []


def test_brokers_that_do_not_answer_may_answer_later(topic, output, monkeypatch):
    monkeypatch.setattr("tidegate.connectors.kafka.transactions._ANSWER_S", 0.5)
    nobody = Output(KafkaSink("127.0.0.1:1", topic), output.folder)
    with pytest.raises(KafkaUnavailable) as told:
        nobody.commit(output.numbers([1], 1))
    assert told.value.retryable


def test_rows_that_cannot_be_read_leave_no_transaction_open(kafka, topic, output):
    committer = output.committer()
    good, bad = output.numbers([1, 2], 1), output.numbers([3], 2)
    token = msgspec.json.decode(bad.payload, type=KafkaCommittable).parts[0].token
    kept = output.shelf.read(token)
    (output.folder / token).unlink()
    with pytest.raises(FileNotFoundError):
        committer.commit([good, bad])
    # An open transaction would hide what others send after it.
    fill(kafka, topic, [{"value": "other"}])
    assert values(kafka, topic) == ["other"]
    (output.folder / token).write_bytes(kept)
    committer.commit([good, bad])
    assert values(kafka, topic) == ["other", "1", "2", "3"]


def test_a_broker_that_dies_and_comes_back_has_each_row_once(kafka, topic, output, monkeypatch):
    monkeypatch.setattr("tidegate.connectors.kafka.transactions._ANSWER_S", 2.0)
    committer = output.committer()
    requests = [output.numbers([1, 2], 1), output.numbers([3, 4], 2)]
    committer.commit(requests[:1])
    # Some time passes, in which the broker completes the transaction that it has agreed to commit.
    assert values(kafka, topic) == ["1", "2"]
    kafka.kill()
    with pytest.raises(KafkaUnavailable):
        committer.commit(requests)
    kafka.start()
    monkeypatch.undo()
    committer.commit(requests)
    assert values(kafka, topic) == ["1", "2", "3", "4"]
