"""Kafka → count per key → Kafka, against a real broker: tidegate exactly once, Spark's own two ways at least once.

A sample is rows by seconds, from the start of the first epoch after the warm-up to the end of the run, when all output is in
the topic (and, for tidegate, committed). Besides, reading alone: the source without a jar against Spark's connector.

A function of the user, in tidegate and in transformWithState, sends a row for every row. An aggregate, in tidegate and in Spark
SQL, sends one for each key of an epoch.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import harness, streams
from benchmarks.contestants import transform_with_state
from benchmarks.contestants.spark_sql import drop
from benchmarks.contestants.tidegate_jobs import Counter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.servers.kafka import KafkaBroker

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repetitions: int = 3
    keys: int = 50_000
    rows_per_epoch: int = 400_000
    epochs: int = 4
    warm_up: int = 1
    slow_rows_per_epoch: int = 50_000
    slow_epochs: int = 2
    interval: str = "2 s"

    @property
    def rows(self) -> int:
        return self.rows_per_epoch * self.epochs

    @property
    def slow_rows(self) -> int:
        return self.slow_rows_per_epoch * self.slow_epochs


QUICK = Size(repetitions=1, keys=2_000, rows_per_epoch=20_000, epochs=3, slow_rows_per_epoch=3_000)


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that a run reads to its end, so many rows at a time."""

    topic: str
    rows_per_epoch: int
    rows: int


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    from tests.servers.kafka import KafkaBroker, connector_jars

    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    partitions = 2 * len(os.sched_getaffinity(0))
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        folder = Path(scratch) / "kafka"
        folder.mkdir()
        broker = KafkaBroker(folder)
        try:
            harness.say("filling topics")
            large, slow = _fill(broker, size)
            spark = streams.session(partitions, {"spark.jars": ",".join(map(str, connector_jars()))})
            try:
                bench = _Bench(spark, broker, Path(scratch), partitions, size)
                counting: dict[str, Callable[[], float]] = {
                    "tidegate exactly-once": lambda: bench.tidegate(large, bench.function),
                    "tidegate aggregate exactly-once": lambda: bench.tidegate(large, bench.aggregate),
                    "spark-sql": lambda: bench.spark_sql(large),
                }
                if why := transform_with_state.missing():
                    skipped["transform-with-state"] = why
                else:
                    counting["transform-with-state"] = lambda: bench.transform_with_state(slow)
                reading: dict[str, Callable[[], float]] = {
                    "tidegate source": lambda: bench.read(bench.ours(large), large),
                    "spark connector": lambda: bench.read(bench.theirs(large), large),
                }
                rates = harness.interleave(_chosen(counting, only), rounds, what="count", unit="rows/s")
                reads = harness.interleave(_chosen(reading, only), rounds, what="read", unit="rows/s")
            finally:
                spark.stop()
        finally:
            broker.stop()
    figures = {f"count {name}": figure.as_json() for name, figure in rates.items()}
    figures |= {f"read {name}": figure.as_json() for name, figure in reads.items()}
    wanted = {
        "count / transformWithState": harness.ratio(
            rates, "tidegate exactly-once", "transform-with-state", at_least=10
        ),
        "aggregate / Spark SQL": harness.ratio(rates, "tidegate aggregate exactly-once", "spark-sql", at_least=1.0),
        "count, a row for each row / Spark SQL": harness.ratio(rates, "tidegate exactly-once", "spark-sql"),
        "read / Spark's connector": harness.ratio(reads, "tidegate source", "spark connector", at_least=1.0),
    }
    return {
        "size": asdict(size) | {"repetitions": rounds, "partitions": partitions, "kafka_partitions": PARTITIONS},
        "notes": [
            f"transformWithState took epochs of {size.slow_rows_per_epoch} rows, the others of {size.rows_per_epoch}.",
            "Spark's ways are at least once. Aggregates send one row per key and epoch, functions one per row.",
            "Broker, driver and tasks share the machine.",
        ],
        "figures": figures,
        "ratios": {name: found for name, found in wanted.items() if found is not None},
        "skipped": skipped,
    }


def _chosen(contestants: dict[str, Callable[[], float]], only: Sequence[str] | None) -> dict[str, Callable[[], float]]:
    return {name: measure for name, measure in contestants.items() if only is None or name in only}


