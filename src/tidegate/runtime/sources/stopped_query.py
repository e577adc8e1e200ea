"""A streaming query of Spark that has stopped: where it stood after its last batch, and the state that its operators left.

Everything is read through the session, so the checkpoint may be wherever Spark can read: its logs as binary files, its state
through the data sources `state-metadata` and `statestore`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.sources.query_directory import (
    NOWHERE,
    LoggedOffsets,
    Positions,
    SourceNotes,
    log_offset,
    parse_offsets,
    read_sources,
)

_STORE = "spark.sql.streaming.stateStore."
"""Settings of the query without which its state cannot be read."""

StateFields = Mapping[str, Sequence[tuple[str, str]]]
"""Struct column of a state → name and DDL type of each field. Names may repeat: Spark's buffers of aggregates have such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOperator:
    """A stateful operator of the query, as Spark describes it."""

    id: int
    name: str
    partitions: int
    properties: Mapping[str, Any]
    """For a StatefulProcessor: its time mode, and the names and kinds of its state variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedQuery:
    path: str
    batch: int
    """The last batch that was committed. Everything here is as it was after it."""
    unfinished: bool
    """Whether Spark had begun another batch. Some of its output may have been written."""
    sources: tuple[SourceNotes, ...]
    watermark_ms: int | None
    """The watermark of the last batch; None if the query has none."""
    next_watermark_ms: int | None
    """The watermark that the next batch would have had."""
    clock_ms: int
    operators: tuple[SparkOperator, ...]
    settings: Mapping[str, str]

    @staticmethod
    def read(spark: SparkSession, path: str) -> StoppedQuery:
        """Read the checkpoint of a query. Raises PreconditionFailed if it has none that can be continued."""
        path = path.rstrip("/")
        offsets, commits = _logged(spark, f"{path}/offsets"), _logged(spark, f"{path}/commits")
        done = [batch for batch in commits if batch in offsets]
        if not done:
            raise PreconditionFailed(
                f"{path} is not the checkpoint of a Spark query that has finished a batch: there is no batch in both "
                f"{path}/offsets and {path}/commits. Give the directory that the query has as its checkpointLocation."
            )

        # Of a batch in `offsets` alone nobody knows how far it came.
        batch = max(done)

        logged = _offsets(path, batch, offsets[batch])
        planned, after = json.loads(logged.batch), json.loads(_lines(commits[batch])[1])
        settings = {name: str(value) for name, value in planned.get("conf", {}).items() if name.startswith(_STORE)}

        with _settings(spark, settings):
            operators = _operators(spark, path)

        return StoppedQuery(
            path=path,
            batch=batch,
            unfinished=any(other > batch for other in offsets),
            sources=_sources(spark, path, logged),
            watermark_ms=planned.get("batchWatermarkMs") or None,
            next_watermark_ms=after.get("nextBatchWatermarkMs") or None,
            clock_ms=int(planned.get("batchTimestampMs", 0)),
            operators=operators,
            settings=settings,
        )

    @contextmanager
    def state(self, spark: SparkSession, operator: int, options: Mapping[str, str]) -> Iterator[DataFrame]:
        """The entries of a state after the last batch, as a DataFrame that can be used within the block."""
        with _settings(spark, self.settings):
            reader = spark.read.format("statestore").option("operatorId", operator).option("batchId", self.batch)
            yield reader.options(**dict(options)).load(self.path)

    def fields(self, spark: SparkSession, operator: int, options: Mapping[str, str]) -> StateFields:
        """Return the fields of a state: of `key`, of `value`, and of structs inside, such as `value.groupState`."""
        with self.state(spark, operator, options) as frame:
            found = dict(_structs("", frame.schema))
        return {column: fields for column, fields in found.items() if column}

    def has_gone_on(self, spark: SparkSession) -> bool:
        """Whether the query has finished another batch meanwhile: then it is not stopped."""
        committed = (int(name) for name in _names(spark, f"{self.path}/commits") if name.isdecimal())
        return max(committed, default=self.batch) > self.batch


def _structs(path: str, struct: StructType) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield path, [(field.name, field.dataType.simpleString()) for field in struct.fields]
    for field in struct.fields:
        if isinstance(field.dataType, StructType):
            yield from _structs(f"{path}.{field.name}" if path else field.name, field.dataType)


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    # Spark reads a state with the settings of the session, which must be those that the query had.
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _read(spark: SparkSession, path: str) -> dict[str, bytes]:
    """Return the files below a directory by their relative names; none if it does not exist."""
    return {name: bytes(row.content) for name, row in _files(spark, path, "path", "content")}


def _names(spark: SparkSession, path: str) -> list[str]:
    return [name for name, _ in _files(spark, path, "path")]


def _files(spark: SparkSession, path: str, *columns: str) -> list[tuple[str, Any]]:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        found = reader.load(path).select(*columns).collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return []
        raise
    folder = f"/{path.rsplit('/', 1)[-1]}/"
    return [(row.path.rsplit(folder, 1)[-1], row) for row in found]


def _logged(spark: SparkSession, path: str) -> dict[int, bytes]:
    return {int(name): content for name, content in _read(spark, path).items() if name.isdecimal()}


def _lines(content: bytes) -> list[str]:
    return content.decode().splitlines()


def _offsets(path: str, batch: int, content: bytes) -> LoggedOffsets:
    try:
        return parse_offsets(content.decode())
    except ValueError:
        version = content.decode().partition("\n")[0]
        raise PreconditionFailed(
            f"{path}/offsets/{batch} has format {version!r:.40}; tidegate can read versions 1 and 2. Run the query once more "
            "with spark.sql.streaming.offsetLog.formatVersion=1."
        ) from None


def _sources(spark: SparkSession, path: str, logged: LoggedOffsets) -> tuple[SourceNotes, ...]:
    positions, names = Positions(tuple(logged.lines.values())), list(logged.lines)
    with tempfile.TemporaryDirectory(prefix="tidegate-import-") as folder:
        for name, content in _read(spark, f"{path}/sources").items():
            file = Path(folder) / "sources" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return read_sources(Path(folder), positions, len(names), names)


def _operators(spark: SparkSession, path: str) -> tuple[SparkOperator, ...]:
    stored = {int(name.split("/")[0]) for name in _names(spark, f"{path}/state") if name.split("/")[0].isdecimal()}
    if not stored:
        return ()
    found = spark.read.format("state-metadata").load(path).collect()
    if {row.operatorId for row in found} != stored:
        raise PreconditionFailed(
            f"{path}/state has the state of operators {sorted(stored)}, but Spark describes "
            f"{sorted({row.operatorId for row in found})}. Versions before 4.0 wrote no descriptions: run the query once with "
            "this Spark, and stop it again."
        )
    return tuple(
        SparkOperator(
            id=row.operatorId,
            name=row.operatorName,
            partitions=row.numPartitions,
            properties=json.loads(row.operatorProperties or "{}"),
        )
        for row in {row.operatorId: row for row in found}.values()
    )


def source_text(source: SourceNotes) -> str:
    """What a source of the query reads, as far as its position shows: Kafka topics, a number of files."""
    if source.line is None or source.line == NOWHERE:
        return "not started"
    if (last := log_offset(source.line)) is not None:
        names = [line for note in source.notes.values() for line in _lines(note)[1:]]
        first = json.loads(names[0]).get("path", "") if names else ""
        return f"files, log entry {last}" + (f", such as {first}" if first else "")
    try:
        position = json.loads(source.line)
    except ValueError:
        return source.line
    if isinstance(position, dict) and position and all(isinstance(part, dict) for part in position.values()):
        return ", ".join(f"Kafka topic {topic} ({len(part)} partitions)" for topic, part in position.items())
    return source.line
