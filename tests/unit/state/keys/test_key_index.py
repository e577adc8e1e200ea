"""The distinct keys of a batch, against a dict of Python values."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.schema.key_values import normalizer
from tidegate.schema.output_columns import from_python
from tidegate.schema.schema import Schema
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.key_scope import KeyScope

VALUES = {
    "string": st.sampled_from(["", "a", "b", "é"]),
    "bigint": st.integers(-2, 2),
    "double": st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.nan, math.inf]),
    "boolean": st.booleans(),
    "binary": st.sampled_from([b"", b"\0", b"a"]),
}


@st.composite
def key_columns(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    return kinds, draw(st.lists(row, min_size=1, max_size=30))


@settings(max_examples=examples(150), deadline=None)
@given(key_columns())
def test_keys_are_distinct_and_in_the_order_of_their_first_rows(columns):
    kinds, rows = columns
    fields = Schema.parse(", ".join(f"k{n} {kind}" for n, kind in enumerate(kinds))).fields
    arrays = [from_python(values, field.type) for values, field in zip(zip(*rows), fields)]
    normal = [tuple(normalizer(f.type)(v) for f, v in zip(fields, row)) for row in rows]
    wanted = [row if len(fields) > 1 else row[0] for row in normal]
    groups = {key: n for n, key in enumerate(dict.fromkeys(wanted))}
    index = KeyIndex.of_columns(fields, arrays, np.array([groups[key] for key in wanted]), KeyScope())

    assert index.keys == list(groups)
    assert [index.keys[i] for i in index.index] == wanted
    assert index.groups == list(groups.values())
    assert index.counts().tolist() == [wanted.count(key) for key in groups]
    assert len(index.distinct) == len(index) == len(groups)
    of_keys = KeyIndex.of_keys(fields, wanted, [groups[key] for key in wanted], KeyScope())
    assert (of_keys.keys, of_keys.groups) == (index.keys, index.groups)
    assert of_keys.index.tolist() == index.index.tolist()


def made(values: list, scope: KeyScope | None = None) -> KeyIndex:
    fields = Schema.parse("user string").fields
    return KeyIndex.of_columns(fields, [pa.array(values)], np.arange(len(values)), scope or KeyScope())


def test_a_part_of_the_keys_has_their_rows_only():
    some = made(["b", "a", "b", "c", "a"]).take(np.array([True, False, True]))
    assert (some.keys, some.groups, some.index.tolist()) == (["b", "c"], [0, 3], [0, 0, 1])
    assert [(key, rows.tolist()) for key, rows in some.each()] == [("b", [0, 2]), ("c", [3])], "rows of the batch"
    assert some.distinct.to_pylist() == some.column("user").to_pylist() == ["b", "c"]
    assert made(["b", "a"]).take([1]).keys == ["a"]
    assert len(made(["b", "a"]).take([])) == 0
    with pytest.raises(ValueError, match="chosen twice"):
        made(["b", "a"]).take([0, 0])


def test_while_keys_are_gone_through_each_is_the_current_one():
    scope = KeyScope()
    seen = [(key, rows.tolist(), scope.key, scope.key_group) for key, rows in made(["b", "a", "b"], scope).each()]
    assert seen == [("b", [0, 2], "b", 0), ("a", [1], "a", 1)]
    assert scope.key is None
    for key, _ in made(["b", "a"], scope).each():
        assert [inner for inner, _ in made(["c"], scope).each()] == ["c"]
        assert scope.key == key


def test_error_names_the_missing_key_column():
    with pytest.raises(KeyError, match="usr"):
        made(["a"]).column("usr")
