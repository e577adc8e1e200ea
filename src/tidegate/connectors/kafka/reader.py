"""Reading topics: the partitions and offsets of a cluster, and the rows of a range as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tidegate.connectors.kafka.client import (
    TOPIC_S,
    UNKNOWN,
    Rejections,
    connection,
    library,
    reader_settings,
    translate,
    translated,
)
from tidegate.connectors.kafka.errors import KafkaUnavailable, RowsGone
from tidegate.connectors.kafka.positions import Offsets, Range

if TYPE_CHECKING:
    import pyarrow as pa

Isolation = Literal["read_committed", "read_uncommitted"]

HEADERS = "headers array<struct<key:string,value:binary>>"


def columns(key: str = "binary", value: str = "binary") -> str:
    """Return the columns of a source. Names and types match Spark's own Kafka source, so that jobs can switch from one to
    the other, except for keys and values that are decoded."""
    return (
        f"key {key}, value {value}, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )


_ANSWER_S = 30.0
_SILENCE_S = 120.0
"""How long a range may yield nothing before its task fails and Spark retries it."""
_BATCH_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster and the isolation level. Frozen and small: it is sent to every task."""

    bootstrap_servers: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    isolation: Isolation = "read_committed"


class Watch:
    """The current contents of the topics. Keeps one connection open."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client: Any = None
        self._rejections = Rejections()

    def partitions(self, topics: Sequence[str]) -> list[tuple[str, int]]:
        """Return the partitions of those topics that exist."""
        found: list[tuple[str, int]] = []
        missing = library().KafkaError.UNKNOWN_TOPIC_OR_PART
        for topic in topics:
            doing = f"return the partitions of topic {topic!r}"
            with translated(doing):
                client = self._admin()
            with self._rejections.reported(client, doing):
                metadata = client.list_topics(topic, timeout=_ANSWER_S).topics[topic]
            if metadata.error is not None and metadata.error.code() != missing:
                raise translate(metadata.error, doing)
            found += [(topic, partition) for partition in sorted(metadata.partitions)]
        return found

    def earliest(self, partitions: Sequence[tuple[str, int]]) -> Offsets:
        return self._offsets(partitions, "earliest")

    def latest(self, partitions: Sequence[tuple[str, int]]) -> Offsets:
        """Return the end offsets that can be read: with `read_committed`, up to the first open transaction."""
        return self._offsets(partitions, "latest")

    def _offsets(self, partitions: Sequence[tuple[str, int]], which: str) -> Offsets:
        if not partitions:
            return {}
        kafka, administration = library(), library("confluent_kafka.admin")
        wanted = getattr(administration.OffsetSpec, which)()
        # The same level as that of the readers: an end beyond an open transaction could not be reached.
        level = kafka.IsolationLevel[self._cluster.isolation.upper()]
        latest = time.monotonic() + TOPIC_S
        with translated(f"return the {which} offsets"):
            while True:
                asked = self._admin().list_offsets(
                    {kafka.TopicPartition(*place): wanted for place in partitions},
                    isolation_level=level,
                    request_timeout=_ANSWER_S,
                )
                try:
                    return {(place.topic, place.partition): answer.result().offset for place, answer in asked.items()}
                except kafka.KafkaException as error:
                    if error.args[0].name() not in UNKNOWN or time.monotonic() > latest:
                        raise
                time.sleep(0.1)

    def _admin(self) -> Any:
        if self._client is None:
            settings = connection(self._cluster.bootstrap_servers, self._cluster.config)
            self._client = library("confluent_kafka.admin").AdminClient(settings | self._rejections.settings())
        return self._client


def read_range(cluster: Cluster, wanted: Range, headers: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in order. Raises `RowsGone` if Kafka no longer has an offset.

    Offsets may have gaps (ends of transactions, compaction), so the end of a range is recognized only by a row behind it,
    or by Kafka's end-of-partition event.
    """
    kafka = library()
    settings = reader_settings(cluster.bootstrap_servers, cluster.config, "tidegate-source") | {
        "isolation.level": cluster.isolation,
        "enable.partition.eof": True,
        # The broker holds back the empty response that signals the end of the partition for this long.
        "fetch.wait.max.ms": 20,
        # When its queue is full enough, the client pauses fetching for this long: one second by default.
        "fetch.queue.backoff.ms": 10,
    }
    with translated("open a reader"):
        consumer = kafka.Consumer(settings)
    try:
        with translated(f"read {wanted}"):
            consumer.assign([kafka.TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        at, heard = wanted.start, time.monotonic()
        while at < wanted.end:
            with translated(f"read {wanted}"):
                # It returns once it has the requested number; there cannot be more than this.
                messages = consumer.consume(min(_BATCH_ROWS, wanted.end - at), 0.1)
            rows: list[Any] = []
            for message in messages:
                if (error := message.error()) is None:
                    if message.offset() < wanted.end:
                        rows.append(message)
                    at = message.offset() + 1
                # Its offset may be behind the last row: what lies between are ends of transactions, or rows that were
                # compacted away.
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    at = max(at, message.offset())
                elif error.code() in (kafka.KafkaError._AUTO_OFFSET_RESET, kafka.KafkaError.OFFSET_OUT_OF_RANGE):
                    raise RowsGone([f"partition {wanted.partition} of {wanted.topic!r} at {at}"])
                else:
                    raise translate(error, f"read {wanted}")
            if rows:
                heard = time.monotonic()
                yield to_arrow(rows, wanted, headers)
            elif time.monotonic() - heard > _SILENCE_S:
                raise KafkaUnavailable(
                    f"{wanted} returned no rows for {_SILENCE_S:g} s, at offset {at}. Spark retries the task; check that the "
                    "brokers are reachable."
                )
    finally:
        consumer.close()


def to_arrow(messages: Sequence[Any], origin: Range, headers: bool) -> pa.RecordBatch:
    """Convert messages of one partition to rows with the columns of `columns()`, with `HEADERS` if requested."""
    import pyarrow as pa

    count = len(messages)
    times = [message.timestamp() for message in messages]
    columns: dict[str, pa.Array] = {
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "topic": pa.repeat(pa.scalar(origin.topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(origin.partition, pa.int32()), count),
        "offset": pa.array([message.offset() for message in messages], pa.int64()),
        "timestamp": pa.array([time[1] for time in times], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        # librdkafka counts from 1 (create time), Spark from 0.
        "timestampType": pa.array([time[0] - 1 for time in times], pa.int32()),
    }
    if headers:
        found = [message.headers() for message in messages]
        pairs = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in found]
        columns["headers"] = pa.array(pairs, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
