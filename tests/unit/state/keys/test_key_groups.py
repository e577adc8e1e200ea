"""Key groups without Spark; that Spark agrees is shown in tests/integration/test_key_groups_spark.py."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.errors import UnsupportedType
from tidegate.schema.columns import from_python
from tidegate.schema.schema import DataType, Schema
from tidegate.state.keys import key_groups as kg
from tidegate.state.keys.murmur3 import hash_columns, hash_key, hash_values


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, int]:
    """(parallelism, max parallelism)"""
    max_parallelism = draw(st.integers(1, 1 << 15))
    return draw(st.integers(1, max_parallelism)), max_parallelism


@pytest.mark.feature("A13")
@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1, 1 << 15))
def test_a_key_group_is_one_of_max_parallelism(hash: int, max_parallelism: int) -> None:
    group = kg.key_group(hash, max_parallelism)
    assert 0 <= group < max_parallelism
    assert (hash - group) % max_parallelism == 0


@pytest.mark.feature("A14")
@settings(max_examples=examples(40), deadline=None)
@given(layouts())
def test_the_ranges_of_the_slots_cut_the_key_groups_without_gap_or_overlap(layout: tuple[int, int]) -> None:
    parallelism, max_parallelism = layout
    next_group = 0
    for slot in range(parallelism):
        first, last = kg.range_of_slot(slot, parallelism, max_parallelism)
        assert first == next_group
        assert first <= last
        next_group = last + 1
    assert next_group == max_parallelism


@pytest.mark.feature("A11", "H14")
@given(layouts(), st.data())
def test_a_slot_serves_exactly_its_range(layout: tuple[int, int], data: st.DataObject) -> None:
    parallelism, max_parallelism = layout
    group = data.draw(st.integers(0, max_parallelism - 1))
    slot = kg.slot_of(group, parallelism, max_parallelism)
    first, last = kg.range_of_slot(slot, parallelism, max_parallelism)
    assert first <= group <= last
    assert [kg.slot_of(edge, parallelism, max_parallelism) for edge in (first, last)] == [slot, slot]


@pytest.mark.feature("A11", "A13", "H14", "N14")
@given(layouts(), st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=20))
def test_many_at_once_are_the_same_as_one_by_one(layout: tuple[int, int], hashes: list[int]) -> None:
    parallelism, max_parallelism = layout
    groups = kg.key_groups(np.array(hashes, np.int32), max_parallelism)
    assert groups.tolist() == [kg.key_group(hash, max_parallelism) for hash in hashes]
    slots = kg.slots_of(groups, parallelism, max_parallelism)
    assert slots.tolist() == [kg.slot_of(group, parallelism, max_parallelism) for group in groups.tolist()]


def test_the_largest_layout_does_not_overflow() -> None:
    largest = np.array([(1 << 15) - 1], np.int32)
    assert kg.slots_of(largest, 1 << 15, 1 << 15).tolist() == [(1 << 15) - 1]


@pytest.mark.feature("A13")
@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (128, 256), (171, 256), (172, 512), (10_000, 16_384), (32_768, 32_768)],
)
def test_max_parallelism_defaults_as_in_flink(parallelism: int, expected: int) -> None:
    assert kg.default_max_parallelism(parallelism) == expected


@pytest.mark.feature("A13", "A14")
@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128), (1, 40_000)])
def test_an_impossible_layout_is_refused(parallelism: int, max_parallelism: int) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        kg.range_of_slot(0, parallelism, max_parallelism)
    with pytest.raises(ValueError, match="is invalid"):
        kg.slot_sql(["a"], parallelism, max_parallelism)


@pytest.mark.feature("A8", "H14")
@pytest.mark.parametrize("partitions", [1, 2, 7, 1000])
def test_every_partition_has_a_salt(partitions: int) -> None:
    landed = [hash_values([salt], [DataType("int")]) % partitions for salt in kg.salts(partitions)]
    assert landed == list(range(partitions))


@pytest.mark.feature("H14")
def test_the_sql_quotes_names_and_stays_int() -> None:
    assert kg.key_group_sql(["a", "b`c"], 128) == "pmod(hash(`a`, `b``c`), 128)"
    assert kg.slot_sql(["a"], 8, 128) == "cast(pmod(hash(`a`), 128) * 8 div 128 as int)"


# Taken from Spark itself once, so that a change is seen without a JVM.
FROM_SPARK = [
    (None, "int", 42),
    (0, "int", 933211791),
    (4, "int", -397064898),
    (True, "boolean", -559580957),
    (-128, "tinyint", 1110053733),
    (-1, "bigint", -939490007),
    (-0.0, "float", 933211791),
    (-0.0, "double", -1670924195),
    (float("nan"), "double", -1281358385),
    ("", "string", 142593372),
    ("tidegate", "string", -560520473),
    ("seaé", "string", -1612596081),
    (b"\xff\x00", "binary", 266084350),
    (date(1969, 12, 31), "date", -1604776387),
    (datetime(2024, 7, 1, 14, 0, 0, 1, tzinfo=timezone(timedelta(hours=2))), "timestamp", 1306451148),
    (datetime(2024, 7, 1, 12, 0, 0, 1), "timestamp_ntz", 1306451148),
    (Decimal("-1.5"), "decimal(18,2)", -1998913259),
    (Decimal("-1.5"), "decimal(38,2)", -690534446),
]


@pytest.mark.feature("A8")
@pytest.mark.parametrize(("value", "type", "expected"), FROM_SPARK)
def test_hashes_are_those_that_spark_gave(value: object, type: str, expected: int) -> None:
    (column,) = Schema.parse(f"k {type}").fields
    assert hash_values([value], [column.type]) == expected
    assert hash_columns([from_python([value], column.type)], [column.type]).tolist() == [expected]


texts = st.one_of(st.none(), st.text(max_size=12), st.text("aé\U0001f30a", min_size=30, max_size=90))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(texts, max_size=60), st.integers(0, 5))
def test_strings_of_any_length_hash_alike_in_numpy_and_python(values: list[str | None], start: int) -> None:
    types = [DataType("string")]
    for arrow in (pa.string(), pa.large_string()):
        column = pa.array(values, arrow)[start:]
        assert hash_columns([column], types).tolist() == [hash_key(value, types) for value in values[start:]]


def test_a_few_huge_strings_among_many_small_ones_hash_alike() -> None:
    values = ["x" * length for length in (100_003, 0, 65_536)] + [str(number) for number in range(500)]
    types = [DataType("string")]
    assert hash_columns([pa.array(values)], types).tolist() == [hash_key(value, types) for value in values]


@pytest.mark.feature("A8")
def test_a_null_leaves_the_hash_of_the_columns_before_it() -> None:
    types = [DataType("string"), DataType("bigint")]
    assert hash_key(("a", None), types) == hash_key("a", types[:1])
    columns = [pa.array(["a", None]), pa.array([None, 5], pa.int64())]
    assert hash_columns(columns, types).tolist() == [hash_key("a", types[:1]), hash_key(5, types[1:])]


def test_an_array_is_no_key() -> None:
    with pytest.raises(UnsupportedType, match="cannot be a key"):
        hash_values([[1]], [DataType("array", element=DataType("int"))])
