"""Encoding in the tasks of a sink: columns become the bytes that are staged, so that whoever sends them sends the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tidegate.connectors.kafka.errors import RowUnwritable
from tidegate.connectors.kafka.formats.decoding import format_of
from tidegate.connectors.kafka.formats.record_format import Encode, RecordFormat, RecordPart
from tidegate.schema.datatype import DataType, Field
from tidegate.schema.ddl import Parser
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a sink encodes the rows of one topic."""

    topic: str
    formats: Mapping[RecordPart, RecordFormat]

    def check(self, schema: Schema) -> Schema:
        """Return the schema of the rows as they are staged. Raises if a column does not fit the schema given for it."""
        fields = []
        for column in schema:
            format = self._format(column.name)
            if format is not None:
                format.check(column.type)
            fields.append(column if format is None else Field(column.name, DataType("binary")))
        return Schema(tuple(fields))

    def register(self, schema: Schema) -> None:
        """Make the schemas known to the registry."""
        for column in schema:
            if (format := self._format(column.name)) is not None:
                subject = format.subject_of(self.topic, _part(column.name))
                with format.errors(f"register the schema of subject {subject!r}"):
                    format.register(column.type, subject)

    def apply(self, batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
        """Encode the columns that have a format."""
        import pyarrow as pa

        columns = {
            column.name: batch.column(i) if self._format(column.name) is None else self._encode(column, batch.column(i))
            for i, column in enumerate(schema)
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _encode(self, column: Field, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        format = self._format(column.name)
        assert format is not None
        subject = format.subject_of(self.topic, _part(column.name))
        # By text, so that all writers of this process share one.
        encode = _encoder(format.to_json(), column.type.ddl(), subject)
        done: list[bytes | None] = []
        for value in values.to_pylist():
            try:
                done.append(None if value is None else encode(value))
            except Exception as error:
                if (of_service := format.error_of_service(error, f"return the schema of {subject!r}")) is not None:
                    raise of_service from error
                raise RowUnwritable(
                    f"A row for topic {self.topic!r} cannot be encoded as {format.kind} with the schema of subject "
                    f"{subject!r}, column {column.name!r}: {' '.join(f'{type(error).__name__}: {error}'.split())}. Correct "
                    "the rows before the sink, or the schema."
                ) from error
        return pa.array(done, pa.binary())

    def _format(self, column: str) -> RecordFormat | None:
        return self.formats.get(_part(column)) if column in ("key", "value") else None


def _part(column: str) -> RecordPart:
    return "key" if column == "key" else "value"


@lru_cache(maxsize=32)
def _encoder(format: str, type: str, subject: str) -> Encode:
    """Return the encoder of this process, which has looked its schema up."""
    found = format_of(format)
    with found.errors(f"return the schema of subject {subject!r}"):
        return found.encoder(Parser(type).whole_type(), subject)
