"""Types of state: described, stored and read back exactly, or refused with advice."""

from __future__ import annotations

import json
import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import StateError, UnsupportedType, WrongValue
from tidegate.core.types import codec_of, schema_of, show_type


class Colour(Enum):
    RED = "r"
    BLUE = "b"


class Size(IntEnum):
    S = 1
    L = 2


@dataclass
class Rule:
    name: str
    limit: Decimal
    colours: list[Colour] = field(default_factory=list)
    since: datetime | None = None


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Visit(msgspec.Struct):
    page: str
    at: timedelta


class Node(msgspec.Struct):
    below: Optional[Node] = None  # noqa: UP045


_ints = st.integers(-(2**63), 2**64 - 1)
_floats = st.floats(allow_nan=False)
_text = st.text(st.characters(codec="utf-8"))
_decimals = st.decimals(allow_nan=False)
# Fixed offsets only: Python calls an hour that a zone has twice unequal to every other zone's, the same instant included.
_zones = st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=5, minutes=45)))
_datetimes = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=_zones, allow_imaginary=False)
_rules = st.builds(Rule, _text, _decimals, st.lists(st.sampled_from(Colour)), st.none() | _datetimes)

_CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, _ints),
    (float, _floats),
    (str, _text),
    (bytes, st.binary()),
    (datetime, _datetimes),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, _decimals),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (float | None, st.none() | _floats),
    (list[int], st.lists(_ints)),
    (set[str], st.sets(_text)),
    (frozenset[date], st.frozensets(st.dates())),
    (dict[str, list[float]], st.dictionaries(_text, st.lists(_floats))),
    (dict[tuple[int, str], Decimal], st.dictionaries(st.tuples(_ints, _text), _decimals)),
    (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), _ints)),
    (dict[datetime, bool], st.dictionaries(_datetimes.filter(lambda d: d.tzinfo is not None), st.booleans())),
    (tuple[str, int, bytes], st.tuples(_text, _ints, st.binary())),
    (tuple[timedelta, ...], st.lists(st.timedeltas()).map(tuple)),
    (Rule, _rules),
    (Point, st.builds(Point, _ints, _floats)),
    (Visit, st.builds(Visit, _text, st.timedeltas())),
    (dict[str, Rule], st.dictionaries(_text, _rules, max_size=2)),
    (list[Point | None], st.lists(st.none() | st.builds(Point, _ints, _floats))),
]


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.timezones(), allow_imaginary=False))
def test_a_datetime_of_any_zone_comes_back_as_the_same_instant(value: datetime) -> None:
    codec = codec_of(datetime)
    assert codec.decode(codec.encode(value)) == value.astimezone(UTC)


@pytest.mark.parametrize(("tp", "values"), _CASES, ids=[show_type(tp) for tp, _ in _CASES])
def test_what_is_stored_is_read_back(tp: Any, values: st.SearchStrategy[Any]) -> None:
    codec = codec_of(tp)

    @given(values)
    def same(value: Any) -> None:
        back = codec.decode(codec.encode(value))
        assert back == value
        assert type(back) is type(value)
        if isinstance(value, Decimal | float | time):
            assert str(back) == str(value)
        if isinstance(value, datetime):
            assert (back.tzinfo is None) == (value.tzinfo is None)

    same()


@pytest.mark.parametrize(("tp", "_"), _CASES, ids=[show_type(tp) for tp, _ in _CASES])
def test_a_description_is_json_and_always_the_same(tp: Any, _: Any) -> None:
    described = schema_of(tp)
    assert json.loads(json.dumps(described)) == described == schema_of(tp)


def test_a_schema_describes_nested_types_completely() -> None:
    assert schema_of(dict[tuple[int, str], Rule | None]) == {
        "type": "dict",
        "key": {"type": "tuple", "elements": [{"type": "int"}, {"type": "str"}]},
        "value": {
            "type": "optional",
            "of": {
                "type": "struct",
                "name": "Rule",
                "layout": "map",
                "fields": [
                    {"name": "name", "type": {"type": "str"}},
                    {"name": "limit", "type": {"type": "decimal"}},
                    {"name": "colours", "type": {"type": "list", "element": schema_of(Colour)}, "default": []},
                    {"name": "since", "type": {"type": "optional", "of": {"type": "datetime"}}, "default": None},
                ],
            },
        },
    }
    assert schema_of(Colour)["members"] == [{"name": "RED", "value": "r"}, {"name": "BLUE", "value": "b"}]
    assert schema_of(tuple[int, ...]) == {"type": "tuple", "variadic": {"type": "int"}}
    assert schema_of(Point)["layout"] == "array"
    assert schema_of(NewType("UserId", str)) == {"type": "str"}


