"""Arrow to Python and back: what comes out is what went in, and what does not fit is named."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.errors import SchemaError
from tidegate.schema.columns import batch_from_rows, from_python, normalized_keys, rows_of, to_python
from tidegate.schema.key_values import NAN
from tidegate.schema.schema import DataType, Schema

Order = namedtuple("Order", ["user", "amount"])
SCHEMA = Schema.parse("user string, amount double")
CEST = timezone(timedelta(hours=2))


class Number(IntEnum):
    ONE = 1


def _type(ddl: str) -> DataType:
    return Schema.parse(f"c {ddl}").fields[0].type


single = st.floats(width=32, allow_nan=False)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(1 << 15), (1 << 15) - 1),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": single,
    "double": st.floats(allow_nan=False),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(18,4)": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda digits: Decimal(f"{digits}E-4")),
    "decimal(38,4)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}E-4")),
    "array<timestamp>": st.lists(st.none() | st.datetimes(timezones=st.just(UTC)), max_size=3),
    "map<string,array<bigint>>": st.dictionaries(
        st.text(max_size=3), st.none() | st.lists(st.integers(-9, 9)), max_size=3
    ),
    "struct<a:date,b:map<int,decimal(5,2)>>": st.tuples(
        st.none() | st.dates(), st.none() | st.dictionaries(st.integers(0, 3), st.just(Decimal("1.50")))
    ),
}


@pytest.mark.parametrize("ddl", VALUES)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_values_are_read_back_unchanged(ddl: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[ddl], max_size=12))
    start = data.draw(st.integers(0, 3))
    type = _type(ddl)
    with localcontext(prec=3):  # whatever the user has set
        column = from_python(values, type)
        assert column.type == type.to_arrow()
        assert to_python(column, type) == values
        assert to_python(column[start:], type) == values[start:]
        assert to_python(pa.chunked_array([column, column]), type) == values * 2


def test_a_timestamp_of_any_zone_and_unit_is_read_as_utc() -> None:
    column = pa.array([0, None, 1_700_000_000], pa.timestamp("s", "Europe/Berlin"))
    values = to_python(column, _type("timestamp"))
    assert values == [datetime(1970, 1, 1, tzinfo=UTC), None, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]
    assert values[0].tzinfo is UTC
    nested = to_python(pa.array([[0]], pa.list_(pa.timestamp("us", "Europe/Berlin"))), _type("array<timestamp>"))
    assert nested[0][0].tzinfo is UTC


@pytest.mark.parametrize(("ddl", "raw"), [("timestamp", 1 << 62), ("timestamp_ntz", -(1 << 62)), ("date", 4_000_000)])
def test_a_year_beyond_pythons_is_refused_with_its_row(ddl: str, raw: int) -> None:
    width = np.int32 if ddl == "date" else np.int64
    column = pa.array(np.array([0, raw], width)).view(_type(ddl).to_arrow())
    with pytest.raises(SchemaError, match=r"Row 1 .* years 1 to 9999"):
        to_python(column, _type(ddl))


def test_what_lies_under_a_null_does_not_matter() -> None:
    validity = pa.py_buffer(b"\x01")
    garbage = pa.py_buffer(np.array([0, 1 << 62], np.int64).tobytes())
    column = pa.Array.from_buffers(pa.timestamp("us", "UTC"), 2, [validity, garbage])
    assert to_python(column, _type("timestamp")) == [datetime(1970, 1, 1, tzinfo=UTC), None]


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(SchemaError, match="cannot be read as bigint"):
        to_python(pa.array(["x"]), _type("bigint"))
    with pytest.raises(SchemaError, match="cannot be read as array<int>"):
        to_python(pa.array([1]), _type("array<int>"))


def test_rows_are_named_tuples() -> None:
    batch = pa.record_batch([pa.array(["ann", None]), pa.array([1.5, 2.0])], names=["user", "amount"])
    rows = rows_of(batch.columns, SCHEMA, Order)
    assert rows == [Order("ann", 1.5), Order(None, 2.0)]
    assert rows[0].amount == 1.5


def test_keys_are_canonical() -> None:
    doubles, texts = pa.array([-0.0, math.nan, None]), pa.array(["a", "b", "c"])
    alone = normalized_keys([doubles.to_pylist()], [_type("double")])
    assert math.copysign(1, alone[0]) == 1
    assert alone[1] is NAN
    pairs = normalized_keys([texts.to_pylist(), doubles.to_pylist()], [_type("string"), _type("double")])
    assert dict.fromkeys(pairs, True)[("b", NAN)]
    assert pairs[2] == ("c", None)


FITS = [
    ("double", 1, 1.0),
    ("double", np.float64(1.5), 1.5),
    ("bigint", np.int32(5), 5),
    ("bigint", Number.ONE, 1),
    ("decimal(5,2)", 1, Decimal("1.00")),
    ("decimal(5,2)", Decimal("1.5"), Decimal("1.50")),
    ("binary", bytearray(b"a"), b"a"),
    ("timestamp", datetime(2024, 7, 1, 14, tzinfo=CEST), datetime(2024, 7, 1, 12, tzinfo=UTC)),
    ("struct<a:int,b:string>", {"b": "x", "a": 1}, (1, "x")),
    ("array<double>", (1, 2.5), [1.0, 2.5]),
]


@pytest.mark.parametrize(("ddl", "value", "expected"), FITS, ids=str)
def test_what_fits_without_loss_is_taken(ddl: str, value: Any, expected: Any) -> None:
    assert to_python(from_python([None, value], _type(ddl)), _type(ddl)) == [None, expected]


def test_the_sign_of_a_zero_and_nan_are_kept_in_values() -> None:
    for values in ([-0.0, math.nan], [np.float64(-0.0), math.nan]):
        zero, nan = to_python(from_python(values, _type("double")), _type("double"))
        assert math.copysign(1, zero) == -1
        assert math.isnan(nan)


MISFITS = [
    ("bigint", 1.5),
    ("bigint", 1.0),
    ("bigint", True),
    ("bigint", 1 << 63),
    ("tinyint", 128),
    ("bigint", "1"),
    ("bigint", Decimal(1)),
    ("boolean", 1),
    ("double", "1.5"),
    ("double", Decimal("1.5")),
    ("double", True),
    ("double", (1 << 53) + 1),
    ("float", 1e300),
    ("string", 5),
    ("string", b"a"),
    ("string", "\ud800"),
    ("binary", "a"),
    ("date", datetime(2024, 1, 1)),
    ("date", 5),
    ("timestamp", datetime(2024, 1, 1)),
    ("timestamp", 5),
    ("timestamp", date(2024, 1, 1)),
    ("timestamp_ntz", datetime(2024, 1, 1, tzinfo=UTC)),
    ("decimal(5,2)", Decimal("1.005")),
    ("decimal(5,2)", Decimal("1000")),
    ("decimal(5,2)", Decimal("NaN")),
    ("decimal(5,2)", 1.5),
    ("array<int>", 5),
    ("array<timestamp>", [datetime(2024, 1, 1)]),
    ("map<string,int>", {"a": "b"}),
    ("struct<a:int,b:string>", (1,)),
    ("struct<a:int,b:string>", {"a": 1}),
    ("struct<a:int NOT NULL>", (None,)),
]


@pytest.mark.parametrize(("ddl", "value"), MISFITS, ids=str)
def test_what_does_not_fit_is_named_with_column_row_value_and_type(ddl: str, value: Any) -> None:
    type = _type(ddl)
    with pytest.raises(SchemaError) as caught:
        from_python([None, None, value], type, "total")
    for part in ("'total'", "row 2", repr(value), type.ddl()):
        assert part in str(caught.value)


def test_a_naive_timestamp_is_refused_with_a_remedy() -> None:
    with pytest.raises(SchemaError, match="no time zone; use an aware datetime"):
        from_python([datetime(2024, 1, 1)], _type("timestamp"))


@dataclass
class Paid:
    user: str
    amount: float


class Struct(msgspec.Struct):
    user: str
    amount: float


class Plain:
    def __init__(self, user: str, amount: float) -> None:
        self.user, self.amount, self.more = user, amount, "not a column"


FORMS: list[Any] = [tuple, list, Order._make, lambda v: dict(zip(("user", "amount"), v)), lambda v: Paid(*v)]
FORMS += [lambda v: Struct(*v), lambda v: Plain(*v)]


@pytest.mark.parametrize("form", FORMS)
def test_a_row_may_have_many_forms(form: Any) -> None:
    batch = batch_from_rows([form(("ann", 1.5)), form(("bob", 2))], SCHEMA)
    assert batch.schema == SCHEMA.to_arrow()
    assert batch.to_pydict() == {"user": ["ann", "bob"], "amount": [1.5, 2.0]}


def test_forms_may_be_mixed_in_one_batch() -> None:
    batch = batch_from_rows([form(("ann", 1.5)) for form in FORMS], SCHEMA)
    assert batch.to_pydict() == {"user": ["ann"] * len(FORMS), "amount": [1.5] * len(FORMS)}


def test_no_rows_make_an_empty_batch() -> None:
    assert batch_from_rows([], SCHEMA).num_rows == 0


@dataclass
class Wider(Paid):
    note: str = ""


WRONG_ROWS = [
    ("ann",),
    ("ann", 1.0, 2),
    {"user": "ann"},
    {"user": "ann", "total": 1.0},
    "an",
    5,
    None,
    Wider("ann", 1.0),
]


@pytest.mark.parametrize("wrong", [*WRONG_ROWS, object()], ids=str)
def test_a_row_with_other_columns_is_refused_by_its_number(wrong: Any) -> None:
    for rows in ([wrong], [("ann", 1.0), wrong]):
        with pytest.raises(SchemaError, match=f"Row {len(rows) - 1} of the batch .* 2 columns: user, amount"):
            batch_from_rows(rows, SCHEMA)


def test_a_null_in_a_column_without_nulls_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"'user' is declared string NOT NULL, but row 1"):
        batch_from_rows([("ann",), (None,)], Schema.parse("user string NOT NULL"))
