"""Kafka as a streaming DataFrame without a jar: a Python Data Source, with a task and a split for each Kafka partition.

Positions are `{topic: {partition: offset}}` and self-contained: a checkpoint restores them from its text, and the rows
between two of them are the same whenever they are read.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidegate.connectors.kafka.epoch_size import EpochSize
from tidegate.connectors.kafka.errors import RowsGone
from tidegate.connectors.kafka.formats.decoding import Decoding, OnDecodeError, pinned_formats
from tidegate.connectors.kafka.formats.record_format import RecordFormat, RecordPart
from tidegate.connectors.kafka.positions import Offsets, Range, advance, from_json, gaps, ranges, to_json
from tidegate.connectors.kafka.reader import Cluster, Isolation, Watch, read_range
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError, PreconditionFailed, TidegateError
from tidegate.runtime.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    check_read_limits,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "tidegate-kafka"
_OURS = ("bootstrap.servers", "group.id", "isolation.level", "auto.offset.reset", "enable.auto.commit")
_SECRET = "secret.kafka."
"""Begins the options that hold settings of the client. Spark hides options whose names contain `secret`, wherever it shows
a plan; it would show a private key in `ssl.key.pem`."""
_DECODING = "secret.decoding"
"""The option that holds the formats, with the settings of the registry's client."""
_RAISED = re.compile(r"\b(tidegate(?:\.[a-z_]+)*\.errors)\.(\w+): (.*)")
"""How Python's traceback names our errors."""
_EARLIEST_EVERY_S = 10.0
_BELIEF_S = 5.0
"""How long a topic must be missing, or a position be gone, before it is reported."""


def kafka_source(  # noqa: PLR0913 what a user may choose
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Sequence[str],
    *,
    starting_offsets: Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]] = "earliest",
    max_offsets_per_trigger: int | None = None,
    target_epoch_duration: Duration | None = None,
    include_headers: bool = False,
    isolation_level: Isolation = "read_committed",
    fail_on_data_loss: bool = True,
    partition_discovery_interval: Duration = "10 s",
    config: Mapping[str, str] | None = None,
    key_format: RecordFormat | None = None,
    value_format: RecordFormat | None = None,
    on_decode_error: OnDecodeError = "fail",
) -> DataFrame:
    """Topics as a streaming DataFrame with the columns of Spark's own Kafka source.

    Args:
        spark: The session that reads.
        bootstrap_servers: The brokers: `"host:9092"`, or several, separated by commas.
        topics: A topic, or a list of topics.
        starting_offsets: `"earliest"`, `"latest"`, or `{topic: {partition: offset}}`, for the first start of a job and for
            topics that are new to it. Partitions added to a topic later are read from their beginning.
        max_offsets_per_trigger: The most records of an epoch.
        target_epoch_duration: How long an epoch should last: its size adapts to the duration of the last ones.
        include_headers: Add the column `headers`.
        isolation_level: `"read_committed"`, or `"read_uncommitted"` to read records of open and aborted transactions too.
        fail_on_data_loss: Whether a position that Kafka has already deleted stops the job.
        partition_discovery_interval: How often new partitions are looked for.
        config: Settings of librdkafka, such as `security.protocol`.
        key_format: Decodes the column `key`, as `value_format` does the value.
        value_format: Such as `JsonFormat("customer string, amount double")` or `AvroFormat("http://registry:8081")`: the
            column `value` is decoded to the type of the schema to read with, usually a struct.
        on_decode_error: `"fail"` stops the job at a record that cannot be decoded. With `"column"`, its value is null, and a
            column `decode_error` says why.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    config = config or {}
    _check_reading(names, starting_offsets, isolation_level, max_offsets_per_trigger)
    target_ms = _target_ms(target_epoch_duration)
    _check_config(config)
    decoding = _decoding({"key": key_format, "value": value_format}, names, on_decode_error)
    # Spark passes options to a data source as text, and to two processes: the one that plans, and those of the tasks.
    options = {
        "servers": bootstrap_servers,
        "topics": json.dumps(names),
        "starting": json.dumps(starting_offsets),
        "isolation": isolation_level,
        "most_rows": str(max_offsets_per_trigger or ""),
        "target_ms": str(target_ms or ""),
        "fail_on_data_loss": json.dumps(fail_on_data_loss),
        "discovery_ms": str(
            argument_ms("partition_discovery_interval", partition_discovery_interval, of="kafka_source")
        ),
        _DECODING: replace(decoding, headers=include_headers).to_json(),
        **{f"{_SECRET}{key}": str(value) for key, value in config.items()},
    }
    # Last, so that wrong arguments are reported by any version of Spark.
    check_read_limits(spark.version)
    spark.dataSource.register(KafkaDataSource)
    return spark.readStream.format(FORMAT).options(**options).load()


def _check_reading(topics: Sequence[str], starting: object, isolation: str, most_rows: int | None) -> None:
    """Raise `GraphError` if this is not something that a source can read."""
    if not topics or not all(topics):
        raise GraphError("kafka_source needs a topic, or a list of topics.")
    if isinstance(starting, str) and starting not in ("earliest", "latest"):
        raise GraphError(
            f"starting_offsets is 'earliest', 'latest', or {{topic: {{partition: offset}}}}; it cannot be {starting!r}."
        )
    if isolation not in ("read_committed", "read_uncommitted"):
        raise GraphError(f"isolation_level is 'read_committed' or 'read_uncommitted', not {isolation!r}.")
    if most_rows is not None and most_rows < 1:
        raise GraphError("max_offsets_per_trigger must be at least 1; omit it to read everything available.")


def _target_ms(duration: Duration | None) -> int | None:
    if duration is None:
        return None
    target_ms = argument_ms("target_epoch_duration", duration, of="kafka_source")
    if target_ms < 1:
        raise GraphError("target_epoch_duration is how long an epoch should last, such as '5 s'.")
    return target_ms


def _check_config(config: Mapping[str, str]) -> None:
    """Raise `GraphError` if librdkafka's settings contain some on which exactly-once reading depends."""
    if ours := sorted(key for key in config if key in _OURS):
        raise GraphError(f"{', '.join(ours)} in the config of a Kafka source is set by tidegate; remove it.")


