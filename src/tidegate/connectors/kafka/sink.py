"""A topic as a sink. Rows wait in the job's storage and are sent when their checkpoint is complete.

1. In the task: rows are encoded, if the sink has a format, and collected into parts of bounded size, each an object in
   the job's storage (`writer`). A crash leaves unreferenced objects.
2. At commit: a Kafka transaction sends the rows of a part together with the marker that covers them (`committer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from tidegate.connectors.dataset_names import DatasetName, of_topic
from tidegate.connectors.kafka import payload, records
from tidegate.connectors.kafka.formats.encoding import Encoding
from tidegate.connectors.kafka.formats.record_format import RecordFormat, RecordPart
from tidegate.connectors.kafka.marker import Expired
from tidegate.connectors.kafka.whole_rows import WholeRows
from tidegate.connectors.kafka.writer import KafkaWriter
from tidegate.connectors.sink import (
    Committer,
    CommitterContext,
    OutputCleaner,
    PublishesIn,
    SinkWriter,
    WriterContext,
)
from tidegate.core.durations import Duration, argument_ms, duration_ms, size_bytes
from tidegate.core.errors import GraphError
from tidegate.core.guarantee import Guarantee
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST_TRANSACTION_MS = 1000
_OURS = ("bootstrap.servers", "transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks", "group.id")


@dataclass(frozen=True)
class KafkaSink:
    """Rows with the column `value` and optionally `key`, `headers`, `partition` and `timestamp`, sent to one topic.

    Output is exactly once for readers with `isolation.level=read_committed`.

    Args:
        bootstrap_servers: The brokers: `"host:9092"`, or several, separated by commas.
        topic: The topic to send to.
        delivery_guarantee: `"exactly-once"`, or `"at-least-once"`, which sends without transactions.
        config: Settings of librdkafka, such as `security.protocol` or `compression.type`.
        transaction_timeout: Must not exceed the broker's `transaction.max.timeout.ms`.
        part_size: Rows of one slot and epoch are split into parts of this size.
        transaction_size: One transaction carries as many parts as fit into this size.
        expired_marker: How to resolve `MarkerExpired`: `"fail"`, `"publish"` or `"skip"`.
        key_format: Encodes the column `key`, or the columns of `key_fields`, as `value_format` does the value.
        value_format: Such as `JsonFormat()` or `AvroFormat("http://registry:8081")`: the column `value` has any type,
            usually a struct, and tasks encode it. Rows without a column `value` are encoded whole.
        key_fields: Of rows that are encoded whole: the columns that also form the key, a single string as it is, otherwise
            encoded by `key_format`. `key_fields=[]` sends whole rows without a key, also if a column is called `value`.
        previous_topics: Topics that the sink had before: output that waits for one of them may be sent there.

    Examples:
        >>> tg.KafkaSink("localhost:9092", "totals", value_format=tg.JsonFormat(), key_fields=["user"]).topic
        'totals'
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
    key_fields: Sequence[str] | None = None
    previous_topics: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.bootstrap_servers or not self.topic:
            raise GraphError("A Kafka sink needs brokers and a topic: KafkaSink('host:9092', 'orders').")
        if isinstance(self.previous_topics, str):
            raise GraphError(f"previous_topics is a list of topics: write previous_topics=[{self.previous_topics!r}].")
        object.__setattr__(self, "previous_topics", tuple(self.previous_topics))
        if isinstance(self.key_fields, str):
            raise GraphError(f"key_fields is a list of columns: write key_fields=[{self.key_fields!r}].")
        if self.key_fields is not None:
            if self.value_format is None:
                raise GraphError("key_fields belongs to rows that are encoded whole: add value_format=tg.JsonFormat().")
            object.__setattr__(self, "key_fields", tuple(self.key_fields))
        if self.delivery_guarantee not in ("exactly-once", "at-least-once"):
            raise GraphError(
                f"A Kafka sink delivers 'exactly-once' or 'at-least-once', not {self.delivery_guarantee!r}."
            )
        # Exactly-once rests on them.
        if taken := sorted(key for key in self.config if key in _OURS):
            raise GraphError(f"{', '.join(taken)} in the config of a Kafka sink is set by tidegate; remove it.")
        timeout_ms = argument_ms(
            f"Kafka sink for {self.topic!r}: transaction_timeout",
            self.transaction_timeout,
            least_ms=_LEAST_TRANSACTION_MS,
        )
        try:
            Expired(self.expired_marker)
            sizes = (size_bytes(self.part_size), self._most_bytes)
        except ValueError as error:
            raise GraphError(f"Kafka sink for {self.topic!r}: {error}.") from None
        if timeout_ms < _LEAST_TRANSACTION_MS or min(sizes) < 1:
            raise GraphError(
                f"Kafka sink for {self.topic!r}: transaction_timeout must be at least '1 s', and sizes must be greater "
                "than 0."
            )

    @property
    def dataset(self) -> DatasetName:
        """What lineage services call it."""
        return of_topic(self.bootstrap_servers, self.topic)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        self._check(context.schema)
        encode = self._encoder(context.schema) if self._encoding.formats else None
        return KafkaWriter(self.topic, size_bytes(self.part_size), context.staging, encode)

    def prepare(self, schema: Schema) -> None:
        """Make the schemas of the formats known to their registry."""
        self._encoding.register(self._record_schema(schema))

    def create_committer(self, context: CommitterContext) -> Committer:
        # Imported late, for a fast start: tasks that only write do not need them.
        from tidegate.connectors.kafka.committer import TransactionalCommitter
        from tidegate.connectors.kafka.plain_committer import PlainCommitter
        from tidegate.connectors.kafka.transactions import TransactionSettings

        self._check(context.schema)
        topics = frozenset({self.topic, *self.previous_topics})
        payload_of = partial(payload.checked, topics=topics, check_staged=context.check_staged)
        if self.delivery_guarantee == "at-least-once":
            return PlainCommitter(self.bootstrap_servers, self.config, context.read, payload_of, topic=self.topic)
        settings = TransactionSettings(
            bootstrap_servers=self.bootstrap_servers,
            config=self.config,
            topic=self.topic,
            timeout_ms=duration_ms(self.transaction_timeout),
            most_bytes=self._most_bytes,
            expired=Expired(self.expired_marker),
        )
        return TransactionalCommitter(settings, context.read, payload_of, covers=context.covers)

    def create_cleaner(self) -> OutputCleaner:
        from tidegate.connectors.kafka.cleaner import KafkaCleaner  # Imported late, for a fast start.

        return KafkaCleaner(self.bootstrap_servers, self.config, (self.topic, *self.previous_topics))

    @property
    def commits_small_in_driver(self) -> bool:
        """Without transactions nothing stops a task that still sends when the driver takes over, and older rows would follow
        newer ones."""
        return self.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self.delivery_guarantee == "exactly-once" else Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return f"Kafka topic {self.topic}, {self.delivery_guarantee}"

    def _check(self, schema: Schema) -> None:
        records.check_columns(self._encoding.check(self._record_schema(schema)))

    def _record_schema(self, schema: Schema) -> Schema:
        whole = self._whole_rows(schema)
        return schema if whole is None else whole.records

    def _encoder(self, schema: Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return what a writer does with each batch. How rows become records is decided once, not for every batch."""
        encoding, whole = self._encoding, self._whole_rows(schema)
        if whole is None:
            return partial(encoding.apply, schema=schema)
        records_schema = whole.records
        return lambda batch: encoding.apply(whole.apply(batch), records_schema)

    def _whole_rows(self, schema: Schema) -> WholeRows | None:
        """Return how rows become records. None if their columns are already those of a record."""
        if self.value_format is None or (self.key_fields is None and "value" in schema):
            return None
        return WholeRows(schema, tuple(self.key_fields or ()), encodes_key=self.key_format is not None)

    @property
    def _encoding(self) -> Encoding:
        formats: dict[RecordPart, RecordFormat | None] = {"key": self.key_format, "value": self.value_format}
        return Encoding(self.topic, {part: format for part, format in formats.items() if format is not None})

    @property
    def _most_bytes(self) -> int:
        return size_bytes(self.transaction_size)
