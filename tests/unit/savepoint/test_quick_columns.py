"""The quick way from stored entries to columns gives what the exact way gives, or gives way to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.checkpoint.metadata import OperatorInfo, StateInfo
from tidegate.core.errors import CorruptState, StateError
from tidegate.core.ids import EpochId, KeyGroup, Term, Uid
from tidegate.savepoint.canonical_table import StateTable
from tidegate.savepoint.entries import StateEntry, StateLayout
from tidegate.state.accessors.ttl import Stamp
from tidegate.state.keys.entry_keys import TimeWindow

EPOCH = EpochId(Term(1), 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
LONG = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, Any] = {"str": TEXT, "int": st.integers(-(2**63), 2**64 - 1), "float": st.floats(allow_nan=False)}
KEYS: dict[tuple[str, ...], Any] = {
    ("string",): st.none() | TEXT,
    ("bigint",): st.none() | LONG,
    ("int",): st.integers(-5, 5),
    ("string", "bigint"): st.tuples(TEXT, LONG),
}


def table(key: tuple[str, ...], value: str, map_key: str | None) -> StateTable:
    state = StateInfo(
        name="s",
        id=7,
        kind="value" if map_key is None else "map",
        value={"type": value},
        map_key=map_key and {"type": map_key},
    )
    return StateTable(StateLayout(OperatorInfo(Uid("op"), 1, 1, "rocksdb", {"columns": list(key)}, (state,)), state))


@st.composite
def states(draw: st.DrawFn) -> tuple[StateTable, list[StateEntry]]:
    key, value = draw(st.sampled_from(sorted(KEYS))), draw(st.sampled_from(sorted(VALUES)))
    map_key = draw(st.sampled_from([None, "str", "int"]))
    spaces = st.none() if draw(st.booleans()) else st.none() | st.builds(TimeWindow, LONG, LONG) | TEXT
    stamps = st.none() if draw(st.booleans()) else st.none() | st.builds(Stamp, st.booleans(), st.integers(0, 2**40))
    entry = st.builds(
        StateEntry, st.just(Uid("op")), st.just("s"), st.integers(0, 9).map(KeyGroup), KEYS[key], spaces,
        st.none() if map_key is None else VALUES[map_key], st.none(), VALUES[value], stamps,
    )  # fmt: skip
    return table(key, value, map_key), draw(st.lists(entry, min_size=1, max_size=12))


@given(states())
@settings(max_examples=examples(300), deadline=None)
def test_both_ways_give_the_same(case: tuple[StateTable, list[StateEntry]]) -> None:
    made, entries = case
    stored = list(made.layout.stored(entries, EPOCH))
    batch = made.batch_of_bytes(stored)
    assert batch.equals(made.batch(list(made.layout.typed(stored))))
    assert list(made.bytes_of(batch, EPOCH)) == stored


@pytest.mark.parametrize("key", [("string",), ("bigint",), ("string", "bigint")])
def test_damage_is_reported_as_by_the_exact_check(key: tuple[str, ...]) -> None:
    made = table(key, "str", None)
    one = {("string",): "k", ("bigint",): 5}.get(key, ("k", 5))
    entry = StateEntry(Uid("op"), "s", KeyGroup(1), one, None, None, None, "v")
    ((good, raw),) = made.layout.stored([entry], EPOCH)
    with pytest.raises(CorruptState):
        made.batch_of_bytes([(good, raw), (good[:4] + b"\x09" + good[5:], raw)])
    with pytest.raises(StateError):
        made.batch_of_bytes([(good, raw), (good, b"\x01")])