class _Thing: ...


class _Flags(Enum):
    A = (1, 2)


class _Typed(TypedDict):
    a: int


@pytest.mark.parametrize(
    ("tp", "says"),
    [
        (object, "Use bool, int"),
        (Any, "no definite type"),
        (list, "Name the types inside"),
        (dict, "Name the types inside"),
        (_Thing, "_Thing cannot be stored"),
        (dict[str, _Thing], r"dict\[str, .*_Thing\] → value \(_Thing\) cannot be stored"),
        (int | str, "Only T | None"),
        (int | float | None, "Use float"),
        (dict[list[int], str], "key is a list, which cannot be a key"),
        (dict[Rule, str], "key is a struct"),
        (set[list[int]], "element is a list"),
        (Node, r"Node\.below \(Node\) contains itself"),
        (namedtuple("Loose", "a b"), r"Loose\.a has no definite type"),
        (_Typed, "Use a dataclass"),
        (Literal["a"], "an Enum"),
        (None, "nothing but None"),
        (bytearray, "Use bytes"),
        (_Flags, "all str or all int"),
        (np.ndarray, "ndarray cannot be stored"),
        (Callable[[], int], "cannot be stored"),
        (complex, "complex cannot be stored"),
        ("int", "Write the type itself"),
        (3, "cannot be a type of state"),
    ],
)
def test_types_that_cannot_be_stored(tp: Any, says: str) -> None:
    with pytest.raises(UnsupportedType, match=says):
        schema_of(tp)


@pytest.mark.parametrize(
    ("tp", "value", "says"),
    [
        (float, "5", "Cannot store '5' (str) as float"),
        (int, None, "NoneType"),
        (int, 1.0, "Cannot store 1.0 (float) as int"),
        (int, 2**64, "64 bits; use Decimal"),
        (int, -(2**63) - 1, "64 bits; use Decimal"),
        (list[int], [2**64], "64 bits; use Decimal"),
        (date, datetime(2020, 1, 1), "as date"),
        (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "outside the years 1 to 9999"),
        (str, "\ud800", "surrogates"),
        (Decimal, "1.5x", "as Decimal"),
        (list[int], [1, "x"], "as list[int]"),
        (list[float], "abc", "as list[float]"),
        (Rule, Point(1), "as Rule"),
        (Rule, _Thing(), "as Rule"),
        (Colour, "green", "as Colour"),
        (dict[str, int], {1: 1}, "as dict[str, int]"),
    ],
)
def test_values_that_do_not_fit_are_never_stored(tp: Any, value: Any, says: str) -> None:
    with pytest.raises(WrongValue) as refused:
        codec_of(tp).encode(value)
    assert says in str(refused.value)


def test_numbers_of_numpy_are_taken_as_plain_ones() -> None:
    assert codec_of(float).decode(codec_of(float).encode(np.float64(1.5))) == 1.5
    assert codec_of(int).decode(codec_of(int).encode(np.int32(7))) == 7
    assert codec_of(list[int]).decode(codec_of(list[int]).encode([np.int64(7)])) == [7]
    assert codec_of(float).encode(3) == codec_of(float).encode(3.0)


def test_not_a_number_stays_not_a_number() -> None:
    assert math.isnan(codec_of(float).decode(codec_of(float).encode(math.nan)))


def test_bytes_of_another_type_are_not_read() -> None:
    with pytest.raises(StateError, match=r"cannot be read as float.*change it back"):
        codec_of(float).decode(codec_of(str).encode("five"))


@dataclass
class _RuleOfTomorrow:
    limit: Decimal
    name: str
    comment: str = "none"


def test_fields_may_be_added_moved_and_dropped() -> None:
    stored = codec_of(Rule).encode(Rule("a", Decimal("1.10"), [Colour.RED]))
    assert codec_of(_RuleOfTomorrow).decode(stored) == _RuleOfTomorrow(Decimal("1.10"), "a")


def test_a_codec_is_created_once() -> None:
    assert codec_of(dict[str, int]) is codec_of(dict[str, int])
