"""Flink's default for max parallelism, and the limits."""

from __future__ import annotations

import pytest

from tidegate.core.errors import GraphError
from tidegate.graph.parallelism import check_parallelism, default_max_parallelism


@pytest.mark.feature("A13")
@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (128, 256), (170, 256), (171, 256), (172, 512), (1000, 2048), (30_000, 32_768)],
)
def test_default(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize(("parallelism", "limit"), [(0, None), (5, 4), (32_769, None), (None, 0), (None, 32_769)])
def test_limits(parallelism: int | None, limit: int | None) -> None:
    with pytest.raises(GraphError, match="between 1 and"):
        check_parallelism(parallelism, limit)
    check_parallelism(4, 4)
    check_parallelism(None, None)
