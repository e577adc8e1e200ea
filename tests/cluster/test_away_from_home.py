"""Affinity is a preference of Spark's: a task whose home is busy runs elsewhere, finds no state there, and says so."""

from __future__ import annotations

import pytest

from tests.cluster.standalone import busy, places
from tests.waiting import eventually


@pytest.mark.feature("A12")
def test_state_that_lies_unevenly_finds_its_way_home(trial, cluster, cluster_session):
    """The job began when only one host was there, which has all the state. Spark would spread the tasks over both."""
    spark = cluster_session()
    cluster.kill_worker(1)
    job = trial(spark).feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    cluster.restart_worker(1)
    eventually(lambda: len({root for root, _ in places(spark)}) == 2, "an executor on the new host")
    cluster.kill_executor(0)
    job.feed(epochs=2).settle()
    job.verify()
    assert len(set(homes.values())) == 1
    assert job.epochs[-1].hosts == homes
    assert job.run.counters.rewinds == 0


def test_a_first_version_is_made_where_the_anchor_lies(trial, cluster, cluster_session):
    """A task without state misses none, wherever it runs. Its first version must lie at home all the same, or the levels
    would lie on hosts in different numbers, and no anchor could ever bring all of them home."""
    spark = cluster_session(**{"spark.locality.wait": "2s"})
    job = trial(spark)
    job.run.run_empty_epoch()
    with busy(spark, cluster, worker=0, seconds=10):
        job.feed().settle()
    job.verify()
    assert job.epochs[0].tries >= 2
    assert job.run.counters.rewinds == 0


@pytest.mark.parametrize("wait", ["2s", "0s"])
def test_a_home_that_is_busy_for_longer_than_spark_waits(trial, cluster, cluster_session, wait):
    """Tasks go elsewhere and miss their state; the epoch is repeated until they come home, with nothing lost."""
    spark = cluster_session(**{"spark.locality.wait": wait})
    job = trial(spark).feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    with busy(spark, cluster, worker=0, seconds=12):
        job.feed().settle()
    attempts = versions(cluster, job, level=2)
    job.verify()
    assert job.epochs[-1].hosts == homes
    assert len(attempts) == 4, "tasks below a miss did their work all the same"
    assert job.run.counters.replacements >= 1
    assert job.run.counters.rewinds == 0


def test_a_home_that_is_never_free_ends_the_job_with_what_to_do(trial, cluster, cluster_session):
    """Four slots on a host of two cores, and Spark does not wait: two tasks always go elsewhere."""
    spark = cluster_session(**{"spark.locality.wait": "0s"})
    cluster.kill_worker(1)
    job = trial(spark, max_tries=3).feed().settle()
    cluster.restart_worker(1)
    eventually(lambda: len({root for root, _ in places(spark)}) == 2, "an executor on the new host")
    job.feed()
    error = job.failure()
    assert error.code == "EPOCH_FAILED"
    assert "spark.locality.wait" in str(error)


def versions(cluster, job, level):
    """Directories of the state versions that attempts of one level made in the last epoch."""
    pattern = f"trial/{job.run._job.runner.lineage}/L{level}-S*/*/v{job.epochs[-1].epoch.number}-*"
    return [path for worker in cluster.workers for path in worker.local_root.glob(pattern)]
