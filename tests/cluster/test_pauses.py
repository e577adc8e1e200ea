"""Processes that neither work nor die: only the watch over the progress of the epoch notices."""

from __future__ import annotations

import time

import pytest

from tests.cluster.standalone import host_of


@pytest.mark.parametrize("level", [1, 2])
def test_a_paused_python_worker_is_left_behind_at_the_deadline(trial, orders, caplog, level):
    """It would hold its task for ever: neither Spark nor the worker's own executor sees anything wrong."""
    job = trial().feed(epochs=2).settle().hurry(epoch_timeout_ms=10_000)
    order = orders.give("task.3-verified", "stop", level=level)
    job.feed().settle()
    job.verify()
    assert len(orders.obeyed(order)) == 1
    assert job.run.counters.repeats >= 1
    assert job.run.counters.rewinds == 0
    assert "made no progress for" in caplog.text
    assert "execution.epoch.progress-timeout is 10 s" in caplog.text


def test_a_paused_executor_is_waited_for_and_comes_back(trial, cluster, orders):
    """Its host is silent for 15 s: longer than the deadline, and longer than Spark believes that it lives."""
    job = trial().feed(epochs=2).settle().hurry(epoch_timeout_ms=10_000)
    sleeping = orders.give("task.2-first-row", "sleep", seconds=2, level=1)
    job.feed()
    worker = host_of(cluster, orders.wait(sleeping))
    with cluster.paused(cluster.executors(worker)):
        time.sleep(15)
    job.settle()
    job.verify()
    assert job.discarded >= 1
    assert job.run.counters.rewinds == 0
