"""Plain values have the bytes of the user's own types, and columns lose nothing of them."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.errors import StateError, WrongValue
from tidegate.core.types import codec_of, schema_of
from tidegate.savepoint.arrow_types import arrow_form, from_column, to_column
from tidegate.savepoint.schema_codec import UnknownSchema, schema_codec, show_schema


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Inner:
    at: dt.datetime
    tags: list[str] = field(default_factory=list)


@dataclass
class Outer:
    inner: Inner
    by_name: dict[str, Inner | None]
    colour: Colour
    pair: tuple[int, str]
    more: Inner | None = None


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Sparse(msgspec.Struct, omit_defaults=True):
    a: int = 7
    b: bytes = b"\x00"


class Nothing(msgspec.Struct):
    pass


moments = st.datetimes(timezones=st.sampled_from([None, dt.UTC]))
inners = st.builds(Inner, moments, st.lists(st.text(max_size=3), max_size=3))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(),
    str: st.text(),
    bytes: st.binary(),
    dt.datetime: moments,
    dt.date: st.dates(),
    dt.time: st.times(timezones=st.sampled_from([None, dt.UTC])),
    dt.timedelta: st.timedeltas(),
    Decimal: st.decimals(allow_nan=False),
    uuid.UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    list[int | None]: st.lists(st.none() | st.integers(-(2**63), 2**64 - 1), max_size=4),
    dict[str, float]: st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3),
    dict[int | None, list[bytes]]: st.dictionaries(st.none() | st.integers(0, 9), st.lists(st.binary()), max_size=3),
    tuple[int, ...]: st.lists(st.integers(0, 9)).map(tuple),
    tuple[Point, str]: st.tuples(st.builds(Point, st.integers(0, 9), st.floats(allow_nan=False)), st.text()),
    Outer: st.builds(
        Outer,
        inners,
        st.dictionaries(st.text(max_size=3), st.none() | inners, max_size=2),
        st.sampled_from(Colour),
        st.tuples(st.integers(0, 9), st.text(max_size=3)),
        st.none() | inners,
    ),
    Point: st.builds(Point, st.integers(0, 9), st.floats(allow_nan=False)),
    Nothing: st.just(Nothing()),
    list[Nothing]: st.lists(st.just(Nothing()), max_size=2),
}
everything = pytest.mark.parametrize("tp", VALUES, ids=str)


@everything
@given(data=st.data())
@settings(max_examples=examples(25), deadline=None)
def test_plain_values_have_the_bytes_of_the_users_types(tp: Any, data: st.DataObject) -> None:
    stored = codec_of(tp).encode(data.draw(VALUES[tp]))
    plain = schema_codec(schema_of(tp))
    assert plain.encode(plain.decode(stored)) == stored


@everything
@given(data=st.data())
@settings(max_examples=examples(25), deadline=None)
def test_a_column_returns_the_values_that_were_written(tp: Any, data: st.DataObject) -> None:
    stored = [codec_of(tp).encode(value) for value in data.draw(st.lists(VALUES[tp], max_size=5))]
    plain, form = schema_codec(schema_of(tp)), arrow_form(schema_of(tp))
    column, exact = to_column([plain.decode(raw) for raw in stored], form, lambda row: stored[row])
    back = from_column(column, exact, form, plain.decode)
    assert [plain.encode(value) for value in back] == stored


@pytest.mark.parametrize("elements", [{1, 2, 3}, frozenset({"a", "b"})])
def test_sets_stay_sets(elements: Any) -> None:
    tp = type(elements)[type(next(iter(elements)))]
    plain, form = schema_codec(schema_of(tp)), arrow_form(schema_of(tp))
    value = plain.decode(codec_of(tp).encode(elements))
    column, exact = to_column([value], form, lambda row: b"")
    assert [value] == [elements] == from_column(column, exact, form, plain.decode)


def test_fields_that_were_left_out_have_their_defaults() -> None:
    stored = codec_of(Sparse).encode(Sparse())
    assert stored == b"\x80"
    assert schema_codec(schema_of(Sparse)).decode(stored) == {"a": 7, "b": b"\x00"}


@pytest.mark.parametrize(
    ("tp", "wrong"),
    [(int, "7"), (Point, {"x": 1}), (Inner, {"at": dt.datetime(2026, 1, 1), "tag": []}), (list[int], 3), (int, 2**64)],
)
def test_a_value_that_does_not_fit_is_refused(tp: Any, wrong: Any) -> None:
    with pytest.raises(WrongValue):
        schema_codec(schema_of(tp)).encode(wrong)


def test_bytes_of_another_type_are_refused() -> None:
    with pytest.raises(StateError, match="int"):
        schema_codec(schema_of(int)).decode(codec_of(str).encode("seven"))


@pytest.mark.parametrize("make", [schema_codec, arrow_form])
def test_a_form_of_the_future_is_refused(make: Callable[[Any], Any]) -> None:
    with pytest.raises(UnknownSchema, match="later"):
        make({"type": "list", "element": {"type": "tensor"}})


def test_types_are_shown_as_they_are_written() -> None:
    assert show_schema(schema_of(Outer)).startswith(
        "Outer(inner: Inner(at: datetime, tags: list[str] = []), by_name: dict"
    )
    assert show_schema(schema_of(tuple[int, ...])) == "tuple[int, ...]"
    assert show_schema({"columns": ["string", "bigint"]}) == "string, bigint"
