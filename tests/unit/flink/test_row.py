"""`Row` behaves as PyFlink's does."""

from __future__ import annotations

import copy
import pickle

import pytest

from tidegate.flink import Row, Types
from tidegate.flink.not_mapped import NOT_MAPPED


def test_fields_by_position_and_by_name():
    row = Row(name="Ann", age=11)
    assert list(row) == ["Ann", 11]
    assert (row.name, row["age"], row[0], len(row)) == ("Ann", 11, "Ann", 2)
    row["age"] = 12
    row[0] = "Bob"
    assert row.as_dict() == {"name": "Bob", "age": 12}
    assert repr(row) == "Row(name='Bob', age=12)"
    assert "name" in row
    assert "Bob" not in row
    assert 1 in Row(1, 2)
    with pytest.raises(AttributeError):
        row.name = "Eve"
    with pytest.raises(AttributeError):
        _ = row.size
    with pytest.raises(ValueError, match="no field"):
        _ = row["size"]


def test_a_row_of_names_makes_rows():
    person = Row("name", "age")
    assert person("Ann", 11).name == "Ann"
    with pytest.raises(ValueError, match="2 fields"):
        person("Ann", 11, "Berlin")


def test_rows_are_compared_copied_and_pickled():
    row = Row(a=1, b=Row(2, 3))
    assert copy.deepcopy(row) == row == pickle.loads(pickle.dumps(row))
    assert row != Row(1, Row(2, 3))
    assert row.as_dict()["b"] == Row(2, 3)
    assert Row(x=Row(y=1), z=[Row(y=2)]).as_dict(True) == {"x": {"y": 1}, "z": [{"y": 2}]}
    assert hash(Row(1, 2)) == hash(Row(1, 2))


def test_values_or_names():
    with pytest.raises(ValueError, match="not both"):
        Row(1, name="Ann")
    with pytest.raises(TypeError):
        Row(1).as_dict()


def test_types_are_stored_as_python_types():
    row = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.LIST(Types.ROW([Types.STRING()]))])
    assert row.stored == tuple[int | None, list[tuple[str | None]] | None]
    assert row.to_stored is not None
    assert row.from_stored is not None
    stored = row.to_stored(Row(b=[Row("x")], a=None))
    assert stored == (None, [("x",)])
    assert row.from_stored(stored) == Row.of([None, [Row("x")]], ["a", "b"])
    assert Types.TUPLE([Types.INT()]).to_stored is None


def test_no_name_is_both_there_and_not_mapped():
    from tidegate import flink

    assert not set(NOT_MAPPED) & set(flink.__all__)
