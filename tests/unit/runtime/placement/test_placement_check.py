"""A Spark that hashes, places or unites rows in another way is refused with a message that names the difference. No JVM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.runtime.placement.placement_check import _KEY_GROUPS, _KEYS, _SLOTS, Arrived, PlacementCheck, _keys
from tidegate.runtime.spark_versions import IncompatibleSpark
from tidegate.state.keys.key_groups import key_group, salts, slot_of
from tidegate.state.keys.murmur3 import hash_values

P = 3
CHECK = PlacementCheck(salts(P), "4.3.0-vendor")
TYPES = [type for _, type in _KEYS.values()]


def row(number: int) -> list[int]:
    """What Apache Spark sends."""
    keys = _keys(number)
    hashes = [hash_values([key], [type]) for key, type in zip(keys, TYPES)]
    group = key_group(hash_values(keys, TYPES), _KEY_GROUPS)
    return [number, *hashes, group, slot_of(group, _SLOTS, _KEY_GROUPS)]


def apache() -> dict[int, Arrived]:
    return {p: Arrived([row(n) for n in range(CHECK.count) if n % P == p], anchors=1) for p in range(P)}


def refused(arrived: dict[int, Arrived]) -> str:
    with pytest.raises(IncompatibleSpark) as error:
        CHECK.verify(arrived)
    return str(error.value)


def test_apache_spark_passes():
    CHECK.verify(apache())


def test_every_partition_gets_a_row_however_many_there_are():
    assert PlacementCheck(salts(40), "4.3.0").count == 40


def test_error_names_the_version_and_what_to_use():
    message = refused({0: apache()[0]})
    assert message.startswith(
        "This Spark (4.3.0-vendor) does not do what tidegate relies on, and results would be wrong: "
    )
    assert message.endswith(
        "Use a release of Apache Spark that the support matrix lists, without changes by a vendor or a plugin."
    )


def test_a_union_that_concatenates_partitions_is_the_only_fault_that_is_named():
    rows = {p: replace(each, anchors=0) for p, each in apache().items()}
    anchors = {p + P: Arrived([], anchors=1) for p in range(P)}
    message = refused(rows | anchors)
    assert "a union of two inputs with 3 partitions each has 6 partitions, not 3" in message
    assert "spark.sql.unionOutputPartitioning" in message
    assert ";" not in message


def test_rows_in_other_partitions_are_named_with_one_of_them():
    there = apache()
    message = refused({0: there[1], 1: there[0], 2: there[2]})
    assert "sends 11 of 16 rows to other partitions than Murmur3 with seed 42 does: the int" in message


def test_rows_that_do_not_arrive_are_counted():
    there = apache()
    message = refused(there | {1: replace(there[1], rows=there[1].rows[1:])})
    assert "of 16 rows, 15 arrived behind a shuffle" in message


def test_rows_of_the_cache_in_another_partition_are_a_fault():
    there = apache()
    message = refused(there | {0: replace(there[0], anchors=2), 1: replace(there[1], anchors=0)})
    assert "rows of a cached table are not in the partitions in which they were cached" in message


@pytest.mark.parametrize("place", range(1, 1 + len(_KEYS)), ids=_KEYS)
def test_a_hash_of_a_type_that_differs_is_named_with_its_expression(place):
    there = apache()
    changed = [[*r[:place], r[place] + 1, *r[place + 1 :]] for r in there[2].rows]
    message = refused(there | {2: replace(there[2], rows=changed)})
    sql = [*_KEYS.values()][place - 1][0].replace("id", "2")
    assert f"hash({sql}) is {row(2)[place] + 1}, not {row(2)[place]}" in message
    assert message.count("hash(") == 1


def test_another_arithmetic_of_key_groups_is_named():
    there = apache()
    changed = [[*r[:-2], -1, -1] for r in there[2].rows]
    message = refused(there | {2: replace(there[2], rows=changed)})
    assert "a key of 5 columns has key group -1 and slot -1 in Spark's SQL, and" in message
