"""Kafka → keyed count → Kafka with Spark and checkpoints: exactly once through stops and starts."""

from __future__ import annotations

import re
from collections import Counter

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

import tidegate as tg
from tests.integration.kafka.topics import fill, read
from tests.sparks import ROOT
from tests.waiting import eventually, while_running
from tidegate.connectors.kafka.errors import KafkaRefused, RowsGone


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.word, f"{row.word}={self.n.value()}"


def counting(spark, kafka, source, target, tmp_path, interval="1 s"):
    job = tg.Job("words", parallelism=2)
    frame = tg.kafka_source(spark, kafka.bootstrap_servers, source, max_offsets_per_trigger=40)
    words = job.source("words", frame.selectExpr("cast(value as string) as word"))
    counts = words.key_by("word").process("count", Count(), schema="key string, value string")
    counts.sink("out", tg.KafkaSink(kafka.bootstrap_servers, target))
    return job.start(
        spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "ckpt"), interval=interval, incremental=True)
    )


def wait_for(run, kafka, target, count):
    """Wait until readers of committed rows see so many; fail with what ended the job if it ended."""
    eventually(while_running(run, lambda: len(read(kafka, target)) >= count), f"{count} rows")
    return read(kafka, target)


@pytest.mark.feature("J1", "J28")
def test_every_word_is_counted_once_and_emitted_once(spark, kafka, tmp_path):
    source, target = kafka.topic(partitions=3), kafka.topic(partitions=2)
    words = [f"w{n % 7}" for n in range(100)]
    fill(kafka, source, [{"value": word, "partition": n % 3} for n, word in enumerate(words)])
    run = counting(spark, kafka, source, target, tmp_path)
    wait_for(run, kafka, target, 100)
    run.cancel()
    fill(kafka, source, [{"value": word, "partition": n % 3} for n, word in enumerate(words)])
    run = counting(spark, kafka, source, target, tmp_path)
    found = wait_for(run, kafka, target, 200)
    run.stop()
    told = Counter(message.value().decode() for message in read(kafka, target))
    times = Counter(words)
    assert told == Counter(f"{word}={n}" for word in times for n in range(1, 2 * times[word] + 1))
    for word in times:
        in_order = [m.value().decode() for m in found if m.key().decode() == word]
        assert in_order == [f"{word}={n}" for n in range(1, 2 * times[word] + 1)]


@pytest.mark.feature("J21", "N27")
def test_nothing_is_sent_before_its_checkpoint_is_complete(spark, kafka, tmp_path):
    source, target = kafka.topic(), kafka.topic()
    fill(kafka, source, [{"value": "a"}] * 10)
    run = counting(spark, kafka, source, target, tmp_path, interval="1 h")
    eventually(while_running(run, lambda: sum(report.rows_in for report in run.reports) >= 10))
    assert read(kafka, target, "read_uncommitted") == []
    run.stop()
    assert [message.value() for message in read(kafka, target)] == [f"a={n}".encode() for n in range(1, 11)]


def test_rows_that_wait_in_kafka_are_reported(spark, kafka, tmp_path):
    source = kafka.topic(partitions=3)
    fill(kafka, source, [{"value": "a", "partition": n % 3} for n in range(300)])
    run = counting(spark, kafka, source, kafka.topic(), tmp_path)
    seen = []

    def all_read():
        pending = run.report().sources[0].pending_rows
        seen.extend([] if pending is None or pending in seen[-1:] else [pending])
        return pending == 0

    eventually(all_read, "no row waits", pause_s=0.05)
    run.cancel()
    assert len(seen) > 2
    assert seen == sorted(seen, reverse=True)
    assert seen[0] >= 120


@pytest.mark.feature("K17", "N29", "O12")
def test_a_job_whose_next_rows_are_gone_stops_and_says_so(spark, kafka, tmp_path):
    """It read them once, but no checkpoint completed after that; and when it comes back, retention has passed."""
    source, target = kafka.topic(), kafka.topic()
    fill(kafka, source, [{"value": "a"}] * 10)
    run = counting(spark, kafka, source, target, tmp_path)
    wait_for(run, kafka, target, 10)
    run.stop()
    fill(kafka, source, [{"value": "a"}] * 10)
    starved = counting(spark, kafka, source, target, tmp_path, interval="1 h")
    eventually(while_running(starved, lambda: sum(report.rows_in for report in starved.reports) >= 10))
    starved.cancel()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    next(iter(admin.delete_records([ck.TopicPartition(source, 0, 15)]).values())).result(30)
    with pytest.raises(RowsGone, match=r"at 10, where Kafka has deleted everything before 15.*fail_on_data_loss"):
        counting(spark, kafka, source, target, tmp_path).await_termination(60)
    assert len(read(kafka, target)) == 10


def test_the_example_of_the_documentation_runs(spark, kafka, tmp_path):
    [code] = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/connectors/kafka.md").read_text(), re.M | re.S)
    page = {"__name__": "page"}
    exec(code, page)
    source, target = kafka.topic(name="words"), kafka.topic(name="counts")
    fill(kafka, source, [{"value": word} for word in ["a", "b", "a"]])
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "ckpt"), interval="1 s")
    page["build"](spark, kafka.bootstrap_servers).run(spark, checkpoint=checkpoint, trigger="available-now")
    assert sorted((m.key(), m.value()) for m in read(kafka, target)) == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1")]


def test_a_topic_of_a_sink_that_is_not_there_ends_the_first_start_before_a_row_is_read(spark, kafka, tmp_path):
    source = kafka.topic()
    fill(kafka, source, [{"value": "a"}])
    with pytest.raises(KafkaRefused, match=r"There is no topic 'nowhere' at .*Create the topic first"):
        counting(spark, kafka, source, "nowhere", tmp_path)


def test_a_topic_that_is_not_there_ends_the_job_with_its_name(spark, kafka, tmp_path):
    with pytest.raises(
        tg.errors.PreconditionFailed, match=f"Kafka has no topic 'nowhere' at {kafka.bootstrap_servers}"
    ):
        counting(spark, kafka, "nowhere", kafka.topic(), tmp_path).await_termination(60)
