"""A job that nobody disturbs: state stays where it is, and idle epochs leave it alone."""

from __future__ import annotations

import pytest


@pytest.mark.feature("A12")
def test_over_thirty_epochs_every_slot_stays_with_its_state(trial):
    """The anchor keeps tasks at home: one host for each (level, slot), nothing repeated, both hosts at work."""
    job = trial().feed(epochs=30).settle(120)
    hosts = [report.hosts for report in job.epochs]
    job.verify()
    assert all(found == hosts[0] for found in hosts)
    assert len(hosts[0]) == 8
    assert len(set(hosts[0].values())) == 2
    assert job.discarded == 0
    assert [report.tries for report in job.epochs] == [1] * 31


@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("hashmap", marks=pytest.mark.slow)])
def test_empty_epochs_acknowledge_the_same_versions_again(trial, cluster, backend):
    """Between two batches, and as often as one likes: no version changes, and no directory is made."""
    job = trial(backend=backend).feed(epochs=2).settle()
    versions, found = dict(job.run._job.runner.versions), directories(cluster)
    for _ in range(2):
        assert job.run.run_empty_epoch().rows_in == 0
    assert job.run._job.runner.versions == versions
    assert directories(cluster) <= found
    job.feed().settle()
    job.verify()
    assert len(versions) == 8
    assert job.discarded == 0


def directories(cluster):
    """Directories of state versions on all hosts."""
    return {path for worker in cluster.workers for path in worker.local_root.glob("trial/*/*/**") if path.is_dir()}
