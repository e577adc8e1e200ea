"""A few faults of the matrix on a real cluster; a few more between real servers are in `test_pipelines`.

All of them: `make nightly PARTS="matrix hashmap savepoints histories rescales"`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.walks import LIMIT_S, walked

pytestmark = [pytest.mark.timeout(LIMIT_S + 20), pytest.mark.budget(LIMIT_S)]
"""A walk starts a cluster and a job of its own."""


@pytest.mark.feature("H1", "H4", "H5")
@pytest.mark.parametrize(("backend", "unique"), [("rocksdb", False), ("hashmap", True)])
@pytest.mark.feature("C1", "C3")
@pytest.mark.slow
def test_no_row_is_lost_or_doubled_whatever_dies(tmp_path: Path, backend: str, unique: bool) -> None:
    more = ["--unique"] if unique else []
    result = walked(tmp_path, "--rounds", "2", "--seed", "8" if unique else "1", "--backend", backend, *more)
    assert result["rounds"] >= 2
    assert result["rows"] > 100


@pytest.mark.feature("H1", "H4", "H5")
@pytest.mark.slow
def test_calls_in_progress_when_something_dies_lose_and_double_no_row(tmp_path: Path) -> None:
    result = walked(tmp_path, "--rounds", "3", "--seed", "5", "--calls")
    assert result["rounds"] >= 3
    assert result["rows"] > 100


@pytest.mark.parametrize(
    ("function", "backend"),
    [("stateful-processor", "rocksdb"), pytest.param("group-state", "hashmap", marks=pytest.mark.slow)],
)
def test_rows_in_the_state_of_a_spark_function_and_its_timers_survive_kills(
    tmp_path: Path, function: str, backend: str
) -> None:
    """Each row waits in state for a timer, which emits it."""
    result = walked(tmp_path, "--rounds", "2", "--seed", "3", "--function", function, "--backend", backend)
    assert result["rounds"] >= 2
    assert result["rows"] > 100


@pytest.mark.feature("I14", "I15", "I20")
@pytest.mark.parametrize("mode", ["CLAIM", pytest.param("NO_CLAIM", marks=pytest.mark.slow)])
def test_a_driver_dies_at_the_first_checkpoint_after_a_start_from_a_savepoint(tmp_path: Path, mode: str) -> None:
    """All moves and all steps: `python -m chaos run --savepoints --matrix --rounds 0`."""
    cell = f"start from a savepoint, {mode} / publish.1-metadata / driver"
    result = walked(tmp_path, "--savepoints", "--matrix", "--rounds", "0", "--only", cell, "--seed", "1")
    assert list(result["hits"]) == [cell]


@pytest.mark.parametrize(
    ("cell", "refused"),
    [
        pytest.param("storage rolled back, output accepted / claim.3-won / driver", "FOREIGN_OUTPUT", id="restored"),
        pytest.param(
            "storage copied, new line of history / claim.2-decided / driver", "DIRECTORY_MOVED", id="copied",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_a_history_that_comes_back_is_refused_until_the_user_decides(tmp_path: Path, cell: str, refused: str) -> None:
    """All moves and all steps: `python -m chaos run --histories --matrix --rounds 0`."""
    result = walked(tmp_path, "--histories", "--matrix", "--rounds", "0", "--only", cell, "--seed", "1")
    assert list(result["hits"]) == [cell]
    assert list(result["refused"]) == [refused]


@pytest.mark.feature("H1", "H13", "I36")
def test_a_host_dies_while_a_running_job_is_rescaled(tmp_path: Path) -> None:
    """All steps, and all that can die there: `python -m chaos run --in-place --matrix --rounds 0`."""
    cell = "rescale / rescale.4-claimed / host / SIGKILL"
    result = walked(tmp_path, "--in-place", "--matrix", "--rounds", "0", "--only", cell, "--seed", "1")
    assert list(result["hits"]) == [cell]
    assert sum(result["outcomes"].values()) == 1
