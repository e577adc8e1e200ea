"""Schemas and column types, in both directions, and what is refused."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal

import pytest
from google.protobuf import wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.unit.connectors.kafka.formats.messages import message_class
from tidegate.connectors.kafka.formats import AvroFormat, JsonSchemaFormat, ProtobufFormat
from tidegate.connectors.kafka.formats.avro_types import AvroTypes, avro_schema
from tidegate.connectors.kafka.formats.column_match import check_fits, maps_as_dicts
from tidegate.connectors.kafka.formats.decoding import Decoding, format_of
from tidegate.connectors.kafka.formats.json_types import JsonTypes, json_schema
from tidegate.connectors.kafka.formats.message_type import writer_of
from tidegate.core.errors import GraphError, SchemaError
from tidegate.schema.datatype import DataType
from tidegate.schema.ddl import Parser

URL = "http://registry:8081"
EVERY = (
    "struct<a:boolean,b:int,c:bigint,d:float,e:double,f:binary,g:string,h:date,i:timestamp,j:timestamp_ntz,"
    "k:decimal(10,2),l:array<struct<x:int>>,m:map<string,array<int>>,n:struct<y:string NOT NULL>>"
)


def type_of(ddl: str) -> DataType:
    return Parser(ddl).whole_type()


def test_a_column_derived_to_avro_and_back_is_the_same() -> None:
    schema = json.dumps(avro_schema(type_of(EVERY), "record"))
    assert AvroTypes(schema).type == type_of(EVERY).without_nullability()


def test_a_column_derived_to_json_keeps_what_json_has() -> None:
    schema = json.dumps(json_schema(type_of("struct<a:int,b:array<string>,c:map<string,double>,d:date NOT NULL>")))
    assert JsonTypes(schema).type.ddl() == "struct<a:bigint,b:array<string>,c:map<string,double>,d:string>"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("nonsense", "not an Avro schema"),
        ('["int", "string"]', "union of 2 types"),
        ('{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}', "contains itself"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "other.Type"}]}', "does not define"),
    ],
)
def test_avro_that_is_no_column_is_refused(schema: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        AvroTypes(schema)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("nonsense", "not a JSON schema"),
        ("true", "allows any value"),
        ('{"type": ["string", "integer"]}', "one of 2 types"),
        ('{"type": "object"}', "no type that a column can have"),
        ('{"properties": {"a": {"$ref": "#"}}}', "contains itself"),
        ('{"$ref": "http://elsewhere/x.json"}', "outside of the schema"),
    ],
)
def test_json_that_is_no_column_is_refused(schema: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        JsonTypes(schema)


def test_a_name_is_found_in_its_namespace() -> None:
    inner = {"type": "enum", "name": "Color", "symbols": ["RED"]}
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": "Color"}, {"name": "c", "type": "shop.Color"}]
    schema = {"type": "record", "name": "R", "namespace": "shop", "fields": fields}
    assert AvroTypes(json.dumps(schema)).type.ddl() == "struct<a:string,b:string,c:string>"


@pytest.mark.parametrize(
    ("column", "schema", "words"),
    [
        ("struct<a:int>", "struct<b:int>", r"no field value\.a"),
        ("struct<a:array<struct<x:int>>>", "struct<a:array<struct<y:int>>>", r"no field value\.a\[\]\.x"),
        ("struct<a:map<string,string>>", "struct<a:map<string,int>>", r"value\.a\{\} is string"),
        ("bigint", "int", "value is bigint"),
        ("double", "float", "value is double"),
        ("decimal(10,2)", "decimal(20,0)", "digits before or after the point"),
        ("decimal(10,2)", "decimal(10,1)", "digits before or after the point"),
        ("decimal(10,2)", "decimal(10,4)", "digits before or after the point"),
        ("struct<a:decimal(38,0)>", "struct<a:decimal(20,0)>", r"value\.a is decimal\(38,0\)"),
    ],
)
def test_a_column_that_would_lose_something_is_refused(column: str, schema: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        check_fits(type_of(column), type_of(schema), "Avro")


def test_a_column_may_be_narrower_than_its_schema() -> None:
    check_fits(type_of("struct<a:int,b:array<float>>"), type_of("struct<a:bigint,b:array<double>,c:string>"), "Avro")
    check_fits(type_of("decimal(10,2)"), type_of("decimal(12,4)"), "Avro")
    check_fits(type_of("decimal(20,0)"), type_of("decimal(20,0)"), "Protobuf")


def test_a_fraction_has_no_place_in_an_unsigned_integer() -> None:
    order = message_class("Order", 1)
    with pytest.raises(GraphError, match=r"value\.id is decimal\(10,2\)"):
        ProtobufFormat(URL, message=order).check(type_of("struct<id:decimal(10,2)>"))
    write, message = writer_of(order.DESCRIPTOR), order()
    with pytest.raises(ValueError, match=r"1\.5 is not an integer"):
        write(message, {"id": Decimal("1.5")})
    write(message, {"id": Decimal(2**64 - 1)})
    assert message.id == 2**64 - 1


def test_an_unsigned_integer_that_may_be_null_is_set() -> None:
    file = FileDescriptorProto(name="limit.proto", syntax="proto3", dependency=["google/protobuf/wrappers.proto"])
    file.message_type.add(name="Limit").field.add(
        name="most", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".google.protobuf.UInt64Value"
    )
    pool = DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    message = GetMessageClass(pool.FindMessageTypeByName("Limit"))()
    writer_of(message.DESCRIPTOR)(message, {"most": Decimal(5)})
    assert message.most.value == 5


def test_what_json_writes_as_text_fits_a_string() -> None:
    schema = '{"properties": {"day": {"type": "string"}, "price": {"type": "number"}, "n": {"type": "integer"}}}'
    JsonSchemaFormat(URL, schema=schema).check(type_of("struct<day:date,price:decimal(10,2),n:int>"))
    with pytest.raises(GraphError, match=r"value\.n is string"):
        JsonSchemaFormat(URL, schema=schema).check(type_of("struct<n:string>"))


def test_maps_become_dictionaries_wherever_they_are() -> None:
    convert = maps_as_dicts(type_of("struct<a:array<map<string,map<string,int>>>,b:int>"))
    assert convert is not None
    assert convert({"a": [[("k", [("l", 1)])], None], "b": 2}) == {"a": [{"k": {"l": 1}}, None], "b": 2}
    assert maps_as_dicts(type_of("struct<a:array<int>>")) is None


@pytest.mark.parametrize(
    "format",
    [
        AvroFormat(URL, schema='"string"', subject="s", auto_register_schemas=False, config={"timeout": 5}),
        JsonSchemaFormat(URL, schema='{"type": "string"}'),
        ProtobufFormat(URL, message=message_class("Order", 2)),
    ],
)
def test_a_format_travels_as_text_and_as_a_pickle(format: AvroFormat) -> None:
    assert format_of(format.to_json()) == format
    assert pickle.loads(pickle.dumps(format)) == format
    decoding = Decoding({"value": format}, "column", headers=True)
    assert Decoding.from_json(decoding.to_json()) == decoding


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"registry": "registry:8081"}, "http://host:8081"),
        ({"registry": "http://ann:swordfish@registry:8081"}, "contains credentials"),
        ({"config": {"url": "x"}}, "set by tidegate"),
    ],
)
def test_a_wrong_choice_is_reported_when_the_format_is_created(choice: dict[str, object], words: str) -> None:
    with pytest.raises(GraphError, match=words) as refused:
        AvroFormat(**{"registry": URL} | choice)  # type: ignore[arg-type]
    assert "swordfish" not in str(refused.value)


def test_something_that_is_no_message_is_refused() -> None:
    with pytest.raises(GraphError, match="message class that protoc generated"):
        ProtobufFormat(URL, message=dict)


def test_a_format_does_not_show_its_login() -> None:
    assert "swordfish" not in repr(AvroFormat(URL, config={"basic.auth.user.info": "ann:swordfish"}))
