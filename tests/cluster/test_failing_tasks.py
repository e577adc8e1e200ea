"""Tasks that fail once: Spark retries them from the same immutable version, and the epoch does not notice."""

from __future__ import annotations

import pytest

POINTS = ["task.1-located", "task.2-first-row", "task.3-verified", "task.4-sealed", "task.5-prepared", "task.6-sent"]


@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("hashmap", marks=pytest.mark.slow)])
@pytest.mark.parametrize("action", ["raise", "kill"])
def test_a_task_that_fails_at_any_step_is_retried_from_the_same_version(
    trial, cluster_session, orders, action, backend
):
    """At each step of a task, at both levels, once: results are exact, and no epoch is thrown away because of the failure.

    Spark may send the second attempt to another host, whatever `spark.locality.wait` says: a stage that has had no task left
    to launch when cores were offered takes any core from then on. Such an epoch is repeated with its tasks placed anew, once.
    """
    job = trial(cluster_session(spark_locality_wait="60s"), backend=backend).feed().settle()
    for slot, point in enumerate(POINTS):
        given = [orders.give(point, action, level=level, slot=(slot + level) % 4) for level in (1, 2)]
        job.feed().settle()
        assert [len(orders.obeyed(order)) for order in given] == [1, 1]
    job.verify()
    counters = job.run.counters
    assert (counters.repeats, counters.rewinds) == (0, 0)
    assert counters.replacements <= len(POINTS)


def test_a_task_that_fails_every_time_ends_the_job_and_says_so(trial, orders):
    """Spark gives up after four attempts; code of ours that raises by itself would raise for ever."""
    job = trial().feed().settle()
    orders.give("task.3-verified", "raise", level=2, slot=0, times=100)
    job.feed()
    error = job.failure()
    assert error.code == "EPOCH_FAILED"
    assert "ordered at task.3-verified" in str(error)
