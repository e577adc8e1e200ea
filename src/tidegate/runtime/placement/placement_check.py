"""What every start checks of Spark itself, in the first job on the anchor: hashes, the places of rows, and unions.

The anchor's first job has to run anyway. Until Spark has passed, a few rows more travel with it, through the same exchange and
the same union as the rows of an epoch. They have known keys, so it is known where they have to arrive.

An executor computes the hashes, from a range: Spark would compute those of literals, or of a local table, on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.runtime.spark_versions import IncompatibleSpark
from tidegate.schema.schema import DataType
from tidegate.state.keys.key_groups import key_group, key_group_sql, slot_of, slot_sql
from tidegate.state.keys.murmur3 import hash_values

_LEAST_ROWS = 16
_SLOTS, _KEY_GROUPS = 7, 128
"""Of the arithmetic that is checked. Those of the job would prove no more."""

_KEYS: Mapping[str, tuple[str, DataType]] = {
    "key_int": ("cast(id as int)", DataType("int")),
    "key_bigint": ("id * 3000000019 - 7", DataType("bigint")),
    "key_string": ("concat('clé ', id)", DataType("string")),
    "key_double": ("id / 4D", DataType("double")),
    "key_decimal": ("cast(id as decimal(20,2))", DataType("decimal", precision=20, scale=2)),
}
"""Key columns: how Spark makes them of the number of a row, and their types. All paths of Murmur3 are among them: one word, two
words, words and single bytes, floating point, and digits."""


def _keys(number: int) -> tuple[Any, ...]:
    """The same keys, made by Python."""
    return (number, number * 3_000_000_019 - 7, f"clé {number}", number / 4, Decimal(number))


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a task found in its partition."""

    rows: Sequence[Sequence[int]]
    """Rows of the check: the number, the hash of each key column, the key group and the slot of all of them."""
    anchors: int
    """Rows of the anchor."""


@dataclass(frozen=True, slots=True)
class PlacementCheck:
    """Rows whose places are known, and the comparison of these places with those where they arrived."""

    salts: Sequence[int]
    """For each partition, an integer that Spark's hash maps to it."""
    spark_version: str

    @property
    def count(self) -> int:
        """How many rows there are: at least one for each partition."""
        return max(_LEAST_ROWS, len(self.salts))

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows: `part`, which decides about the partition, and `checked`. Row `n` belongs to partition `n` modulo
        their number."""
        keys = {name: F.expr(sql) for name, (sql, _) in _KEYS.items()}
        # One partition: one more task in the job.
        numbered = spark.range(0, self.count, 1, 1).withColumns(keys)
        hashes = [F.expr(f"hash({name})") for name in _KEYS]
        arithmetic = [F.expr(key_group_sql([*_KEYS], _KEY_GROUPS)), F.expr(slot_sql([*_KEYS], _SLOTS, _KEY_GROUPS))]
        place = F.pmod(F.col("id"), F.lit(len(self.salts))).cast("int")
        return numbered.select(
            F.element_at(F.array(*map(F.lit, self.salts)), place + F.lit(1)).alias("part"),
            F.array(F.col("id").cast("int"), *hashes, *arithmetic).alias("checked"),
        )

    def verify(self, arrived: Mapping[int, Arrived]) -> None:
        """Raise `IncompatibleSpark` if a row has another place or another hash than tidegate relies on. `arrived` is what each
        partition has received."""
        faults = [*self._union_faults(arrived), *self._place_faults(arrived), *self._hash_faults(arrived)]
        if faults:
            raise IncompatibleSpark.of(self.spark_version, faults)

    def _union_faults(self, arrived: Mapping[int, Arrived]) -> Iterable[str]:
        p = len(self.salts)
        if sorted(arrived) != list(range(p)):
            yield (
                f"a union of two inputs with {p} partitions each has {len(arrived)} partitions, not {p}: it does not keep the "
                "partitions of its inputs (spark.sql.unionOutputPartitioning), so no task could stay with its state"
            )

    def _place_faults(self, arrived: Mapping[int, Arrived]) -> Iterable[str]:
        p = len(self.salts)
        places = {row[0]: partition for partition, each in arrived.items() for row in each.rows}
        if sorted(places) != list(range(self.count)) or sum(len(each.rows) for each in arrived.values()) != self.count:
            yield f"of {self.count} rows, {len(places)} arrived behind a shuffle"
            return
        # Without partitions that are kept, the rows of one input still have their places.
        moved = {number: place for number, place in places.items() if place % p != number % p}
        if moved:
            number, place = next(iter(moved.items()))
            yield (
                f"a repartition sends {len(moved)} of {self.count} rows to other partitions than Murmur3 with seed 42 does: "
                f"the int {self.salts[number % p]} to {place} of {p}, not to {number % p}"
            )
        elif len(arrived) == p and any(each.anchors != 1 for each in arrived.values()):
            yield "the rows of a cached table are not in the partitions in which they were cached"

    def _hash_faults(self, arrived: Mapping[int, Arrived]) -> Iterable[str]:
        rows = [row for each in arrived.values() for row in each.rows]
        types = [type for _, type in _KEYS.values()]
        for place, (name, type) in enumerate(zip(_KEYS, types)):
            for number, *found in rows:
                expected = hash_values([_keys(number)[place]], [type])
                if found[place] != expected:
                    sql = _KEYS[name][0].replace("id", str(number))
                    yield f"hash({sql}) is {found[place]}, not {expected}: state would be looked for in another task"
                    break
        for number, *found in rows:
            hash = hash_values(_keys(number), types)
            group = key_group(hash, _KEY_GROUPS)
            slot = slot_of(group, _SLOTS, _KEY_GROUPS)
            if tuple(found[-2:]) != (group, slot):
                yield (
                    f"a key of {len(types)} columns has key group {found[-2]} and slot {found[-1]} in Spark's SQL, and {group} "
                    f"and {slot} in a task"
                )
                break
