"""Avro's logical types where the schema of a writer and that of the reader differ.

Avro matches the numbers of two schemas and gives their meaning no part in it, so a `long` may become a `timestamp-millis`, or the
other way round. fastavro applies the logical type of the writer, whatever the reader has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tidegate.connectors.kafka.client import library

# A name of our own: fastavro's readers are global, and other users of the library in this process must keep theirs.
_OURS = "tidegate-"
_KNOWN = (
    "long-timestamp-millis",
    "long-timestamp-micros",
    "long-local-timestamp-millis",
    "long-local-timestamp-micros",
    "int-date",
    "int-time-millis",
    "long-time-micros",
    "bytes-decimal",
    "fixed-decimal",
)


class WriterSchemas:
    """A registry client whose schemas have our logical types, which also look at the schema of the reader."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._renamed: dict[Any, Any] = {}
        _register()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_schema(self, *which: Any) -> Any:
        return self._ours(self._client.get_schema(*which))

    def get_version(self, *which: Any) -> Any:
        found = self._client.get_version(*which)
        return type(found)(**_attributes(found) | {"schema": self._ours(found.schema)})

    def _ours(self, schema: Any) -> Any:
        # Once for each schema: records name theirs, and most have the same.
        found = self._renamed.get(schema)
        if found is None:
            text = schema.schema_str
            renamed = json.dumps(_rename(json.loads(text))) if "logicalType" in text else text
            found = self._renamed[schema] = type(schema)(**_attributes(schema) | {"schema_str": renamed})
        return found


def _attributes(of: Any) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in type(of).__attrs_attrs__}


def _rename(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_rename(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: each if name == "default" else _rename(each) for name, each in schema.items()}
    if f"{schema.get('type')}-{schema.get('logicalType')}" in _KNOWN:
        found["logicalType"] = _OURS + schema["logicalType"]
    return found


@lru_cache(maxsize=1)
def _register() -> None:
    readers = library("fastavro.read").LOGICAL_READERS
    for name in _KNOWN:
        kind, _, logical = name.partition("-")
        readers[f"{kind}-{_OURS}{logical}"] = _reader(readers[name], _family(logical))


def _reader(read: Callable[..., Any], family: str) -> Callable[[Any, Any, Any], Any]:
    def read_for(data: Any, writer: Any, reader: Any) -> Any:
        wanted = reader.get("logicalType", "") if isinstance(reader, Mapping) else ""
        return read(data, writer, reader) if _family(wanted) == family else data

    return read_for


@lru_cache(maxsize=64)
def _family(logical: str) -> str:
    """Return what types of different units have in common: a value of one is a value of the other."""
    return logical.removeprefix("local-").removesuffix("-millis").removesuffix("-micros")