def _fill(broker: KafkaBroker, size: Size) -> tuple[Input, Input]:
    import confluent_kafka as ck

    chance = random.Random(7)
    found = []
    for rows, rows_per_epoch in ((size.rows, size.rows_per_epoch), (size.slow_rows, size.slow_rows_per_epoch)):
        topic = broker.topic(PARTITIONS)
        producer = ck.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
        )
        for number in range(rows):
            while True:
                try:
                    producer.produce(topic, f"{number:040}", f"user-{chance.randrange(size.keys)}", number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(120)
        found.append(Input(topic, rows_per_epoch, rows))
    return found[0], found[1]


class _Bench:
    """Every sample has a topic and a directory of its own."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, work: Path, partitions: int, size: Size) -> None:
        self._spark, self._broker, self._work = spark, broker, work
        self._partitions, self._size = partitions, size

    def ours(self, input: Input) -> DataFrame:
        import tidegate as tg

        return tg.kafka_source(
            self._spark, self._broker.bootstrap_servers, input.topic, max_offsets_per_trigger=input.rows_per_epoch
        )

    def theirs(self, input: Input) -> DataFrame:
        reader = self._spark.readStream.format("kafka").option("subscribe", input.topic)
        reader = reader.option("kafka.bootstrap.servers", self._broker.bootstrap_servers)
        return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", input.rows_per_epoch).load()

    @staticmethod
    def function(rows: Any) -> Any:
        return rows.key_by("key").process("count", Counter(), schema="key string, n bigint")

    @staticmethod
    def aggregate(rows: Any) -> Any:
        import tidegate as tg

        return rows.key_by("key").aggregate("count", n=tg.count())

    def tidegate(self, input: Input, counted: Callable[[Any], Any]) -> float:
        import tidegate as tg

        work, target = self._private(), self._broker.topic(PARTITIONS)
        job = tg.Job(f"count-{uuid.uuid4().hex[:8]}", parallelism=self._partitions)
        rows = job.source("rows", self.ours(input).selectExpr("cast(key as string) as key"))
        records = counted(rows).map(lambda row: (row.key, str(row.n)), schema="key string, value string")
        records.sink("out", tg.KafkaSink(self._broker.bootstrap_servers, target))
        running = job.start(
            self._spark, trigger="available-now", options={"local_dir": str(work / "local")},
            checkpoint=tg.Checkpointing(dir=str(work / "checkpoints"), interval=self._size.interval),
        )  # fmt: skip
        running.await_termination()
        return self._rate(input, running.query)

    def spark_sql(self, input: Input) -> float:
        keys = self.theirs(input).selectExpr("cast(key as string) as key")
        counts = keys.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
        return self._to_kafka(input, counts, "update")

    def transform_with_state(self, input: Input) -> float:
        keys = self.theirs(input).selectExpr("cast(key as string) as key")
        counts = keys.groupBy("key").transformWithState(
            transform_with_state.row_counter(), "key string, count long", outputMode="Update", timeMode="None"
        )
        return self._to_kafka(input, counts.selectExpr("key", "cast(count as string) as value"), "update")

    def read(self, frame: DataFrame, input: Input) -> float:
        query = frame.writeStream.foreachBatch(drop).option("checkpointLocation", str(self._private() / "query"))
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        return self._rate(input, running)

    def _to_kafka(self, input: Input, counts: DataFrame, mode: str) -> float:
        writer = counts.writeStream.format("kafka").option("topic", self._broker.topic(PARTITIONS))
        writer = writer.option("kafka.bootstrap.servers", self._broker.bootstrap_servers).outputMode(mode)
        writer = writer.option("checkpointLocation", str(self._private() / "query"))
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        return self._rate(input, running)

    def _rate(self, input: Input, query: StreamingQuery) -> float:
        """Of all rows after the warm-up, until now: output may have followed the last epoch."""
        now = time.time()
        epochs = [progress for progress in query.recentProgress if progress.numInputRows]
        rows = sum(epoch.numInputRows for epoch in epochs)
        if rows != input.rows:
            raise AssertionError(f"wanted {input.rows} rows, got {rows}")
        measured = epochs[self._size.warm_up :]
        began = datetime.fromisoformat(measured[0].timestamp.replace("Z", "+00:00")).timestamp()
        return float(sum(epoch.numInputRows for epoch in measured) / (now - began))

    def _private(self) -> Path:
        folder = self._work / uuid.uuid4().hex
        folder.mkdir()
        return folder