def _decoding(
    formats: Mapping[RecordPart, RecordFormat | None], topics: Sequence[str], on_error: OnDecodeError
) -> Decoding:
    if on_error not in ("fail", "column"):
        raise GraphError(f"on_decode_error is 'fail' or 'column', not {on_error!r}.")
    for part, format in formats.items():
        if format is not None and not isinstance(format, RecordFormat):
            raise GraphError(
                f"{part}_format is JsonFormat(…), AvroFormat(…), JsonSchemaFormat(…) or ProtobufFormat(…), not "
                f"{format!r:.100}."
            )
        if len(topics) > 1 and format is not None and not format.reads_any_topic:
            raise GraphError(
                f"A source of several topics has one type of {part}: give {part}_format a schema, or the subject whose latest "
                "schema is to be used."
            )
    return Decoding(pinned_formats(formats, topics), on_error)


class KafkaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return Decoding.from_json(self.options[_DECODING]).ddl()

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        options = self.options
        config = {key.removeprefix(_SECRET): value for key, value in options.items() if key.startswith(_SECRET)}
        isolation: Any = options["isolation"]
        return KafkaStreamReader(
            cluster=Cluster(options["servers"], config, isolation),
            topics=json.loads(options["topics"]),
            starting=json.loads(options["starting"]),
            most_rows=int(options["most_rows"]) if options["most_rows"] else None,
            decoding=Decoding.from_json(options[_DECODING]),
            fails=json.loads(options["fail_on_data_loss"]),
            discovery_s=int(options["discovery_ms"]) / 1000,
            target_s=int(options["target_ms"]) / 1000 if options.get("target_ms") else None,
        )


