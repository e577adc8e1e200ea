"""Avro with a schema registry, as Flink's format `avro-confluent`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.connectors.kafka.formats.avro_logical import WriterSchemas
from tidegate.connectors.kafka.formats.avro_types import AvroTypes, avro_schema
from tidegate.connectors.kafka.formats.column_match import maps_as_dicts, null_check
from tidegate.connectors.kafka.formats.record_format import Decode, Encode
from tidegate.connectors.kafka.formats.registry import serdes
from tidegate.connectors.kafka.formats.registry_format import context, reading, writing
from tidegate.connectors.kafka.formats.text_format import TextFormat
from tidegate.schema.datatype import DataType


@dataclass(frozen=True)
class AvroFormat(TextFormat):
    """Avro, with schemas in a registry: `AvroFormat("http://registry:8081")`.

    Args:
        registry: The address of the schema registry.
        subject: Where schemas are looked up and registered. By default `{topic}-value` or `{topic}-key`.
        auto_register_schemas: Whether a sink registers the schema of its rows. Otherwise, it must be registered.
        config: Further settings of confluent-kafka's registry client, such as `basic.auth.user.info` or `ssl.ca.location`.
        schema: An Avro schema as text. By default, a source reads with the latest one in the registry, and a sink derives
            it from its column.
    """

    kind: ClassVar[str] = "avro"
    registered_as: ClassVar[str] = "AVRO"

    def decoder(self, subject: str) -> Decode:
        text, about = self._given(), context()
        fix = AvroTypes(text).fix
        read = serdes(".avro").AvroDeserializer(WriterSchemas(self.client()), text, conf=reading(subject))
        # Decided once, not for every record.
        return (lambda data: read(data, about)) if fix is None else (lambda data: fix(read(data, about)))

    def encoder(self, column: DataType, subject: str) -> Encode:
        text = self._to_write(column)
        write = serdes(".avro").AvroSerializer(self.client(), text, conf=writing(subject))
        prepare, check, about = maps_as_dicts(column), null_check(column, AvroTypes(text).nullable), context()

        def encode(value: Any) -> bytes:
            ready = value if prepare is None else prepare(value)
            if check is not None:
                check(ready)
            found: bytes = write(ready, about)
            return found

        return encode

    def _type_of(self, schema: str) -> DataType:
        return AvroTypes(schema).type

    def _to_write(self, column: DataType) -> str:
        text = super()._to_write(column)
        # A type without a name is registered in this form by the serializer, which then looks for it.
        return f'{{"type":{text.strip()}}}' if isinstance(json.loads(text), str) else text

    def _derived(self, column: DataType) -> str:
        return json.dumps(avro_schema(column, "record"))
