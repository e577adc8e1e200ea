"""A topic as a sink. Rows wait in the job's storage and are sent when their checkpoint is complete.

1. In the task: rows are encoded, if the sink has a format, and collected into parts of bounded size, each an object in
   the job's storage (`writer`). A crash leaves unreferenced objects.
2. At commit: a Kafka transaction sends the rows of a part together with the marker that covers them (`committer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import ClassVar, Literal

from tidegate.connectors.dataset_names import DatasetName, of_topic
from tidegate.connectors.kafka import records
from tidegate.connectors.kafka.formats.encoding import Encoding
from tidegate.connectors.kafka.formats.record_format import RecordFormat, RecordPart
from tidegate.connectors.kafka.marker import Expired
from tidegate.connectors.kafka.writer import KafkaWriter
from tidegate.connectors.sink import Committer, CommitterContext, PublishesIn, SinkWriter, WriterContext
from tidegate.core.durations import Duration, duration_ms, size_bytes
from tidegate.core.errors import GraphError
from tidegate.core.guarantee import Guarantee
from tidegate.graph.schema import Schema

_OURS = ("bootstrap.servers", "transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks", "group.id")


@dataclass(frozen=True)
class KafkaSink:
    """Rows with the column `value` and optionally `key`, `headers`, `partition` and `timestamp`, sent to one topic.

    Exactly once for readers with `isolation.level=read_committed`; `delivery_guarantee="at-least-once"` sends without
    transactions. `config` holds settings of librdkafka, such as `security.protocol` or `compression.type`.
    `transaction_timeout` must not exceed the broker's `transaction.max.timeout.ms`. Rows of one slot and epoch are
    split into parts of `part_size`; one transaction carries as many parts as fit into `transaction_size`.
    `expired_marker` resolves `MarkerExpired`. With a `value_format`, such as `AvroFormat("http://registry:8081")`, the column
    `value` has any type, usually a struct, and tasks encode it; a `key_format` does the same for `key`.
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
    key_format: RecordFormat | None = None
    value_format: RecordFormat | None = None

    def __post_init__(self) -> None:
        if not self.bootstrap_servers or not self.topic:
            raise GraphError("A Kafka sink needs brokers and a topic: KafkaSink('host:9092', 'orders').")
        if self.delivery_guarantee not in ("exactly-once", "at-least-once"):
            raise GraphError(
                f"A Kafka sink delivers 'exactly-once' or 'at-least-once', not {self.delivery_guarantee!r}."
            )
        if taken := sorted(key for key in self.config if key in _OURS):
            raise GraphError(f"{', '.join(taken)} in the config of a Kafka sink is set by tidegate; remove it.")
        try:
            Expired(self.expired_marker)
            timeout_ms, sizes = duration_ms(self.transaction_timeout), (size_bytes(self.part_size), self._most_bytes)
        except ValueError as error:
            raise GraphError(f"Kafka sink for {self.topic!r}: {error}.") from None
        if timeout_ms < 1000 or min(sizes) < 1:
            raise GraphError(
                f"Kafka sink for {self.topic!r}: transaction_timeout must be at least '1 s', and sizes must be greater "
                "than 0."
            )

    @property
    def dataset(self) -> DatasetName:
        """What lineage services call it."""
        return of_topic(self.bootstrap_servers, self.topic)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        encoding = self._encoding
        staged = encoding.check(context.schema)
        records.check_columns(staged)
        encode = partial(encoding.apply, schema=context.schema) if encoding.formats else None
        return KafkaWriter(self.topic, size_bytes(self.part_size), context.staging, encode)

    def prepare(self, schema: Schema) -> None:
        """Make the schemas of the formats known to their registry."""
        self._encoding.register(schema)

    def create_committer(self, context: CommitterContext) -> Committer:
        # Imported late, for a fast start: tasks that only write do not need them.
        from tidegate.connectors.kafka.committer import TransactionalCommitter
        from tidegate.connectors.kafka.plain_committer import PlainCommitter

        records.check_columns(self._encoding.check(context.schema))
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
    def publishes_small_in_driver(self) -> bool:
        """Without transactions nothing stops a task that still sends when the driver takes over, and older rows would follow
        newer ones."""
        return self.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self.delivery_guarantee == "exactly-once" else Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return f"Kafka topic {self.topic}, {self.delivery_guarantee}"

    @property
    def _encoding(self) -> Encoding:
        formats: dict[RecordPart, RecordFormat | None] = {"key": self.key_format, "value": self.value_format}
        return Encoding(self.topic, {part: format for part, format in formats.items() if format is not None})

    @property
    def _most_bytes(self) -> int:
        return size_bytes(self.transaction_size)
