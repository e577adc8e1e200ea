"""Decoding in the tasks of a source: batches of bytes become batches of columns."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from tidegate.connectors.kafka.errors import KafkaError, RecordUnreadable
from tidegate.connectors.kafka.formats.avro import AvroFormat
from tidegate.connectors.kafka.formats.json_format import JsonFormat
from tidegate.connectors.kafka.formats.json_schema import JsonSchemaFormat
from tidegate.connectors.kafka.formats.protobuf import ProtobufFormat
from tidegate.connectors.kafka.formats.record_format import Decode, RecordFormat, RecordPart
from tidegate.connectors.kafka.reader import HEADERS, columns
from tidegate.schema.datatype import DataType

if TYPE_CHECKING:
    import pyarrow as pa

OnDecodeError = Literal["fail", "column"]
ERROR_COLUMN = "decode_error"
ERROR_TYPE = "struct<part:string,schema_id:int,message:string,data:binary>"
_KINDS: dict[str, type[RecordFormat]] = {
    each.kind: each for each in (AvroFormat, JsonFormat, JsonSchemaFormat, ProtobufFormat)
}
_PARTS: tuple[RecordPart, ...] = ("key", "value")
_LAG_S = 3.0
"""How long a batch waits in all for schemas that the registry does not know yet."""


def format_of(text: str) -> RecordFormat:
    """Return the format that `to_json` wrote."""
    document = json.loads(text)
    return _KINDS[document.pop("kind")].from_document(document)


@dataclass(frozen=True, slots=True)
class Decoding:
    """The columns of a source. `formats` holds a pinned format for each part of a record that is not left as it is."""

    formats: Mapping[RecordPart, RecordFormat] = field(default_factory=dict)
    on_error: OnDecodeError = "fail"
    headers: bool = False

    @staticmethod
    def from_json(text: str) -> Decoding:
        document = json.loads(text)
        formats = {part: format_of(each) for part, each in document.pop("formats").items()}
        return Decoding(formats, **document)

    def to_json(self) -> str:
        formats = {part: each.to_json() for part, each in self.formats.items()}
        return json.dumps({"formats": formats, "on_error": self.on_error, "headers": self.headers})

    @property
    def keeps_errors(self) -> bool:
        return bool(self.formats) and self.on_error == "column"

    def ddl(self) -> str:
        """Return the columns of the source."""
        types = {part: each.data_type().ddl() for part, each in self.formats.items()}
        found = [columns(types.get("key", "binary"), types.get("value", "binary"))]
        found += [HEADERS] if self.headers else []
        return ", ".join([*found, f"{ERROR_COLUMN} {ERROR_TYPE}"] if self.keeps_errors else found)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decode the records of one Kafka partition. A column of errors is the last one, if wanted."""
        import pyarrow as pa

        if not self.formats:
            return batch
        found = dict(zip(batch.schema.names, batch.columns))
        errors: list[dict[str, Any] | None] = [None] * batch.num_rows
        for part, format in self.formats.items():
            found[part] = self._decode(part, format, batch, errors)
        if self.keeps_errors:
            found[ERROR_COLUMN] = pa.array(errors, _error_type())
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

    def _decode(
        self, part: RecordPart, format: RecordFormat, batch: pa.RecordBatch, errors: list[dict[str, Any] | None]
    ) -> pa.Array:
        import pyarrow as pa

        subject = format.subject_of(batch.column("topic")[0].as_py(), part)
        decode, type = _decoder(format.to_json(), subject)
        arrow, data = type.to_arrow(), batch.column(part).to_pylist()
        values: list[Any] = []
        latest: float | None = None
        for row, each in enumerate(data):
            value = None
            if each is not None:
                try:
                    value = decode(each)
                except Exception as first:
                    # One wait for the whole batch: ids that no registry knows must not hold up every record.
                    latest = latest or time.monotonic() + _LAG_S
                    try:
                        value = format.decode_again(decode, each, subject, first, latest)
                    except KafkaError:
                        raise
                    except Exception as error:
                        self._report(part, format, batch, row, error, errors)
            values.append(value)
        # The text of a JSON string may be none that UTF-8 has, which is a ValueError of Python.
        unconvertible = (pa.ArrowException, ValueError, TypeError, OverflowError)
        try:
            return pa.array(values, arrow)
        except unconvertible:
            for row, value in enumerate(values):
                try:
                    pa.array([value], arrow)
                except unconvertible as error:
                    self._report(part, format, batch, row, error, errors)
                    values[row] = None
            return pa.array(values, arrow)

    def _report(
        self,
        part: RecordPart,
        format: RecordFormat,
        batch: pa.RecordBatch,
        row: int,
        error: Exception,
        errors: list[dict[str, Any] | None],
    ) -> None:
        data = batch.column(part)[row].as_py()
        schema_id = format.schema_id(data)
        text = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
        reason = " ".join(text.split())
        if self.on_error == "fail":
            topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
            raise RecordUnreadable(
                f"The {part} of the record at offset {offset} of partition {partition} of topic {topic!r} cannot be decoded"
                f"{'' if schema_id is None else f' (schema id {schema_id})'}: {reason}. To keep such records apart instead, "
                "read with kafka_source(…, on_decode_error='column')."
            ) from error
        # A record has one column of errors; that of its key comes first.
        errors[row] = errors[row] or {"part": part, "schema_id": schema_id, "message": reason, "data": data}


@lru_cache(maxsize=32)
def _decoder(format: str, subject: str) -> tuple[Decode, DataType]:
    """Return the decoder of this process: the schemas it has met stay known from batch to batch."""
    found = format_of(format)
    with found.errors(f"return the schemas of subject {subject!r}"):
        return found.decoder(subject), found.data_type()


@lru_cache(maxsize=1)
def _error_type() -> pa.DataType:
    from tidegate.schema.schema import Schema

    return Schema.parse(f"{ERROR_COLUMN} {ERROR_TYPE}").fields[0].type.to_arrow()


def pinned_formats(
    formats: Mapping[RecordPart, RecordFormat | None], topics: Sequence[str]
) -> dict[RecordPart, RecordFormat]:
    """Return the formats that are given, each with the schema to read with. Asks the registry for those that have none."""
    return {
        part: found.pinned(found.subject_of(topics[0], part))
        for part in _PARTS
        if (found := formats.get(part)) is not None
    }
