"""A changed type either reads what was stored, or is refused with what to do. Held against the real codecs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, make_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.types import codec_of, schema_of
from tidegate.savepoint.evolution import DROPPED, AsIs, Incompatible, Migrate, MigrationFailed, compare, compare_keys


def record(*fields: Any, name: str = "Rule") -> Any:
    """A dataclass of (name, type) or (name, type, default)."""
    return make_dataclass(name, [f if len(f) == 2 else (*f[:2], field(default=f[2])) for f in fields])


class Colour(Enum):
    RED = "red"


class Colours(Enum):
    CRIMSON = "red"
    BLUE = "blue"


class Old(NamedTuple):
    a: int
    b: str


class New(NamedTuple):
    b: str
    a: float
    c: int = 9


class Sparse(msgspec.Struct, omit_defaults=True):
    a: int = 1


class SparseNow(msgspec.Struct, omit_defaults=True):
    a: int = 2


A, AB = record(("a", int)), record(("a", int), ("b", str, "x"))

AS_IS = [
    (int, int, 5, 5),
    (int, int | None, 5, 5),
    (A, AB, A(1), AB(1, "x")),
    (A, record(("a", int), name="Other"), A(1), None),
    (record(("a", int), ("b", str)), record(("b", str), ("a", int)), None, None),
    (Colour, Colours, Colour.RED, Colours.CRIMSON),
    (Colour, str, Colour.RED, "red"),
    (set[int], list[int], {4}, [4]),
    (list[int], tuple[int, ...], [4, 4], (4, 4)),
    (dict[str, int], dict[str, int | None], {"a": 1}, {"a": 1}),
    (tuple[int, str], Old, (1, "q"), Old(1, "q")),
]


@pytest.mark.feature("I31")
@pytest.mark.parametrize(("old", "new", "value", "expected"), AS_IS, ids=str)
def test_as_is_means_that_the_new_type_reads_the_old_bytes(old: Any, new: Any, value: Any, expected: Any) -> None:
    assert isinstance(compare(schema_of(old), schema_of(new)), AsIs)
    if expected is not None:
        assert codec_of(new).decode(codec_of(old).encode(value)) == expected


MIGRATED: list[tuple[Any, Any, Any, Any, Mapping[str, str]]] = [
    (int, float, 5, 5.0, {}),
    (int, Decimal, 2**63, Decimal(2**63), {}),
    (bool, int, True, 1, {}),
    (list[int], list[float], [1, 2], [1.0, 2.0], {}),
    (dict[str, int], dict[str, float], {"a": 1}, {"a": 1.0}, {}),
    (tuple[int, str], tuple[float | None, str], (1, "a"), (1.0, "a"), {}),
    (AB, A, AB(1, "y"), A(1), {}),
    (A, record(("z", int)), A(7), 7, {"a": "z"}),
    (A, record(("z", int)), A(7), 7, {"Rule.a": "z"}),
    (Old, New, Old(1, "q"), New("q", 1.0, 9), {}),
    (Old, record(("a", int), ("b", str)), Old(1, "q"), 1, {}),
    (tuple[bool, str], Old, (True, "q"), Old(1, "q"), {}),
    (list[A], list[record(("a", float))], [A(3)], None, {}),
    (Sparse, SparseNow, Sparse(1), SparseNow(1), {}),
]


@pytest.mark.feature("I31")
@pytest.mark.parametrize(("old", "new", "value", "expected", "renames"), MIGRATED, ids=str)
def test_migrated_bytes_are_read_by_the_new_type(
    old: Any, new: Any, value: Any, expected: Any, renames: Mapping[str, str]
) -> None:
    answer = compare(schema_of(old), schema_of(new), renames)
    assert isinstance(answer, Migrate)
    read = codec_of(new).decode(answer.convert(codec_of(old).encode(value)))
    if isinstance(expected, int) and not isinstance(read, int):
        read = next(iter(vars(read).values()))
    assert expected is None or read == expected


INCOMPATIBLE = [
    (str, int, "str"),
    (int, str, "int"),
    (float, int, "float"),
    (int | None, int, "None"),
    (A, record(("a", int), ("b", str)), "no default"),
    (A, record(("a", str)), "a was int"),
    (Colours, Colour, "BLUE"),
    (str, Colour, "str"),
    (list[int], set[int], "list"),
    (tuple[int, int], tuple[int, int, int], "2 elements"),
    (tuple[int, int], tuple[int, ...], "tuple"),
    (tuple[int, str, int], Old, "3 elements"),
    (tuple[str, int], Old, "[0] was str"),
    (dict[str, int], dict[int, int], "keys"),
    (A, int, "Rule"),
]


@pytest.mark.feature("I31")
@pytest.mark.parametrize(("old", "new", "says"), INCOMPATIBLE, ids=str)
def test_what_could_not_be_read_is_refused(old: Any, new: Any, says: str) -> None:
    answer = compare(schema_of(old), schema_of(new))
    assert isinstance(answer, Incompatible)
    assert says in answer.reason
    assert answer.advice


@pytest.mark.feature("I31")
def test_a_removed_field_and_a_new_field_are_never_taken_for_a_rename() -> None:
    refused = compare(schema_of(A), schema_of(record(("z", int, 4))))
    assert isinstance(refused, Incompatible)
    assert refused.perhaps_renamed == ("a", "z")
    answer = compare(schema_of(A), schema_of(record(("z", int, 4))), {"a": DROPPED})
    assert isinstance(answer, Migrate)
    assert set(answer.notes) == {"a removed", "z added"}
    read = codec_of(record(("z", int, 4))).decode(answer.convert(codec_of(A).encode(A(7))))
    assert read.z == 4


def test_an_int_that_no_float_equals_stops_the_migration() -> None:
    answer = compare(schema_of(int), schema_of(float))
    assert isinstance(answer, Migrate)
    with pytest.raises(MigrationFailed, match="Decimal"):
        answer.convert(codec_of(int).encode(2**53 + 1))


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (str, str, True),
        (str, str | None, True),
        (str | None, str, False),
        (int, float, False),
        (Colour, str, True),
        (tuple[int, str], tuple[int, str], True),
        (tuple[int, str], tuple[str, int], False),
    ],
    ids=str,
)
def test_map_keys_keep_their_bytes_or_are_refused(old: Any, new: Any, same: bool) -> None:
    assert isinstance(compare_keys(schema_of(old), schema_of(new)), AsIs) is same


types = st.recursive(
    st.sampled_from([int, float, bool, str, Decimal, int | None]),
    lambda inner: st.one_of(
        inner.map(lambda t: list[t]),
        inner.map(lambda t: dict[str, t]),
        st.tuples(inner, inner).map(lambda pair: tuple[pair]),
        st.lists(inner, min_size=1, max_size=2).map(lambda ts: record(*((f"f{n}", t) for n, t in enumerate(ts)))),
    ),
    max_leaves=4,
)


@given(tp=types)
@settings(max_examples=examples(60), deadline=None)
def test_nothing_changed_is_as_is(tp: Any) -> None:
    assert compare(schema_of(tp), schema_of(tp)) == AsIs()


@given(old=types, new=types, data=st.data())
@settings(max_examples=examples(150), deadline=None)
def test_whatever_is_not_refused_can_be_read(old: Any, new: Any, data: st.DataObject) -> None:
    answer = compare(schema_of(old), schema_of(new))
    if not isinstance(answer, Incompatible):
        stored = codec_of(old).encode(data.draw(values_of(old)))
        codec_of(new).decode(answer.convert(stored) if isinstance(answer, Migrate) else stored)


def values_of(tp: Any) -> st.SearchStrategy[Any]:
    return st.from_type(tp).filter(lambda value: _fits(tp, value))


def _fits(tp: Any, value: Any) -> bool:
    try:
        codec_of(tp).encode(value)
    except Exception:
        return False
    return all(abs(n) < 2**53 for n in _ints(msgspec.to_builtins(value)))


def _ints(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in _ints(item)]
    if isinstance(value, list | tuple):
        return [n for item in value for n in _ints(item)]
    return [value] if isinstance(value, int) else []
