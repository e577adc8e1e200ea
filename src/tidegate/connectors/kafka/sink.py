"""A topic as a sink. Rows wait in the job's storage and are sent when their checkpoint is complete.

1. In the task: rows are collected into parts of bounded size, each an object in the job's storage. A crash leaves objects
   that nobody names.
2. At commit: a Kafka transaction sends the rows of a part together with the marker that says so (`committer`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from tidegate.connectors.kafka import records
from tidegate.connectors.kafka.marker import MAX_PARTS, Expired
from tidegate.connectors.sink import Committer, CommitterContext, PublishesIn, SinkWriter, Staging, WriterContext
from tidegate.core.durations import Duration, duration_ms, size_bytes
from tidegate.core.errors import GraphError, StateError
from tidegate.core.guarantee import Guarantee

if TYPE_CHECKING:
    import pyarrow as pa

_OURS = ("bootstrap.servers", "transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks", "group.id")


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of one epoch in one slot: what is committed whole."""

    token: str
    rows: int
    size_bytes: int


class KafkaCommittable(msgspec.Struct, frozen=True):
    """A committable. The topic is that of the time of writing: a sink that has moved on still owes these rows there."""

    topic: str
    at_ms: int
    parts: list[StagedPart]


@dataclass(frozen=True)
class KafkaSink:
    """Rows with the columns `value` and, where wanted, `key`, `headers`, `partition` and `timestamp`, sent to one topic.

    Exactly once for readers with `isolation.level=read_committed`; `delivery_guarantee="at-least-once"` sends without
    transactions. `config` has settings of librdkafka, such as `security.protocol` or `compression.type`.
    `transaction_timeout` may not be more than the broker's `transaction.max.timeout.ms`. Rows of one slot and epoch are cut
    into parts of `part_size`; one transaction carries as many as come to `transaction_size`. `expired_marker` answers
    `MarkerExpired`.
    """

    publishes_in: ClassVar[PublishesIn] = "task"

    bootstrap_servers: str
    topic: str
    _: KW_ONLY
    delivery_guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    transaction_timeout: Duration = "10 min"
    part_size: str | int = "32 mb"
    transaction_size: str | int = "256 mb"
    expired_marker: Literal["fail", "publish", "skip"] = "fail"

    def __post_init__(self) -> None:
        if not self.bootstrap_servers or not self.topic:
            raise GraphError("A Kafka sink needs brokers and a topic: KafkaSink('host:9092', 'orders').")
        if self.delivery_guarantee not in ("exactly-once", "at-least-once"):
            raise GraphError(
                f"A Kafka sink delivers 'exactly-once' or 'at-least-once', not {self.delivery_guarantee!r}."
            )
        if taken := sorted(key for key in self.config if key in _OURS):
            raise GraphError(f"{', '.join(taken)} in the config of a Kafka sink is set by tidegate; leave it out.")
        try:
            Expired(self.expired_marker)
            timeout_ms, sizes = duration_ms(self.transaction_timeout), (size_bytes(self.part_size), self._most_bytes)
        except ValueError as error:
            raise GraphError(f"Kafka sink for {self.topic!r}: {error}.") from None
        if timeout_ms < 1000 or min(sizes) < 1:
            raise GraphError(
                f"Kafka sink for {self.topic!r}: transaction_timeout is at least '1 s', and sizes are more than 0."
            )

    def create_writer(self, context: WriterContext) -> SinkWriter:
        records.check_columns(context.schema)
        return KafkaWriter(self.topic, size_bytes(self.part_size), context.staging)

    def create_committer(self, context: CommitterContext) -> Committer:
        from tidegate.connectors.kafka.committer import TransactionalCommitter
        from tidegate.connectors.kafka.plain_committer import PlainCommitter

        records.check_columns(context.schema)
        if self.delivery_guarantee == "at-least-once":
            return PlainCommitter(self.bootstrap_servers, self.config, context.read)
        return TransactionalCommitter(
            self.bootstrap_servers,
            self.config,
            context.read,
            timeout_ms=duration_ms(self.transaction_timeout),
            most_bytes=self._most_bytes,
            expired=Expired(self.expired_marker),
        )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self.delivery_guarantee == "exactly-once" else Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return f"Kafka topic {self.topic}, {self.delivery_guarantee}"

    @property
    def _most_bytes(self) -> int:
        return size_bytes(self.transaction_size)


class KafkaWriter:
    def __init__(self, topic: str, part_bytes: int, staging: Staging) -> None:
        self._topic, self._part_bytes, self._staging = topic, part_bytes, staging
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._parts: list[StagedPart] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        # A batch is the smallest unit of storage; a large one is cut so that no part is much larger than asked for.
        pieces = min(batch.num_rows, -(-batch.nbytes // self._part_bytes)) or 1
        rows = -(-batch.num_rows // pieces)
        for at in range(0, batch.num_rows, rows):
            piece = batch.slice(at, rows)
            self._waiting.append(piece)
            self._waiting_bytes += piece.nbytes
            if self._waiting_bytes >= self._part_bytes:
                self._put()

    def prepare_commit(self) -> bytes | None:
        self._put()
        if not self._parts:
            return None
        if len(self._parts) > MAX_PARTS:
            raise StateError(
                f"One epoch has {len(self._parts)} parts for one slot of the Kafka sink for {self._topic!r}; at most {MAX_PARTS} "
                "can be told apart. Raise part_size, or make epochs smaller."
            )
        return msgspec.json.encode(KafkaCommittable(self._topic, round(time.time() * 1000), self._parts))

    def abort(self) -> None:
        self._waiting.clear()

    def _put(self) -> None:
        if self._waiting:
            packed, rows = records.pack(self._waiting), sum(batch.num_rows for batch in self._waiting)
            self._parts.append(StagedPart(self._staging.put(packed), rows, self._waiting_bytes))
            self._waiting, self._waiting_bytes = [], 0
