"""Schemas are read, written and refused as Spark would, without a JVM."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import SchemaError, UnsupportedType
from tidegate.schema.schema import EXAMPLE, DataType, Field, Schema

_ATOMS = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
]


@st.composite
def _decimals(draw: Any) -> DataType:
    precision = draw(st.integers(1, 38))
    return DataType("decimal", precision=precision, scale=draw(st.integers(0, precision)))


def _columns(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[tuple[Field, ...]]:
    names = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=8)
    return st.lists(
        st.builds(Field, names, types, st.booleans()), min_size=1, max_size=4, unique_by=lambda f: f.name.lower()
    ).map(tuple)


_types = st.recursive(
    st.sampled_from(_ATOMS).map(DataType) | _decimals(),
    lambda inner: (
        st.builds(lambda t: DataType("array", element=t), inner)
        | st.builds(lambda k, v: DataType("map", key=k, value=v), inner, inner)
        | st.builds(lambda f: DataType("struct", fields=f), _columns(inner))
    ),
    max_leaves=5,
)


@given(_columns(_types).map(Schema))
def test_what_is_written_is_read_back(schema: Schema) -> None:
    assert Schema.parse(schema.ddl()) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert schema.to_arrow().names == list(schema.names)


@pytest.mark.parametrize(
    ("alias", "kind"),
    [("long", "bigint"), ("short", "smallint"), ("byte", "tinyint"), ("real", "float"), ("INTEGER", "int"),
     ("dec(5,1)", "decimal(5,1)"), ("numeric", "decimal(10,0)"), ("decimal(7)", "decimal(7,0)"), ("bool", "boolean")],
)  # fmt: skip
def test_aliases(alias: str, kind: str) -> None:
    assert Schema.parse(f"a {alias}").ddl() == f"a {kind}"


def test_spellings_of_columns() -> None:
    schema = Schema.parse(
        "`odd ``name` string NOT NULL COMMENT 'it''s'".replace("''", r"\'") + ", b: struct<c int, d:int not null>"
    )
    assert schema.names == ("odd `name", "b")
    assert not schema.fields[0].nullable
    assert schema.fields[1].type.ddl() == "struct<c:int,d:int NOT NULL>"
    assert Schema.parse("struct<a:int,b:string>") == Schema.parse("a int, b string")


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("user strin", 5, "Did you mean 'string'?"),
        ("user", 4, "A type is expected"),
        ("a int,", 6, "A column name is expected"),
        ("a int b int", 6, "',' or the end"),
        ("a array<int", 11, "'>' is expected"),
        ("a map<int>", 9, "',' is expected"),
        ("a decimal(50,2)", 2, "at most 38"),
        ("a decimal(x)", 10, "A number is expected"),
        ("a int not nil", 10, "NOT is followed by NULL"),
    ],
)
def test_a_refusal_shows_the_place_and_a_right_form(text: str, position: int, says: str) -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.parse(text)
    lines = str(refused.value).split("\n")
    assert says in lines[0]
    assert lines[1].strip() == text.strip()
    assert lines[2].index("^") - 4 == position
    assert EXAMPLE in lines[3]


@pytest.mark.parametrize(
    "type", ["varchar(3)", "char(3)", "variant", "interval day to second", "string collate UNICODE", "void", "time(6)"]
)
def test_types_that_are_not_carried(type: str) -> None:
    with pytest.raises(UnsupportedType, match=r"use|parse|give"):
        Schema.parse(f"a {type}")


@pytest.mark.parametrize("text", ["a int, a string", "a int, A string", "s struct<x:int,X:int>", "", "  "])
def test_duplicate_or_no_columns(text: str) -> None:
    with pytest.raises(SchemaError):
        Schema.parse(text)


def test_from_spark() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    spark = types.StructType(
        [
            types.StructField("i", types.ByteType(), nullable=False),
            types.StructField("l", types.ArrayType(types.LongType())),
            types.StructField("m", types.MapType(types.StringType(), types.DecimalType(12, 3))),
            types.StructField("s", types.StructType([types.StructField("t", types.TimestampNTZType())])),
        ]
    )
    expected = "i tinyint NOT NULL, l array<bigint>, m map<string,decimal(12,3)>, s struct<t:timestamp_ntz>"
    assert Schema.from_spark_json(spark.jsonValue()).ddl() == expected


@pytest.mark.parametrize(
    "column",
    [
        {"type": "string", "metadata": {"__COLLATIONS": {"c": "icu.UNICODE"}}},
        {"type": "variant"},
        {"type": "interval day to second"},
        {"type": "never heard of"},
        {"type": {"type": "udt", "class": "org.example.Point"}},
    ],
)
def test_columns_of_a_dataframe_that_are_not_carried(column: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedType, match="'c'"):
        Schema.from_spark_json({"type": "struct", "fields": [{"name": "c", "nullable": True, **column}]})


def test_arrow_types() -> None:
    schema = Schema.parse(
        "t timestamp, n timestamp_ntz, a array<tinyint>, m map<string,int>, d decimal(10,2), b boolean"
    )
    assert schema.to_arrow().types == [
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("us"),
        pa.list_(pa.field("element", pa.int8())),
        pa.map_(pa.string(), pa.int32()),
        pa.decimal128(10, 2),
        pa.bool_(),
    ]


def test_columns_by_name() -> None:
    schema = Schema.parse("a int, b string, c date")
    assert schema.index("c") == 2
    assert schema.select(["c", "a"]).ddl() == "c date, a int"
    assert "b" in schema
    with pytest.raises(SchemaError, match="The columns are a, b, c"):
        schema.index("B")


def test_rows_are_the_same_whether_nullable_or_not() -> None:
    assert Schema.parse("a struct<b:int> NOT NULL").same_rows(Schema.parse("a struct<b:int NOT NULL>"))
    assert not Schema.parse("a int").same_rows(Schema.parse("a bigint"))
    assert not Schema.parse("a int, b int").same_rows(Schema.parse("b int, a int"))
