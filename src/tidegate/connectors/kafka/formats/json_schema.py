"""JSON with schemas in a registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from tidegate.connectors.kafka.formats.json_types import JsonTypes, as_json, json_schema
from tidegate.connectors.kafka.formats.record_format import Decode, Encode
from tidegate.connectors.kafka.formats.registry import serdes
from tidegate.connectors.kafka.formats.registry_format import context, reading, writing
from tidegate.connectors.kafka.formats.text_format import TextFormat
from tidegate.schema.datatype import DataType


@dataclass(frozen=True)
class JsonSchemaFormat(TextFormat):
    """JSON, with schemas in a registry: `JsonSchemaFormat("http://registry:8081")`. Records and rows that the schema does not
    allow are errors.

    Args:
        registry: The address of the schema registry.
        subject: Where schemas are looked up and registered. By default `{topic}-value` or `{topic}-key`.
        auto_register_schemas: Whether a sink registers the schema of its rows. Otherwise, it must be registered.
        config: Further settings of confluent-kafka's registry client, such as `basic.auth.user.info` or `ssl.ca.location`.
        schema: A JSON schema as text. By default, a source reads with the latest one in the registry, and a sink derives
            it from its column.
    """

    kind: ClassVar[str] = "json-schema"
    registered_as: ClassVar[str] = "JSON"

    def decoder(self, subject: str) -> Decode:
        about, deserializer = context(), serdes(".json_schema").JSONDeserializer
        read = deserializer(self._given(), schema_registry_client=self.client(), conf=reading(subject))
        return lambda data: read(data, about)

    def encoder(self, column: DataType, subject: str) -> Encode:
        write = serdes(".json_schema").JSONSerializer(self._to_write(column), self.client(), conf=writing(subject))
        prepare, about = as_json(column), context()
        return (lambda value: write(value, about)) if prepare is None else (lambda value: write(prepare(value), about))

    def _type_of(self, schema: str) -> DataType:
        return JsonTypes(schema).type

    def _as_written(self, column: DataType) -> DataType:
        return JsonTypes(self._derived(column)).type

    def _derived(self, column: DataType) -> str:
        return json.dumps({"title": "record", **json_schema(column)})
