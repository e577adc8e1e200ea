"""What formats with a schema registry have in common: an address, a subject, and patience with a registry that lags."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any

from tidegate.connectors.kafka.client import library
from tidegate.connectors.kafka.formats.record_format import Decode, RecordFormat, RecordPart
from tidegate.connectors.kafka.formats.registry import (
    is_not_found,
    is_of_registry,
    knows_schema,
    registry_client,
    registry_errors,
    translate_registry,
)
from tidegate.core.errors import GraphError
from tidegate.core.redaction import refuse_credentials

_unknown: set[tuple[str, int]] = set()
"""Registries, and ids for which this process has waited in vain."""


@dataclass(frozen=True)
class RegistryFormat(RecordFormat):
    """A format with a schema registry."""

    registry: str
    """The address of the schema registry, such as `http://host:8081`."""
    _: KW_ONLY
    subject: str | None = None
    """Where schemas are looked up and registered. By default `{topic}-value` or `{topic}-key`."""
    auto_register_schemas: bool = True
    """Whether a sink registers the schema of its rows. Otherwise, it must be registered."""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further settings of confluent-kafka's registry client, such as `basic.auth.user.info` or `ssl.ca.location`."""

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
        return self.subject or super().subject_of(topic, part)

    @property
    def reads_any_topic(self) -> bool:
        return self.subject is not None

    def errors(self, doing: str) -> AbstractContextManager[None]:
        return registry_errors(self.registry, doing)

    def error_of_service(self, error: Exception, doing: str) -> Exception | None:
        return translate_registry(error, self.registry, doing) if is_of_registry(error) else None

    def document(self) -> dict[str, Any]:
        return {
            "registry": self.registry,
            "subject": self.subject,
            "auto_register_schemas": self.auto_register_schemas,
            "config": dict(self.config),
        }

    def schema_id(self, data: bytes) -> int | None:
        # A zero byte, then the id: the form that all clients of registries write.
        return int.from_bytes(data[1:5], "big", signed=True) if len(data) >= 5 and data[0] == 0 else None

    def decode_again(self, decode: Decode, data: bytes, subject: str, error: Exception, latest: float) -> Any:
        """Raises the registry's error if it was the registry."""
        schema_id = self.schema_id(data)
        if schema_id is None:
            raise error
        doing = f"return schema {schema_id}"
        if is_of_registry(error) and not is_not_found(error):
            raise translate_registry(error, self.registry, doing) from error
        place = (self.registry, schema_id)
        while not knows_schema(self.client(), schema_id, subject, self.registry):
            # A registry of several servers may be asked before all of them have a new schema.
            if place in _unknown or time.monotonic() > latest:
                # Garbage in a topic may name any id.
                if len(_unknown) > 10_000:
                    _unknown.clear()
                _unknown.add(place)
                raise error
            time.sleep(0.2)
        _unknown.discard(place)
        try:
            return decode(data)
        except Exception as second:
            if (of_registry := self.error_of_service(second, doing)) is not None:
                raise of_registry from second
            raise


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
