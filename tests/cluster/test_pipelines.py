"""Short walks between real servers. The long ones are `python -m chaos run --pipeline NAME --rounds 20`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.walks import LIMIT_S, walked

pytestmark = pytest.mark.timeout(LIMIT_S + 20)
"""A walk has a limit of its own."""

WALKS = [
    # The answer to a Kafka commit is lost; then the driver is killed at some moment.
    ("kafka-kafka", "14"),
    # The driver is killed within the database's transaction; then the database is.
    ("kafka-postgres", "58"),
    # The S3 server is killed while files are made visible; then a Python worker is.
    ("kafka-files-s3", "21"),
    # The wire to the object store is cut while a commit is added to the table; then replies are lost.
    ("kafka-delta", "22"),
]


@pytest.mark.feature("J1", "J28", "N27")
@pytest.mark.parametrize(("pipeline", "seed"), WALKS)
def test_every_row_is_found_once_and_in_order_whatever_dies(tmp_path: Path, pipeline: str, seed: str) -> None:
    result = walked(tmp_path, "--pipeline", pipeline, "--rounds", "2", "--seed", seed)
    assert result["rounds"] == 2
    assert result["rows"] > 50


@pytest.mark.slow
def test_no_older_value_replaces_a_newer_one_after_an_outage_and_a_rescale(tmp_path: Path) -> None:
    """The database is away, and the job restarts with two slots instead of four while its output waits."""
    result = walked(
        tmp_path, "--pipeline", "kafka-postgres", "--upserts", "--rounds", "2", "--outage", "4", "--seed", "4"
    )
    assert result["parallelisms"] == [4, 2]
    assert (result["rounds"], result["overwritten"], result["stalls"]) == (2, 0, 0)
