"""Keys and values of records as columns: plain JSON, and with a schema registry Avro, JSON Schema and Protobuf by the
serializers of confluent-kafka. A format is configuration until a task or the driver asks it for a codec."""

from tidegate.connectors.kafka.formats.avro import AvroFormat
from tidegate.connectors.kafka.formats.json_format import JsonFormat
from tidegate.connectors.kafka.formats.json_schema import JsonSchemaFormat
from tidegate.connectors.kafka.formats.protobuf import ProtobufFormat

__all__ = ["AvroFormat", "JsonFormat", "JsonSchemaFormat", "ProtobufFormat"]
