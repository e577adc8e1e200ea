"""Affinity is a preference of Spark's: a task whose home is busy runs elsewhere, finds no state there, and says so."""

from __future__ import annotations

import pytest

from tests.cluster.standalone import busy, eventually, places


@pytest.mark.timeout(240)
@pytest.mark.parametrize("wait", ["0s", "2s"])
def test_a_home_that_is_busy_for_longer_than_spark_waits(trial, cluster, cluster_session, wait):
    """Tasks go elsewhere and miss their state; the epoch is repeated until they come home, with nothing lost."""
    spark = cluster_session(**{"spark.locality.wait": wait})
    job = trial(spark, host_timeout_ms=60_000).feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    with busy(spark, cluster, worker=0, seconds=12):
        job.feed().settle()
    attempts = versions(cluster, level=2, epoch=job.epochs[-1].epoch.number)
    job.verify()
    assert job.epochs[-1].hosts == homes
    assert len(attempts) == 4, "tasks below a miss did their work all the same"
    assert job.run.counters.replacements >= 1
    assert job.run.counters.rewinds == 0


@pytest.mark.timeout(240)
def test_state_that_lies_unevenly_finds_its_way_home(trial, cluster, cluster_session):
    """The job began when only one host was there, which has all the state. Spark would spread the tasks over both."""
    spark = cluster_session()
    cluster.kill_worker(1)
    job = trial(spark).feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    cluster.restart_worker(1)
    eventually("an executor on the new host", lambda: len({root for root, _ in places(spark)}) == 2)
    cluster.kill_executor(0)
    job.feed(epochs=2).settle()
    job.verify()
    assert len(set(homes.values())) == 1
    assert job.epochs[-1].hosts == homes
    assert job.run.counters.rewinds == 0


@pytest.mark.timeout(240)
def test_a_first_version_is_made_where_the_anchor_lies(trial, cluster, cluster_session):
    """A task without state misses none, wherever it runs. Its first version must lie at home all the same, or the levels
    would lie on hosts in different numbers, and no anchor could ever bring all of them home."""
    spark = cluster_session(**{"spark.locality.wait": "0s"})
    job = trial(spark, host_timeout_ms=60_000)
    homes = job.run.run_empty_epoch().hosts
    with busy(spark, cluster, worker=0, seconds=8):
        job.feed().settle()
    job.verify()
    assert sorted(job.epochs[-1].hosts.values()) == sorted(homes.values())
    assert job.run.counters.replacements >= 1


def versions(cluster, level, epoch):
    """Directories of the state versions that attempts of one level made in one epoch."""
    return [path for w in cluster.workers for path in w.local_root.glob(f"trial/*/L{level}-S*/*/v{epoch}-*")]
