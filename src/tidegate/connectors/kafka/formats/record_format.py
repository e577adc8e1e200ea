"""What the formats have in common: an address, a subject, and codecs between bytes and Python values."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from tidegate.connectors.kafka.client import library
from tidegate.connectors.kafka.formats.registry import registry_client
from tidegate.core.errors import GraphError
from tidegate.core.redaction import refuse_credentials
from tidegate.graph.datatype import DataType

RecordPart = Literal["key", "value"]
Decode = Callable[[bytes], Any]
"""From the bytes of a record to a value that Arrow converts to the format's type."""
Encode = Callable[[Any], bytes]
"""From a value that Arrow returns to the bytes of a record."""


@dataclass(frozen=True)
class RecordFormat(ABC):
    """A format with a schema registry. Frozen configuration: it is sent to every task and opens nothing when constructed.

    `subject` is where schemas are looked up and registered, by default `{topic}-value` or `{topic}-key`. `config` holds
    further settings of confluent-kafka's registry client, such as `basic.auth.user.info` or `ssl.ca.location`.
    """

    kind: ClassVar[str]

    registry: str
    _: KW_ONLY
    subject: str | None = None
    auto_register_schemas: bool = True
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.registry.startswith(("http://", "https://")):
            raise GraphError(
                f"{type(self).__name__} needs the address of a schema registry, such as 'http://host:8081', not "
                f"{self.registry!r}."
            )
        refuse_credentials(self.registry, "the schema registry", "config={'basic.auth.user.info': 'user:password'}")
        if "url" in self.config:
            raise GraphError(f"url in the config of {type(self).__name__} is set by tidegate; remove it.")

    def client(self) -> Any:
        return registry_client(self.registry, json.dumps(dict(self.config), sort_keys=True))

    def subject_of(self, topic: str, part: RecordPart) -> str:
        return self.subject or f"{topic}-{part}"

    @property
    def reads_any_topic(self) -> bool:
        """Whether the schema to read with does not depend on the topic."""
        return self.subject is not None

    # -- as text, for options of a source and as a key of caches --------------------------------------------------------

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, **self.document()}, sort_keys=True)

    def document(self) -> dict[str, Any]:
        return {
            "registry": self.registry,
            "subject": self.subject,
            "auto_register_schemas": self.auto_register_schemas,
            "config": dict(self.config),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        return cls(**document)

    # -- reading ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def pinned(self, subject: str) -> Self:
        """Return the format with the schema to read with: the one given, else the latest of the subject. Asks the registry."""

    @abstractmethod
    def data_type(self) -> DataType:
        """Return the type of a pinned format's column."""

    @abstractmethod
    def decoder(self, subject: str) -> Decode:
        """Return a function that decodes records. Whatever schema a record was written with, it is resolved to the pinned
        one."""

    # -- writing ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def check(self, column: DataType) -> None:
        """Raise if a column does not fit the schema to write with."""

    @abstractmethod
    def register(self, column: DataType, subject: str) -> None:
        """Make sure that the subject has the schema to write with: register it, or only look for it."""

    @abstractmethod
    def encoder(self, column: DataType, subject: str) -> Encode:
        """Return a function that encodes values of a column. Looks its schema up once and registers nothing."""


def reading(subject: str) -> dict[str, Any]:
    """Return the settings of a deserializer. The default naming strategy asks the registry, and not every one can answer."""
    return {"subject.name.strategy": lambda context, name: subject}


def writing(subject: str) -> dict[str, Any]:
    """Return the settings of a serializer whose schema is already registered."""
    return {"auto.register.schemas": False, **reading(subject)}


@lru_cache(maxsize=1)
def context() -> Any:
    """Return what serializers want to know of a record. It only matters for the subject, which is given."""
    return library("confluent_kafka.serialization").SerializationContext("tidegate", "value")
