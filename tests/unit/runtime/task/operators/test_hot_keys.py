"""Which keys have the most rows."""

from __future__ import annotations

import random

import pytest

from tidegate.runtime.task.operators.hot_keys import KeySketch


def shares(sketch: KeySketch) -> dict[str, float]:
    return {key: rows / sketch.seen for key, rows in sketch.top(5)}


def test_small_batches_are_counted_exactly() -> None:
    sketch = KeySketch()
    sketch.add(["a", "b", "a"])
    sketch.add(["a"])
    assert sketch.top(5) == [("a", 3), ("b", 1)]


def test_a_sample_of_large_batches_finds_the_hot_key() -> None:
    sketch = KeySketch()
    for first in range(0, 200_000, 10_000):
        sketch.add(["hot" if n % 10 < 3 else f"key-{n}" for n in range(first, first + 10_000)])
    assert sketch.seen == 200_000
    assert shares(sketch)["hot"] == pytest.approx(0.3, abs=0.06)


def test_keys_in_rotation_are_not_hot() -> None:
    sketch = KeySketch()
    for _ in range(20):
        sketch.add([n % 1_000 for n in range(10_000)])
    assert max(shares(sketch).values(), default=0.0) < 0.05


def test_a_sketch_forgets_rare_keys_and_keeps_the_frequent_one() -> None:
    sketch, order = KeySketch(), random.Random(7)
    for _ in range(300):
        sketch.add(["hot"] * 20 + [order.randrange(10**9) for _ in range(80)])
    assert len(sketch._rows) <= 256 + 100
    key, rows = sketch.top(1)[0]
    assert key == "hot"
    assert 3_000 < rows <= 6_000


def test_rows_that_were_combined_count_as_many() -> None:
    sketch = KeySketch()
    sketch.add(["a", "b"], [97, 3])
    assert shares(sketch) == {"a": 0.97, "b": 0.03}


def test_a_hot_key_is_reported_as_a_short_text() -> None:
    sketch = KeySketch()
    sketch.add([("eu", 7), ("x" * 200, 1)])
    assert [key for key, _ in sketch.top(2)] == ["eu, 7", "x" * 79 + "…"]


def test_uniform_keys_are_not_reported() -> None:
    sketch = KeySketch()
    sketch.add([f"key-{n}" for n in range(200)])
    assert sketch.top(5) == []
