"""A few faults of the matrix on a real cluster. All of them: `make nightly PARTS="matrix hashmap savepoints"`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.walks import LIMIT_S, walked

pytestmark = [pytest.mark.timeout(LIMIT_S + 20), pytest.mark.budget(LIMIT_S)]
"""A walk starts a cluster and a job of its own."""


@pytest.mark.feature("H1", "H4", "H5")
@pytest.mark.parametrize(
    ("backend", "unique"), [("rocksdb", False), pytest.param("hashmap", True, marks=pytest.mark.slow)]
)
@pytest.mark.feature("C1", "C3")
def test_no_row_is_lost_or_doubled_whatever_dies(tmp_path: Path, backend: str, unique: bool) -> None:
    more = ["--unique"] if unique else []
    result = walked(tmp_path, "--rounds", "2", "--seed", "8" if unique else "1", "--backend", backend, *more)
    assert result["rounds"] >= 2
    assert result["rows"] > 100


@pytest.mark.feature("I14", "I15", "I18", "I20")
def test_a_driver_dies_at_the_first_checkpoint_after_a_start_from_a_savepoint(tmp_path: Path) -> None:
    """With CLAIM and with NO_CLAIM. All moves and all steps: `python -m chaos run --savepoints --matrix --rounds 0`."""
    some = ("--matrix", "--rounds", "0", "--only", "publish.1-metadata")
    result = walked(tmp_path, "--savepoints", *some, "--seed", "1")
    assert sorted(result["hits"]) == [
        "start from a savepoint, CLAIM / publish.1-metadata / driver",
        "start from a savepoint, NO_CLAIM / publish.1-metadata / driver",
    ]
