"""One fault between real servers of each kind. Twenty of them: `make nightly PARTS=pipeline-NAME`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.walks import LIMIT_S, walked

pytestmark = [pytest.mark.timeout(LIMIT_S + 20), pytest.mark.budget(LIMIT_S)]
"""A walk starts servers, a cluster and a job of its own."""

WALKS = [
    # The answer to a Kafka commit is lost.
    ("kafka-kafka", "14"),
    # The driver is killed within the database's transaction.
    ("kafka-postgres", "58"),
    # The S3 server is killed while files are made visible.
    pytest.param("kafka-files-s3", "21", marks=pytest.mark.slow),
    # The wire to the object store is cut while a commit is added to the table.
    pytest.param("kafka-delta", "22", marks=pytest.mark.slow),
]


@pytest.mark.feature("J1", "J28")
@pytest.mark.parametrize(("pipeline", "seed"), WALKS)
def test_every_row_is_found_once_and_in_order_whatever_dies(tmp_path: Path, pipeline: str, seed: str) -> None:
    result = walked(tmp_path, "--pipeline", pipeline, "--rounds", "1", "--seed", seed)
    assert result["rounds"] == 1
    assert result["rows"] > 50


@pytest.mark.slow
def test_no_older_value_replaces_a_newer_one_after_an_outage_and_a_rescale(tmp_path: Path) -> None:
    """The database is away, and the job restarts with two slots instead of four while its output waits."""
    result = walked(
        tmp_path, "--pipeline", "kafka-postgres", "--upserts", "--rounds", "2", "--outage", "4", "--seed", "4"
    )
    assert result["parallelisms"] == [4, 2]
    assert (result["rounds"], result["overwritten"], result["stalls"]) == (2, 0, 0)
