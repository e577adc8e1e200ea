"""Key groups in Spark SQL, in Python and in numpy must be the same for every key there is, or state would be lost."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.epoch_frame import source_rows
from tidegate.schema.columns import to_python
from tidegate.schema.schema import DataType
from tidegate.state.keys import key_groups as kg
from tidegate.state.keys.murmur3 import hash_columns, hash_values

COUNT = 10_000
PARALLELISM, MAX_PARALLELISM = 7, 128


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]")
        .appName("key-groups")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


def _ints(bits: int) -> Callable[[random.Random], list[Any]]:
    def make(rng: random.Random) -> list[Any]:
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        return [low, low + 1, -1, 0, 1, high - 1, high] + [rng.randint(low, high) for _ in range(COUNT)]

    return make


def _floats(width: str) -> Callable[[random.Random], list[Any]]:
    size, tiny = (4, 1e-45) if width == "f" else (8, 5e-324)

    def make(rng: random.Random) -> list[Any]:
        edges = [-0.0, 0.0, float("inf"), -float("inf"), float("nan"), tiny, -tiny, 1.0, -1.0]
        return edges + [struct.unpack("<" + width, rng.randbytes(size))[0] for _ in range(COUNT)]

    return make


def _strings(rng: random.Random) -> list[Any]:
    alphabet = ["a", "Z", "0", "\x00", "\x7f", "é", "ß", "ж", "中", "\ufffd", "\U0001f30a", "\U0010ffff"]
    edges = ["", "\x00", "é", "\U0001f30a" * 3, "x" * 5_000, "中" * 1_001, "a" * 40_001]
    return edges + ["".join(rng.choices(alphabet, k=rng.randint(0, 24))) for _ in range(COUNT)]


def _binaries(rng: random.Random) -> list[Any]:
    return [b"", b"\x00", b"\xff" * 3, b"\x80" * 4_003] + [rng.randbytes(rng.randint(0, 40)) for _ in range(COUNT)]


def _dates(rng: random.Random) -> list[Any]:
    edges = [date.min, date.max, date(1582, 10, 4), date(1582, 10, 15), date(1969, 12, 31), date(1970, 1, 1)]
    return edges + [date.fromordinal(rng.randint(1, date.max.toordinal())) for _ in range(COUNT)]


def _datetimes(tz: Any) -> Callable[[random.Random], list[Any]]:
    def make(rng: random.Random) -> list[Any]:
        first, last = datetime.min.replace(tzinfo=tz), datetime.max.replace(tzinfo=tz)
        span_us = (last - first) // timedelta(microseconds=1)
        epoch = datetime(1970, 1, 1, tzinfo=tz)
        edges = [first, last, epoch, epoch - timedelta(microseconds=1), datetime(2024, 3, 31, 2, 30, tzinfo=tz)]
        return edges + [first + timedelta(microseconds=rng.randint(0, span_us)) for _ in range(COUNT)]

    return make


def _decimals(precision: int, scale: int) -> Callable[[random.Random], list[Any]]:
    def make(rng: random.Random) -> list[Any]:
        most = 10**precision - 1
        digits = [0, 1, -1, 127, 128, -128, -129, 255, 256, -256, 32_767, 32_768, -32_769, most, -most]
        digits += [rng.choice((1, -1)) * rng.randrange(10 ** rng.randint(1, precision)) for _ in range(COUNT)]
        return [Decimal(f"{number}E-{scale}") for number in digits if abs(number) <= most]

    return make


TYPES: dict[str, tuple[DataType, Callable[[random.Random], list[Any]]]] = {
    "boolean": (DataType("boolean"), lambda rng: [rng.random() < 0.5 for _ in range(COUNT)]),
    "tinyint": (DataType("tinyint"), _ints(8)),
    "smallint": (DataType("smallint"), _ints(16)),
    "int": (DataType("int"), _ints(32)),
    "bigint": (DataType("bigint"), _ints(64)),
    "float": (DataType("float"), _floats("f")),
    "double": (DataType("double"), _floats("d")),
    "string": (DataType("string"), _strings),
    "binary": (DataType("binary"), _binaries),
    "date": (DataType("date"), _dates),
    "timestamp": (DataType("timestamp"), _datetimes(UTC)),
    "timestamp_ntz": (DataType("timestamp_ntz"), _datetimes(None)),
    "decimal(5,0)": (DataType("decimal", precision=5, scale=0), _decimals(5, 0)),
    "decimal(18,6)": (DataType("decimal", precision=18, scale=6), _decimals(18, 6)),
    "decimal(19,2)": (DataType("decimal", precision=19, scale=2), _decimals(19, 2)),
    "decimal(38,0)": (DataType("decimal", precision=38, scale=0), _decimals(38, 0)),
    "decimal(38,38)": (DataType("decimal", precision=38, scale=38), _decimals(38, 38)),
}


def _column(name: str, seed: int) -> pa.Array:
    """Random keys and edge cases of a type, with nulls among them, in random order."""
    rng = random.Random(f"{name}-{seed}")
    type, make = TYPES[name]
    values = make(rng)
    values += [None] * (len(values) // 50)
    rng.shuffle(values)
    if name == "float":  # without a detour over Python's doubles, which would unify the NaNs
        numbers = np.array([struct.unpack("<f", rng.randbytes(4))[0] for _ in values], np.float32)
        payloads = np.arange(0x7F800001, 0x7F800001 + 50, dtype=np.uint32).view(np.float32)
        edges = np.array([v for v in values if v is not None and (v == 0 or abs(v) < 1e-40)], np.float32)
        numbers[: len(payloads)], numbers[len(payloads) : len(payloads) + len(edges)] = payloads, edges
        return pa.array(numbers, mask=np.array([value is None for value in values]))
    return pa.array(values, type.to_arrow())


def _assert_agrees(spark: SparkSession, columns: list[pa.Array], types: list[DataType]) -> None:
    names = [f"k`{index}" for index in range(len(columns))]
    quoted = ", ".join(f"`k``{index}`" for index in range(len(columns)))
    # Without a schema Spark would take a timestamp without a zone for one in the session's zone.
    schema = ", ".join(f"`k``{index}` {type.ddl()}" for index, type in enumerate(types))
    frame = spark.createDataFrame(pa.table(columns, names=names), schema).selectExpr(
        f"hash({quoted}) as h",
        f"{kg.key_group_sql(names, MAX_PARALLELISM)} as key_group",
        f"{kg.slot_sql(names, PARALLELISM, MAX_PARALLELISM)} as slot",
    )
    assert [field.dataType.simpleString() for field in frame.schema] == ["int", "int", "int"]
    spark_says = frame.toArrow()

    hashes = hash_columns(columns, types)
    groups = kg.key_groups(hashes, MAX_PARALLELISM)
    assert spark_says["h"].to_pylist() == hashes.tolist()
    assert spark_says["key_group"].to_pylist() == groups.tolist()
    assert spark_says["slot"].to_pylist() == kg.slots_of(groups, PARALLELISM, MAX_PARALLELISM).tolist()

    rows = zip(*(to_python(column, type) for column, type in zip(columns, types)))
    one_by_one = [hash_values(row, types) for row in rows]
    assert one_by_one == hashes.tolist()
    assert [kg.key_group(h, MAX_PARALLELISM) for h in one_by_one] == groups.tolist()


@pytest.mark.feature("A8", "A11", "A13")
@pytest.mark.parametrize("name", TYPES)
def test_every_key_has_the_key_group_in_python_that_spark_gives_it(spark: SparkSession, name: str) -> None:
    _assert_agrees(spark, [_column(name, seed=1)], [TYPES[name][0]])


@pytest.mark.feature("A8", "A11")
@pytest.mark.parametrize(
    "names",
    [
        ("string", "bigint"),
        ("timestamp", "double"),
        ("decimal(38,0)", "string", "date"),
        ("boolean", "binary", "float"),
    ],
    ids="+".join,
)
def test_composite_keys_are_hashed_column_after_column(spark: SparkSession, names: tuple[str, ...]) -> None:
    columns = [_column(name, seed=2)[:COUNT] for name in names]
    _assert_agrees(spark, columns, [TYPES[name][0] for name in names])


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_the_session_time_zone_does_not_move_a_timestamp_key(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for name in ("timestamp", "timestamp_ntz", "date"):
            _assert_agrees(spark, [_column(name, seed=3)], [TYPES[name][0]])
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_timestamp_written_in_another_zone_or_unit_is_the_same_key(spark: SparkSession) -> None:
    utc = pa.array(np.random.default_rng(4).integers(-(10**9), 2 * 10**9, COUNT), pa.timestamp("s", "UTC"))
    elsewhere = utc.cast(pa.timestamp("ms", "Europe/Berlin"))
    type = DataType("timestamp")
    _assert_agrees(spark, [elsewhere], [type])
    assert hash_columns([utc], [type]).tolist() == hash_columns([elsewhere], [type]).tolist()


@pytest.mark.feature("A8", "H14")
@pytest.mark.parametrize("partitions", [1, 2, 3, 8, 200, 1000])
def test_a_salt_lands_on_its_partition(spark: SparkSession, partitions: int) -> None:
    wanted = pa.table({"salt": pa.array(kg.salts(partitions), pa.int32()), "wanted": np.arange(partitions)})
    landed = (
        spark.createDataFrame(wanted)
        .repartition(partitions, "salt")
        .selectExpr("wanted", "spark_partition_id() as landed")
        .toArrow()
    )
    assert landed.num_rows == partitions
    assert landed["wanted"].to_pylist() == landed["landed"].to_pylist()


@pytest.mark.feature("A8")
@pytest.mark.parametrize("windows", [None, tg.TumblingEventTimeWindows.of("1 min")], ids=["all time", "windows"])
def test_rows_that_spark_combines_have_the_key_group_of_their_whole_key(spark: SparkSession, windows: Any) -> None:
    """Those that share the first key column belong to many tasks. A state that is restored, or that another stream reaches, is
    looked for where the whole key says."""
    job = tg.Job("composite", parallelism=PARALLELISM, max_parallelism=MAX_PARALLELISM)
    ddl = "n int, city string, ts timestamp, street string"
    keyed = job.source("rows", tg.testing.frame(ddl), event_time="ts").key_by("city", "street")
    counted = keyed if windows is None else keyed.window(windows)
    counted.aggregate("counts", total=tg.sum("n")).sink("out", tg.DiscardSink())
    graph = job.graph()
    edges = plan(graph).levels[0].outgoing
    assert [edge.combine is not None for edge in edges] == [True]

    keys = [("Bern", f"street {n}") for n in range(100)]
    rows = [(1, city, datetime(2024, 1, 1, tzinfo=UTC), street) for city, street in keys for _ in range(2)]
    batch = spark.createDataFrame(rows, ddl).selectExpr("struct(*) as s0")
    salts = kg.salts(PARALLELISM)
    made = source_rows(batch, graph.sources, edges, salts, PARALLELISM, MAX_PARALLELISM).collect()

    types = [DataType("string")] * 2
    groups = {key: kg.key_group(hash_values(key, types), MAX_PARALLELISM) for key in keys}
    slots = {key: kg.slot_of(group, PARALLELISM, MAX_PARALLELISM) for key, group in groups.items()}
    assert {(row.c0, row.c1): (row.kg, row.part) for row in made} == {k: (groups[k], salts[slots[k]]) for k in keys}
    assert len(made) == len(keys), "rows of one key are combined"
