"""A Protobuf message as a column type. The description of the message travels with the job: tasks need no generated module."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tidegate.core.errors import GraphError, SchemaError
from tidegate.schema.datatype import DataType, Field

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_KINDS = {
    1: "double",
    2: "float",
    3: "bigint",
    5: "int",
    6: "unsigned",
    7: "bigint",
    8: "boolean",
    9: "string",
    12: "binary",
    13: "bigint",
    14: "string",
    15: "int",
    16: "bigint",
    17: "int",
    18: "bigint",
    4: "unsigned",
}
"""Protobuf's numbers of field types. Unsigned integers take the next wider type."""
_ENUM, _MESSAGE, _GROUP, _WIDE = 14, 11, 10, (4, 6)

ToPython = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MessageType:
    """`files` is a serialized FileDescriptorSet, in base64, with all that the message `name` needs."""

    name: str
    files: str

    @staticmethod
    def of(message: Any) -> MessageType:
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "fields_by_name"):
            raise GraphError(
                "ProtobufFormat takes a message class that protoc generated, as in message=order_pb2.Order; got "
                f"{message!r:.100}."
            )
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        found: dict[str, Any] = {}
        _collect(descriptor.file, found)
        files = FileDescriptorSet()
        for file in found.values():
            file.CopyToProto(files.file.add())
        return MessageType(descriptor.full_name, base64.b64encode(files.SerializeToString()).decode())

    def message_class(self) -> Any:
        return _message_class(self.name, self.files)

    def data_type(self) -> DataType:
        return _struct(self.message_class().DESCRIPTOR, ())


@lru_cache(maxsize=32)
def _message_class(name: str, files: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    # A pool of its own: the global one refuses a second version of a message, and a process may serve several jobs.
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(base64.b64decode(files)).file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def _collect(file: Any, found: dict[str, Any]) -> None:
    """Collect a file after all that it imports."""
    for each in file.dependencies:
        if each.name not in found:
            _collect(each, found)
    found[file.name] = file


def _struct(descriptor: Any, within: tuple[str, ...]) -> DataType:
    if descriptor.full_name in within:
        raise SchemaError(f"Message {descriptor.full_name} contains itself, and a column cannot.")
    inner = (*within, descriptor.full_name)
    return DataType("struct", fields=tuple(Field(each.name, _type(each, inner)) for each in descriptor.fields))


def _type(field: Any, within: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return DataType("map", key=_single(entry["key"], within), value=_single(entry["value"], within))
    single = _single(field, within)
    return DataType("array", element=single) if field.is_repeated else single


def _single(field: Any, within: tuple[str, ...]) -> DataType:
    if field.type in (_MESSAGE, _GROUP):
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return DataType("timestamp")
        if name in _WRAPPERS:
            return _single(field.message_type.fields_by_name["value"], within)
        return _struct(field.message_type, within)
    kind = _KINDS[field.type]
    return DataType("decimal", precision=20, scale=0) if kind == "unsigned" else DataType(kind)


def _is_map(field: Any) -> bool:
    return field.type == _MESSAGE and bool(field.message_type.GetOptions().map_entry)


# -- from messages to values that Arrow accepts ------------------------------------------------------------------------


def reader_of(descriptor: Any) -> ToPython:
    """Return a function from a message to a dictionary. A field that was not set is null if Protobuf can tell."""
    plans = [(each.name, _presence(each), _getter(each)) for each in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if present and not message.HasField(name) else get(getattr(message, name))
            for name, present, get in plans
        }

    return read


def _presence(field: Any) -> bool:
    return bool(field.has_presence)


def _getter(field: Any) -> ToPython:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        key, value = _single_getter(entry["key"]), _single_getter(entry["value"])
        return lambda found: {key(k): value(found[k]) for k in found}
    get = _single_getter(field)
    return (lambda found: [get(each) for each in found]) if field.is_repeated else get


def _single_getter(field: Any) -> ToPython:
    if field.type in (_MESSAGE, _GROUP):
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return lambda message: message.ToDatetime(UTC)
        if name in _WRAPPERS:
            get = _single_getter(field.message_type.fields_by_name["value"])
            return lambda message: get(message.value)
        return reader_of(field.message_type)
    if field.type == _ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        # A newer schema may have added a name.
        return lambda number: names.get(number, str(number))
    return Decimal if field.type in _WIDE else _same


def _same(value: Any) -> Any:
    return value


# -- from values that Arrow returns to messages ------------------------------------------------------------------------


def writer_of(descriptor: Any) -> Callable[[Any, Any], None]:
    """Return a function that sets the fields of a message from a dictionary. What is null is not set."""
    plans = [(each.name, _setter(each)) for each in descriptor.fields]

    def write(message: Any, row: Any) -> None:
        for name, put in plans:
            if (value := row.get(name)) is not None:
                put(message, name, value)

    return write


def _setter(field: Any) -> Callable[[Any, str, Any], None]:
    if _is_map(field):
        return _map_setter(field.message_type.fields_by_name["value"])
    if field.type in (_MESSAGE, _GROUP):
        fill = _filler(field)
        if field.is_repeated:
            return lambda message, name, values: _add_all(getattr(message, name), fill, values)
        return lambda message, name, value: _fill_own(getattr(message, name), fill, value)
    convert = _scalar(field)
    if field.is_repeated:
        return lambda message, name, values: getattr(message, name).extend([convert(value) for value in values])
    return lambda message, name, value: setattr(message, name, convert(value))


def _map_setter(field: Any) -> Callable[[Any, str, Any], None]:
    if field.type == _MESSAGE:
        fill = _filler(field)

        def put_messages(message: Any, name: str, pairs: Any) -> None:
            for key, value in pairs:
                _fill_own(getattr(message, name)[key], fill, value)

        return put_messages
    convert = _scalar(field)
    return lambda message, name, pairs: getattr(message, name).update({key: convert(value) for key, value in pairs})


def _filler(field: Any) -> Callable[[Any, Any], None]:
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return lambda message, value: message.FromDatetime(value)
    if name in _WRAPPERS:
        convert = _scalar(field.message_type.fields_by_name["value"])
        return lambda message, value: setattr(message, "value", convert(value))
    return writer_of(field.message_type)


def _fill_own(message: Any, fill: Callable[[Any, Any], None], value: Any) -> None:
    # An empty message that is present differs from one that is not.
    message.SetInParent()
    fill(message, value)


def _add_all(into: Any, fill: Callable[[Any, Any], None], values: Any) -> None:
    for value in values:
        fill(into.add(), value)


def _scalar(field: Any) -> ToPython:
    if field.type == _ENUM:
        numbers = {name: each.number for name, each in field.enum_type.values_by_name.items()}
        return lambda name: numbers[name]
    return _integer if field.type in _WIDE else _same


def _integer(value: Decimal) -> int:
    if value != value.to_integral_value():
        raise ValueError(f"{value} is not an integer")
    return int(value)
