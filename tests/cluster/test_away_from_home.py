"""Affinity is a preference of Spark's: a task whose home is busy runs elsewhere, finds no state there, and says so."""

from __future__ import annotations

import pytest

from tests.cluster.standalone import busy


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wait", ["0s", "2s"])
def test_a_home_that_is_busy_for_longer_than_spark_waits(trial, cluster, cluster_session, wait):
    """Tasks go elsewhere and miss their state; the epoch is repeated until they come home, with nothing lost."""
    spark = cluster_session(**{"spark.locality.wait": wait})
    job = trial(spark, host_timeout_ms=60_000).feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    with busy(spark, cluster, worker=0, seconds=12):
        job.feed().settle()
    job.verify()
    assert job.epochs[-1].hosts == homes
    assert job.run.counters.replacements >= 1
    assert job.run.counters.rewinds == 0