class Split(InputPartition):
    def __init__(self, range: Range) -> None:
        self.range = range


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the driver's helper process, it decides what to read next; in tasks, `read` reads it."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        starting: Any,
        most_rows: int | None,
        decoding: Decoding,
        fails: bool,
        discovery_s: float,
        target_s: float | None = None,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._starting = starting
        self._most_rows = most_rows
        self._decoding = decoding
        self._fails = fails
        self._discovery_s = discovery_s
        self._watch: Watch | None = None
        self._partitions: list[tuple[str, int]] = []
        self._discovered = self._looked_back = float("-inf")
        self._earliest: Offsets = {}
        self._size = None if target_s is None else EpochSize(target_s, most_rows=most_rows)
        self._planned: tuple[float, Offsets] | None = None
        """When the current epoch was planned, and where it began."""
        self._last: Offsets | None = None
        """With `available-now`: the end of all partitions when the query started."""

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read; they do not watch, and a connection cannot be pickled.
        return self.__dict__ | {"_watch": None}

    # -- in the driver -----------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        believed = time.monotonic() + _BELIEF_S
        while True:
            places = self._discover()
            missing = set(self._topics) - {topic for topic, _ in places}
            if not missing:
                break
            if time.monotonic() > believed:
                raise PreconditionFailed(
                    f"Kafka has no topic {', '.join(map(repr, sorted(missing)))} at {self._cluster.bootstrap_servers}. Create it "
                    "before the job starts."
                )
            self._look_again()
        return to_json(self._begin(places))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = from_json(start)
        places, earliest, latest = self._look(at)
        topics = {topic for topic, _ in at}
        new = [place for place in places if place not in at]

        # A partition that was added to a topic is read from its beginning, whatever `starting_offsets` says: rows were written to
        # it before anybody saw it.
        begin = {place: 0 for place in new if place[0] in topics}
        begin |= self._begin([place for place in new if place[0] not in topics])

        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._size is not None and isinstance(limit, ReadMaxRows):
            most = self._follow(at)

        end = advance(at, earliest, latest, begin, most)
        # An epoch without rows says nothing about how long rows take.
        self._planned = (time.monotonic(), at) if end != at else None
        return to_json(end)

    def _look(self, at: Offsets) -> tuple[list[tuple[str, int]], Offsets, Offsets]:
        """Return what Kafka has: partitions, where they begin, where they end. Raises `RowsGone` if it no longer has `at`.

        A broker that has just started responds before it knows everything it has, so a gap is reported only if it persists.
        """
        believed = time.monotonic() + _BELIEF_S
        while True:
            places = self._discover()
            latest = self._see().latest(places)
            if self._last is not None:
                # A partition created since then has no rows for this run.
                latest = {place: min(end, self._last.get(place, 0)) for place, end in latest.items()}
            earliest = self._look_back(places)
            if not gaps(at, earliest, latest) or time.monotonic() > believed:
                self._check(at, earliest, latest)
                return places, earliest, latest
            self._look_again()

    def _look_again(self) -> None:
        self._discovered = self._looked_back = float("-inf")
        time.sleep(0.2)

    def _follow(self, at: Offsets) -> int:
        """Return how many rows to read next. If rows are waiting, the previous epoch lasted from its planning until now."""
        assert self._size is not None
        if self._planned is not None:
            then, start = self._planned
            rows = sum(offset - start.get(place, offset) for place, offset in at.items())
            self._size = self._size.after(rows, time.monotonic() - then)
        return self._size.limit

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._size is not None:
            return ReadMaxRows(self._size.limit)
        return ReadAllAvailable() if self._most_rows is None else ReadMaxRows(self._most_rows)

    def reportLatestOffset(self) -> dict[str, Any]:
        return to_json(self._see().latest(self._partitions))

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._see().latest(self._discover())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        at, to = from_json(start), from_json(end)
        earliest = self._look_back(self._discover())
        # A position that the batch does not read from may be gone: nothing of it is needed.
        self._check({place: offset for place, offset in at.items() if offset < to.get(place, 0)}, earliest, to)
        return [Split(range) for range in ranges(at, to, earliest)]

    def _see(self) -> Watch:
        if self._watch is None:
            self._watch = Watch(self._cluster)
        return self._watch

    def _discover(self) -> list[tuple[str, int]]:
        now = time.monotonic()
        if now - self._discovered >= self._discovery_s:
            self._partitions = self._see().partitions(self._topics)
            self._discovered = now
        return self._partitions

    def _look_back(self, places: Sequence[tuple[str, int]]) -> Offsets:
        """Return where the topics begin. This changes rarely, and Kafka itself reports it to a task that reads too late."""
        now = time.monotonic()
        if now - self._looked_back >= _EARLIEST_EVERY_S or not self._earliest.keys() >= set(places):
            self._earliest = self._see().earliest(places)
            self._looked_back = now
        return self._earliest

    def _begin(self, places: Sequence[tuple[str, int]]) -> Offsets:
        """Return where partitions begin that are not in any position."""
        if self._starting == "latest":
            return self._see().latest(places)
        earliest = self._look_back(self._partitions)
        wanted = {} if self._starting == "earliest" else from_json(self._starting)
        return {place: wanted.get(place, earliest[place]) for place in places}

    def _check(self, at: Offsets, earliest: Offsets, latest: Offsets) -> None:
        if self._fails and (found := gaps(at, earliest, latest)):
            raise RowsGone(found)

    # -- in a task ---------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Split)
        return map(self._decoding.apply, read_range(self._cluster, partition.range, self._decoding.headers))


def recognise(error: BaseException) -> BaseException:
    """Convert an error of ours that a data source raised in Spark's helper process back to itself; return any other unchanged."""
    found = _RAISED.search(str(error))
    if found is None:
        return error
    kind = getattr(import_module(found[1]), found[2], None)
    if not (isinstance(kind, type) and issubclass(kind, TidegateError)):
        return error
    # Without its constructor, whose arguments are lost: only the text crosses the process.
    ours: TidegateError = kind.__new__(kind)
    ours.args = (found[3],)
    return ours
