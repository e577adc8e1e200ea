"""A Spark query that reads Kafka is imported: the job reads on at the offsets where the query stopped."""

from __future__ import annotations

import json
from collections import Counter

from click.testing import CliRunner

import tidegate as tg
from tests.integration.kafka.topics import fill
from tidegate.control.cli.main import main

JOB = """
import tidegate as tg

def build(spark):
    job = tg.Job("words", parallelism=2)
    rows = tg.kafka_source(spark, {servers!r}, {topic!r}).selectExpr("cast(value as string) as word")
    job.source("words", rows).key_by("word").aggregate("count", n=tg.count()).sink("out", tg.CollectSink())
    return job
"""


def words(spark, kafka, topic):
    rows = tg.kafka_source(spark, kafka.bootstrap_servers, topic, max_offsets_per_trigger=20)
    return rows.selectExpr("cast(value as string) as word")


def test_a_job_reads_on_where_the_query_stopped(spark, kafka, tmp_path):
    topic = kafka.topic(partitions=3)
    sent = [f"w{n % 7}" for n in range(100)]
    fill(kafka, topic, [{"value": word, "partition": n % 3} for n, word in enumerate(sent)])
    counts = words(spark, kafka, topic).groupBy("word").count()
    query = counts.writeStream.outputMode("update").foreachBatch(lambda batch, _: batch.collect())
    query.option("checkpointLocation", str(tmp_path / "spark")).trigger(availableNow=True).start().awaitTermination()

    (tmp_path / "job.py").write_text(JOB.format(servers=kafka.bootstrap_servers, topic=topic))
    command = ["import", "spark", str(tmp_path / "spark"), "--job", str(tmp_path / "job.py"), "-o", "json"]
    told = CliRunner().invoke(main, [*command, "--dry-run"])
    assert f"Kafka topic {topic} (3 partitions)" in told.output
    done = json.loads(CliRunner().invoke(main, [*command, "--to", str(tmp_path / "savepoint")]).output)

    more = [f"w{n % 9}" for n in range(50)]
    fill(kafka, topic, [{"value": word, "partition": n % 3} for n, word in enumerate(more)])
    job, found = tg.Job("words", parallelism=2), tg.CollectSink()
    job.source("words", words(spark, kafka, topic)).key_by("word").aggregate("count", n=tg.count()).sink("out", found)
    job.run(
        spark,
        trigger="available-now",
        checkpoint=tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h"),
        options={"execution.state-recovery.path": done["external_path"]},
    )
    assert max_of(found.rows) == Counter([*sent, *more])


def max_of(rows):
    """The last count of each word that was emitted."""
    return {word: max(n for of, n in rows if of == word) for word, _ in rows}
