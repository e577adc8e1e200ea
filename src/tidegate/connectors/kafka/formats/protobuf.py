"""Protobuf with schemas in a registry, as Flink's format `protobuf-confluent`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

from tidegate.connectors.kafka.formats.column_match import check_fits
from tidegate.connectors.kafka.formats.message_type import MessageType, reader_of, writer_of
from tidegate.connectors.kafka.formats.record_format import Decode, Encode
from tidegate.connectors.kafka.formats.registry import serdes
from tidegate.connectors.kafka.formats.registry_format import RegistryFormat, context, reading, writing
from tidegate.schema.datatype import DataType


@dataclass(frozen=True)
class ProtobufFormat(RegistryFormat):
    """Protobuf, with schemas in a registry: `ProtobufFormat("http://registry:8081", message=order_pb2.Order)`. A topic has one
    type of message.

    Args:
        registry: The address of the schema registry.
        subject: Where schemas are looked up and registered. By default `{topic}-value` or `{topic}-key`.
        auto_register_schemas: Whether a sink registers the schema of its rows. Otherwise, it must be registered.
        config: Further settings of confluent-kafka's registry client, such as `basic.auth.user.info` or `ssl.ca.location`.
        message: The class that `protoc` generated.
    """

    kind: ClassVar[str] = "protobuf"

    _: KW_ONLY
    message: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.message, MessageType):
            object.__setattr__(self, "message", MessageType.of(self.message))

    @property
    def reads_any_topic(self) -> bool:
        return True

    def document(self) -> dict[str, Any]:
        return super().document() | {"message": [self.message.name, self.message.files]}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        return cls(**document | {"message": MessageType(*document["message"])})

    def pinned(self, subject: str) -> Self:
        return self

    def data_type(self) -> DataType:
        found: DataType = self.message.data_type()
        return found

    def decoder(self, subject: str) -> Decode:
        message, about = self.message.message_class(), context()
        # A message describes itself as far as its own class needs it: the writer's schema is not asked for.
        read = serdes(".protobuf").ProtobufDeserializer(message, reading(subject))
        convert = reader_of(message.DESCRIPTOR)
        return lambda data: convert(read(data, about))

    def check(self, column: DataType) -> None:
        check_fits(column, self.data_type(), "Protobuf")

    def register(self, column: DataType, subject: str) -> None:
        self.check(column)
        message = self.message.message_class()
        # The serializer registers what the message imports, too.
        settings = writing(subject) | {"auto.register.schemas": self.auto_register_schemas}
        serdes(".protobuf").ProtobufSerializer(message, self.client(), settings)(message(), context())

    def encoder(self, column: DataType, subject: str) -> Encode:
        message, about = self.message.message_class(), context()
        write = serdes(".protobuf").ProtobufSerializer(message, self.client(), writing(subject))
        fill = writer_of(message.DESCRIPTOR)

        def encode(value: Any) -> bytes:
            made = message()
            fill(made, value)
            found: bytes = write(made, about)
            return found

        return encode
