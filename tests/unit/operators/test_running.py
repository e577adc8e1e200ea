"""Aggregates that run on, and functions that are handed their state. In the harness."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.unit.operators import combining
from tidegate.core.errors import GraphError, UnsupportedType

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])


def words():
    return tg.Job("running").source("words", tg.testing.frame("word string, n int")).key_by("word")


@BACKENDS
def test_running_aggregates_give_one_row_for_each_key_of_an_epoch(backend):
    stream = words().aggregate("count", n=tg.count(), most=tg.max("n"))
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(("a", 1), ("b", 5), ("a", 3))
        assert h.output() == []
        h.set_processing_time(1)
        assert sorted(h.output()) == [("a", 2, 3), ("b", 1, 5)]
        snapshot = h.snapshot()
    with tg.testing.harness(stream, state_backend=backend, parallelism=3, restore=snapshot) as h:
        combining.feed(h, [("a", 9), ("c", 1), ("a", 2)], 0)
        assert sorted(h.output()) == [("a", 4, 9), ("c", 1, 1)]
        h.set_processing_time(2)
        assert h.output() == []


@BACKENDS
def test_a_function_is_handed_what_it_left(backend):
    stream = words().map_with_state(
        "delta", lambda row, last: ((row.word, row.n - (last or 0)), row.n), state=int, schema="word string, d int"
    )
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(("a", 3), ("b", 1), ("a", 10))
        assert h.output() == [("a", 3), ("b", 1), ("a", 7)]
        assert h.state("state", "a") == 10


def test_mistakes_are_reported_where_they_are_made():
    with pytest.raises(GraphError, match="built-in aggregates"):
        words().aggregate("count")
    with pytest.raises(UnsupportedType, match="cannot be stored"):
        words().map_with_state("s", lambda row, last: (1, 1), state=object, schema="d int")
    with pytest.raises(GraphError, match="takes a function"):
        words().map_with_state("s", 3, state=int, schema="d int")
