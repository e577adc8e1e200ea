"""What a function over batches may emit, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidegate.core.errors import SchemaError
from tidegate.schema.output_batches import output_batch
from tidegate.schema.schema import Schema

SCHEMA = Schema.parse("user string, n bigint, at timestamp")
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
COLUMNS = {
    "user": pa.array(["a", None]),
    "n": np.array([1, 2]),
    "at": np.array(["2026-01-02", "2026-01-02"], "M8[s]"),
}
WANTED = [{"user": "a", "n": 1, "at": MOMENT}, {"user": None, "n": 2, "at": MOMENT}]


def test_columns_of_any_library_in_any_order():
    arrow = pa.table({"n": [1, 2], "at": pa.array([MOMENT] * 2, pa.timestamp("us", "UTC")), "user": ["a", None]})
    for given in (COLUMNS, {**COLUMNS, "n": [1, 2]}, arrow, arrow.to_batches()[0]):
        assert output_batch(given, SCHEMA).to_pylist() == WANTED


def test_frames_of_pandas_and_polars():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    data = {"user": ["a", None], "n": [1, 2], "at": [MOMENT, MOMENT]}
    for frame in (pandas.DataFrame(data), polars.DataFrame(data)):
        assert output_batch(frame, SCHEMA).to_pylist() == WANTED
        assert output_batch({name: frame[name] for name in data}, SCHEMA).to_pylist() == WANTED


def test_what_was_emitted_does_not_change_with_the_arrays_of_the_function():
    pandas = pytest.importorskip("pandas")
    array, schema = np.array([1, 2]), Schema.parse("n bigint")
    frame = pandas.DataFrame({"n": array.copy()})
    found = [output_batch(given, schema) for given in ({"n": array}, frame, {"n": frame["n"]})]
    array += 10
    frame.to_numpy()[:] += 10
    frame["n"].array[:] = 7
    assert [batch.to_pydict() for batch in found] == [{"n": [1, 2]}] * 3


def test_nested_columns_are_taken_as_declared():
    schema = Schema.parse("s struct<lat:double,lon:double>, a array<bigint>")
    found = output_batch({"s": pa.array([{"lat": 1.0, "lon": 2.0}]), "a": pa.array([[1, 2]])}, schema)
    assert found.to_pylist() == [{"s": {"lat": 1.0, "lon": 2.0}, "a": [1, 2]}]


def test_a_narrower_column_takes_what_fits():
    schema = Schema.parse("i int, d double, c decimal(5,2)")
    found = output_batch({"i": np.array([7]), "d": np.array([7]), "c": pa.array([Decimal("1.50")])}, schema)
    assert found.to_pylist() == [{"i": 7, "d": 7.0, "c": Decimal("1.50")}]


@pytest.mark.parametrize(
    ("column", "ddl", "message"),
    [
        (np.array([1.0]), "bigint", "emitted double"),
        (np.array([1 << 40]), "int", "does not fit"),
        (np.array([(1 << 53) + 1]), "double", "does not fit"),
        (np.array([1]), "string", "emitted int64"),
        (np.array([True]), "bigint", "emitted bool"),
        (pa.array([datetime(2026, 1, 2)]), "timestamp", "emitted timestamp"),
        (pa.array([None], pa.int64()), "bigint NOT NULL", "NOT NULL"),
        (np.array([1e300]), "float", "too large"),
        (pa.array([{"lat": 1.0, "lonn": 2.0}]), "struct<lat:double,lon:double>", "row 0"),
        (pa.array([["1"]]), "array<bigint>", "row 0"),
        (np.zeros((2, 2)), "double", "cannot be converted"),
        (object(), "double", "cannot be converted"),
        ([1, "a"], "bigint", "row 1"),
    ],
)
def test_what_would_be_a_guess_or_a_loss_is_refused(column, ddl, message):
    with pytest.raises(SchemaError, match=message) as found:
        output_batch({"x": column}, Schema.parse(f"x {ddl}"))
    assert "'x'" in str(found.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"user": ["a"]}, "schema has user, n, at"),
        ({**COLUMNS, "extra": [1]}, "extra"),
        ({**COLUMNS, "n": [1]}, "same length; these have: user 2, n 1, at 2"),
        (7, "emitted 7, a int"),
    ],
)
def test_other_columns_than_those_of_the_schema_are_refused(given, message):
    with pytest.raises(SchemaError, match=message):
        output_batch(given, SCHEMA)
