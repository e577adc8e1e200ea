"""State that is gone: without checkpoints only a clear end is left, soon, and with what to do."""

from __future__ import annotations

import time

from tests.waiting import remove
from tidegate.runtime.epochs.runner import StateLost


def test_a_lost_host_ends_the_job_within_its_timeout(trial, cluster):
    """The host is waited for, since it may only be restarting; then the error says what would have helped."""
    job = trial().feed(epochs=2).settle().hurry(host_timeout_ms=6_000)
    cluster.kill_worker(1)
    job.feed()
    began = time.monotonic()
    error = job.failure()
    assert isinstance(error, StateLost)
    assert "were unavailable" in str(error)
    assert "checkpoint=" in str(error)
    assert time.monotonic() - began < 30
    assert job.run.counters.rewinds == 1


def test_a_version_that_is_gone_from_its_home_ends_the_job_at_once(trial, cluster):
    """A task that runs at home and finds nothing need not be tried again."""
    job = trial().feed(epochs=2).settle()
    for run in cluster.workers[0].local_root.glob("trial/*"):
        for operator in (entry for entry in run.iterdir() if entry.is_dir()):
            remove(operator)
    job.feed()
    error = job.failure()
    assert isinstance(error, StateLost)
    assert "missing from its host" in str(error)
    assert job.run.counters.rewinds == 1
