"""Message classes as `protoc` would generate them, in two versions of one file."""

from __future__ import annotations

from typing import Any

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_F = FieldDescriptorProto


def message_class(name: str, version: int) -> Any:
    """`Order` has id, who and note in version 1; in version 2, note is gone and others are new."""
    file = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    color = file.enum_type.add(name="Color")
    for number, each in enumerate(("RED", "BLUE")):
        color.value.add(name=each, number=number)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=_F.TYPE_UINT64, label=_F.LABEL_OPTIONAL)
    order.field.add(name="who", number=2, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    if version == 1:
        order.field.add(name="note", number=3, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    else:
        _grow(order)
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


def _grow(order: Any) -> None:
    order.oneof_decl.add(name="_amount")
    order.field.add(
        name="amount", number=4, type=_F.TYPE_DOUBLE, label=_F.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True
    )
    order.field.add(name="color", number=5, type=_F.TYPE_ENUM, type_name=".shop.Color", label=_F.LABEL_OPTIONAL)
    order.field.add(
        name="at", number=6, type=_F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=_F.LABEL_OPTIONAL
    )
    line = order.nested_type.add(name="Line")
    line.field.add(name="n", number=1, type=_F.TYPE_INT32, label=_F.LABEL_OPTIONAL)
    order.field.add(name="lines", number=7, type=_F.TYPE_MESSAGE, type_name=".shop.Order.Line", label=_F.LABEL_REPEATED)
    entry = order.nested_type.add(name="ScoresEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_F.TYPE_INT32, label=_F.LABEL_OPTIONAL)
    order.field.add(
        name="scores", number=8, type=_F.TYPE_MESSAGE, type_name=".shop.Order.ScoresEntry", label=_F.LABEL_REPEATED
    )
